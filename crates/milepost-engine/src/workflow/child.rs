//! Workflows as plans of one task, and the way from a child's end back to its parent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use milepost_core::failure::ErrorType;
use milepost_core::id::{PlanId, StageName, TaskId};
use milepost_core::plan::{Plan, PlanDefinition, Settings, TaskDefinition, WorkflowRef};
use milepost_core::retry::seed_of;
use milepost_core::task::{By, Cause, Command, Flow, StepKind, Task, TaskStatus};
use milepost_store::{PlanQuery, Resubmit, Start, StoreError, StoredTask, Submission};
use serde_json::{Map, Value};

use crate::engine::Inner;
use crate::runner::chain;
use crate::verbs::{Asked, VerbError};

/// Before a store that was away is asked again; longer each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A run of a workflow, ready to be submitted.
#[derive(Debug, Clone)]
pub struct Run {
    pub workflow: WorkflowRef,
    /// Of the plan and of its task.
    pub id: TaskId,
    pub input: Value,
    pub parent: Option<TaskId>,
    pub settings: Settings,
}

impl Run {
    pub fn new(workflow: WorkflowRef, id: TaskId, input: Value) -> Self {
        Self { workflow, id, input, parent: None, settings: Settings { max_concurrency: 1, ..Settings::default() } }
    }

    pub fn plan(self) -> Plan {
        let task = TaskDefinition {
            id: self.id.clone(),
            tenant: None,
            priority: 0,
            input: self.input,
            matrix: Map::new(),
            stages: None,
            file: None,
            message: None,
        };
        let definition = PlanDefinition {
            id: PlanId::parse(self.id.as_str()).expect("plans and tasks have the same rule for their ids"),
            settings: self.settings,
            stages: Vec::new().into(),
            workflow: Some(self.workflow),
            parent: self.parent,
        };
        Plan { definition, tasks: vec![task] }
    }
}

/// The id of the child that a stage stands for: its parent's and its own, and another one when it is asked for anew.
pub(super) fn child_id(parent: &TaskId, flow: &Flow, stage: &StageName) -> TaskId {
    let generation = if flow.generation() > 1 { format!(".g{}", flow.generation()) } else { String::new() };
    let retries = if flow.retries() > 0 { format!(".r{}", flow.retries()) } else { String::new() };
    let name = format!("{parent}{generation}.{stage}{retries}");
    TaskId::parse(&name).unwrap_or_else(|_| {
        // Too long: its end tells it from others as well as the whole of it would.
        let short: String = name.chars().take(100).collect();
        TaskId::parse(format!("{short}-{:016x}", seed_of(&name))).expect("a shortened id is an id")
    })
}

/// What became of a workflow; none while it may still become something.
pub fn outcome(task: &Task) -> Option<Result<Value, Cause>> {
    match task.status() {
        TaskStatus::Pending | TaskStatus::Running | TaskStatus::Paused | TaskStatus::RollingBack => None,
        TaskStatus::Completed => {
            let result = task.flow().and_then(Flow::result);
            Some(Ok(result.map_or(Value::Null, |result| Value::clone(result))))
        }
        TaskStatus::Failed | TaskStatus::RolledBack | TaskStatus::RollbackFailed => {
            let unknown = || Cause { error_type: ErrorType::Unknown, reason: "it failed".to_owned() };
            Some(Err(task.failure().map_or_else(unknown, |failure| failure.cause.clone())))
        }
        TaskStatus::Cancelled => {
            Some(Err(Cause { error_type: ErrorType::Unknown, reason: "it was cancelled".to_owned() }))
        }
    }
}

/// The children that a task waits for.
pub(crate) fn open_children(task: &Task) -> Vec<TaskId> {
    task.flow().map(|flow| flow.open().filter_map(|index| child_of(flow, index)).collect()).unwrap_or_default()
}

/// Those that a workflow which has ended did not hear of.
fn unheard_children(task: &Task) -> Vec<TaskId> {
    let Some(flow) = task.flow() else { return Vec::new() };
    let unheard = (0..task.stages().len()).filter(|index| task.answer(*index).is_none());
    unheard.filter_map(|index| child_of(flow, index)).collect()
}

fn child_of(flow: &Flow, index: usize) -> Option<TaskId> {
    match &flow.step(index).kind {
        StepKind::Child { task } => Some(task.clone()),
        StepKind::Stage | StepKind::Sleep { .. } | StepKind::Signal { .. } => None,
    }
}

impl Inner {
    /// Submits a child, which may have been submitted before, and may even have ended.
    pub(super) fn start_child(self: &Arc<Self>, run: Run) {
        let inner = self.clone();
        self.spawn(async move {
            let (parent, child) = (run.parent.clone(), run.id.clone());
            let result = match inner.submit_child(run).await {
                Ok(()) => inner.look(|| inner.store.task(&child)).await.and_then(|stored| outcome(&stored.task)),
                Err(reason) => Some(Err(Cause { error_type: ErrorType::Conflict, reason })),
            };
            let Some(parent) = parent else { return };
            match result {
                Some(result) => inner.child_ended(&parent, child, result).await,
                // Whoever cancelled the parent meanwhile found no child yet.
                None if inner.is_cancelled(&parent).await => inner.cancel_child(&parent, &child).await,
                None => {}
            }
        });
    }

    /// Of a workflow; it is the one task of a plan of its name, whose row tells it without the whole log.
    async fn is_cancelled(&self, workflow: &TaskId) -> bool {
        let plan = PlanId::parse(workflow.as_str()).expect("plans and tasks have the same rule for their ids");
        self.look(|| self.store.plan(&plan)).await.is_some_and(|plan| plan.counts.cancelled > 0)
    }

    /// Asks the store, however long it is away; none once this node stops.
    async fn look<T, F>(&self, ask: impl Fn() -> F) -> Option<T>
    where
        F: Future<Output = Result<Option<T>, StoreError>>,
    {
        let mut pause = FIRST_PAUSE;
        loop {
            match ask().await {
                Ok(found) => return found,
                Err(StoreError::Unavailable { .. }) if !self.is_stopping() => self.rest_longer(&mut pause).await,
                Err(error) => {
                    tracing::debug!(%error, "a parent or child of a workflow could not be read");
                    return None;
                }
            }
        }
    }

    async fn submit_child(self: &Arc<Self>, run: Run) -> Result<(), String> {
        let plan = Arc::new(run.plan());
        let mut pause = FIRST_PAUSE;
        loop {
            let submission = Submission {
                plan: plan.clone(),
                start: Start::AtOnce,
                resubmit: Resubmit::Same,
                request: None,
                entries: Vec::new(),
                now: self.clock.now(),
            };
            match self.store.submit(submission).await {
                Ok(_) => {
                    self.wake();
                    return Ok(());
                }
                // Whoever goes on with the parent submits it again.
                Err(StoreError::Unavailable { .. }) if self.is_stopping() => return Ok(()),
                Err(StoreError::Unavailable { .. }) => self.rest_longer(&mut pause).await,
                Err(error) => return Err(chain(&error)),
            }
        }
    }

    /// A child that has ended tells its parent, which may be waiting here, or with nobody.
    pub(crate) fn tell_parent(self: &Arc<Self>, task: &Task) {
        if let (Some(parent), Some(result)) = (task.spec().parent.clone(), outcome(task)) {
            let (inner, child) = (self.clone(), task.id().clone());
            self.spawn(async move { inner.child_ended(&parent, child, result).await });
        }
    }

    async fn child_ended(self: &Arc<Self>, parent: &TaskId, child: TaskId, result: Result<Value, Cause>) {
        // Refused when the parent no longer waits, or knows already; lost, the parent looks for itself when it wakes.
        if let Err(error) = self.insist(parent, Command::ChildEnded { child, result }).await {
            tracing::debug!(%parent, %error, "the parent of a workflow did not want to know of its end");
        }
    }

    /// Gives a task a command, however long the store is away or the task changes hands; no longer than this node runs.
    async fn insist(self: &Arc<Self>, task: &TaskId, command: Command) -> Result<TaskStatus, VerbError> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.command(task, Asked::simply(command.clone()), None).await {
                Err(VerbError::Store(StoreError::Unavailable { .. }) | VerbError::Moved | VerbError::InDoubt(_))
                    if !self.is_stopping() =>
                {
                    self.rest_longer(&mut pause).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn rest_longer(&self, pause: &mut Duration) {
        self.rest(*pause).await;
        *pause = (*pause * 2).min(LONGEST_PAUSE);
    }

    /// Nobody waits for these any more. A crash may cut this short: `finish_cancelled_children` goes on with it.
    pub(crate) fn cancel_children(self: &Arc<Self>, parent: &TaskId, children: Vec<TaskId>) {
        for child in children {
            let (inner, parent) = (self.clone(), parent.clone());
            self.spawn(async move { inner.cancel_child(&parent, &child).await });
        }
    }

    async fn cancel_child(self: &Arc<Self>, parent: &TaskId, child: &TaskId) {
        // One that was never submitted may have left its name to somebody else.
        let is_its_own = |stored: StoredTask| stored.task.spec().parent.as_ref() == Some(parent);
        if !self.look(|| self.store.task(child)).await.is_some_and(is_its_own) {
            return;
        }
        let by = By { who: "milepost".to_owned(), why: Some(format!("{parent} has ended")) };
        if let Err(error) = self.insist(child, Command::Cancel(by)).await {
            tracing::debug!(%child, %error, "a child of an ended workflow was not cancelled");
        }
    }

    /// Whoever cancelled this workflow before may not have come to tell its children.
    pub(crate) fn cancel_unheard_children(self: &Arc<Self>, parent: &Task) {
        if parent.status() == TaskStatus::Cancelled {
            self.cancel_children(parent.id(), unheard_children(parent));
        }
    }

    /// Open workflows whose parents were cancelled by a node that did not live to tell them.
    pub(crate) async fn finish_cancelled_children(self: &Arc<Self>) {
        let mut cancelled: BTreeMap<TaskId, bool> = BTreeMap::new();
        let mut after = None;
        loop {
            let Ok(page) = self.store.plans(PlanQuery { open_only: true, after, limit: 200 }).await else { return };
            // A workflow is a plan of one task.
            for plan in page.items.iter().filter(|plan| plan.counts.total == 1) {
                let Ok(child) = TaskId::parse(plan.id.as_str()) else { continue };
                let Ok(Some(stored)) = self.store.task(&child).await else { continue };
                let Some(parent) = &stored.task.spec().parent else { continue };
                if !cancelled.contains_key(parent) {
                    let Ok(found) = self.store.task(parent).await else { continue };
                    let ended = found.is_some_and(|parent| parent.task.status() == TaskStatus::Cancelled);
                    cancelled.insert(parent.clone(), ended);
                }
                if cancelled[parent] {
                    self.cancel_child(parent, &child).await;
                }
            }
            after = page.next;
            if after.is_none() {
                return;
            }
        }
    }
}
