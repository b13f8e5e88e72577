//! `recovery: manual` among several nodes, told once for every store that nodes share.

#[allow(dead_code, reason = "each test uses its part of it")]
#[path = "support/mysql.rs"]
mod mysql;
#[allow(dead_code, reason = "each test uses its part of it")]
#[path = "support/postgres.rs"]
mod postgres;
mod redis_server;

use std::sync::Arc;
use std::time::Duration;

use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::{ParseOptions, PlanCommand, parse};
use milepost_core::task::{By, Command, Decision, StageEnded, StageResult, decide};
use milepost_core::time::{Millis, Timestamp};
use milepost_store::memory::MemoryStore;
use milepost_store::{
    ClaimRequest, Commit, Holder, LeaseChange, Membership, MysqlStore, PlanChange, PostgresStore, RedisStore, Resubmit,
    Start, Store, StoredTask, Submission,
};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
/// Long enough that no node is taken for gone on a busy machine before its time.
const LEASE: Millis = Millis::from_secs(5);

/// A node for a name, and a visitor for none.
fn membership(name: Option<&str>) -> Membership {
    let membership = name.map_or_else(Membership::visitor, |name| Membership::node(name, format!("boot of {name}")));
    Membership { lease: LEASE, ..membership }
}

async fn submit(store: &dyn Store, text: &str) {
    let options = ParseOptions::new("plan.yaml", PlanId::parse("unnamed").unwrap());
    let plan = Arc::new(parse(text.as_bytes(), &options).unwrap_or_else(|errors| panic!("{errors}")));
    let (start, resubmit) = (Start::AtOnce, Resubmit::Same);
    store.submit(Submission { plan, start, resubmit, request: None, entries: Vec::new(), now: NOW }).await.unwrap();
}

async fn claims(store: &dyn Store, limit: usize) -> Vec<String> {
    claim(store, limit).await.iter().map(|stored| stored.key.id.to_string()).collect()
}

/// The one task that is there, so that nobody has to take it over.
async fn finish(store: &dyn Store, held: Vec<StoredTask>) {
    let [held] = &held[..] else { panic!("{held:?}") };
    let ended = StageEnded { stage: 0, attempt: 1, result: StageResult::Success(Default::default()), stopping: false };
    let Decision { events, task } = decide(&held.task, Command::StageEnded(ended), NOW).unwrap();
    let (key, holder, expected) = (held.key.clone(), Holder::Lease(held.epoch), held.task.version());
    let (events, task, lease) = (events.into(), Arc::new(task), LeaseChange::Keep);
    store.commit(Commit { key, holder, expected, events, task, lease, plan: None, output: Vec::new() }).await.unwrap();
}

async fn claim(store: &dyn Store, limit: usize) -> Vec<StoredTask> {
    let request = ClaimRequest {
        node: "node".into(),
        only: None,
        plans: true,
        workflows: Arc::default(),
        recovery: Default::default(),
        limit,
        now: Some(NOW),
    };
    store.claim(request).await.unwrap().tasks
}

async fn waits(store: &dyn Store) -> bool {
    store.plan(&PlanId::parse("p").unwrap()).await.unwrap().unwrap().waits_for_person
}

async fn resume(store: &dyn Store) {
    let plan = PlanId::parse("p").unwrap();
    let change = PlanChange { plan, command: PlanCommand::Resume, by: By::new("ann"), expected: None, now: NOW };
    assert!(!store.change_plan(change).await.unwrap().waits_for_person);
}

/// What each of the tests below is about.
async fn goes_on_while_a_node_is_there_and_waits_when_all_were_gone<S: Store>(open: impl AsyncFn(Option<&str>) -> S) {
    let stages = "stages: [{name: s, uses: noop}]";
    let one = open(Some("one")).await;
    let tasks: Vec<String> = (1..=9).map(|n| format!("{{id: t-{n}}}")).collect();
    submit(&one, &format!("{{plan: p, recovery: manual, {stages}, tasks: [{}]}}", tasks.join(", "))).await;
    assert_eq!(claims(&one, 1).await, ["t-1"]);
    // A node that comes cannot know whether the other is still there until it has heard of it; what does not mind, runs.
    let two = open(Some("two")).await;
    submit(&two, &format!("{{plan: q, recovery: auto, {stages}, tasks: [{{id: u}}]}}")).await;
    finish(&two, claim(&two, 9).await).await;
    assert!(!waits(&two).await);
    tokio::time::sleep(Duration::from_millis(20)).await;
    one.beat(Default::default()).await.unwrap();
    assert_eq!(claims(&two, 1).await, ["t-2"]);
    // The first goes, and another one comes: somebody was there all the time.
    one.leave().await.unwrap();
    assert_eq!(claims(&two, 1).await, ["t-3"]);
    let three = open(Some("three")).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    two.beat(Default::default()).await.unwrap();
    assert_eq!(claims(&three, 1).await, ["t-4"]);
    two.leave().await.unwrap();
    // The last one is gone without a word; nobody can tell before its lease is over.
    let four = open(Some("four")).await;
    assert!(claims(&four, 9).await.is_empty());
    assert!(!waits(&four).await);
    // Time in which nobody was heard of would count against nobody, so this one has to be heard all the while.
    let mut tries = 0;
    while !waits(&four).await {
        tries += 1;
        assert!(tries < 120, "the lease of a node that is gone is over some day");
        tokio::time::sleep(Duration::from_millis(500)).await;
        four.beat(Default::default()).await.unwrap();
        assert!(claims(&four, 9).await.is_empty());
    }
    let visitor = open(None).await;
    resume(&visitor).await;
    assert_eq!(claims(&four, 1).await, ["t-5"]);
    // All are gone in good order, and a person says so while nobody is there.
    four.leave().await.unwrap();
    assert!(waits(&visitor).await);
    resume(&visitor).await;
    let five = open(Some("five")).await;
    assert_eq!(claims(&five, 1).await, ["t-6"]);
    five.leave().await.unwrap();
    // That word was for one time.
    let six = open(Some("six")).await;
    assert!(claims(&six, 9).await.is_empty());
    let held = six.task(&TaskId::parse("t-7").unwrap()).await.unwrap().unwrap();
    assert!(held.waits_for_person && waits(&six).await);
}

#[tokio::test(start_paused = true)]
async fn a_manual_plan_goes_on_while_a_node_is_there_in_memory() {
    let store = MemoryStore::new();
    goes_on_while_a_node_is_there_and_waits_when_all_were_gone(async |name: Option<&str>| store.join(membership(name)))
        .await;
}

#[tokio::test]
async fn a_manual_plan_goes_on_while_a_node_is_there_on_postgresql() {
    if !postgres::is_there("a_manual_plan_goes_on_while_a_node_is_there_on_postgresql") {
        return;
    }
    let schema = postgres::Schema::new().await;
    let open = async |name: Option<&str>| PostgresStore::open(&schema.url, membership(name)).await.unwrap();
    goes_on_while_a_node_is_there_and_waits_when_all_were_gone(open).await;
    schema.remove().await;
}

#[tokio::test]
async fn a_manual_plan_goes_on_while_a_node_is_there_on_mysql() {
    let Some(server) = mysql::server() else { return };
    let database = mysql::Database::create(&server).await;
    let open = async |name: Option<&str>| MysqlStore::open(&database.url(), membership(name)).await.unwrap();
    goes_on_while_a_node_is_there_and_waits_when_all_were_gone(open).await;
}

#[tokio::test]
async fn a_manual_plan_goes_on_while_a_node_is_there_on_redis() {
    if redis_server::is_missing() {
        return;
    }
    let place = redis_server::Place::new();
    let open = async |name: Option<&str>| RedisStore::open(&place.url, membership(name)).await.unwrap();
    goes_on_while_a_node_is_there_and_waits_when_all_were_gone(open).await;
}
