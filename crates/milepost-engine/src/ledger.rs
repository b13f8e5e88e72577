//! Writing what happened to a task that is held here, until the store has taken it.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::plan::PlanCommand;
use milepost_core::task::{Record, Task};
use milepost_store::{Commit, EventQuery, Holder, LeaseChange, LogChunk, StoreError, StoredTask, TaskRef};

use crate::engine::Inner;
use crate::feed::FeedItem;
use crate::runner::chain;

/// The task is no longer ours, or nobody can write any more.
#[derive(Debug)]
pub(crate) struct Lost;

/// One task's page: what the store has of it, and under which lease it may be added to.
pub(crate) struct Ledger {
    inner: Arc<Inner>,
    key: TaskRef,
    epoch: u64,
    /// The version that the store has.
    written: u64,
}

/// What is to be written.
pub(crate) struct Entry {
    pub(crate) task: Arc<Task>,
    pub(crate) events: Arc<[Record]>,
    pub(crate) lease: LeaseChange,
    pub(crate) plan: Option<PlanCommand>,
    pub(crate) output: Vec<LogChunk>,
}

impl Ledger {
    pub(crate) fn new(inner: Arc<Inner>, stored: &StoredTask) -> Self {
        Self { inner, key: stored.key.clone(), epoch: stored.epoch, written: stored.task.version() }
    }

    /// The version that the store has.
    pub(crate) fn version(&self) -> u64 {
        self.written
    }

    /// Sends the entry until the store takes it. While the store is away nothing new starts here: `hold`.
    pub(crate) async fn write(&mut self, entry: Entry) -> Result<(), Lost> {
        let mut pause = Duration::from_millis(50);
        let mut plan = entry.plan;
        // After one answer got lost, the commit may have been made all the same.
        let mut unsure = false;
        loop {
            let commit = Commit {
                key: self.key.clone(),
                holder: Holder::Lease(self.epoch),
                expected: self.written,
                events: entry.events.clone(),
                task: entry.task.clone(),
                lease: entry.lease,
                plan,
                output: entry.output.clone(),
            };
            match self.inner.store.commit(commit).await {
                Ok(committed) => {
                    self.written(&entry, committed.plan);
                    return Ok(());
                }
                // The plan was ended or cancelled meanwhile, and cannot be paused; the task's own news stands.
                Err(StoreError::Plan(_)) if plan.is_some() => plan = None,
                Err(error @ StoreError::Unavailable { .. }) => {
                    tracing::warn!(task = %self.key.id, error = %chain(&error), "the store did not take a commit; trying again");
                    unsure = true;
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(5));
                }
                Err(StoreError::Conflict { .. } | StoreError::Fenced { .. })
                    if unsure && self.has_arrived(&entry.events).await =>
                {
                    // Its answer would have said what became of the plan.
                    let row = self.inner.store.plan(&entry.task.spec().plan).await;
                    self.written(&entry, row.ok().flatten().map(|row| row.status));
                    return Ok(());
                }
                Err(error) => {
                    tracing::error!(task = %self.key.id, error = %chain(&error), "this node no longer has the task");
                    return Err(Lost);
                }
            }
        }
    }

    fn written(&mut self, entry: &Entry, plan: Option<milepost_core::task::PlanStatus>) {
        let task = &entry.task;
        self.written = task.version();
        self.inner.meters.happened(&entry.events, task);
        self.inner.feed.publish(|| FeedItem::Task {
            plan: task.spec().plan.clone(),
            task: self.key.id.clone(),
            status: task.status(),
            records: entry.events.clone(),
            done: task.done().len(),
            stages: task.stages().len(),
        });
        if let Some(status) = plan {
            self.inner.plan_changed(&task.spec().plan, status);
        }
    }

    /// Whether the log goes on with these very events: then it was this commit that moved the task on.
    async fn has_arrived(&self, events: &[Record]) -> bool {
        let query = EventQuery { task: self.key.id.clone(), after: self.written, limit: events.len() };
        loop {
            match self.inner.store.events(query.clone()).await {
                Ok(found) => return found.iter().map(|found| &found.record).eq(events),
                Err(StoreError::Unavailable { .. }) => tokio::time::sleep(Duration::from_secs(1)).await,
                Err(_) => return false,
            }
        }
    }
}
