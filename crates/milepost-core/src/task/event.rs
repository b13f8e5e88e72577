//! What can happen to a task. The log is a list of these; everything else about a task follows from it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::failure::{ErrorType, Failure};
use crate::id::{IdempotencyKey, PlanId, StageName, TaskId};
use crate::message::Arrival;
use crate::time::{Millis, Timestamp};

use super::flow::Step;

/// A stage's named results.
pub type Outputs = Arc<Map<String, Value>>;

/// Who asked for something, and why if they said so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct By {
    pub who: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl By {
    pub fn new(who: impl Into<String>) -> Self {
        Self { who: who.into(), why: None }
    }
}

/// A failure as the log keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Cause {
    pub error_type: ErrorType,
    pub reason: String,
}

impl From<&Failure> for Cause {
    fn from(failure: &Failure) -> Self {
        Self { error_type: failure.error_type, reason: failure.reason.clone() }
    }
}

/// One thing that happened. The spelling here is the stored format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Event {
    TaskCreated {},
    TaskStarted {
        node: Arc<str>,
    },
    StageStarted {
        stage: StageName,
        attempt: u32,
        #[serde(default, skip_serializing_if = "is_false")]
        rollback: bool,
        /// What a workflow asked for, when it first did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<Box<Step>>,
    },
    StageCompleted {
        stage: StageName,
        attempt: u32,
        #[serde(default, skip_serializing_if = "no_outputs")]
        outputs: Outputs,
    },
    StageSkipped {
        stage: StageName,
        reason: String,
    },
    StageFailed {
        stage: StageName,
        attempt: u32,
        cause: Cause,
        #[serde(default, skip_serializing_if = "is_false")]
        rollback: bool,
    },
    RetryScheduled {
        stage: StageName,
        /// The attempt to come.
        attempt: u32,
        delay: Millis,
        cause: Cause,
        #[serde(default, skip_serializing_if = "is_false")]
        rollback: bool,
    },
    /// Somebody asked for a pause while a stage was running; it takes effect at the stage boundary.
    PauseRequested {
        by: By,
    },
    TaskPaused {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<By>,
    },
    TaskResumed {
        by: By,
    },
    TaskCompleted {
        /// What a workflow returned.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Arc<Value>>,
    },
    TaskFailed {
        /// Where it was; none when it failed before any stage.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stage: Option<StageName>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempts: Option<u32>,
        cause: Cause,
    },
    TaskCancelled {
        by: By,
    },
    TaskInterrupted {
        /// The node that had it.
        node: Arc<str>,
        reason: String,
        /// The node that goes on with it, if one does at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        taken_by: Option<Arc<str>>,
        /// That node was not asked to.
        #[serde(default, skip_serializing_if = "is_false")]
        automatic: bool,
    },
    TaskRetried {
        by: By,
        from_checkpoint: bool,
    },
    RollbackStarted {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<By>,
    },
    StageRolledBack {
        stage: StageName,
    },
    TaskRolledBack {},
    RollbackFailed {
        reason: String,
    },
    CheckpointDiscarded {
        reason: String,
    },
    DeadLettered {
        reason: String,
    },
    /// The message that the task waited for is here, or a person put a new one in its place.
    MessageReceived {
        message: Arc<Arrival>,
    },
    /// Somebody sent a workflow a message; it is kept until the workflow asks for it.
    SignalReceived {
        name: StageName,
        #[serde(default, skip_serializing_if = "Value::is_null")]
        payload: Value,
        by: By,
        /// Sent again under the same id, by whomever, it is not received again. Older logs have none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<IdempotencyKey>,
    },
    /// A value that a workflow was given and has to be given again: a time, a random number, the way round a change.
    ValueRecorded {
        name: String,
        value: Value,
    },
    /// A workflow begins anew with another input, and leaves its history behind.
    TaskContinued {
        input: Arc<Value>,
    },
    /// Stands in for an event whose row of the log cannot be read.
    EventLost {
        reason: String,
    },
    /// A person gave up a damaged task; its failure follows.
    TaskRepaired {
        by: By,
        /// What could not be read.
        reason: String,
    },
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn no_outputs(outputs: &Outputs) -> bool {
    outputs.is_empty()
}

/// An event and when it happened; stored as a pair.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record(pub Timestamped, pub Event);

/// Milliseconds in the log, where every byte is written for every stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamped(i64);

impl Record {
    pub fn new(at: Timestamp, event: Event) -> Self {
        Self(Timestamped(at.as_millis()), event)
    }

    pub fn at(&self) -> Timestamp {
        Timestamp::from_millis(self.0.0)
    }

    pub fn event(&self) -> &Event {
        &self.1
    }
}

/// An event as the outside sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventView {
    pub task_id: TaskId,
    pub plan_id: PlanId,
    pub sequence: u64,
    pub event_type: String,
    pub timestamp: Timestamp,
    pub payload: Value,
    pub attempt_number: Option<u32>,
    pub backoff_delay_ms: Option<u64>,
    pub failure_reason: Option<String>,
}

impl EventView {
    pub fn new(plan: &PlanId, task: &TaskId, sequence: u64, record: &Record) -> Self {
        let event = record.event();
        Self {
            task_id: task.clone(),
            plan_id: plan.clone(),
            sequence,
            event_type: event.kind().to_owned(),
            timestamp: record.at(),
            payload: event.payload(),
            attempt_number: event.attempt(),
            backoff_delay_ms: match event {
                Event::RetryScheduled { delay, .. } => Some(delay.get()),
                _ => None,
            },
            failure_reason: event.cause().map(|cause| cause.reason.clone()),
        }
    }
}

impl Event {
    pub fn kind(&self) -> &'static str {
        match self {
            Event::TaskCreated {} => "TASK_CREATED",
            Event::TaskStarted { .. } => "TASK_STARTED",
            Event::StageStarted { .. } => "STAGE_STARTED",
            Event::StageCompleted { .. } => "STAGE_COMPLETED",
            Event::StageSkipped { .. } => "STAGE_SKIPPED",
            Event::StageFailed { .. } => "STAGE_FAILED",
            Event::RetryScheduled { .. } => "RETRY_SCHEDULED",
            Event::PauseRequested { .. } => "PAUSE_REQUESTED",
            Event::TaskPaused { .. } => "TASK_PAUSED",
            Event::TaskResumed { .. } => "TASK_RESUMED",
            Event::TaskCompleted { .. } => "TASK_COMPLETED",
            Event::TaskFailed { .. } => "TASK_FAILED",
            Event::TaskCancelled { .. } => "TASK_CANCELLED",
            Event::TaskInterrupted { .. } => "TASK_INTERRUPTED",
            Event::TaskRetried { .. } => "TASK_RETRIED",
            Event::RollbackStarted { .. } => "ROLLBACK_STARTED",
            Event::StageRolledBack { .. } => "STAGE_ROLLED_BACK",
            Event::TaskRolledBack {} => "TASK_ROLLED_BACK",
            Event::RollbackFailed { .. } => "ROLLBACK_FAILED",
            Event::CheckpointDiscarded { .. } => "CHECKPOINT_DISCARDED",
            Event::DeadLettered { .. } => "DEAD_LETTERED",
            Event::MessageReceived { .. } => "MESSAGE_RECEIVED",
            Event::SignalReceived { .. } => "SIGNAL_RECEIVED",
            Event::ValueRecorded { .. } => "VALUE_RECORDED",
            Event::TaskContinued { .. } => "TASK_CONTINUED",
            Event::EventLost { .. } => "EVENT_LOST",
            Event::TaskRepaired { .. } => "TASK_REPAIRED",
        }
    }

    pub fn stage(&self) -> Option<&StageName> {
        match self {
            Event::StageStarted { stage, .. }
            | Event::StageCompleted { stage, .. }
            | Event::StageSkipped { stage, .. }
            | Event::StageFailed { stage, .. }
            | Event::RetryScheduled { stage, .. }
            | Event::StageRolledBack { stage } => Some(stage),
            Event::TaskFailed { stage, .. } => stage.as_ref(),
            _ => None,
        }
    }

    fn attempt(&self) -> Option<u32> {
        match self {
            Event::StageStarted { attempt, .. }
            | Event::StageCompleted { attempt, .. }
            | Event::StageFailed { attempt, .. }
            | Event::RetryScheduled { attempt, .. } => Some(*attempt),
            Event::TaskFailed { attempts, .. } => *attempts,
            _ => None,
        }
    }

    fn cause(&self) -> Option<&Cause> {
        match self {
            Event::StageFailed { cause, .. }
            | Event::RetryScheduled { cause, .. }
            | Event::TaskFailed { cause, .. } => Some(cause),
            _ => None,
        }
    }

    /// What the outside finds under `payload`: `{stage, reason}` for a retry, as the workflow seed has it.
    fn payload(&self) -> Value {
        let mut payload = Map::new();
        let mut put = |key: &str, value: Value| {
            payload.insert(key.to_owned(), value);
        };
        if let Some(stage) = self.stage() {
            put("stage", json!(stage));
        }
        if let Some(cause) = self.cause() {
            put("reason", json!(cause.reason));
            // A retry's payload is exactly `{stage, reason}`.
            if !matches!(self, Event::RetryScheduled { .. }) {
                put("errorType", json!(cause.error_type));
            }
        }
        match self {
            Event::TaskStarted { node } => put("node", json!(node)),
            Event::StageCompleted { outputs, .. } => put("outputs", json!(outputs)),
            Event::StageStarted { rollback: true, .. } | Event::StageFailed { rollback: true, .. } => {
                put("rollback", json!(true));
            }
            Event::StageSkipped { reason, .. }
            | Event::RollbackFailed { reason }
            | Event::CheckpointDiscarded { reason }
            | Event::DeadLettered { reason }
            | Event::EventLost { reason } => put("reason", json!(reason)),
            Event::TaskRepaired { by, reason } => {
                put("reason", json!(reason));
                put("by", json!(by));
            }
            Event::TaskInterrupted { node, reason, taken_by, automatic } => {
                put("node", json!(node));
                put("reason", json!(reason));
                put("takenBy", json!(taken_by));
                put("automatic", json!(automatic));
            }
            Event::TaskRetried { by, from_checkpoint } => {
                put("fromCheckpoint", json!(from_checkpoint));
                put("by", json!(by));
            }
            Event::PauseRequested { by } | Event::TaskResumed { by } | Event::TaskCancelled { by } => {
                put("by", json!(by));
            }
            Event::TaskPaused { by: Some(by) } | Event::RollbackStarted { by: Some(by) } => put("by", json!(by)),
            Event::StageStarted { step: Some(step), .. } => put("step", json!(step)),
            Event::TaskCompleted { result: Some(result) } => put("result", json!(result)),
            Event::MessageReceived { message } => {
                put("messageId", json!(message.id));
                put("deadline", json!(message.deadline));
                put("origin", json!(message.origin));
            }
            Event::SignalReceived { name, payload, by, id } => {
                put("name", json!(name));
                put("payload", payload.clone());
                put("by", json!(by));
                if let Some(id) = id {
                    put("id", json!(id));
                }
            }
            Event::ValueRecorded { name, value } => {
                put("name", json!(name));
                put("value", value.clone());
            }
            Event::TaskContinued { input } => put("input", json!(input)),
            Event::TaskCreated {}
            | Event::StageStarted { .. }
            | Event::StageFailed { .. }
            | Event::RetryScheduled { .. }
            | Event::TaskPaused { by: None }
            | Event::TaskCompleted { result: None }
            | Event::TaskFailed { .. }
            | Event::RollbackStarted { by: None }
            | Event::StageRolledBack { .. }
            | Event::TaskRolledBack {} => {}
        }
        Value::Object(payload)
    }
}
