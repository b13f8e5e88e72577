//! Opening a store and running workflows on it, in this process.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use milepost_core::id::TaskId;
use milepost_engine::owner::Listener;
use milepost_engine::workflow::{History, TypedWorkflow};
use milepost_engine::{Options, Registry};
use milepost_store::memory::MemoryStore;
use milepost_store::{Membership, Store, StoreUrl};

use crate::error::Error;
use crate::handle::Handle;
use crate::run::Run;

/// A store, and the workflows that are to be run on it.
#[derive(Debug)]
pub struct Milepost {
    store: Place,
    registry: Registry,
    options: Options,
    /// The file, when it is this process's own: others reach it by a socket beside it.
    file: Option<PathBuf>,
}

#[derive(Debug)]
enum Place {
    Opened(Arc<dyn Store>),
    /// A server's, which is joined under the node's name; that may still be given.
    Server(StoreUrl),
}

impl Milepost {
    /// `sqlite:PATH`, which is created if need be and is this process's alone; `postgres://…`, `mysql://…` or
    /// `redis://…`, which it shares with other nodes and joins when it is started; or `memory:`, which forgets.
    pub async fn open(url: &str) -> Result<Self, Error> {
        if url.starts_with("memory:") {
            return Ok(Self::on(Arc::new(MemoryStore::new())));
        }
        let url = StoreUrl::parse(url)?;
        let Some(file) = url.file().map(Path::to_owned) else { return Ok(Self::at(Place::Server(url))) };
        let store = url.open(Membership::node("milepost", "")).await?;
        // One file has one name, so that its socket is found by whatever way leads to it.
        let file = file.canonicalize().unwrap_or(file);
        Ok(Self { file: Some(file), ..Self::on(store) })
    }

    /// On a store that was opened elsewhere.
    pub fn on(store: Arc<dyn Store>) -> Self {
        Self::at(Place::Opened(store))
    }

    fn at(store: Place) -> Self {
        let mut options = Options::new("");
        // A process's number is one in every container; a node whose name is taken loses its place.
        options.node = match &store {
            Place::Opened(_) => format!("{}-{}", env!("CARGO_PKG_NAME"), std::process::id()).into(),
            Place::Server(_) => format!("{}-{}", env!("CARGO_PKG_NAME"), options.boot_id).into(),
        };
        Self { store, registry: Registry::new(), options, file: None }
    }

    /// Runs of this workflow, in this version, are for this node.
    #[must_use]
    pub fn workflow<W: TypedWorkflow + 'static>(mut self, workflow: impl FnOnce() -> W) -> Self {
        self.registry = self.registry.with_workflow(Arc::new(workflow()));
        self
    }

    /// What the log calls this node. On a store that nodes share each has a name of its own: one that comes back under its
    /// name takes its tasks up at once, and without a name they wait until its lease has run out.
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
    /// line: `milepost signal`, `pause`, `cancel` and the other verbs reach it from another terminal; those of a store that
    /// nodes share go through the store.
    pub async fn start(self) -> Result<Engine, Error> {
        let store = match self.store {
            Place::Opened(store) => store,
            Place::Server(url) => {
                url.open(Membership::node(self.options.node.clone(), self.options.boot_id.clone())).await?
            }
        };
        let engine = milepost_engine::Engine::new(store, self.registry, self.options);
        let listener = self.file.as_deref().and_then(|file| listen(file, &engine));
        engine.start();
        let doors = Doors {
            listener,
            #[cfg(feature = "server")]
            servers: Vec::new(),
        };
        Ok(Engine { engine, doors: Arc::new(Mutex::new(doors)) })
    }
}

/// A node at work. Clones are handles to the same node.
#[derive(Debug, Clone)]
pub struct Engine {
    engine: milepost_engine::Engine,
    doors: Arc<Mutex<Doors>>,
}

/// The ways in for other processes.
#[derive(Debug, Default)]
struct Doors {
    listener: Option<Listener>,
    #[cfg(feature = "server")]
    servers: Vec<milepost_server::Server>,
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
        let doors = std::mem::take(&mut *self.doors.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(listener) = doors.listener {
            listener.close().await;
        }
        self.engine.stop().await;
        // Last: who watches over HTTP sees how it ends.
        #[cfg(feature = "server")]
        for server in doors.servers {
            crate::serve::close(server).await;
        }
    }

    /// Closes it when the engine stops.
    #[cfg(feature = "server")]
    pub(crate) fn keep(&self, server: milepost_server::Server) {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner).servers.push(server);
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
