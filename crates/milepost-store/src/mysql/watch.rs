//! Whether another process has left something to do here. The server tells nobody by itself, so somebody looks: at one row,
//! about once a second, and less where a beat has looked already.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::StoreError;

use super::codec::{Columns, Sql, unavailable};
use super::read::first;
use super::sql::numbers;
use super::store::Shared;

/// With a beat of two statements every five seconds, five statements in five seconds.
const EVERY: Duration = Duration::from_millis(1250);
/// While an answer is awaited.
const SOON: Duration = Duration::from_millis(100);
/// Whoever asked has gone by then, with or without an answer: nobody waits for longer than half a minute.
const AWAITED_FOR: Duration = Duration::from_secs(35);

#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The counter of offers that was seen last, our own among them.
    seen: AtomicI64,
    called: Notify,
    started: AtomicBool,
    looked_at: Mutex<Option<Instant>>,
    /// Letters of ours without an answer, and since when there is one to wait for.
    awaited: Mutex<BTreeMap<i64, Instant>>,
}

impl Watch {
    /// A transaction of ours has locked the row at `before` and left it at `after`: what it wrote we know ourselves.
    pub(super) fn own_offer(&self, before: i64, after: i64) {
        if self.seen.swap(after, Ordering::AcqRel) != before {
            self.call();
        }
    }

    pub(super) fn call(&self) {
        self.called.notify_one();
    }

    /// What a look at the row has shown.
    pub(super) fn looked(&self, offered: i64, letters: i64) {
        *self.looked_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        if self.seen.swap(offered, Ordering::AcqRel) != offered || letters > 0 {
            self.call();
        }
    }

    pub(super) fn await_answer(&self, letter: i64) {
        self.awaited().insert(letter, Instant::now());
    }

    pub(super) fn has_answer(&self, letter: i64) {
        self.awaited().remove(&letter);
    }

    fn awaited(&self) -> MutexGuard<'_, BTreeMap<i64, Instant>> {
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        awaited.retain(|_, since| since.elapsed() < AWAITED_FOR);
        awaited
    }

    fn next_look(&self) -> Duration {
        let every = if self.awaited().is_empty() { EVERY } else { SOON };
        let looked_at = *self.looked_at.lock().unwrap_or_else(PoisonError::into_inner);
        looked_at.map_or(Duration::ZERO, |at| every.saturating_sub(at.elapsed()))
    }
}

impl Shared {
    pub(super) async fn called(self: &Arc<Self>) {
        if !self.watch.started.swap(true, Ordering::AcqRel) {
            tokio::spawn(keep_looking(Arc::downgrade(self)));
        }
        self.watch.called.notified().await;
    }

    pub(super) async fn call_others(&self) -> Result<(), StoreError> {
        let sql = "UPDATE milepost_counters SET offered = offered + 1 WHERE id = 1";
        self.server.ask("call the other nodes", sql).await.map(drop)
    }

    /// `offered`, and how many letters and answers there are for us.
    pub(super) fn look_columns(&self) -> String {
        let awaited = numbers(self.watch.awaited().keys().copied());
        let session = self.session().unwrap_or(0);
        format!(
            "offered, (SELECT COUNT(*) FROM milepost_letters WHERE session = {session} AND answer IS NULL) \
             + (SELECT COUNT(*) FROM milepost_letters WHERE no IN ({awaited}) AND answer IS NOT NULL)"
        )
    }

    async fn look(&self) -> Result<(), StoreError> {
        let sql = format!("SELECT {} FROM milepost_counters WHERE id = 1", self.look_columns());
        let row = first(self.server.ask("look for something to do", &sql).await?);
        let read = |row| -> Sql<(i64, i64)> {
            let mut columns = Columns::from(row);
            Ok((columns.next()?, columns.next()?))
        };
        if let Some(row) = row {
            let (offered, letters) = read(row).map_err(unavailable("look for something to do"))?;
            self.watch.looked(offered, letters);
        }
        Ok(())
    }
}

/// Until the store is dropped.
async fn keep_looking(shared: Weak<Shared>) {
    loop {
        let Some(wait) = shared.upgrade().map(|shared| shared.watch.next_look()) else { return };
        // A new letter of ours makes the next look come sooner, so nothing waits for longer than that.
        tokio::time::sleep(wait.min(EVERY)).await;
        let Some(shared) = shared.upgrade() else { return };
        if !shared.watch.next_look().is_zero() {
            continue;
        }
        if let Err(error) = shared.look().await {
            tracing::debug!(%error, "could not look for something to do");
            *shared.watch.looked_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_waits_for_any_more_is_not_looked_for() {
        let watch = Watch::default();
        watch.looked(0, 0);
        assert_eq!(watch.next_look(), EVERY);
        watch.await_answer(7);
        assert_eq!(watch.next_look(), SOON);
        tokio::time::advance(AWAITED_FOR / 2).await;
        watch.await_answer(8);
        tokio::time::advance(AWAITED_FOR / 2).await;
        assert_eq!(watch.awaited().keys().copied().collect::<Vec<_>>(), [8], "who asked for 7 has gone");
        watch.has_answer(8);
        watch.looked(0, 0);
        assert_eq!(watch.next_look(), EVERY);
    }
}
