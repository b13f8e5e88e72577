//! A task as its log leaves it. Built only by `apply`, never by hand.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::id::{PlanId, StageName, TaskId, Tenant};
use crate::plan::{PlanDefinition, Settings, StageDefinition, StageList, TaskDefinition};
use crate::retry::seed_of;
use crate::time::{Millis, Timestamp};

use super::event::{By, Cause, Outputs};
use super::status::{StageStatus, TaskStatus};

/// How many past failures a checkpoint shows; the log has them all.
pub(super) const FAILURE_HISTORY: usize = 20;

/// What was asked for; does not change while the task lives.
#[derive(Debug, PartialEq)]
pub struct TaskSpec {
    pub id: TaskId,
    pub plan: PlanId,
    pub tenant: Option<Tenant>,
    pub priority: i32,
    pub seed: u64,
    pub input: Arc<Value>,
    pub matrix: Map<String, Value>,
    pub settings: Arc<Settings>,
    pub stages: StageList,
    pub created_at: Timestamp,
}

impl TaskSpec {
    pub fn new(plan: &PlanDefinition, settings: Arc<Settings>, task: TaskDefinition, created_at: Timestamp) -> Self {
        Self {
            seed: seed_of(task.id.as_str()),
            id: task.id,
            plan: plan.id.clone(),
            tenant: task.tenant,
            priority: task.priority,
            input: Arc::new(task.input),
            matrix: task.matrix,
            settings,
            stages: task.stages.unwrap_or_else(|| plan.stages.clone()),
            created_at,
        }
    }

    pub fn stage_index(&self, name: &StageName) -> Option<usize> {
        self.stages.iter().position(|stage| stage.name == *name)
    }
}

/// A task, folded from its log.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    pub(super) spec: Arc<TaskSpec>,
    /// The number of events so far: the last one's sequence.
    pub(super) version: u64,
    pub(super) status: TaskStatus,
    /// RUNNING or ROLLING_BACK, but its node stopped or is gone.
    pub(super) interrupted: bool,
    pub(super) node: Option<Arc<str>>,
    pub(super) pause_requested: Option<By>,
    pub(super) stages: Vec<StageState>,
    /// Completed and skipped stages, in completion order.
    pub(super) done: Vec<StageName>,
    pub(super) done_at: Option<Timestamp>,
    pub(super) undo: Option<Undo>,
    pub(super) failure: Option<TaskFailure>,
    pub(super) failures: Vec<FailureInfo>,
    /// Take-overs in a row since a stage last ended.
    pub(super) takeovers: u32,
    /// When the present run began: the start, or the last manual retry.
    pub(super) run_started_at: Option<Timestamp>,
    pub(super) started_at: Option<Timestamp>,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) updated_at: Timestamp,
}

/// One stage of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct StageState {
    pub status: StageStatus,
    /// The attempt that runs, waits or ended last; 0 before the first.
    pub attempt: u32,
    /// When the present attempt started, or the one that waits may start.
    pub since: Option<Timestamp>,
    pub last_backoff: Option<Millis>,
    /// All attempts together.
    pub duration: Millis,
    pub outputs: Option<Outputs>,
    pub cause: Option<Cause>,
}

impl StageState {
    pub(super) const fn fresh() -> Self {
        Self {
            status: StageStatus::Pending,
            attempt: 0,
            since: None,
            last_backoff: None,
            duration: Millis::ZERO,
            outputs: None,
            cause: None,
        }
    }

    /// It was tried, and no attempt ended well: what the last one did before it stopped, nobody knows.
    pub(super) fn may_have_left_something(&self) -> bool {
        match self.status {
            StageStatus::Failed => true,
            StageStatus::Running | StageStatus::RetryWait | StageStatus::Cancelled => self.attempt > 0,
            StageStatus::Pending | StageStatus::Completed | StageStatus::Skipped | StageStatus::RolledBack => false,
        }
    }

    /// When a waiting stage may start.
    pub fn due(&self) -> Option<Timestamp> {
        if self.status == StageStatus::RetryWait { self.since } else { None }
    }
}

/// A rollback under way: what is still to undo, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Undo {
    /// The first is the current one.
    pub queue: Vec<usize>,
    pub attempt: u32,
    pub running: bool,
    pub due: Option<Timestamp>,
    pub failed: Vec<StageName>,
}

/// Why a task is FAILED.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskFailure {
    pub stage: Option<StageName>,
    pub attempts: Option<u32>,
    pub cause: Cause,
    pub at: Timestamp,
}

/// One failed attempt, as the checkpoint's `failureHistory` shows it.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailureInfo {
    #[serde(rename = "failedAt")]
    pub stage: StageName,
    pub attempt: u32,
    #[serde(flatten)]
    pub cause: Cause,
    pub timestamp: Timestamp,
}

impl Task {
    /// A task whose only event is its creation.
    pub fn created(spec: Arc<TaskSpec>) -> Self {
        Self {
            version: 1,
            status: TaskStatus::Pending,
            interrupted: false,
            node: None,
            pause_requested: None,
            stages: vec![StageState::fresh(); spec.stages.len()],
            done: Vec::new(),
            done_at: None,
            undo: None,
            failure: None,
            failures: Vec::new(),
            takeovers: 0,
            run_started_at: None,
            started_at: None,
            ended_at: None,
            updated_at: spec.created_at,
            spec,
        }
    }

    pub fn spec(&self) -> &Arc<TaskSpec> {
        &self.spec
    }

    pub fn id(&self) -> &TaskId {
        &self.spec.id
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn status(&self) -> TaskStatus {
        self.status
    }

    pub fn interrupted(&self) -> bool {
        self.interrupted
    }

    pub fn node(&self) -> Option<&Arc<str>> {
        self.node.as_ref()
    }

    pub fn pause_requested(&self) -> Option<&By> {
        self.pause_requested.as_ref()
    }

    pub fn stages(&self) -> impl ExactSizeIterator<Item = (&StageDefinition, &StageState)> {
        self.spec.stages.iter().zip(&self.stages)
    }

    pub fn stage(&self, index: usize) -> (&StageDefinition, &StageState) {
        (&self.spec.stages[index], &self.stages[index])
    }

    pub fn done(&self) -> &[StageName] {
        &self.done
    }

    pub fn undo(&self) -> Option<&Undo> {
        self.undo.as_ref()
    }

    pub fn failure(&self) -> Option<&TaskFailure> {
        self.failure.as_ref()
    }

    pub fn takeovers(&self) -> u32 {
        self.takeovers
    }

    pub fn started_at(&self) -> Option<Timestamp> {
        self.started_at
    }

    pub fn ended_at(&self) -> Option<Timestamp> {
        self.ended_at
    }

    pub fn updated_at(&self) -> Timestamp {
        self.updated_at
    }

    /// When the task's own time limit strikes. It binds a task that runs, not its rollback.
    pub fn deadline(&self) -> Option<Timestamp> {
        if self.status != TaskStatus::Running {
            return None;
        }
        Some(self.run_started_at? + self.spec.settings.task_timeout?)
    }

    /// The stage people mean by "where is it": the first that runs, waits or failed, else the next to come.
    pub fn current_stage(&self) -> Option<usize> {
        if let Some(undo) = &self.undo {
            return undo.queue.first().copied();
        }
        let first = |wanted: &[StageStatus]| self.stages.iter().position(|stage| wanted.contains(&stage.status));
        first(&[StageStatus::Running])
            .or_else(|| first(&[StageStatus::RetryWait]))
            .or_else(|| first(&[StageStatus::Failed]))
            .or_else(|| if self.status.is_ended() { None } else { first(&[StageStatus::Pending]) })
    }

    /// The earliest instant at which a waiting stage may start; none when nothing may start any more.
    pub fn next_due(&self) -> Option<Timestamp> {
        if self.status == TaskStatus::RollingBack {
            return self.undo.as_ref().and_then(|undo| undo.due);
        }
        let may_start =
            self.status == TaskStatus::Running && self.pause_requested.is_none() && !self.any(StageStatus::Failed);
        self.stages.iter().filter_map(StageState::due).min().filter(|_| may_start)
    }

    pub(super) fn any(&self, status: StageStatus) -> bool {
        self.stages.iter().any(|stage| stage.status == status)
    }

    /// What `{{ … }}` sees.
    pub fn scope(&self) -> Value {
        let stages: Map<String, Value> = self
            .stages()
            .filter_map(|(definition, state)| {
                let outputs = state.outputs.as_deref().cloned().unwrap_or_default();
                state.status.is_done().then(|| (definition.name.to_string(), json!({ "outputs": outputs })))
            })
            .collect();
        json!({
            "plan": self.spec.plan,
            "task": self.spec.id,
            "tenant": self.spec.tenant,
            "input": *self.spec.input,
            "matrix": self.spec.matrix,
            "stages": stages,
        })
    }
}
