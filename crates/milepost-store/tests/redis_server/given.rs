//! Plans in a line, and what a node does with their tasks.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::id::{PlanId, StageName, TaskId, Tenant};
use milepost_core::message::Arrival;
use milepost_core::plan::{Action, Plan, PlanDefinition, Recovery, Settings, StageDefinition, TaskDefinition, Trigger};
use milepost_core::retry::RetryPolicy;
use milepost_core::task::{By, Command, StageEnded, StageResult, decide};
use milepost_core::time::{Millis, Timestamp};
use milepost_store::{
    ClaimRequest, Commit, Committed, Entry, Holder, LeaseChange, Membership, RedisStore, Resubmit, Start, Store,
    StoreError, StoredTask, Submission, Submitted,
};
use serde_json::json;

use super::Place;

pub(crate) fn task_id(id: &str) -> TaskId {
    TaskId::parse(id).unwrap()
}

pub(crate) fn plan_id(id: &str) -> PlanId {
    PlanId::parse(id).unwrap()
}

/// Tasks with the stages `one` and `two`, each with a tenant or none.
pub(crate) fn plan(id: &str, tasks: &[(&str, Option<&str>)]) -> Plan {
    let noop = || Action { uses: "noop".to_owned(), script: None, with: json!({}) };
    let stage = |name: &str, needs: Vec<usize>| StageDefinition {
        name: StageName::parse(name).unwrap(),
        action: noop(),
        needs,
        condition: None,
        retry: RetryPolicy::default(),
        timeout: None,
        rollback: Some(noop()),
    };
    let task = |(id, tenant): &(&str, Option<&str>)| TaskDefinition {
        id: task_id(id),
        tenant: tenant.map(|tenant| Tenant::parse(tenant).unwrap()),
        priority: 0,
        input: json!(null),
        matrix: Default::default(),
        stages: None,
        file: None,
        message: None,
    };
    let definition = PlanDefinition {
        id: plan_id(id),
        settings: Settings { max_concurrency: 1000, ..Settings::default() },
        stages: vec![stage("one", vec![]), stage("two", vec![0])].into(),
        workflow: None,
        parent: None,
    };
    Plan { definition, tasks: tasks.iter().map(task).collect() }
}

pub(crate) fn manual(mut plan: Plan) -> Plan {
    plan.definition.settings.recovery = Some(Recovery::Manual);
    plan
}

/// Its tasks wait, each for its message.
pub(crate) fn by_message(mut plan: Plan) -> Plan {
    plan.definition.settings.trigger = Trigger::Message;
    plan
}

pub(crate) fn message(id: &str) -> Arc<Arrival> {
    let remembered_until = now() + Millis::from_secs(3600);
    Arc::new(Arrival { id: id.into(), deadline: None, remembered_until, text: "{}".into(), origin: None })
}

pub(crate) fn many(id: &str, count: usize) -> Plan {
    let names: Vec<String> = (0..count).map(|number| format!("{id}-{number}")).collect();
    plan(id, &names.iter().map(|name| (name.as_str(), None)).collect::<Vec<_>>())
}

pub(crate) fn now() -> Timestamp {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap())
}

pub(crate) fn ann() -> By {
    By { who: "ann".to_owned(), why: None }
}

pub(crate) const SHORT_LEASE: Millis = Millis::new(300);

impl Place {
    pub(crate) async fn node(&self, name: &str) -> RedisStore {
        RedisStore::open(&self.url, Membership::node(name, boot())).await.unwrap()
    }

    /// A node that is given up soon after its last word.
    pub(crate) async fn brief_node(&self, name: &str) -> RedisStore {
        let membership = Membership { lease: SHORT_LEASE, ..Membership::node(name, boot()) };
        RedisStore::open(&self.url, membership).await.unwrap()
    }

    pub(crate) async fn visitor(&self) -> RedisStore {
        RedisStore::open(&self.url, Membership::visitor()).await.unwrap()
    }
}

fn boot() -> String {
    format!("boot-{}", std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos())
}

pub(crate) async fn try_submit(store: &RedisStore, plan: Plan) -> Result<Submitted, StoreError> {
    submit_with(store, plan, Vec::new()).await
}

pub(crate) async fn submit_with(store: &RedisStore, plan: Plan, entries: Vec<Entry>) -> Result<Submitted, StoreError> {
    let (plan, start, resubmit) = (Arc::new(plan), Start::AtOnce, Resubmit::Same);
    store.submit(Submission { plan, start, resubmit, request: None, entries, now: now() }).await
}

pub(crate) async fn submit(store: &RedisStore, plan: Plan) {
    try_submit(store, plan).await.unwrap();
}

pub(crate) async fn try_claim(store: &RedisStore, limit: usize) -> Result<Vec<StoredTask>, StoreError> {
    let request = ClaimRequest {
        node: "node".into(),
        only: None,
        plans: true,
        workflows: Arc::default(),
        recovery: Default::default(),
        limit,
        now: Some(now()),
    };
    store.claim(request).await.map(|claimed| claimed.tasks)
}

pub(crate) async fn claim(store: &RedisStore, limit: usize) -> Vec<StoredTask> {
    try_claim(store, limit).await.unwrap()
}

pub(crate) async fn claim_one(store: &RedisStore) -> StoredTask {
    let mut claimed = claim(store, 1).await;
    assert_eq!(claimed.len(), 1, "there is a task to claim");
    claimed.remove(0)
}

pub(crate) fn success(stage: usize) -> Command {
    let result = StageResult::Success(json!({ "from": stage }).as_object().unwrap().clone());
    Command::StageEnded(StageEnded { stage, attempt: 1, result, stopping: false })
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

pub(crate) async fn try_does(
    store: &RedisStore,
    held: &StoredTask,
    command: Command,
) -> Result<(StoredTask, Committed), StoreError> {
    let commit = decision(held, command);
    let task = (*commit.task).clone();
    let committed = store.commit(commit).await?;
    Ok((StoredTask { task, ..held.clone() }, committed))
}

pub(crate) async fn does(store: &RedisStore, held: &StoredTask, command: Command) -> StoredTask {
    try_does(store, held, command).await.unwrap().0
}

pub(crate) async fn operator(store: &RedisStore, id: &str, command: Command) -> Result<Committed, StoreError> {
    let stored = store.task(&task_id(id)).await.unwrap().unwrap();
    store.commit(Commit { holder: Holder::Operator, ..decision(&stored, command) }).await
}

/// Waits for something that the store's own clock brings.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    // Ten minutes: only a test that fails waits so long.
    for _ in 0..24_000 {
        if let Some(seen) = look().await {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("waited in vain for {what}");
}
