//! One task that somebody works on, as far as it was told of.

use std::time::Instant;

use milepost_core::api::TaskProgress;
use milepost_core::id::{StageName, TaskId};
use milepost_core::task::{Event, Record, StageProgress, TaskStatus};
use milepost_core::time::Timestamp;
use milepost_store::TaskRow;
use milepost_store::report::task_progress;

#[derive(Debug, Clone)]
pub(super) struct ActiveTask {
    pub(super) id: TaskId,
    pub(super) status: TaskStatus,
    pub(super) done: usize,
    pub(super) stages: usize,
    pub(super) stage: Option<StageName>,
    pub(super) attempt: u32,
    /// What its stage says of itself.
    pub(super) said: Option<StageProgress>,
    /// Of the whole task.
    pub(super) percent: f64,
    pub(super) retry: Option<Retry>,
    /// When we first heard of it.
    pub(super) since: Instant,
}

#[derive(Debug, Clone)]
pub(super) struct Retry {
    pub(super) due: Timestamp,
    pub(super) reason: String,
}

impl ActiveTask {
    pub(super) fn new(id: TaskId) -> Self {
        Self {
            id,
            status: TaskStatus::Running,
            done: 0,
            stages: 0,
            stage: None,
            attempt: 0,
            said: None,
            percent: 0.0,
            retry: None,
            since: Instant::now(),
        }
    }

    pub(super) fn follow(&mut self, record: &Record, now: Timestamp) {
        match record.event() {
            Event::StageStarted { stage, attempt, .. } => {
                self.stage = Some(stage.clone());
                self.attempt = *attempt;
                self.said = None;
                self.retry = None;
            }
            Event::RetryScheduled { stage, attempt, delay, cause, .. } => {
                self.stage = Some(stage.clone());
                self.attempt = *attempt;
                self.retry = Some(Retry { due: now + *delay, reason: cause.reason.clone() });
            }
            _ => {}
        }
    }
}

impl From<&TaskProgress> for ActiveTask {
    fn from(task: &TaskProgress) -> Self {
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            id: task.task_id.clone(),
            status: task.status,
            done: size(task.completed_stages),
            stages: size(task.total_stages),
            stage: task.stage.clone(),
            attempt: 0,
            said: task.done.map(|done| StageProgress {
                done,
                total: task.total,
                rate: task.rate,
                eta_seconds: task.eta_seconds,
            }),
            percent: task.percent,
            retry: None,
            since: Instant::now(),
        }
    }
}

impl From<TaskRow> for ActiveTask {
    fn from(row: TaskRow) -> Self {
        let retry = row.next_due.map(|due| Retry { due, reason: row.reason.clone().unwrap_or_default() });
        Self { attempt: row.attempt, retry, ..Self::from(&task_progress(&row)) }
    }
}
