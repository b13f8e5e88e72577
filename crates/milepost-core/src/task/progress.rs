//! How far a task is, in percent, and how long what its stages say of themselves counts.

use super::event::{Event, Record};
use super::status::TaskStatus;

/// Which part of a stage is done; none of it as long as nobody knows how much there is.
pub fn share(done: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { (done as f64 / total as f64).min(1.0) }
}

/// Done stages out of all, with what running stages report of themselves; 100 only when completed, never NaN.
pub fn percent(status: TaskStatus, done: usize, stages: usize, running: impl IntoIterator<Item = (u64, u64)>) -> f64 {
    percent_with(status, done, stages, running.into_iter().map(|(done, total)| share(done, total)))
}

/// The same with the shares of running stages, for whoever remembers the largest that each of them came to.
pub fn percent_with(status: TaskStatus, done: usize, stages: usize, shares: impl IntoIterator<Item = f64>) -> f64 {
    if status == TaskStatus::Completed {
        return 100.0;
    }
    let stages = stages.max(1) as f64;
    let within: f64 = shares.into_iter().sum();
    let share = (done as f64 + within).min(stages) / stages;
    (share * 1000.0).floor().min(999.0) / 10.0
}

/// Whether what a stage said of its progress is over with these events, which leave the task in this status.
///
/// It stays as long as nobody begins anew: also while the task is paused in the middle of the stage, or its node is gone.
pub fn ends_progress(status: TaskStatus, events: &[Record]) -> bool {
    match status {
        TaskStatus::Running | TaskStatus::Paused | TaskStatus::RollingBack => {
            events.iter().any(|record| ends_attempt(record.event()))
        }
        TaskStatus::Pending
        | TaskStatus::Completed
        | TaskStatus::Failed
        | TaskStatus::Cancelled
        | TaskStatus::RolledBack
        | TaskStatus::RollbackFailed => true,
    }
}

/// An attempt has ended, or whoever takes the task on repeats the ones that were cut off.
fn ends_attempt(event: &Event) -> bool {
    match event {
        Event::StageCompleted { .. }
        | Event::StageSkipped { .. }
        | Event::StageFailed { .. }
        | Event::RetryScheduled { .. }
        | Event::StageRolledBack { .. }
        | Event::TaskStarted { .. }
        | Event::TaskInterrupted { taken_by: Some(_), .. }
        | Event::RollbackStarted { .. }
        | Event::CheckpointDiscarded { .. }
        | Event::TaskContinued { .. } => true,
        Event::TaskCreated {}
        | Event::StageStarted { .. }
        | Event::PauseRequested { .. }
        | Event::TaskPaused { .. }
        | Event::TaskResumed { .. }
        | Event::TaskCompleted { .. }
        | Event::TaskFailed { .. }
        | Event::TaskCancelled { .. }
        | Event::TaskInterrupted { taken_by: None, .. }
        | Event::TaskRetried { .. }
        | Event::TaskRolledBack {}
        | Event::RollbackFailed { .. }
        | Event::DeadLettered { .. }
        | Event::EventLost { .. }
        | Event::TaskRepaired { .. }
        | Event::MessageReceived { .. }
        | Event::SignalReceived { .. }
        | Event::ValueRecorded { .. } => false,
    }
}
