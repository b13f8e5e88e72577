//! The file of a task: brought here when one of its stages first asks for it, kept while the task is here, and then gone.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use milepost_core::failure::{ErrorType, Failure};
use milepost_core::id::TaskId;
use milepost_core::plan::FileRef;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// Brings files to this node.
#[async_trait]
pub trait Files: std::fmt::Debug + Send + Sync {
    /// Fetches a file whole or not at all, to a place of its own: what is brought is never shared between two tasks, nor
    /// between two runs of one. Dropped before its end, it leaves nothing behind that could be taken for the file.
    async fn bring(&self, task: &TaskId, file: &FileRef) -> Result<Brought, Failure>;
}

/// A file that was fetched. It is there as long as this is.
pub struct Brought {
    path: Arc<Path>,
    _keeper: Box<dyn Any + Send + Sync>,
}

impl Brought {
    /// `keeper` removes the file when it is dropped.
    pub fn new(path: impl Into<Arc<Path>>, keeper: impl Any + Send + Sync) -> Self {
        Self { path: path.into(), _keeper: Box::new(keeper) }
    }
}

impl std::fmt::Debug for Brought {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Brought").field(&self.path).finish()
    }
}

/// The file that a task's stages work on. Clones are the same file; it is fetched once for all of them.
#[derive(Debug, Clone)]
pub struct TaskFile {
    shared: Arc<Shared>,
    /// Ends the fetching that is done for this attempt.
    cancel: CancellationToken,
}

#[derive(Debug)]
struct Shared {
    task: TaskId,
    reference: FileRef,
    files: Option<Arc<dyn Files>>,
    brought: OnceCell<Brought>,
}

impl TaskFile {
    /// `files` is none on a node that cannot fetch any.
    pub fn new(task: TaskId, reference: FileRef, files: Option<Arc<dyn Files>>) -> Self {
        let shared = Shared { task, reference, files, brought: OnceCell::new() };
        Self { shared: Arc::new(shared), cancel: CancellationToken::new() }
    }

    pub(crate) fn until(&self, cancel: CancellationToken) -> Self {
        Self { shared: self.shared.clone(), cancel }
    }

    /// What the plan says about it.
    pub fn reference(&self) -> &FileRef {
        &self.shared.reference
    }

    /// Where it is on this machine, if it has been fetched.
    pub fn here(&self) -> Option<Arc<Path>> {
        self.shared.brought.get().map(|brought| brought.path.clone())
    }

    /// Where it is on this machine; the first to ask waits until it has been fetched. A failure is one of the attempt
    /// that asks, and the next one tries again.
    pub async fn path(&self) -> Result<Arc<Path>, Failure> {
        let Shared { task, reference, files, brought } = &*self.shared;
        let fetched = brought.get_or_try_init(|| async {
            match files {
                Some(files) => files.bring(task, reference).await,
                None => Err(Failure::fatal(ErrorType::Validation, "this node cannot fetch files")),
            }
        });
        tokio::select! {
            biased;
            fetched = fetched => Ok(fetched?.path.clone()),
            () = self.cancel.cancelled() => Err(Failure::retryable(ErrorType::Timeout, "cancelled")),
        }
    }

    /// Removing a large file takes its time, and is waited for: a node that stops leaves none behind.
    pub(crate) async fn leave(self) {
        if self.here().is_some()
            && let Err(error) = tokio::task::spawn_blocking(move || drop(self)).await
        {
            tracing::warn!(%error, "the file of a task could not be removed");
        }
    }
}
