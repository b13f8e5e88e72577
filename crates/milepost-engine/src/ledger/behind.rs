//! A task that has gone on without the store: what happened to it is kept in order, and written when the store is back.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use tokio::sync::oneshot;

use super::entry::Entry;
use super::writer::{Lost, Writer};
use crate::feed::FeedItem;

/// A writer that is at work, and what becomes of it.
pub(super) type Writing = BoxFuture<'static, (Writer, Result<(), Lost>)>;

/// The store is behind. What it does not know yet waits here.
pub(super) struct Behind {
    waiting: Arc<Mutex<Waiting>>,
    done: oneshot::Receiver<(Writer, Result<(), Lost>)>,
}

#[derive(Default)]
struct Waiting {
    entries: Vec<Entry>,
    /// All is written, or nothing will be any more.
    over: bool,
}

/// What a task did while the store was away.
struct Ahead {
    writer: Writer,
    waiting: Arc<Mutex<Waiting>>,
}

impl Behind {
    /// The first entry is on its way already.
    pub(super) fn begin(first: Entry, inner: &Arc<crate::engine::Inner>, writing: Writing) -> Self {
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let (sender, done) = oneshot::channel();
        inner.health.goes_ahead(first.task.id());
        tracing::warn!(task = %first.task.id(), "the task goes on without the store; durable: false");
        tell(inner, &first, false);
        let (inner_too, kept) = (inner.clone(), waiting.clone());
        inner.spawn(async move {
            let (writer, written) = writing.await;
            let done = match written {
                Ok(()) => Ahead { writer, waiting: kept }.catch_up().await,
                Err(Lost) => (writer, Err(Lost)),
            };
            inner_too.health.is_written(first.task.id());
            if done.1.is_ok() {
                tracing::warn!(task = %first.task.id(), "what the task did without the store is written; durable: true");
            } else {
                tracing::error!(task = %first.task.id(), "what the task did without the store is discarded: it is another's by now");
            }
            tell(&inner_too, &first, true);
            let _ = sender.send(done);
        });
        Self { waiting, done }
    }

    /// Keeps an entry; gives it back if the store has caught up, or the task is lost.
    pub(super) fn keep(&self, entry: Entry) -> Option<Entry> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.over {
            return Some(entry);
        }
        waiting.entries.push(entry);
        None
    }

    /// Waits until everything that is kept is written.
    pub(super) async fn caught_up(self) -> Option<(Writer, Result<(), Lost>)> {
        // None only when the runtime is shut down.
        self.done.await.ok()
    }
}

impl Ahead {
    /// Whatever waits goes in one commit.
    async fn catch_up(mut self) -> (Writer, Result<(), Lost>) {
        loop {
            let next = {
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let next = std::mem::take(&mut waiting.entries).into_iter().reduce(Entry::and);
                waiting.over = next.is_none();
                next
            };
            let Some(next) = next else { return (self.writer, Ok(())) };
            if let Err(Lost) = self.writer.insist(next).await {
                self.waiting.lock().unwrap_or_else(PoisonError::into_inner).over = true;
                return (self.writer, Err(Lost));
            }
        }
    }
}

fn tell(inner: &crate::engine::Inner, entry: &Entry, durable: bool) {
    inner.feed.publish(|| FeedItem::Durability {
        plan: entry.task.spec().plan.clone(),
        task: entry.task.id().clone(),
        durable,
    });
}
