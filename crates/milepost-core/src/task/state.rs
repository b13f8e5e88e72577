//! A task as its log leaves it. Built only by `apply`, never by hand.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::id::{PlanId, StageName, TaskId, Tenant};
use crate::message::Arrival;
use crate::plan::{
    FileRef, PlanDefinition, Settings, StageDefinition, StageList, TaskDefinition, Trigger, WorkflowRef,
};
use crate::planted::planted;
use crate::retry::seed_of;
use crate::time::{Millis, Timestamp};

use super::event::{By, Cause, Outputs};
use super::flow::{Answer, Flow, value_of};
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
    /// The function it runs, for a task whose stages are not known beforehand.
    pub workflow: Option<WorkflowRef>,
    /// The workflow that waits for this one.
    pub parent: Option<TaskId>,
    pub file: Option<FileRef>,
    /// The message that made it.
    pub message: Option<Arc<Arrival>>,
    pub created_at: Timestamp,
    /// Why its stored definition cannot be read; what is said here beside its names is then not what was asked for.
    pub damage: Option<String>,
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
            workflow: plan.workflow.clone(),
            parent: plan.parent.clone(),
            file: task.file,
            message: task.message,
            created_at,
            damage: None,
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
    /// Since when it is PAUSED. Signals and messages still come while it is, so its last event does not tell.
    pub(super) paused_at: Option<Timestamp>,
    /// The message that set it off.
    pub(super) message: Option<Arc<Arrival>>,
    /// The sequence of its last dead letter.
    pub(super) dead_letter: Option<u64>,
    pub(super) stages: Vec<StageState>,
    /// Only a workflow has one.
    pub(super) flow: Option<Box<Flow>>,
    /// Completed and skipped stages, in completion order.
    pub(super) done: Vec<StageName>,
    pub(super) done_at: Option<Timestamp>,
    pub(super) undo: Option<Undo>,
    pub(super) failure: Option<TaskFailure>,
    pub(super) failures: Vec<FailureInfo>,
    /// What of its log or definition cannot be read.
    pub(super) damage: Option<Damage>,
    /// Take-overs in a row since a stage last ended.
    pub(super) takeovers: u32,
    /// Which run of it this is, from 1: each makes everything be done, also what an earlier one had completed.
    pub(super) run: u32,
    /// When the present run began: the start, or the last manual retry.
    pub(super) run_started_at: Option<Timestamp>,
    pub(super) started_at: Option<Timestamp>,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) updated_at: Timestamp,
}

/// One stage of a task. A long task has many of them, so an image leaves out what there is nothing of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StageState {
    pub status: StageStatus,
    /// The attempt that runs, waits or ended last; 0 before the first.
    pub attempt: u32,
    /// How often an attempt at it was begun in the present run, a retry's included: each may have left something.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub starts: u32,
    /// When the present attempt started, or the one that waits may start.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::time::as_millis")]
    pub since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_backoff: Option<Millis>,
    /// All attempts together.
    #[serde(default, skip_serializing_if = "Millis::is_zero")]
    pub duration: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Outputs>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Why it was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

impl StageState {
    pub(super) const fn fresh() -> Self {
        Self {
            status: StageStatus::Pending,
            attempt: 0,
            starts: 0,
            since: None,
            last_backoff: None,
            duration: Millis::ZERO,
            outputs: None,
            cause: None,
            skipped: None,
        }
    }

    /// To be done again in the same run. What its attempts left is not forgotten: a rollback may still have to undo it.
    pub(super) fn reopened(&self) -> Self {
        Self { starts: self.starts, ..self.restarted() }
    }

    /// To be done in a new run, which answers only for itself.
    pub(super) fn restarted(&self) -> Self {
        Self { duration: self.duration, ..Self::fresh() }
    }

    /// An attempt of this run failed or was cut off, and nothing undid it: what it did before it stopped, nobody knows.
    pub(super) fn may_have_left_something(&self) -> bool {
        match self.status {
            StageStatus::Pending
            | StageStatus::Running
            | StageStatus::RetryWait
            | StageStatus::Failed
            | StageStatus::Cancelled => self.starts > 0,
            // The attempt that skipped it left nothing; those before it may have.
            StageStatus::Skipped => self.starts > 1,
            StageStatus::Completed | StageStatus::RolledBack => false,
        }
    }

    /// When a waiting stage may start.
    pub fn due(&self) -> Option<Timestamp> {
        if self.status == StageStatus::RetryWait { self.since } else { None }
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A rollback under way: what is still to undo, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Undo {
    /// The first is the current one.
    pub queue: Vec<usize>,
    pub attempt: u32,
    pub running: bool,
    pub due: Option<Timestamp>,
    pub failed: Vec<StageName>,
}

impl Undo {
    /// A log that was written when another order was the rule says itself what is undone next.
    pub(super) fn put_first(&mut self, stage: usize) {
        if self.queue.first() != Some(&stage) {
            self.queue.retain(|index| *index != stage);
            self.queue.insert(0, stage);
        }
    }
}

/// Why a task is FAILED.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskFailure {
    pub stage: Option<StageName>,
    pub attempts: Option<u32>,
    pub cause: Cause,
    pub at: Timestamp,
}

/// Part of a task's log or definition is lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Damage {
    pub reason: String,
    /// A person has ended it as FAILED: it may run again, from its start.
    pub repaired: bool,
}

/// One failed attempt, as the checkpoint's `failureHistory` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
            paused_at: None,
            message: spec.message.clone(),
            dead_letter: None,
            stages: vec![StageState::fresh(); if spec.workflow.is_some() { 0 } else { spec.stages.len() }],
            flow: spec.workflow.is_some().then(|| Box::new(Flow::new(spec.input.clone()))),
            done: Vec::new(),
            done_at: None,
            undo: None,
            failure: None,
            failures: Vec::new(),
            damage: spec.damage.clone().map(|reason| Damage { reason, repaired: false }),
            takeovers: 0,
            run: 1,
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

    /// The message that set it off, when one did.
    pub fn message(&self) -> Option<&Arc<Arrival>> {
        self.message.as_ref()
    }

    /// It may not be claimed before its message is here.
    pub fn awaits_message(&self) -> bool {
        self.status == TaskStatus::Pending && self.lacks_message()
    }

    /// A message for it is welcome, also while it is paused: it would not come a second time.
    pub fn takes_message(&self) -> bool {
        matches!(self.status, TaskStatus::Pending | TaskStatus::Paused) && self.lacks_message()
    }

    fn lacks_message(&self) -> bool {
        let none_yet = self.message.is_none() || planted("a message is taken in twice");
        self.spec.settings.trigger == Trigger::Message && none_yet
    }

    /// The sequence of the event with which it was given up last.
    pub fn dead_letter(&self) -> Option<u64> {
        self.dead_letter
    }

    pub fn stages(&self) -> impl ExactSizeIterator<Item = (&StageDefinition, &StageState)> {
        self.definitions().iter().zip(&self.stages)
    }

    pub fn stage(&self, index: usize) -> (&StageDefinition, &StageState) {
        (&self.definitions()[index], &self.stages[index])
    }

    /// Its stages: those that were asked for, or of a workflow those that it has asked for so far.
    pub fn definitions(&self) -> &[StageDefinition] {
        match &self.flow {
            Some(flow) => &flow.definitions,
            None => &self.spec.stages,
        }
    }

    pub fn stage_index(&self, name: &StageName) -> Option<usize> {
        match &self.flow {
            Some(flow) => flow.index_of(name),
            None => self.spec.stage_index(name),
        }
    }

    pub fn flow(&self) -> Option<&Flow> {
        self.flow.as_deref()
    }

    /// What a workflow's function is told of a stage that has ended; none while it has not.
    pub fn answer(&self, index: usize) -> Option<Answer> {
        let state = self.stages.get(index)?;
        match state.status {
            StageStatus::Completed | StageStatus::Failed | StageStatus::RolledBack => {}
            StageStatus::Pending
            | StageStatus::Running
            | StageStatus::RetryWait
            | StageStatus::Skipped
            | StageStatus::Cancelled => return None,
        }
        match (&state.outputs, &state.cause) {
            (Some(outputs), _) => Some(Answer::Value(value_of(outputs))),
            (None, Some(cause)) => {
                let mut failure = Failure::fatal(cause.error_type, cause.reason.clone());
                let most = self.definitions()[index].retry.max_attempts;
                failure.attempts = (most > 1 && state.attempt >= most).then_some(state.attempt);
                Some(Answer::Failure(failure))
            }
            (None, None) => None,
        }
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

    /// What of it cannot be read. Nothing is done with such a task until it is repaired.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_ref().filter(|damage| !damage.repaired).map(|damage| damage.reason.as_str())
    }

    /// Part of its log is lost: what it did before it was given up is not known.
    pub fn was_repaired(&self) -> bool {
        self.damage.as_ref().is_some_and(|damage| damage.repaired)
    }

    pub fn takeovers(&self) -> u32 {
        self.takeovers
    }

    /// From 1. What is done anew, and not only again, is another run: after a rollback, from the start, or because the
    /// checkpoint was discarded. A rollback undoes the run that it ends.
    pub fn run(&self) -> u32 {
        self.run
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
        if let Some(flow) = &self.flow {
            let open = |wanted| flow.open.iter().copied().find(|index| self.stages[*index].status == wanted);
            let failed = || self.failure.as_ref()?.stage.as_ref().and_then(|stage| flow.index_of(stage));
            // What is being done says more than what is waited for.
            let works = |index: &usize| !flow.steps[*index].kind.only_waits();
            let runs = |index: &usize| works(index) && self.stages[*index].status == StageStatus::Running;
            let working = flow.open.iter().copied().find(runs);
            let waiting = || open(StageStatus::Running).or_else(|| open(StageStatus::RetryWait));
            return working.or_else(waiting).or_else(failed);
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
        if let Some(flow) = &self.flow {
            let may_go_on = self.status == TaskStatus::Running && self.pause_requested.is_none();
            return flow.open.iter().filter_map(|index| self.due(*index)).min().filter(|_| may_go_on);
        }
        let may_start =
            self.status == TaskStatus::Running && self.pause_requested.is_none() && !self.any(StageStatus::Failed);
        self.stages.iter().filter_map(StageState::due).min().filter(|_| may_start)
    }

    /// When a stage that waits may start, or a step that only waits has waited long enough.
    pub fn due(&self, index: usize) -> Option<Timestamp> {
        let state = &self.stages[index];
        let waits = || self.flow.as_ref().filter(|_| state.status == StageStatus::Running)?.steps[index].kind.due();
        state.due().or_else(waits)
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
            "file": self.spec.file.as_ref().map(FileRef::scope),
            "stages": stages,
        })
    }
}
