//! Opening a store and running workflows on it, in this process.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use milepost_core::id::TaskId;
use milepost_engine::owner::Listener;
use milepost_engine::workflow::{History, TypedWorkflow};
use milepost_engine::{Options, Registry};
use milepost_store::Store;
use milepost_store::memory::MemoryStore;
use milepost_store::sqlite::SqliteStore;

use crate::error::Error;
use crate::handle::Handle;
use crate::run::Run;

/// A store, and the workflows that are to be run on it.
#[derive(Debug)]
pub struct Milepost {
    store: Arc<dyn Store>,
    registry: Registry,
    options: Options,
    /// The file, when it is this process's own: others reach it by a socket beside it.
    file: Option<PathBuf>,
}

impl Milepost {
    /// Opens `sqlite:PATH`, which is created if need be and is this process's alone, or `memory:`, which forgets.
    pub async fn open(url: &str) -> Result<Self, Error> {
        match url.split_once(':') {
            Some(("memory", _)) => Ok(Self::on(Arc::new(MemoryStore::new()))),
            Some(("sqlite", path)) if !path.is_empty() => {
                let path = Path::new(path.strip_prefix("//").unwrap_or(path));
                let store = SqliteStore::open(path)?;
                // One file has one name, so that its socket is found by whatever way leads to it.
                let file = path.canonicalize().unwrap_or_else(|_| path.to_owned());
                Ok(Self { file: Some(file), ..Self::on(Arc::new(store)) })
            }
            Some(_) | None => Err(Error::Url { url: url.to_owned() }),
        }
    }

    /// On a store that was opened elsewhere.
    pub fn on(store: Arc<dyn Store>) -> Self {
        let node = format!("{}-{}", env!("CARGO_PKG_NAME"), std::process::id());
        Self { store, registry: Registry::new(), options: Options::new(node), file: None }
    }

    /// Runs of this workflow, in this version, are for this node.
    #[must_use]
    pub fn workflow<W: TypedWorkflow + 'static>(mut self, workflow: impl FnOnce() -> W) -> Self {
        self.registry = self.registry.with_workflow(Arc::new(workflow()));
        self
    }

    /// What the log calls this node.
    #[must_use]
    pub fn node(mut self, name: impl Into<Arc<str>>) -> Self {
        self.options.node = name.into();
        self
    }

    /// How many workflows are worked on at once; those that only wait do not count. Left out: 1024.
    #[must_use]
    pub fn capacity(mut self, capacity: usize) -> Self {
        self.options.capacity = capacity.max(1);
        self
    }

    /// Begins to work, also on what an earlier process left behind. Beside a SQLite file it listens for the command
    /// line: `milepost signal`, `pause`, `cancel` and the other verbs reach it from another terminal.
    pub async fn start(self) -> Result<Engine, Error> {
        let engine = milepost_engine::Engine::new(self.store, self.registry, self.options);
        let listener = self.file.as_deref().and_then(|file| listen(file, &engine));
        engine.start();
        Ok(Engine { engine, listener: Arc::new(Mutex::new(listener)) })
    }
}

/// A node at work. Clones are handles to the same node.
#[derive(Debug, Clone)]
pub struct Engine {
    engine: milepost_engine::Engine,
    listener: Arc<Mutex<Option<Listener>>>,
}

impl Engine {
    /// A run of a workflow: awaited, it is submitted and gives the function's result.
    pub fn run<W: TypedWorkflow>(&self, workflow: impl FnOnce() -> W, input: W::Input) -> Run<W> {
        Run::new(self.engine.clone(), workflow(), input)
    }

    /// A run that was begun before, by its id.
    pub fn handle<W: TypedWorkflow>(
        &self,
        _workflow: impl FnOnce() -> W,
        id: &str,
    ) -> Result<Handle<W::Output>, Error> {
        Ok(Handle::new(self.engine.clone(), TaskId::parse(id)?))
    }

    /// What is recorded of a run, for `milepost::replay`.
    pub async fn history(&self, id: &str) -> Result<History, Error> {
        let history = History::read(&**self.engine.store(), &TaskId::parse(id)?).await?;
        history.ok_or_else(|| Error::NotFound { id: id.to_owned() })
    }

    /// Lets running stages finish and starts nothing new; what is not done is taken up by the next start.
    pub async fn stop(self) {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(listener) = listener {
            listener.close().await;
        }
        self.engine.stop().await;
    }

    /// The engine below, for what has no word of its own here.
    pub fn inner(&self) -> &milepost_engine::Engine {
        &self.engine
    }
}

/// Without a socket workflows run all the same; only other processes cannot tell them anything.
fn listen(file: &Path, engine: &milepost_engine::Engine) -> Option<Listener> {
    match Listener::bind(file, engine) {
        Ok(listener) => Some(listener),
        Err(error) => {
            tracing::warn!(%error, "no socket beside the store: other processes can look, but not signal or pause");
            None
        }
    }
}
