//! What lists show of a task, without its log.

use milepost_core::task::{Task, TaskStatus};
use milepost_core::time::Timestamp;

/// What a task's row shows of the task.
#[derive(Debug)]
pub(crate) struct RowImage {
    pub(crate) status: TaskStatus,
    pub(crate) version: u64,
    pub(crate) done: i64,
    pub(crate) total: i64,
    pub(crate) stage: Option<String>,
    pub(crate) attempt: u32,
    pub(crate) due_at: Option<i64>,
    pub(crate) flags: i64,
    pub(crate) reason: Option<String>,
    pub(crate) started_at: Option<i64>,
    pub(crate) updated_at: i64,
    pub(crate) ended_at: Option<i64>,
}

pub(crate) const FLAG_INTERRUPTED: i64 = 1;
pub(crate) const FLAG_PAUSE_REQUESTED: i64 = 2;
/// In no queue, though PENDING.
pub(crate) const FLAG_AWAITS_MESSAGE: i64 = 4;

impl RowImage {
    pub(crate) fn of(task: &Task) -> Self {
        let current = task.current_stage().map(|index| task.stage(index));
        let failure = task.failure().map(|failure| &failure.cause);
        let cause = failure.or_else(|| current.and_then(|(_, state)| state.cause.as_ref()));
        Self {
            status: task.status(),
            version: task.version(),
            done: task.done().len() as i64,
            total: task.stages().len() as i64,
            stage: current.map(|(definition, _)| definition.name.to_string()),
            attempt: current.map_or(0, |(_, state)| state.attempt),
            due_at: task.next_due().map(Timestamp::as_millis),
            flags: if task.interrupted() { FLAG_INTERRUPTED } else { 0 }
                | if task.pause_requested().is_some() { FLAG_PAUSE_REQUESTED } else { 0 }
                | if task.awaits_message() { FLAG_AWAITS_MESSAGE } else { 0 },
            reason: cause.filter(|_| task.status() != TaskStatus::Completed).map(|cause| cause.reason.clone()),
            started_at: task.started_at().map(Timestamp::as_millis),
            updated_at: task.updated_at().as_millis(),
            ended_at: task.ended_at().map(Timestamp::as_millis),
        }
    }
}
