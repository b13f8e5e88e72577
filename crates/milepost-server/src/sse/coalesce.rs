//! What has changed since it was last shown: of each task the newest progress, and which plans' counts are out of date.

use std::collections::{HashMap, HashSet};

use milepost_core::api::TaskProgress;
use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::TaskCounts;
use milepost_core::task::{Event, PlanStatus, Record, TaskStatus, percent};
use milepost_engine::{FeedItem, Handful};
use milepost_store::{Change, Changed};

#[derive(Debug, Default)]
pub(super) struct Coalesced {
    progress: HashMap<TaskId, TaskProgress>,
    /// Plans in which something was committed.
    pub(super) changed: HashSet<PlanId>,
    /// Tasks whose last news is that they have ended.
    pub(super) ended_tasks: HashMap<TaskId, (PlanId, TaskStatus)>,
    /// Plans whose row says that they have ended, and of which nothing was heard since that was read.
    pub(super) ended_plans: HashMap<PlanId, PlanStatus>,
    /// What watchers were last told.
    counts: HashMap<PlanId, TaskCounts>,
}

impl Coalesced {
    /// There is something to show.
    pub(super) fn is_due(&self) -> bool {
        !(self.progress.is_empty()
            && self.changed.is_empty()
            && self.ended_tasks.is_empty()
            && self.ended_plans.is_empty())
    }

    /// Takes progress from the feed. What happened to tasks is read from the store, where its position is known.
    pub(super) fn heard(&mut self, handful: &Handful) {
        for item in &handful.items {
            match item {
                FeedItem::Progress { plan, task, status, stage, progress, done, stages, percent } => {
                    let newest = TaskProgress {
                        task_id: task.clone(),
                        plan_id: plan.clone(),
                        status: *status,
                        stage: stage.clone(),
                        completed_stages: *done as u64,
                        total_stages: *stages as u64,
                        percent: *percent,
                        done: progress.map(|progress| progress.done),
                        total: progress.map(|progress| progress.total),
                    };
                    self.progress.insert(task.clone(), newest);
                }
                FeedItem::Task { task, status, done, stages, .. } => self.moved_on(task, *status, *done, *stages),
                FeedItem::Durability { .. } | FeedItem::Plan { .. } => {}
            }
        }
    }

    /// Progress that waits to be shown must not show less than what is known by then.
    fn moved_on(&mut self, task: &TaskId, status: TaskStatus, done: usize, stages: usize) {
        let Some(waiting) = self.progress.get_mut(task) else { return };
        if waiting.completed_stages != done as u64 || waiting.status != status {
            (waiting.status, waiting.completed_stages) = (status, done as u64);
            (waiting.done, waiting.total) = (None, None);
            waiting.percent = percent(status, done, stages, None);
        }
    }

    /// Takes note of what was committed, in its order.
    pub(super) fn committed(&mut self, change: &Change) {
        self.changed.insert(change.plan.clone());
        self.ended_plans.remove(&change.plan);
        if let Changed::Task { task, records, .. } = &change.what {
            match records.iter().rev().find_map(outcome) {
                Some(Some(status)) => {
                    self.ended_tasks.insert(task.clone(), (change.plan.clone(), status));
                }
                Some(None) => {
                    self.ended_tasks.remove(task);
                }
                None => {}
            }
        }
    }

    pub(super) fn take_progress(&mut self) -> impl Iterator<Item = TaskProgress> {
        std::mem::take(&mut self.progress).into_values()
    }

    /// Whether these counts are news.
    pub(super) fn counted(&mut self, plan: &PlanId, counts: TaskCounts) -> bool {
        self.counts.insert(plan.clone(), counts) != Some(counts)
    }

    /// Forgets plans that nobody watches any more.
    pub(super) fn keep(&mut self, watched: impl Fn(&PlanId) -> bool) {
        self.progress.retain(|_, progress| watched(&progress.plan_id));
        self.changed.retain(&watched);
        self.ended_tasks.retain(|_, (plan, _)| watched(plan));
        self.ended_plans.retain(|plan, _| watched(plan));
        self.counts.retain(|plan, _| watched(plan));
    }
}

/// How a task has ended, if that is what the event says; the inner none: it is open, or open again.
fn outcome(record: &Record) -> Option<Option<TaskStatus>> {
    match record.event() {
        Event::TaskCompleted { .. } => Some(Some(TaskStatus::Completed)),
        Event::TaskFailed { .. } => Some(Some(TaskStatus::Failed)),
        Event::TaskCancelled { .. } => Some(Some(TaskStatus::Cancelled)),
        Event::TaskRolledBack {} => Some(Some(TaskStatus::RolledBack)),
        Event::RollbackFailed { .. } => Some(Some(TaskStatus::RollbackFailed)),
        Event::TaskCreated {}
        | Event::TaskStarted { .. }
        | Event::StageStarted { .. }
        | Event::StageCompleted { .. }
        | Event::StageSkipped { .. }
        | Event::StageFailed { .. }
        | Event::RetryScheduled { .. }
        | Event::PauseRequested { .. }
        | Event::TaskPaused { .. }
        | Event::TaskResumed { .. }
        | Event::TaskInterrupted { .. }
        | Event::TaskRetried { .. }
        | Event::MessageReceived { .. }
        | Event::SignalReceived { .. }
        | Event::ValueRecorded { .. }
        | Event::TaskContinued { .. }
        | Event::RollbackStarted { .. }
        | Event::StageRolledBack { .. } => Some(None),
        Event::CheckpointDiscarded { .. } | Event::DeadLettered { .. } => None,
    }
}
