//! Plans in a line, and a node that does its stages at once.

use std::sync::Arc;

use milepost_core::id::{PlanId, StageName, TaskId};
use milepost_core::plan::{Action, Plan, PlanDefinition, Settings, StageDefinition, TaskDefinition};
use milepost_core::retry::{RetryPolicy, Strategy};
use milepost_core::task::{Command, StageEnded, StageResult, decide};
use milepost_core::time::{Millis, Timestamp};
use milepost_store::{
    ClaimRequest, Claimed, Commit, Committed, Holder, LeaseChange, Resubmit, Start, Store, StoreError, StoredTask,
    Submission,
};
use serde_json::{Map, Value};

pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_764_000_000_000);

/// A plan of so many tasks named after it, each of so many stages.
pub(crate) fn plan(id: &str, tasks: usize, stages: usize) -> Plan {
    let stage = |at: usize| StageDefinition {
        name: StageName::parse(format!("s{at}")).unwrap(),
        action: Action { uses: "noop".to_owned(), script: None, with: Value::Null },
        needs: if at == 0 { vec![] } else { vec![at - 1] },
        condition: None,
        retry: RetryPolicy {
            max_attempts: 3,
            strategy: Strategy::Fixed,
            base: Millis::new(1000),
            jitter: false,
            ..RetryPolicy::default()
        },
        timeout: None,
        rollback: None,
    };
    let task = |at: usize| TaskDefinition {
        id: task_id(&format!("{id}-{at}")),
        tenant: None,
        priority: 0,
        input: Value::Null,
        matrix: Map::new(),
        stages: None,
        file: None,
        message: None,
    };
    let definition = PlanDefinition {
        id: PlanId::parse(id).unwrap(),
        settings: Settings { max_concurrency: 10_000, ..Settings::default() },
        stages: (0..stages).map(stage).collect::<Vec<_>>().into(),
        workflow: None,
        parent: None,
    };
    Plan { definition, tasks: (0..tasks).map(task).collect() }
}

pub(crate) fn task_id(id: &str) -> TaskId {
    TaskId::parse(id).unwrap()
}

pub(crate) async fn submit(store: &dyn Store, plan: Plan) {
    let plan = Arc::new(plan);
    let submission = Submission {
        plan,
        start: Start::AtOnce,
        resubmit: Resubmit::Same,
        request: None,
        entries: Vec::new(),
        now: NOW,
    };
    store.submit(submission).await.unwrap();
}

pub(crate) async fn claim(store: &dyn Store, node: &str, limit: usize) -> Result<Claimed, StoreError> {
    let (node, workflows) = (node.into(), Arc::default());
    store
        .claim(ClaimRequest {
            node,
            only: None,
            plans: true,
            workflows,
            recovery: Default::default(),
            limit,
            now: Some(NOW),
        })
        .await
}

/// What the end of a stage makes of a task, under the lease it is held by.
pub(crate) fn ends(held: &StoredTask, stage: usize, result: StageResult) -> Commit {
    decided(held, Command::StageEnded(StageEnded { stage, attempt: 1, result, stopping: false }))
}

pub(crate) fn succeeds(held: &StoredTask, stage: usize) -> Commit {
    ends(held, stage, StageResult::Success(Map::new()))
}

pub(crate) fn decided(held: &StoredTask, command: Command) -> Commit {
    let decision = decide(&held.task, command, NOW).unwrap();
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

/// Does all stages of a task, one commit each.
pub(crate) async fn finish(store: &dyn Store, held: &StoredTask) -> Result<Committed, StoreError> {
    let mut held = held.clone();
    let stages = held.task.stages().len();
    let mut last = None;
    for stage in held.task.done().len()..stages {
        let commit = succeeds(&held, stage);
        held.task = (*commit.task).clone();
        last = Some(store.commit(commit).await?);
    }
    Ok(last.expect("a task has stages"))
}
