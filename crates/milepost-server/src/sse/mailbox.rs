//! What waits for one client, bounded. A client that does not read loses the mailbox, not the news: those are in the
//! store, from where it fetches them at its own pace.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::message::Sealed;

/// Batches that may wait for a client.
const MOST_BATCHES: usize = 256;
/// And how much they may hold together; one batch alone may be larger.
const MOST_BYTES: usize = 1024 * 1024;

#[derive(Debug, Default)]
pub(super) struct Mailbox {
    state: Mutex<State>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct State {
    batches: VecDeque<Arc<Sealed>>,
    bytes: usize,
    closed: Option<Closed>,
}

/// Why nothing more comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    /// The client reads too slowly.
    Overflowed,
    /// The client has gone.
    Left,
}

/// What may be left out when the mailbox is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weight {
    /// The next one says more.
    Progress,
    State,
}

impl Mailbox {
    /// False when the mailbox takes nothing any more.
    pub(super) fn offer(&self, batch: &Arc<Sealed>, weight: Weight) -> bool {
        let mut state = self.state();
        if state.closed.is_some() {
            return false;
        }
        let full =
            state.batches.len() == MOST_BATCHES || !state.batches.is_empty() && state.bytes + batch.len() > MOST_BYTES;
        match (full, weight) {
            (false, Weight::Progress | Weight::State) => {
                state.bytes += batch.len();
                state.batches.push_back(batch.clone());
            }
            (true, Weight::Progress) => return true,
            (true, Weight::State) => state.close(Closed::Overflowed),
        }
        let open = state.closed.is_none();
        drop(state);
        self.arrived.notify_one();
        open
    }

    /// The next batch, or that there is none to come.
    pub(super) async fn next(&self) -> Result<Arc<Sealed>, Closed> {
        loop {
            if let Some(next) = self.state().take() {
                return next;
            }
            self.arrived.notified().await;
        }
    }

    pub(super) fn leave(&self) {
        self.state().close(Closed::Left);
    }

    pub(super) fn is_open(&self) -> bool {
        self.state().closed.is_none()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self) -> Option<Result<Arc<Sealed>, Closed>> {
        if let Some(closed) = self.closed {
            return Some(Err(closed));
        }
        let batch = self.batches.pop_front()?;
        self.bytes -= batch.len();
        Some(Ok(batch))
    }

    /// What waits is dropped at once: whoever does not read must not hold on to it.
    fn close(&mut self, why: Closed) {
        *self = State { closed: Some(why), ..State::default() };
    }
}

#[cfg(test)]
mod tests {
    use milepost_core::id::{PlanId, TaskId};
    use milepost_core::task::{By, Event, Record};
    use milepost_core::time::Timestamp;
    use milepost_store::{Change, Changed, Position};

    use super::super::message::Batch;
    use super::*;

    fn batch(bytes: usize) -> Arc<Sealed> {
        let by = By { who: "x".repeat(bytes), why: None };
        let records = vec![Record::new(Timestamp::from_millis(0), Event::TaskCancelled { by })];
        let what = Changed::Task { task: TaskId::parse("t").unwrap(), tenant: None, sequence: 1, records };
        let mut batch = Batch::default();
        batch.state(&Change { position: Position(1), plan: PlanId::parse("p").unwrap(), what });
        Arc::new(batch.sealed())
    }

    #[tokio::test]
    async fn a_full_mailbox_is_emptied_and_closed_by_news_but_not_by_progress() {
        let (mailbox, batch) = (Mailbox::default(), batch(1));
        for _ in 0..MOST_BATCHES {
            assert!(mailbox.offer(&batch, Weight::State));
        }
        assert!(mailbox.offer(&batch, Weight::Progress) && mailbox.is_open(), "left out");
        assert!(!mailbox.offer(&batch, Weight::State));
        assert_eq!(Arc::strong_count(&batch), 1, "nothing is held for a client that does not read");
        assert_eq!(mailbox.next().await.unwrap_err(), Closed::Overflowed);
    }

    #[tokio::test]
    async fn what_waits_is_bounded_in_bytes_and_a_large_batch_alone_is_taken() {
        let (mailbox, large) = (Mailbox::default(), batch(2 * MOST_BYTES));
        assert!(mailbox.offer(&large, Weight::State), "else it could never be delivered");
        assert!(!mailbox.offer(&batch(1), Weight::State));
    }
}
