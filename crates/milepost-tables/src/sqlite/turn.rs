//! Who writes to a file now: within one process its writers queue up, in the order in which they came.
//!
//! SQLite itself lets writers poll for a lock, and the unlucky ones of ten starve until they give up.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex as Lock, PoisonError, Weak};

use tokio::sync::{Mutex, OwnedMutexGuard};

type Queue = Mutex<()>;

static QUEUES: LazyLock<Lock<HashMap<PathBuf, Weak<Queue>>>> = LazyLock::new(Lock::default);

/// The file may be written to until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _guard: OwnedMutexGuard<()>,
}

impl Turn {
    pub(super) async fn wait(path: &Path) -> Self {
        let queue = queue(canonical(path));
        Self { _guard: queue.lock_owned().await }
    }
}

fn queue(path: PathBuf) -> Arc<Queue> {
    let mut queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(queue) = queues.get(&path).and_then(Weak::upgrade) {
        return queue;
    }
    queues.retain(|_, queue| queue.strong_count() > 0);
    let queue = Arc::new(Queue::default());
    queues.insert(path, Arc::downgrade(&queue));
    queue
}

/// One name for one file, also for one that is still to be made.
fn canonical(path: &Path) -> PathBuf {
    if let Ok(path) = path.canonicalize() {
        return path;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (folder.canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}
