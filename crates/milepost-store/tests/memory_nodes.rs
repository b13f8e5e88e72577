//! Several nodes on one store in memory: the model that the stores with servers are compared with.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::{ParseOptions, parse};
use milepost_core::task::{By, Command, Decision, decide};
use milepost_core::time::{Millis, Timestamp};
use milepost_store::memory::MemoryStore;
use milepost_store::{
    Answered, Beat, ClaimRequest, Claimed, Commit, Holder, LeaseChange, Letter, Membership, Resubmit, Start, Store,
    StoreError, StoredTask, Submission, Wake,
};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn member(name: &str) -> Membership {
    Membership::node(name, format!("{name}-boot"))
}

async fn submit(store: &MemoryStore, text: &str) {
    let options = ParseOptions::new("plan.yaml", PlanId::parse("unnamed").unwrap());
    let plan = Arc::new(parse(text.as_bytes(), &options).unwrap_or_else(|errors| panic!("{errors}")));
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

const ONE: &str = "{plan: p, stages: [{name: s, uses: noop}], tasks: [{id: a, tenant: x}]}";

fn request(node: &str, limit: usize) -> ClaimRequest {
    ClaimRequest {
        node: node.into(),
        only: None,
        plans: true,
        workflows: Vec::new().into(),
        recovery: Default::default(),
        limit,
        now: Some(NOW),
    }
}

async fn claim(store: &MemoryStore, node: &str) -> Vec<StoredTask> {
    let Claimed { tasks, .. } = store.claim(request(node, 100)).await.unwrap();
    tasks
}

fn commit(stored: &StoredTask, command: Command, holder: Holder, lease: LeaseChange) -> Commit {
    let Decision { events, task } = decide(&stored.task, command, NOW).unwrap();
    let expected = stored.task.version();
    let (key, events, task) = (stored.key.clone(), events.into(), Arc::new(task));
    Commit { key, holder, expected, events, task, lease, plan: None, output: Vec::new() }
}

fn pause(stored: &StoredTask) -> Commit {
    commit(stored, Command::Pause(By::new("t")), Holder::Lease(stored.epoch), LeaseChange::Keep)
}

async fn pass(time: Duration) {
    tokio::time::advance(time).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_beats_keeps_its_tasks_and_one_that_does_not_loses_them_once_its_lease_has_run_out() {
    let store = MemoryStore::new();
    let (one, two) = (store.join(member("one")), store.join(member("two")));
    submit(&one, ONE).await;
    let held = claim(&one, "one").await;
    for _ in 0..10 {
        pass(Duration::from_secs(10)).await;
        assert_eq!(one.beat(Beat::default()).await.unwrap().losses, 0);
        let beaten = two.beat(Beat::default()).await.unwrap();
        assert!(beaten.losses == 0 && claim(&two, "two").await.is_empty());
        assert_eq!(beaten.look_again.map(Millis::get), Some(15_001));
    }
    for _ in 0..7 {
        pass(Duration::from_secs(2)).await;
        two.beat(Beat::default()).await.unwrap();
    }
    assert!(claim(&two, "two").await.is_empty());
    pass(Duration::from_secs(2)).await;
    let taken = claim(&two, "two").await;
    assert_eq!((taken.len(), taken[0].epoch > held[0].epoch), (1, true));
    assert!(matches!(one.commit(pause(&held[0])).await, Err(StoreError::Fenced { .. })));
    assert!(matches!(one.claim(request("one", 1)).await, Err(StoreError::Unavailable { .. })));
    assert_eq!(one.beat(Beat::default()).await.unwrap().losses, 1);
    assert!(claim(&one, "one").await.is_empty(), "it is a member again");
    assert!(two.commit(pause(&taken[0])).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_late_node_that_nobody_missed_goes_on() {
    let store = MemoryStore::new();
    let one = store.join(member("one"));
    submit(&one, ONE).await;
    let held = claim(&one, "one").await;
    pass(Duration::from_secs(100)).await;
    assert!(!store.join(Membership::visitor()).nodes().await.unwrap()[0].live);
    assert_eq!(one.beat(Beat::default()).await.unwrap().losses, 0);
    assert!(one.commit(pause(&held[0])).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_opens_under_a_name_takes_its_place_at_once() {
    let store = MemoryStore::new();
    let old = store.join(member("one"));
    submit(&old, ONE).await;
    let held = claim(&old, "one").await;
    let new = store.join(member("one"));
    assert!(new.task(&held[0].key.id).await.unwrap().unwrap().orphaned);
    assert!(matches!(old.beat(Beat::default()).await, Err(StoreError::Owned { .. })));
    assert!(matches!(old.commit(pause(&held[0])).await, Err(StoreError::Fenced { .. })));
    assert_eq!(claim(&new, "one").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_leaves_gives_everything_back_at_once() {
    let store = MemoryStore::new();
    let (one, two) = (store.join(member("one")), store.join(member("two")));
    submit(&one, ONE).await;
    claim(&one, "one").await;
    one.leave().await.unwrap();
    assert_eq!(claim(&two, "two").await.len(), 1);
    let nodes = two.nodes().await.unwrap();
    assert_eq!(
        nodes.iter().map(|node| (node.name.as_str(), node.live)).collect::<Vec<_>>(),
        [("one", false), ("two", true)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_letter_reaches_the_node_that_holds_its_task_and_the_answer_whoever_asked() {
    let store = MemoryStore::new();
    let (one, asks) = (store.join(member("one")), store.join(Membership::visitor()));
    submit(&asks, ONE).await;
    let task = TaskId::parse("a").unwrap();
    let letter = Letter { id: "one".to_owned(), task: task.clone(), body: "please".to_owned() };
    assert_eq!(asks.post(letter.clone()).await.unwrap(), None, "nobody holds it");
    claim(&one, "one").await;
    one.called().await;
    let number = asks.post(letter.clone()).await.unwrap().unwrap();
    one.called().await;
    let found = one.letters().await.unwrap();
    assert_eq!((found.len(), found[0].no, &found[0].letter), (1, number, &letter));
    assert_eq!(asks.answer_to(number).await.unwrap(), Answered::NotYet);
    one.answer(number, "done".to_owned()).await.unwrap();
    asks.called().await;
    assert_eq!(asks.answer_to(number).await.unwrap(), Answered::With("done".to_owned()));
    assert!(one.letters().await.unwrap().is_empty());
    pass(Duration::from_secs(3601)).await;
    one.beat(Beat::default()).await.unwrap();
    assert_eq!(asks.answer_to(number).await.unwrap(), Answered::Never, "it is forgotten");
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_is_posted_again_is_still_one_letter() {
    let store = MemoryStore::new();
    let (one, asks) = (store.join(member("one")), store.join(Membership::visitor()));
    submit(&asks, ONE).await;
    claim(&one, "one").await;
    let letter = |id: &str| Letter { id: id.to_owned(), task: TaskId::parse("a").unwrap(), body: "go".to_owned() };
    let number = asks.post(letter("one")).await.unwrap().unwrap();
    assert_eq!(asks.post(letter("one")).await.unwrap(), Some(number));
    assert_eq!(one.letters().await.unwrap().len(), 1);
    one.answer(number, "done".to_owned()).await.unwrap();
    assert_eq!(asks.post(letter("one")).await.unwrap(), Some(number));
    assert!(one.letters().await.unwrap().is_empty(), "it is answered already");
    assert_ne!(asks.post(letter("two")).await.unwrap(), Some(number));
}

#[tokio::test(start_paused = true)]
async fn a_tenant_lock_is_renewed_while_anybody_beats_and_kept_while_nobody_does() {
    let store = MemoryStore::new();
    let (one, two) = (store.join(member("one")), store.join(member("two")));
    submit(&one, ONE).await;
    submit(&one, "{plan: q, stages: [{name: s, uses: noop}], tasks: [{id: b, tenant: x}]}").await;
    let held = claim(&one, "one").await;
    let paused = commit(
        &held[0],
        Command::Interrupt { reason: "t".into() },
        Holder::Lease(held[0].epoch),
        LeaseChange::Release(Wake::At(NOW + Millis::from_secs(1_000_000))),
    );
    one.commit(paused).await.unwrap();
    for _ in 0..4 {
        pass(Duration::from_secs(4000)).await;
        two.beat(Beat::default()).await.unwrap();
        assert!(claim(&two, "two").await.is_empty());
        assert_eq!(two.locks().await.unwrap()[0].task.as_str(), "a");
    }
    let until = two.locks().await.unwrap()[0].expires_at;
    assert!(until.is_some());
    pass(Duration::from_secs(9001)).await;
    assert!(claim(&two, "two").await.is_empty());
    assert_eq!(two.locks().await.unwrap()[0].task.as_str(), "a");
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_what_waits_for_a_person_is_not_renewed() {
    let store = MemoryStore::new();
    let (one, two) = (store.join(member("one")), store.join(member("two")));
    submit(&one, "{plan: p, recovery: manual, stages: [{name: s, uses: noop}], tasks: [{id: a, tenant: x}]}").await;
    claim(&one, "one").await;
    one.leave().await.unwrap();
    for _ in 0..=9000 / 5 {
        pass(Duration::from_secs(5)).await;
        two.beat(Beat::default()).await.unwrap();
    }
    assert!(two.locks().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_visitor_claims_nothing_and_may_speak_for_people() {
    let store = MemoryStore::new();
    let visitor = store.join(Membership::visitor());
    submit(&visitor, ONE).await;
    assert!(claim(&visitor, "visitor").await.is_empty() && visitor.letters().await.unwrap().is_empty());
    let stored = visitor.task(&TaskId::parse("a").unwrap()).await.unwrap().unwrap();
    let cancel = commit(&stored, Command::Cancel(By::new("t")), Holder::Operator, LeaseChange::Release(Wake::Recovery));
    visitor.commit(cancel).await.unwrap();
    assert!(visitor.nodes().await.unwrap().is_empty());
}
