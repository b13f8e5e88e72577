//! What has changed since it was last shown: of each task the newest progress, and which plans' counts are out of date.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use milepost_core::api::TaskProgress;
use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::TaskCounts;
use milepost_core::task::{Event, PlanStatus, Record, StageProgress, TaskStatus, ends_progress, percent};
use milepost_engine::{FeedItem, Handful};
use milepost_store::{Change, Changed};
use tokio::time::Instant;

/// How fast a plan goes is shown at most this often.
const PACE_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Coalesced {
    progress: HashMap<TaskId, TaskProgress>,
    /// Plans in which something was committed.
    pub(super) changed: HashSet<PlanId>,
    /// Tasks whose last news is that they have ended.
    pub(super) ended_tasks: HashMap<TaskId, (PlanId, TaskStatus)>,
    /// Plans whose row says that they have ended, and of which nothing was heard since that was read.
    pub(super) ended_plans: HashMap<PlanId, PlanStatus>,
    /// What watchers were last told, and when.
    counts: HashMap<PlanId, (TaskCounts, Instant)>,
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
                FeedItem::Progress { plan, task, status, stage, progress, rate, done, stages, percent } => {
                    self.moves(plan);
                    let newest = TaskProgress {
                        task_id: task.clone(),
                        plan_id: plan.clone(),
                        status: *status,
                        stage: stage.clone(),
                        completed_stages: *done as u64,
                        total_stages: *stages as u64,
                        percent: *percent,
                        done: None,
                        total: None,
                        rate: None,
                        eta_seconds: None,
                    };
                    let said = progress.map(|said| StageProgress::new(said.done, said.total, *rate));
                    self.progress.insert(task.clone(), newest.with(said));
                }
                FeedItem::Task { task, status, records, done, stages, .. } => {
                    if let Some(waiting) = self.progress.get_mut(task) {
                        moved_on(waiting, *status, records, *done, *stages);
                    }
                }
                FeedItem::Durability { .. } | FeedItem::Plan { .. } => {}
            }
        }
    }

    /// A plan of which tasks say how far they are is itself shown now and then, with its pace.
    fn moves(&mut self, plan: &PlanId) {
        if self.counts.get(plan).is_none_or(|(_, at)| at.elapsed() >= PACE_EVERY) {
            self.changed.insert(plan.clone());
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

    /// Whether these counts are news, or the last ones are old.
    pub(super) fn counted(&mut self, plan: &PlanId, counts: TaskCounts) -> bool {
        let told = self.counts.get(plan);
        if told.is_some_and(|(told, at)| *told == counts && at.elapsed() < PACE_EVERY) {
            return false;
        }
        self.counts.insert(plan.clone(), (counts, Instant::now()));
        true
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

/// Progress that waits to be shown must not show less than what is known by then, nor what is over.
fn moved_on(waiting: &mut TaskProgress, status: TaskStatus, records: &[Record], done: usize, stages: usize) {
    if !ends_progress(status, records) {
        // A task that is paused in the middle of a stage is as far as it was; it only does not move.
        waiting.status = status;
        if !status.is_active() {
            (waiting.rate, waiting.eta_seconds) = (None, None);
        }
        return;
    }
    let anew = percent(status, done, stages, None);
    // Another stage may have ended: those that still run are as far as they were.
    let goes_on = done as u64 > waiting.completed_stages;
    waiting.percent = if goes_on { waiting.percent.max(anew) } else { anew };
    (waiting.status, waiting.completed_stages) = (status, done as u64);
    // What a completed task said last is the last word of it.
    if status != TaskStatus::Completed {
        (waiting.done, waiting.total) = (None, None);
    }
    (waiting.rate, waiting.eta_seconds) = (None, None);
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
        Event::CheckpointDiscarded { .. }
        | Event::DeadLettered { .. }
        | Event::EventLost { .. }
        | Event::TaskRepaired { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use milepost_core::id::StageName;
    use milepost_core::task::{By, Outputs};
    use milepost_core::time::Timestamp;
    use milepost_engine::stage::Progress;

    use super::*;

    fn said(done: u64, percent: f64) -> FeedItem {
        FeedItem::Progress {
            plan: PlanId::parse("p").unwrap(),
            task: TaskId::parse("t").unwrap(),
            status: TaskStatus::Running,
            stage: StageName::parse("s").ok(),
            progress: Some(Progress { done, total: 100 }),
            rate: Some(10.0),
            done: 0,
            stages: 1,
            percent,
        }
    }

    fn happened(status: TaskStatus, done: usize, event: Event) -> FeedItem {
        FeedItem::Task {
            plan: PlanId::parse("p").unwrap(),
            task: TaskId::parse("t").unwrap(),
            status,
            records: vec![Record::new(Timestamp::from_millis(0), event)].into(),
            done,
            stages: 1,
        }
    }

    /// What is shown of the task after these.
    fn shown(items: Vec<FeedItem>) -> TaskProgress {
        let mut coalesced = Coalesced::default();
        coalesced.heard(&Handful { items, lagged: false });
        coalesced.take_progress().next().unwrap()
    }

    #[test]
    fn a_task_that_is_paused_in_the_middle_of_a_stage_is_as_far_as_it_was_and_does_not_move() {
        let paused = Event::TaskPaused { by: Some(By::new("ann")) };
        let shown = shown(vec![said(50, 50.0), happened(TaskStatus::Paused, 0, paused)]);
        assert_eq!((shown.status, shown.percent, shown.done), (TaskStatus::Paused, 50.0, Some(50)));
        assert_eq!((shown.rate, shown.eta_seconds), (None, None));
    }

    #[test]
    fn a_completed_task_shows_what_it_said_last() {
        let stage = StageName::parse("s").unwrap();
        let completed = Event::StageCompleted { stage, attempt: 1, outputs: Outputs::default() };
        let shown = shown(vec![said(100, 99.9), happened(TaskStatus::Completed, 1, completed)]);
        assert_eq!((shown.percent, shown.done, shown.total), (100.0, Some(100), Some(100)));
    }

    #[test]
    fn a_new_attempt_shows_nothing_of_the_one_before() {
        let started = Event::TaskStarted { node: "n".into() };
        let shown = shown(vec![said(50, 50.0), happened(TaskStatus::Running, 0, started)]);
        assert_eq!((shown.percent, shown.done), (0.0, None));
    }

    #[test]
    fn a_running_stage_has_a_rate_and_says_when_it_will_be_done() {
        let shown = shown(vec![said(50, 50.0)]);
        assert_eq!((shown.rate, shown.eta_seconds), (Some(10.0), Some(5)));
    }
}
