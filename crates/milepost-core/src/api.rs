//! What goes over the wire: the answers and questions of the HTTP API that are not a task's or an event's own view.
//! Server, client and command line share these types, so that none can drift from the others.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::ErrorType;
use crate::id::{PlanId, StageName, TaskId, Tenant};
use crate::pace::Underway;
use crate::plan::TaskCounts;
use crate::task::{By, Checkpoint, EventView, PlanStatus, StageProgress, TaskStatus, TaskView};
use crate::time::Timestamp;

/// A list, and where its next page begins; `nextCursor` is null on the last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct List<T> {
    pub items: Vec<T>,
    pub next_cursor: Option<String>,
}

// --- plans ---

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanView {
    pub plan_id: PlanId,
    pub status: PlanStatus,
    pub tasks: TaskCounts,
    /// Completed tasks, in percent of all.
    pub progress: f64,
    pub max_concurrency: u32,
    pub version: u64,
    /// RUNNING, but its recovery is manual, and nobody has set it going since all nodes were gone: none of its tasks
    /// starts by itself.
    #[serde(default)]
    pub waits_for_person: bool,
    /// Who changed its status last, when a person did.
    pub changed_by: Option<By>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}

/// One plan with the ids of its tasks: the first thousand, `GET /plans/{id}/tasks` has them all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanDetail {
    #[serde(flatten)]
    pub plan: PlanView,
    pub task_ids: Vec<TaskId>,
}

/// What became of a submission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Accepted {
    #[serde(flatten)]
    pub plan: PlanView,
    /// False when the same plan was there already.
    pub created: bool,
    pub added: u64,
    pub removed: u64,
}

/// How a task of a plan failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskFailureView {
    pub task_id: TaskId,
    pub tenant_id: Option<Tenant>,
    pub status: TaskStatus,
    pub stage: Option<StageName>,
    pub attempts: Option<u32>,
    pub error_type: Option<ErrorType>,
    pub reason: Option<String>,
}

impl From<&TaskView> for TaskFailureView {
    fn from(task: &TaskView) -> Self {
        let failure = task.failure.as_ref();
        Self {
            task_id: task.task_id.clone(),
            tenant_id: task.tenant_id.clone(),
            status: task.status,
            stage: failure.and_then(|failure| failure.stage.clone()),
            attempts: failure.and_then(|failure| failure.attempts),
            error_type: failure.map(|failure| failure.error_type),
            reason: failure.map(|failure| failure.reason.clone()),
        }
    }
}

/// A plan, what runs and what waits of it, and what failed: up to 20 tasks of each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanReport {
    #[serde(flatten)]
    pub plan: PlanView,
    /// As in `PlanProgress`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_seconds: Option<u64>,
    pub running: Vec<TaskView>,
    pub waiting: Vec<TaskView>,
    pub failures: Vec<TaskFailureView>,
}

/// One reading of how far a plan is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanProgress {
    pub plan_id: PlanId,
    pub status: PlanStatus,
    pub tasks: TaskCounts,
    /// Completed tasks, in percent of all.
    pub percent: f64,
    /// Of all stages that run and say how far they are, together: units a second, each in its own unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Until the plan ends, if it goes on as it went: what its running tasks have left, and for each that waits as long as
    /// its tasks took so far. Absent while nothing can be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_seconds: Option<u64>,
    /// What runs just now, up to 20 tasks.
    pub running: Vec<TaskProgress>,
}

/// How far a task is: done stages, and what the running one says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskProgress {
    pub task_id: TaskId,
    pub plan_id: PlanId,
    pub status: TaskStatus,
    pub stage: Option<StageName>,
    pub completed_stages: u64,
    pub total_stages: u64,
    /// Between 0 and 100, never NaN.
    pub percent: f64,
    /// What the running stage has done, of how much, in its own unit.
    pub done: Option<u64>,
    /// None as long as it is not known.
    pub total: Option<u64>,
    /// Units a second, in the last few seconds; from a node that does not run the task, once it has looked twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// How long the rest of the stage takes at that rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_seconds: Option<u64>,
}

impl TaskProgress {
    /// The same task with what one of its stages says of itself.
    pub fn with(self, said: Option<StageProgress>) -> Self {
        Self {
            done: said.map(|said| said.done),
            total: said.and_then(|said| said.total),
            rate: said.and_then(|said| said.rate),
            eta_seconds: said.and_then(|said| said.eta_seconds),
            ..self
        }
    }

    /// What is left of it, for an estimate of its plan's end.
    pub fn underway(&self, since: Duration) -> Underway {
        let is_last = self.total_stages.saturating_sub(self.completed_stages) == 1;
        Underway { since, share: self.percent / 100.0, eta_seconds: self.eta_seconds.filter(|_| is_last) }
    }
}

impl From<&TaskView> for TaskProgress {
    fn from(task: &TaskView) -> Self {
        let progress = Self {
            task_id: task.task_id.clone(),
            plan_id: task.plan_id.clone(),
            status: task.status,
            stage: task.current_stage.clone(),
            completed_stages: task.completed_stages as u64,
            total_stages: task.total_stages as u64,
            percent: task.percent,
            done: None,
            total: None,
            rate: None,
            eta_seconds: None,
        };
        progress.with(task.progress)
    }
}

// --- verbs ---

/// What may go with a verb. All of it may be left out, and so may the body.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VerbRequest {
    /// Why, for the log.
    #[cfg_attr(feature = "openapi", schema(max_length = 2000))]
    pub reason: Option<String>,
    /// Refused if the plan or task is at another version by now.
    pub expected_version: Option<u64>,
    /// Of `retry`: go on after the last completed stage (the default), or begin anew.
    pub from_checkpoint: Option<bool>,
}

/// What a verb did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VerbAnswer {
    pub target: String,
    pub verb: String,
    /// How many tasks were changed.
    pub tasks: u64,
    pub plan: Option<PlanState>,
    pub task: Option<TaskState>,
    /// Tasks of the plan that the verb was meant for and that need something else first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<LeftTask>,
}

/// A task that a verb on its plan could not change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeftTask {
    pub task_id: TaskId,
    /// Why, and what to do about it.
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanState {
    pub id: PlanId,
    pub status: PlanStatus,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskState {
    pub id: TaskId,
    pub status: TaskStatus,
    pub pause_requested: bool,
}

/// What `reset-failed` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResetAnswer {
    pub reset: u64,
    /// Failed tasks that need something else first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<LeftTask>,
}

// --- tasks ---

/// A task's checkpoint, if it has one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckpointView {
    pub has_checkpoint: bool,
    #[serde(flatten)]
    pub checkpoint: Option<Checkpoint>,
}

/// What one attempt printed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LogView {
    pub stage: StageName,
    pub attempt: u32,
    pub at: Timestamp,
    pub text: String,
}

/// Why a task does not run, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Reason {
    /// It does run.
    Running,
    /// Its running stage ends first, then it pauses.
    Pausing,
    /// It is done, and how it ended is its status.
    Ended,
    /// A stage failed for good; a person may retry it or roll it back.
    Failed,
    /// Another task has its tenant.
    TenantLocked,
    /// Its plan runs as many tasks as it may.
    NoSlot,
    /// Its node has as much in hand as it takes; it is next in line.
    NodeFull,
    /// A stage failed and is tried again.
    RetryWait,
    /// A workflow sleeps.
    Sleeping,
    /// Its plan has `trigger: message`, and its message has not come.
    AwaitingMessage,
    /// A workflow waits for a signal.
    AwaitingSignal,
    /// A workflow waits for one that it started.
    AwaitingChild,
    /// No node that has its tasks in hand knows the workflow, in the version that this run began with.
    NoNodeKnows,
    Paused,
    PlanPaused,
    /// Its plan was not started.
    PlanNotStarted,
    PlanEnded,
    /// Its node is gone, and a person decides what becomes of it.
    Interrupted,
    /// Its node is gone, and another is about to take it up.
    NodeGone,
    /// What is stored of it cannot be read.
    Damaged,
}

/// Why a task is not running, in words and in data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Explanation {
    pub task_id: TaskId,
    pub plan_id: PlanId,
    pub status: TaskStatus,
    pub reason: Reason,
    pub message: String,
    /// What a person may do about it: the verb of the API or the command line.
    pub next: Option<String>,
    /// What the message says, as data: `heldBy`, `since`, `dueAt`, `attempt`, `maxAttempts`, `lastError`, `by`, ...
    pub data: serde_json::Map<String, Value>,
}

// --- the machinery ---

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LockView {
    pub tenant_id: Tenant,
    /// `planId:taskId`.
    pub owner: String,
    pub plan_id: PlanId,
    pub task_id: TaskId,
    pub since: Timestamp,
    pub fence: u64,
    /// When it opens by itself unless it is renewed; only where several nodes share a store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// What was given up, and is put back by its id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLetterView {
    pub id: String,
    /// None of a message that could not be read.
    #[serde(default)]
    pub task_id: Option<String>,
    /// None when there is no such task.
    #[serde(default)]
    pub plan_id: Option<String>,
    #[serde(default)]
    pub original_message_id: Option<String>,
    /// As it came; none of a task that no message set off.
    #[serde(default)]
    pub original_message: Option<String>,
    pub failure_reason: String,
    #[serde(default)]
    pub error_type: Option<ErrorType>,
    #[serde(default)]
    pub failed_stage: Option<String>,
    #[serde(default)]
    pub failed_callback: Option<String>,
    #[serde(default)]
    pub failed_stage_index: Option<u64>,
    #[serde(default)]
    pub attempts: Option<u32>,
    pub failed_at: Timestamp,
    #[serde(default)]
    pub node_id: Option<String>,
    #[serde(default)]
    pub failed_node_id: Option<String>,
    #[serde(default)]
    pub executed_by: Option<String>,
    /// Where a message that no task could use goes back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_topic: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_key: Option<String>,
    /// `text` or `base64`, of such a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_as: Option<String>,
}

/// What was put back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RedriveAnswer {
    pub id: String,
    /// The new one; none for a task that no message set off, and for what is no message at all.
    pub message_id: Option<String>,
    /// The task that goes on; none when a message was published again.
    pub task: Option<TaskState>,
}

/// What goes with the publishing of a task's message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PublishRequest {
    /// How soon the task has to start, such as `10m`; an hour unless it says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(example = "1h"))]
    pub deadline: Option<String>,
}

/// The message is in the outbox, and goes to the topic from there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PublishAnswer {
    pub task_id: TaskId,
    pub message_id: String,
}

/// How one node takes messages in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConsumerStatus {
    /// Somebody has it paused; what runs goes on.
    pub paused: bool,
    /// Tasks that messages set off and that run here now.
    pub active_executions: u64,
    /// Messages that were made durable here since the node started.
    pub consumed_count: u64,
    /// Messages of no use, and tasks that messages set off and that failed here since then.
    pub failed_count: u64,
    /// How many messages of its partitions are still to be read; none while that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
    /// It hears from its broker.
    pub connected: bool,
    /// How many partitions this node reads.
    pub partitions: u64,
    /// Topics that take nothing of what this node publishes; what is for them waits in the store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failing_topics: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeView {
    pub node_id: String,
    pub boot_id: String,
    pub started_at: Timestamp,
    pub seen_at: Timestamp,
    pub live: bool,
    /// Tasks it has in hand.
    pub in_hand: u64,
    pub capacity: u64,
}

/// What a token's bearer may do; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Scope {
    /// See everything, change nothing.
    Read,
    /// Submit plans and use the operator's verbs.
    Operate,
    /// Make and revoke tokens.
    Admin,
}

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenView {
    pub id: String,
    pub name: String,
    pub scope: Scope,
    /// Empty: not bound to any.
    pub tenants: Vec<Tenant>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenRequest {
    pub name: String,
    pub scope: Scope,
    #[serde(default)]
    pub tenants: Vec<Tenant>,
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
}

/// The one time that a token's secret is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewToken {
    #[serde(flatten)]
    pub token: TokenView,
    /// `mp_<id>_<secret>`: what goes into `Authorization: Bearer ...`.
    pub secret: String,
}

/// An error, as RFC 9457 has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProblemView {
    /// Names the kind of problem, and stays the same.
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    /// What was wrong, where, and what to do.
    pub detail: String,
    /// The kind again, short, for programs: `not-found`, `refused`, `version-conflict`, ...
    pub code: String,
    /// Each mistake of a plan by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ProblemPart>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProblemPart {
    pub message: String,
    /// Where in the plan, such as `stages[1].needs[0]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What was expected, or what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u64>,
}

// --- live progress: the data of each kind of server-sent event ---

/// `snapshot`: everything as it is, before anything that changes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Snapshot {
    pub plan: PlanView,
    /// As in `PlanProgress`; of a plan's stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_seconds: Option<u64>,
    /// Tasks that have begun and not ended, up to 1,000; of a task's own stream, that task.
    pub tasks: Vec<TaskProgress>,
}

/// `progress`: how far a task or the plan is. Coalesced: the newest counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProgressMessage {
    pub plan_id: PlanId,
    /// The plan's counts: when they changed, and about once a second while its tasks say how far they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskCounts>,
    /// Of the plan: completed tasks out of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<f64>,
    /// Of the plan, as in `PlanProgress`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskProgress>,
}

impl ProgressMessage {
    /// One that says nothing yet.
    pub fn of(plan_id: PlanId) -> Self {
        Self { plan_id, tasks: None, percent: None, rate: None, eta_seconds: None, task: None }
    }
}

impl From<&PlanProgress> for ProgressMessage {
    fn from(plan: &PlanProgress) -> Self {
        Self {
            plan_id: plan.plan_id.clone(),
            tasks: Some(plan.tasks),
            percent: Some(plan.percent),
            rate: plan.rate,
            eta_seconds: plan.eta_seconds,
            task: None,
        }
    }
}

/// `state`: something happened to a task, or to the plan itself, and is durable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StateMessage {
    pub plan_id: PlanId,
    /// Of the plan, when it was the plan that changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_status: Option<PlanStatus>,
    /// Who changed the plan, when a person did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// What happened to the task, in one commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventView>,
}

/// `end`: the plan or task has ended, and so does the stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EndMessage {
    pub plan_id: PlanId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_status: Option<PlanStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_status: Option<TaskStatus>,
}
