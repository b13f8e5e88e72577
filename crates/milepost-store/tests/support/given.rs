//! Plans in a line, and a node that does its stages at once.

use std::sync::Arc;

use milepost_core::id::{PlanId, StageName, TaskId, Tenant};
use milepost_core::plan::{Action, Plan, PlanDefinition, Settings, StageDefinition, TaskDefinition};
use milepost_core::retry::RetryPolicy;
use milepost_core::task::{Command, StageEnded, StageResult, decide};
use milepost_core::time::{Millis, Timestamp};
use milepost_store::{
    ClaimRequest, Claimed, Commit, Holder, LeaseChange, Membership, MysqlStore, Resubmit, Start, Store, StoreError,
    StoredTask, Submission,
};

use crate::support::{self, Database};

pub(crate) async fn node(database: &Database, name: &str, lease: Millis) -> MysqlStore {
    let membership = Membership { lease, ..Membership::node(name, support::unique("boot")) };
    MysqlStore::open(&database.url(), membership).await.unwrap()
}

fn stage() -> StageDefinition {
    StageDefinition {
        name: StageName::parse("one").unwrap(),
        action: Action { uses: "noop".to_owned(), script: None, with: serde_json::Value::Null },
        needs: Vec::new(),
        condition: None,
        retry: RetryPolicy::default(),
        timeout: None,
        rollback: None,
    }
}

pub(crate) fn plan(id: &str, tasks: &[(&str, Option<&str>)], settings: impl FnOnce(&mut Settings)) -> Plan {
    let mut definition = PlanDefinition {
        id: PlanId::parse(id).unwrap(),
        settings: Settings { max_concurrency: 1000, ..Settings::default() },
        stages: vec![stage()].into(),
        workflow: None,
        parent: None,
    };
    settings(&mut definition.settings);
    let task = |(id, tenant): &(&str, Option<&str>)| TaskDefinition {
        id: TaskId::parse(*id).unwrap(),
        tenant: tenant.map(|tenant| Tenant::parse(tenant).unwrap()),
        priority: 0,
        input: serde_json::Value::Null,
        matrix: serde_json::Map::new(),
        stages: None,
        file: None,
        message: None,
    };
    Plan { definition, tasks: tasks.iter().map(task).collect() }
}

pub(crate) fn now() -> Timestamp {
    Timestamp::from_millis(1_764_000_000_000)
}

pub(crate) async fn submit(store: &MysqlStore, plan: Plan) {
    let plan = Arc::new(plan);
    let submission = Submission {
        plan,
        start: Start::AtOnce,
        resubmit: Resubmit::Same,
        request: None,
        entries: Vec::new(),
        now: now(),
    };
    store.submit(submission).await.unwrap();
}

pub(crate) async fn claim(store: &MysqlStore, node: &str, limit: usize) -> Result<Claimed, StoreError> {
    let request = ClaimRequest {
        node: node.into(),
        only: None,
        plans: true,
        workflows: Arc::default(),
        recovery: Default::default(),
        limit,
        now: Some(now()),
    };
    store.claim(request).await
}

pub(crate) fn ids(claimed: &Claimed) -> Vec<&str> {
    claimed.tasks.iter().map(|stored| stored.key.id.as_str()).collect()
}

pub(crate) fn finish(held: &StoredTask) -> Commit {
    let result = StageResult::Success(serde_json::Map::new());
    decision(held, Command::StageEnded(StageEnded { stage: 0, attempt: 1, result, stopping: false }))
}

pub(crate) fn decision(held: &StoredTask, command: Command) -> Commit {
    let decision = decide(&held.task, command, now()).unwrap();
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
