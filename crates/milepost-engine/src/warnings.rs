//! What a node says aloud of its tasks: one line for each that failed for good, that was given up, or that lost its
//! checkpoint; and every event to whoever wants to hear that much. Said once the event is durable, like everything that
//! follows from one.

use milepost_core::failure::ErrorType;
use milepost_core::task::{Event, Record, Task};

use crate::engine::Inner;

/// Failed tasks have a target of their own: a command that shows them in another way leaves these lines out.
const FAILED: &str = "milepost::failed";

impl Inner {
    /// These events are durable.
    pub(crate) fn happened(&self, events: &[Record], task: &Task) {
        self.meters.happened(events, task);
        for record in events {
            tracing::trace!(task = %task.id(), event = record.event().kind(), "happened");
            warn_of(record.event(), task);
        }
    }
}

fn warn_of(event: &Event, task: &Task) {
    let spec = task.spec();
    let (id, plan, tenant) = (&spec.id, &spec.plan, spec.tenant.as_ref().map(tracing::field::display));
    match event {
        Event::TaskFailed { cause, .. } if cause.error_type == ErrorType::Expired => {
            tracing::warn!(task = %id, %plan, tenant, reason = cause.reason, "message expired before its task started");
        }
        Event::TaskFailed { stage, attempts, cause } => {
            let (stage, error_type) = (stage.as_ref().map(tracing::field::display), cause.error_type.as_str());
            tracing::warn!(
                target: FAILED, task = %id, %plan, tenant, stage, attempts, error_type, reason = cause.reason, "task failed"
            );
        }
        Event::RollbackFailed { reason } => {
            tracing::warn!(target: FAILED, task = %id, %plan, tenant, reason, "rollback failed");
        }
        Event::DeadLettered { reason } => {
            tracing::warn!(task = %id, %plan, tenant, reason, "task given up: it is among the dead letters");
        }
        Event::CheckpointDiscarded { reason } => {
            tracing::warn!(task = %id, %plan, tenant, reason, "checkpoint discarded: the task runs from its start");
        }
        Event::TaskRepaired { by, reason } => {
            tracing::warn!(task = %id, %plan, tenant, by = by.who, reason, "damaged task repaired: it ends as FAILED");
        }
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
        | Event::TaskCompleted { .. }
        | Event::TaskCancelled { .. }
        | Event::TaskInterrupted { .. }
        | Event::TaskRetried { .. }
        | Event::RollbackStarted { .. }
        | Event::StageRolledBack { .. }
        | Event::TaskRolledBack {}
        | Event::MessageReceived { .. }
        | Event::SignalReceived { .. }
        | Event::ValueRecorded { .. }
        | Event::TaskContinued { .. }
        | Event::EventLost { .. } => {}
    }
}
