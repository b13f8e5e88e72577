//! A task as the outside sees it: the same JSON from the command line and over HTTP.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::ErrorType;
use crate::id::{PlanId, StageName, TaskId, Tenant};
use crate::pace::eta_seconds;
use crate::plan::WorkflowRef;
use crate::time::Timestamp;

use super::flow::Flow;
use super::progress::percent;
use super::state::Task;
use super::status::{StageStatus, TaskStatus};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskView {
    pub task_id: TaskId,
    pub plan_id: PlanId,
    pub tenant_id: Option<Tenant>,
    pub status: TaskStatus,
    pub interrupted: bool,
    pub pause_requested: bool,
    /// PENDING until its message is here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaits_message: bool,
    pub current_stage: Option<StageName>,
    pub attempt: Option<u32>,
    pub retry_context: BTreeMap<StageName, RetryView>,
    /// The holder of its tenant's lock, as `planId:taskId`.
    pub blocked_by: Option<String>,
    /// Why nothing is done with it: what is stored of it cannot be read, or no claim could take it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
    pub durable: bool,
    pub version: u64,
    pub priority: i32,
    pub node: Option<String>,
    pub total_stages: usize,
    pub completed_stages: usize,
    pub percent: f64,
    /// What its running stage last said of itself; kept while it is paused in the middle of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<StageProgress>,
    pub has_checkpoint: bool,
    pub failure: Option<FailureView>,
    pub next_retry_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub updated_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub stages: Vec<StageView>,
    /// The function that it runs, if it runs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowRef>,
    /// What the function returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
}

/// How far a stage says it is, in its own unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StageProgress {
    pub done: u64,
    /// None as long as it is not known.
    pub total: Option<u64>,
    /// Units a second in the last few seconds; from a node that does not run it, once it has looked twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// How long the rest of the stage takes at that rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_seconds: Option<u64>,
}

impl StageProgress {
    /// A total of 0 is one that is not known yet.
    pub fn new(done: u64, total: u64, rate: Option<f64>) -> Self {
        // A tenth is as much as anybody reads.
        let tenths = |rate: f64| (rate * 10.0).round() / 10.0;
        let eta_seconds = eta_seconds(done, total, rate);
        Self { done, total: (total > 0).then_some(total), rate: rate.map(tenths), eta_seconds }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RetryView {
    pub current_attempt: u32,
    pub last_backoff: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailureView {
    pub stage: Option<StageName>,
    pub attempts: Option<u32>,
    pub error_type: ErrorType,
    pub reason: String,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StageView {
    pub name: StageName,
    pub status: StageStatus,
    pub attempt: u32,
    pub max_attempts: u32,
    pub due_at: Option<Timestamp>,
    pub duration_ms: u64,
    /// Why it failed, or was skipped.
    pub reason: Option<String>,
}

/// What a store knows beside the log.
#[derive(Debug, Clone, Default)]
pub struct TaskContext {
    /// The holder of its tenant's lock, as `planId:taskId`.
    pub blocked_by: Option<String>,
    /// Why no claim takes it.
    pub set_aside: Option<String>,
    /// No live node has it.
    pub orphaned: bool,
    /// How far the running stage said it is.
    pub progress: Option<(u64, u64)>,
}

impl TaskView {
    pub fn new(task: &Task, context: TaskContext) -> Self {
        let current = task.current_stage();
        let failure = task.failure().filter(|_| task.status() != TaskStatus::Completed);
        // Nobody knows how many stages a workflow will have: one more than it has asked for, until it says.
        let stages = task.stages.len() + usize::from(task.flow.is_some());
        Self {
            task_id: task.spec.id.clone(),
            plan_id: task.spec.plan.clone(),
            tenant_id: task.spec.tenant.clone(),
            status: task.status,
            interrupted: task.status.is_active() && (task.interrupted || context.orphaned),
            pause_requested: task.pause_requested.is_some(),
            awaits_message: task.awaits_message(),
            current_stage: current.map(|index| task.definitions()[index].name.clone()),
            attempt: current
                .map(|index| task.undo.as_ref().map_or(task.stages[index].attempt, |undo| undo.attempt))
                .filter(|attempt| *attempt > 0),
            retry_context: task
                .stages()
                .filter_map(|(definition, state)| {
                    let last_backoff = state.last_backoff?.get();
                    Some((definition.name.clone(), RetryView { current_attempt: state.attempt, last_backoff }))
                })
                .collect(),
            blocked_by: context.blocked_by,
            damaged: task.damage().map(str::to_owned).or(context.set_aside),
            durable: true,
            version: task.version,
            priority: task.spec.priority,
            node: task.node.as_deref().map(str::to_owned),
            total_stages: task.stages.len(),
            completed_stages: task.done.len(),
            percent: percent(task.status, task.done.len(), stages, context.progress),
            progress: context.progress.map(|(done, total)| StageProgress::new(done, total, None)),
            has_checkpoint: super::Checkpoint::of(task).is_some(),
            failure: failure.map(|failure| FailureView {
                stage: failure.stage.clone(),
                attempts: failure.attempts,
                error_type: failure.cause.error_type,
                reason: failure.cause.reason.clone(),
                at: failure.at,
            }),
            next_retry_at: task.next_due(),
            created_at: task.spec.created_at,
            started_at: task.started_at,
            updated_at: task.updated_at,
            ended_at: task.ended_at,
            stages: task
                .stages()
                .enumerate()
                .map(|(index, (definition, state))| StageView {
                    name: definition.name.clone(),
                    status: shown(task.status, state.status),
                    attempt: state.attempt,
                    max_attempts: definition.retry.max_attempts,
                    due_at: task.due(index),
                    duration_ms: state.duration.get(),
                    reason: state.cause.as_ref().map(|cause| cause.reason.clone()).or_else(|| state.skipped.clone()),
                })
                .collect(),
            workflow: task.spec.workflow.clone(),
            result: task.flow().and_then(Flow::result).map(|result| Value::clone(result)),
        }
    }
}

/// A stage in the middle of which its task was paused begins anew, like one that has not begun.
fn shown(task: TaskStatus, stage: StageStatus) -> StageStatus {
    if task == TaskStatus::Paused && stage == StageStatus::Running { StageStatus::Pending } else { stage }
}
