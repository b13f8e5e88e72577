//! What cases are told in: plans in a line, a clock that is moved by hand, and a node that does its stages at once.

use std::sync::Arc;

use milepost_core::failure::{ErrorType, Failure};
use milepost_core::id::{PlanId, StageName, TaskId, Tenant};
use milepost_core::plan::{
    Action, OnFailure, OnTaskFailure, OnTenantConflict, Plan, PlanCommand, PlanDefinition, Recovery, Settings,
    StageDefinition, TaskDefinition, Trigger, WorkflowRef,
};
use milepost_core::retry::{RetryPolicy, Strategy};
use milepost_core::task::{By, Command, PlanStatus, StageEnded, StageResult, StageStatus, Task, TaskStatus, decide};
use milepost_core::time::{Millis, Timestamp};
use serde_json::{Map, Value, json};

use crate::error::StoreError;
use crate::model::{
    ChangeQuery, Changes, ClaimRequest, Claimed, Commit, Committed, EventQuery, Holder, LeaseChange, PlanChange,
    PlanRow, Position, Resubmit, Start, StoredTask, Submission, Submitted, TaskQuery, TaskRow, TasksOf, Wake,
};
use crate::nodes::Membership;
use crate::store::Store;

use super::{Damage, Harness};

/// The wait after every failed attempt.
pub(super) const BACKOFF: Millis = Millis::new(1000);

pub(super) fn plan_id(id: &str) -> PlanId {
    PlanId::parse(id).unwrap()
}

pub(super) fn task_id(id: &str) -> TaskId {
    TaskId::parse(id).unwrap()
}

pub(super) fn stage_name(name: &str) -> StageName {
    StageName::parse(name).unwrap()
}

pub(super) fn tenant(name: &str) -> Tenant {
    Tenant::parse(name).unwrap()
}

pub(super) fn ann() -> By {
    By { who: "ann".to_owned(), why: Some("because".to_owned()) }
}

// --- plans ---

/// A plan whose tasks have the stages `one` and `two`, one after the other.
pub(super) fn plan(id: &str) -> PlanBuilder {
    let definition = PlanDefinition {
        id: plan_id(id),
        settings: Settings::default(),
        stages: vec![stage("one", &[]), stage("two", &[0])].into(),
        workflow: None,
        parent: None,
    };
    PlanBuilder(Plan { definition, tasks: Vec::new() })
}

/// A stage that can be undone, and that is tried three times.
pub(super) fn stage(name: &str, needs: &[usize]) -> StageDefinition {
    let noop = || Action { uses: "noop".to_owned(), script: None, with: json!({ "of": name }) };
    StageDefinition {
        name: stage_name(name),
        action: noop(),
        needs: needs.to_vec(),
        condition: None,
        retry: RetryPolicy {
            max_attempts: 3,
            strategy: Strategy::Fixed,
            base: BACKOFF,
            jitter: false,
            ..RetryPolicy::default()
        },
        timeout: None,
        rollback: Some(noop()),
    }
}

#[derive(Clone)]
pub(super) struct PlanBuilder(pub(super) Plan);

impl PlanBuilder {
    pub(super) fn task(self, id: &str) -> Self {
        self.task_with(id, |_| {})
    }

    pub(super) fn task_of(self, id: &str, of: &str) -> Self {
        self.task_with(id, |task| task.tenant = Some(tenant(of)))
    }

    pub(super) fn task_with(mut self, id: &str, change: impl FnOnce(&mut TaskDefinition)) -> Self {
        let mut task = TaskDefinition {
            id: task_id(id),
            tenant: None,
            priority: 0,
            input: Value::Null,
            matrix: Map::new(),
            stages: None,
            file: None,
            message: None,
        };
        change(&mut task);
        self.0.tasks.push(task);
        self
    }

    pub(super) fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.0.definition.settings);
        self
    }

    pub(super) fn max(self, max_concurrency: u32) -> Self {
        self.settings(|settings| settings.max_concurrency = max_concurrency)
    }

    pub(super) fn manual(self) -> Self {
        self.settings(|settings| settings.recovery = Some(Recovery::Manual))
    }

    pub(super) fn automatic(self) -> Self {
        self.settings(|settings| settings.recovery = Some(Recovery::Auto))
    }

    /// Its tasks wait for their messages.
    pub(super) fn by_message(self) -> Self {
        self.settings(|settings| settings.trigger = Trigger::Message)
    }

    pub(super) fn refuses_busy_tenants(self) -> Self {
        self.settings(|settings| settings.on_tenant_conflict = OnTenantConflict::Refuse)
    }

    pub(super) fn pauses_on_failure(self) -> Self {
        self.settings(|settings| settings.on_task_failure = OnTaskFailure::Pause)
    }

    pub(super) fn rolls_back(self) -> Self {
        self.settings(|settings| settings.on_failure = OnFailure::Rollback)
    }

    /// Its tasks run a function.
    pub(super) fn workflow(mut self, workflow: WorkflowRef) -> Self {
        self.0.definition.stages = Vec::new().into();
        self.0.definition.workflow = Some(workflow);
        self
    }

    pub(super) fn stages(mut self, stages: Vec<StageDefinition>) -> Self {
        self.0.definition.stages = stages.into();
        self
    }
}

// --- commands ---

pub(super) fn ended(stage: usize, attempt: u32, result: StageResult) -> Command {
    Command::StageEnded(StageEnded { stage, attempt, result, stopping: false })
}

pub(super) fn success(stage: usize) -> Command {
    let outputs = json!({ "from": stage }).as_object().unwrap().clone();
    ended(stage, 1, StageResult::Success(outputs))
}

pub(super) fn failure(stage: usize, attempt: u32) -> Command {
    ended(stage, attempt, StageResult::Failure(Failure::retryable(ErrorType::Network, "no answer")))
}

pub(super) fn fatal(stage: usize) -> Command {
    ended(stage, 1, StageResult::Failure(Failure::fatal(ErrorType::Business, "out of stock")))
}

pub(super) fn retry() -> Command {
    Command::Retry { by: ann(), from_checkpoint: true }
}

// --- the scene ---

/// A store, a clock, and one node at work.
pub(super) struct Scene<'a> {
    harness: &'a dyn Harness,
    pub(super) store: Arc<dyn Store>,
    pub(super) now: Timestamp,
    /// Whether the node runs plans of stages, and the workflows that it knows.
    pub(super) plans: bool,
    pub(super) workflows: Arc<[WorkflowRef]>,
    /// What it does with plans that do not say.
    pub(super) recovery: Recovery,
}

impl<'a> Scene<'a> {
    pub(super) async fn new(harness: &'a dyn Harness) -> Self {
        let now = Timestamp::from_millis(1_764_000_000_000);
        let store = harness.open().await;
        Self { harness, store, now, plans: true, workflows: Arc::default(), recovery: Recovery::Auto }
    }

    /// A scene in which one plan runs.
    pub(super) async fn with(harness: &'a dyn Harness, plan: PlanBuilder) -> Self {
        let mut scene = Self::new(harness).await;
        scene.submit(plan).await;
        scene
    }

    pub(super) fn later(&mut self, length: Millis) {
        self.now = self.now + length;
    }

    /// The same store as another process sees it; none where only one can have it.
    pub(super) async fn joined(&self, as_whom: Membership) -> Option<Scene<'a>> {
        let store = self.harness.join(as_whom).await?;
        let (harness, now, recovery) = (self.harness, self.now, self.recovery);
        Some(Self { harness, store, now, plans: true, workflows: Arc::default(), recovery })
    }

    pub(super) async fn crash(&mut self) -> Arc<dyn Store> {
        std::mem::replace(&mut self.store, self.harness.reopen().await)
    }

    pub(super) async fn damage(&self, damage: Damage<'_>) -> bool {
        self.harness.damage(damage).await
    }

    pub(super) async fn damage_snapshots(&self) {
        self.harness.damage_snapshots().await;
    }

    pub(super) async fn submit(&mut self, plan: PlanBuilder) -> Submitted {
        self.try_submit(plan, Start::AtOnce, Resubmit::Same).await.expect("the plan is accepted")
    }

    pub(super) async fn submit_for_later(&mut self, plan: PlanBuilder) -> Submitted {
        self.try_submit(plan, Start::Later, Resubmit::Same).await.expect("the plan is accepted")
    }

    pub(super) async fn update(&mut self, plan: PlanBuilder) -> Result<Submitted, StoreError> {
        self.try_submit(plan, Start::Later, Resubmit::Update).await
    }

    pub(super) async fn try_submit(
        &mut self,
        plan: PlanBuilder,
        start: Start,
        resubmit: Resubmit,
    ) -> Result<Submitted, StoreError> {
        self.later(Millis::new(1));
        self.store
            .submit(Submission {
                plan: Arc::new(plan.0),
                start,
                resubmit,
                request: None,
                entries: Vec::new(),
                now: self.now,
            })
            .await
    }

    pub(super) async fn claim(&mut self) -> Claimed {
        self.claim_up_to(1000).await
    }

    pub(super) async fn claim_up_to(&mut self, limit: usize) -> Claimed {
        self.try_claim(None, limit).await.expect("a claim of what is there")
    }

    pub(super) async fn claim_only(&mut self, plan: &str) -> Claimed {
        self.try_claim(Some(plan), 1000).await.expect("a claim of what is there")
    }

    /// At this very instant: only cases move the clock here.
    pub(super) async fn try_claim(&mut self, only: Option<&str>, limit: usize) -> Result<Claimed, StoreError> {
        let only = only.map(plan_id);
        let (plans, workflows) = (self.plans, self.workflows.clone());
        let (node, recovery, now) = ("node-1".into(), self.recovery, Some(self.now));
        self.store.claim(ClaimRequest { node, only, plans, workflows, recovery, limit, now }).await
    }

    /// Claims, and expects exactly this task.
    pub(super) async fn claim_one(&mut self, id: &str) -> StoredTask {
        let mut claimed = self.claim().await;
        assert_eq!(ids(&claimed), [id]);
        claimed.tasks.remove(0)
    }

    /// What `command` makes of a task, on behalf of whoever holds it as `held` says.
    pub(super) fn decision(&self, held: &StoredTask, command: Command) -> Commit {
        let decision = decide(&held.task, command, self.now).expect("the task allows it");
        Commit {
            key: held.key.clone(),
            holder: Holder::Lease(held.epoch),
            expected: held.task.version(),
            events: decision.events.into(),
            task: decision.task.into(),
            lease: LeaseChange::Keep,
            plan: None,
            output: Vec::new(),
        }
    }

    /// As the node that holds the task. Answers the task as the node goes on with it.
    pub(super) async fn does(&mut self, held: &StoredTask, command: Command) -> StoredTask {
        self.later(Millis::new(1));
        let commit = self.decision(held, command);
        self.commits(held, commit).await
    }

    /// Likewise, and gives the lease back.
    pub(super) async fn parks(&mut self, held: &StoredTask, command: Command, wake: Wake) -> StoredTask {
        self.later(Millis::new(1));
        let commit = Commit { lease: LeaseChange::Release(wake), ..self.decision(held, command) };
        self.commits(held, commit).await
    }

    async fn commits(&mut self, held: &StoredTask, commit: Commit) -> StoredTask {
        let task = Task::clone(&commit.task);
        self.store.commit(commit).await.expect("the holder may commit");
        StoredTask { task, ..held.clone() }
    }

    /// Fails its first stage once and sleeps through the backoff with the lease given back.
    pub(super) async fn falls_asleep(&mut self, held: &StoredTask) -> Timestamp {
        let due = self.now + Millis::new(1) + BACKOFF;
        let parked = self.parks(held, failure(0, 1), Wake::At(due)).await;
        assert_eq!(parked.task.next_due(), Some(due));
        due
    }

    /// Does all that is left of a task, forwards or backwards, with success.
    pub(super) async fn finishes(&mut self, held: &StoredTask) -> StoredTask {
        let mut held = held.clone();
        while let Some((stage, attempt)) = running_stage(&held.task) {
            held = self.does(&held, ended(stage, attempt, StageResult::Success(Map::new()))).await;
        }
        assert!(held.task.status().is_ended(), "it waits for something");
        held
    }

    /// As an operator, on the task as it is stored.
    pub(super) async fn operator(&mut self, id: &str, command: Command) -> Committed {
        self.try_operator(id, command, None).await.expect("the operator may do that")
    }

    pub(super) async fn try_operator(
        &mut self,
        id: &str,
        command: Command,
        plan: Option<PlanCommand>,
    ) -> Result<Committed, StoreError> {
        self.later(Millis::new(1));
        let stored = self.task(id).await;
        let commit = Commit { holder: Holder::Operator, plan, ..self.decision(&stored, command) };
        self.store.commit(commit).await
    }

    /// As an operator, on a task whose node is gone.
    pub(super) async fn operator_finds_it_interrupted(&mut self, id: &str, command: Command) -> Committed {
        self.later(Millis::new(1));
        let stored = self.task(id).await;
        let lost = Command::Interrupt { reason: "its node went away".to_owned() };
        let interrupted = decide(&stored.task, lost, self.now).expect("an orphan can be interrupted");
        let decision = decide(&interrupted.task, command, self.now).expect("the task allows it");
        let commit = Commit {
            key: stored.key,
            holder: Holder::Operator,
            expected: stored.task.version(),
            events: interrupted.events.into_iter().chain(decision.events).collect(),
            task: decision.task.into(),
            lease: LeaseChange::Release(Wake::Recovery),
            plan: None,
            output: Vec::new(),
        };
        self.store.commit(commit).await.expect("the operator may do that")
    }

    pub(super) async fn verb(&mut self, plan: &str, command: PlanCommand) -> PlanRow {
        self.try_verb(plan, command).await.expect("the plan allows it")
    }

    pub(super) async fn try_verb(&mut self, plan: &str, command: PlanCommand) -> Result<PlanRow, StoreError> {
        self.later(Millis::new(1));
        self.store
            .change_plan(PlanChange { plan: plan_id(plan), command, by: ann(), expected: None, now: self.now })
            .await
    }

    // --- asking ---

    pub(super) async fn task(&self, id: &str) -> StoredTask {
        self.store.task(&task_id(id)).await.unwrap().expect("the task is stored")
    }

    pub(super) async fn status(&self, id: &str) -> TaskStatus {
        self.task(id).await.task.status()
    }

    pub(super) async fn plan(&self, id: &str) -> PlanRow {
        self.store.plan(&plan_id(id)).await.unwrap().expect("the plan is stored")
    }

    pub(super) async fn plan_status(&self, id: &str) -> PlanStatus {
        self.plan(id).await.status
    }

    pub(super) async fn rows(&self, plan: &str) -> Vec<TaskRow> {
        let query = TaskQuery { of: TasksOf::Plan(plan_id(plan)), statuses: vec![], after: None, limit: 1000 };
        self.store.tasks(query).await.unwrap().items
    }

    /// The kinds of a task's events, in order.
    pub(super) async fn log(&self, id: &str) -> Vec<&'static str> {
        let query = EventQuery { task: task_id(id), after: 0, limit: 10_000 };
        self.store.events(query).await.unwrap().iter().map(|event| event.record.event().kind()).collect()
    }

    /// The tenants that are held, with the tasks that hold them.
    pub(super) async fn locks(&self) -> Vec<(String, String)> {
        let locks = self.store.locks().await.unwrap();
        locks.iter().map(|lock| (lock.tenant.to_string(), lock.task.to_string())).collect()
    }
}

/// All that came after, asked for so many at a time until there is no more.
pub(super) async fn everything_after(
    store: &dyn Store,
    after: Position,
    plan: Option<PlanId>,
    limit: usize,
) -> Changes {
    let mut whole = Changes { items: Vec::new(), upto: after, more: true };
    while whole.more {
        let changes = store.changes(ChangeQuery { after: whole.upto, plan: plan.clone(), limit }).await.unwrap();
        let in_order = |change: &crate::model::Change| change.position > whole.upto && change.position <= changes.upto;
        assert!(changes.items.iter().all(in_order), "{changes:?}, after {:?}", whole.upto);
        assert!(changes.items.windows(2).all(|pair| pair[0].position < pair[1].position), "{changes:?}");
        assert!(changes.items.len() <= limit && (!changes.more || changes.upto > whole.upto), "{changes:?}");
        (whole.upto, whole.more) = (changes.upto, changes.more);
        whole.items.extend(changes.items);
    }
    whole
}

/// The tasks that a claim took, in order.
pub(super) fn ids(claimed: &Claimed) -> Vec<&str> {
    claimed.tasks.iter().map(|stored| stored.key.id.as_str()).collect()
}

/// The first stage that runs, or is being undone, and its attempt.
pub(super) fn running_stage(task: &Task) -> Option<(usize, u32)> {
    if let Some(undo) = task.undo() {
        return undo.queue.first().filter(|_| undo.running).map(|index| (*index, undo.attempt));
    }
    let running = |(index, (_, state)): (usize, (_, &milepost_core::task::StageState))| {
        (state.status == StageStatus::Running).then_some((index, state.attempt))
    };
    task.stages().enumerate().find_map(running)
}

/// Everything there is to see of a plan and its tasks, to show that it stays as it is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Snapshot {
    plan: Option<PlanRow>,
    tasks: Vec<(TaskRow, Vec<&'static str>)>,
    locks: Vec<(String, String)>,
}

impl Scene<'_> {
    pub(super) async fn snapshot(&self, plan: &str) -> Snapshot {
        let row = self.store.plan(&plan_id(plan)).await.unwrap();
        let mut tasks = Vec::new();
        if row.is_some() {
            for row in self.rows(plan).await {
                let log = self.log(row.key.id.as_str()).await;
                tasks.push((row, log));
            }
        }
        Snapshot { plan: row, tasks, locks: self.locks().await }
    }
}
