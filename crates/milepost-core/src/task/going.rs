//! Which events mean that somebody wants a task to run, for plans whose recovery is manual.

use super::event::{Event, Record};

/// Somebody outside asked for this task: a person who resumed, retried or rolled it back, or the sender of its message.
pub fn lets_go(events: &[Record]) -> bool {
    events.iter().any(|record| match record.event() {
        Event::TaskResumed { .. }
        | Event::TaskRetried { .. }
        | Event::RollbackStarted { by: Some(_) }
        | Event::MessageReceived { .. } => true,
        Event::TaskCreated {}
        | Event::TaskStarted { .. }
        | Event::StageStarted { .. }
        | Event::StageCompleted { .. }
        | Event::StageSkipped { .. }
        | Event::StageFailed { .. }
        | Event::RetryScheduled { .. }
        | Event::PauseRequested { .. }
        | Event::TaskPaused { .. }
        | Event::TaskCompleted { .. }
        | Event::TaskFailed { .. }
        | Event::TaskCancelled { .. }
        | Event::TaskInterrupted { .. }
        | Event::RollbackStarted { by: None }
        | Event::StageRolledBack { .. }
        | Event::TaskRolledBack {}
        | Event::RollbackFailed { .. }
        | Event::CheckpointDiscarded { .. }
        | Event::DeadLettered { .. }
        | Event::SignalReceived { .. }
        | Event::ValueRecorded { .. }
        | Event::TaskContinued { .. }
        | Event::EventLost { .. }
        | Event::TaskRepaired { .. } => false,
    })
}
