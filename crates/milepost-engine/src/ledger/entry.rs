//! What is to be written of a task, and why it was not.

use std::sync::Arc;

use milepost_core::plan::PlanCommand;
use milepost_core::task::{Record, Task};
use milepost_store::{LeaseChange, LogChunk};

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) task: Arc<Task>,
    pub(crate) events: Arc<[Record]>,
    pub(crate) lease: LeaseChange,
    pub(crate) plan: Option<PlanCommand>,
    pub(crate) output: Vec<LogChunk>,
}

impl Entry {
    /// The task is still in hand after it.
    pub(super) fn goes_on(&self) -> bool {
        self.lease == LeaseChange::Keep && self.task.status().is_active()
    }

    /// This and what came after it, as one.
    pub(super) fn and(mut self, later: Entry) -> Entry {
        self.output.extend(later.output);
        Entry {
            task: later.task,
            events: self.events.iter().chain(later.events.iter()).cloned().collect(),
            lease: later.lease,
            plan: later.plan.or(self.plan),
            output: self.output,
        }
    }
}

#[derive(Debug)]
pub(crate) enum NotWritten {
    /// The task is no longer ours, or nobody can write any more.
    Lost,
    /// The store is away, and the node is not to wait for it. Here is what it has not taken.
    Away(Box<Entry>),
}
