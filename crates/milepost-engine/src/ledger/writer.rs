//! Sends an entry until the store has taken it, whatever becomes of the answers.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::planted::planted;
use milepost_core::task::{PlanStatus, Record};
use milepost_store::{Commit, EventQuery, Holder, StoreError, StoredTask, TaskRef};

use super::entry::Entry;
use crate::engine::Inner;
use crate::feed::FeedItem;
use crate::nodes::CutOff;
use crate::runner::chain;

/// The task is no longer ours, or nobody can write any more.
#[derive(Debug)]
pub(super) struct Lost;

/// What the store has of one task, and under which lease it may be added to.
pub(super) struct Writer {
    pub(super) inner: Arc<Inner>,
    pub(super) key: TaskRef,
    epoch: u64,
    /// The version that the store has.
    written: u64,
    cut_off: CutOff,
    /// An answer got lost: what was sent may have been written all the same.
    unsure: bool,
}

impl Writer {
    pub(super) fn new(inner: Arc<Inner>, stored: &StoredTask, cut_off: CutOff) -> Self {
        let (key, written) = (stored.key.clone(), stored.task.version());
        Self { inner, key, epoch: stored.epoch, written, cut_off, unsure: false }
    }

    /// Writes the entry, however long the store is away; unless the node's lease is lost meanwhile.
    pub(super) async fn insist(&mut self, entry: Entry) -> Result<(), Lost> {
        let cut_off = self.cut_off.clone();
        tokio::select! {
            biased;
            written = self.send(entry) => written,
            () = cut_off.comes() => Err(Lost),
        }
    }

    async fn send(&mut self, mut entry: Entry) -> Result<(), Lost> {
        let mut pause = Duration::from_millis(50);
        loop {
            let commit = Commit {
                key: self.key.clone(),
                holder: Holder::Lease(self.epoch),
                expected: self.written,
                events: entry.events.clone(),
                task: entry.task.clone(),
                lease: entry.lease,
                plan: entry.plan,
                output: entry.output.clone(),
            };
            // Until it is answered; also when nobody waits for the answer any more.
            let was_unsure = std::mem::replace(&mut self.unsure, true);
            match self.inner.store.commit(commit).await {
                Ok(committed) => {
                    self.inner.health.answered();
                    self.written(&entry, committed.plan);
                    return Ok(());
                }
                // The plan was ended or cancelled meanwhile, and cannot be paused; the task's own news stands.
                Err(StoreError::Plan(_)) if entry.plan.is_some() => {
                    self.unsure = was_unsure;
                    entry.plan = None;
                }
                Err(StoreError::Unavailable { .. }) if planted("an unanswered commit counts as done") => {
                    self.written(&entry, None);
                    return Ok(());
                }
                Err(error @ StoreError::Unavailable { .. }) => {
                    self.inner.health.refused();
                    tracing::warn!(task = %self.key.id, error = %chain(&error), "the store did not take a commit; trying again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(5));
                }
                Err(error) => {
                    let answered = !planted("a lost answer loses the task")
                        && matches!(error, StoreError::Conflict { .. } | StoreError::Fenced { .. });
                    let arrived = if was_unsure && answered { Some(self.arrived(&entry.events).await) } else { None };
                    if arrived == Some(entry.events.len()) {
                        // Its answer would have said what became of the plan.
                        let row = self.inner.store.plan(&entry.task.spec().plan).await;
                        self.written(&entry, row.ok().flatten().map(|row| row.status));
                        // Written is not the same as held: another node may have taken the task on since.
                        return if !entry.goes_on() || self.is_ours().await { Ok(()) } else { Err(Lost) };
                    }
                    let Some(arrived) = arrived.filter(|arrived| *arrived > 0) else {
                        tracing::error!(task = %self.key.id, error = %chain(&error), "this node no longer has the task");
                        return Err(Lost);
                    };
                    // An earlier try, of less, had arrived.
                    self.written += arrived as u64;
                    entry.events = entry.events.iter().skip(arrived).cloned().collect();
                }
            }
        }
    }

    fn written(&mut self, entry: &Entry, plan: Option<PlanStatus>) {
        self.unsure = false;
        let task = &entry.task;
        self.written = task.version();
        self.inner.happened(&entry.events, task);
        self.inner.feed.publish(|| FeedItem::of(task, entry.events.clone()));
        if let Some(status) = plan {
            self.inner.plan_changed(&task.spec().plan, status);
        }
    }

    /// The store still has the task under this lease.
    async fn is_ours(&self) -> bool {
        loop {
            match self.inner.store.task(&self.key.id).await {
                Ok(stored) => return stored.is_some_and(|stored| stored.epoch == self.epoch && !stored.orphaned),
                Err(StoreError::Unavailable { .. }) => tokio::time::sleep(Duration::from_secs(1)).await,
                Err(_) => return false,
            }
        }
    }

    /// How many of these events are what the log goes on with: then it was a commit of ours that moved the task on.
    async fn arrived(&self, events: &[Record]) -> usize {
        let query = EventQuery { task: self.key.id.clone(), after: self.written, limit: events.len() };
        loop {
            match self.inner.store.events(query.clone()).await {
                Ok(found) => {
                    let ours = found.iter().zip(events).all(|(found, event)| found.record == *event);
                    return if ours { found.len() } else { 0 };
                }
                Err(StoreError::Unavailable { .. }) => tokio::time::sleep(Duration::from_secs(1)).await,
                Err(_) => return 0,
            }
        }
    }
}
