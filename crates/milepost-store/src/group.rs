//! Group commit for stores that are a round trip away: whatever waits to be written goes in one.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc};

/// A queue of operations, and the tasks that write what is in it.
#[derive(Debug)]
pub(crate) struct Group<T> {
    queue: mpsc::UnboundedSender<T>,
}

impl<T: Send + 'static> Group<T> {
    /// `lanes` groups may be on their way at once, each of at most so many operations. They end when the queue is dropped
    /// and empty.
    pub(crate) fn start<F>(lanes: usize, most: usize, write: impl Fn(Vec<T>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send,
    {
        let (queue, waiting) = mpsc::unbounded_channel();
        let (waiting, write) = (Arc::new(Mutex::new(waiting)), Arc::new(write));
        for _ in 0..lanes {
            let (waiting, write) = (waiting.clone(), write.clone());
            tokio::spawn(async move {
                loop {
                    let mut group = Vec::new();
                    let taken = waiting.lock().await.recv_many(&mut group, most).await;
                    if taken == 0 {
                        return;
                    }
                    write(group).await;
                }
            });
        }
        Self { queue }
    }

    /// After the lanes have ended it is dropped, and its answer with it.
    pub(crate) fn send(&self, operation: T) {
        let _ = self.queue.send(operation);
    }
}
