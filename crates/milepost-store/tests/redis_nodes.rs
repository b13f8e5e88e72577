//! Several nodes on one Redis: who may write, who takes over, and how they reach each other.

#[path = "support/patience.rs"]
mod patience;
mod redis_server;

use std::collections::BTreeSet;
use std::time::Duration;

use milepost_core::id::Tenant;
use milepost_core::task::{Command, Event, TaskStatus};
use milepost_core::time::Millis;
use milepost_store::{Answered, Beat, Letter, Membership, RedisStore, Store, StoreError};
use patience::PATIENCE;
use redis_server::given::{
    SHORT_LEASE, ann, claim, claim_one, does, manual, many, operator, plan, submit, success, task_id, try_claim,
    try_does, until,
};
use redis_server::{Place, is_missing};

async fn run_out() {
    tokio::time::sleep(Duration::from_millis(SHORT_LEASE.get() + 50)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_that_claim_at_once_never_share_a_task() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let nodes = [place.node("a").await, place.node("b").await, place.node("c").await];
    submit(&nodes[0], many("p", 400)).await;
    let claims = nodes.into_iter().map(|node| {
        tokio::spawn(async move {
            let mut mine = Vec::new();
            loop {
                let some = claim(&node, 30).await;
                if some.is_empty() {
                    return mine;
                }
                mine.extend(some.into_iter().map(|task| task.key.no));
            }
        })
    });
    let mut all = Vec::new();
    for claimed in claims.collect::<Vec<_>>() {
        all.extend(claimed.await.unwrap());
    }
    assert_eq!(all.len(), 400);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 400);
}

#[tokio::test]
async fn the_tasks_of_a_node_that_is_gone_are_taken_over_and_its_late_word_changes_nothing() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let (old, new) = (place.brief_node("old").await, place.node("new").await);
    submit(&old, plan("p", &[("t", Some("tenant"))])).await;
    let held = claim_one(&old).await;
    assert!(claim(&new, 1).await.is_empty());
    run_out().await;
    assert!(new.task(&task_id("t")).await.unwrap().unwrap().orphaned);
    let taken = claim_one(&new).await;
    assert!(matches!(taken.claim_events[0].event(), Event::TaskInterrupted { .. }));
    let late = try_does(&old, &held, success(0)).await;
    assert!(matches!(late, Err(StoreError::Fenced { found, .. }) if found == taken.epoch), "{late:?}");
    assert!(matches!(try_claim(&old, 1).await, Err(StoreError::Unavailable { .. })));
    let fences: Vec<u64> = new.locks().await.unwrap().iter().map(|lock| lock.fence).collect();
    assert_eq!(fences, [2], "the tenant is the same task's, under a larger fence");
    let task = does(&new, &taken, success(0)).await;
    assert_eq!(does(&new, &task, success(1)).await.task.status(), TaskStatus::Completed);
}

#[tokio::test]
async fn a_node_that_is_late_goes_on_if_nobody_has_noticed() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let node = place.brief_node("a").await;
    submit(&node, plan("p", &[("t", None)])).await;
    let held = claim_one(&node).await;
    run_out().await;
    let held = does(&node, &held, success(0)).await;
    assert_eq!(node.beat(Beat::default()).await.unwrap().losses, 0);
    does(&node, &held, success(1)).await;
}

#[tokio::test]
async fn a_node_that_was_given_up_is_told_so_and_begins_anew() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let (old, other) = (place.brief_node("old").await, place.node("other").await);
    submit(&old, plan("p", &[("t", None), ("u", None)])).await;
    let held = claim_one(&old).await;
    let wait = other.beat(Beat::default()).await.unwrap().look_again.expect("there is another node");
    assert!(wait.get() <= SHORT_LEASE.get() + 1, "{wait:?}");
    run_out().await;
    other.beat(Beat::default()).await.unwrap();
    assert_eq!(old.beat(Beat::default()).await.unwrap().losses, 1);
    assert!(matches!(try_does(&old, &held, success(0)).await, Err(StoreError::Fenced { .. })));
    assert_eq!(claim(&old, 10).await.len(), 2);
}

/// As when the answer to its beginning anew is lost.
#[tokio::test]
async fn a_session_that_the_same_process_began_is_lost_and_not_anothers() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let node = || async { RedisStore::open(&place.url, Membership::node("a", "boot")).await.unwrap() };
    let store = node().await;
    let _unheard = node().await;
    assert_eq!(store.beat(Beat::default()).await.unwrap().losses, 1);
    submit(&store, plan("p", &[("t", None)])).await;
    claim_one(&store).await;
}

#[tokio::test]
async fn a_node_that_comes_back_under_its_name_takes_its_place_at_once() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let before = place.node("a").await;
    submit(&before, plan("p", &[("t", None)])).await;
    let held = claim_one(&before).await;
    let after = place.node("a").await;
    let taken = claim_one(&after).await;
    assert!(taken.epoch > held.epoch);
    assert!(matches!(try_does(&before, &held, success(0)).await, Err(StoreError::Fenced { .. })));
    let owned = before.beat(Beat::default()).await;
    assert!(matches!(owned, Err(StoreError::Owned { pid, .. }) if pid == std::process::id()), "{owned:?}");
    assert_eq!(after.beat(Beat::default()).await.unwrap().losses, 0);
}

#[tokio::test]
async fn nodes_are_listed_with_what_they_last_said() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let (a, b) = (place.node("a").await, place.brief_node("b").await);
    a.beat(Beat { capacity: 8, in_hand: 3 }).await.unwrap();
    let listed = a.nodes().await.unwrap();
    let rows: Vec<_> = listed.iter().map(|row| (row.name.as_str(), row.live, row.in_hand, row.capacity)).collect();
    assert_eq!(rows, [("a", true, 3, 8), ("b", true, 0, 0)]);
    run_out().await;
    assert!(!a.nodes().await.unwrap()[1].live);
    b.beat(Beat::default()).await.unwrap();
    b.leave().await.unwrap();
    assert!(!a.nodes().await.unwrap()[1].live);
}

#[tokio::test]
async fn who_leaves_gives_up_its_tasks_at_once_and_says_so() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let (a, b) = (place.node("a").await, place.node("b").await);
    submit(&a, plan("p", &[("t", None)])).await;
    claim_one(&a).await;
    b.called().await;
    let call = b.called();
    a.leave().await.unwrap();
    tokio::time::timeout(PATIENCE, call).await.expect("b is called");
    claim_one(&b).await;
    assert!(try_claim(&a, 1).await.is_err());
}

#[tokio::test]
async fn a_visitor_submits_and_asks_and_runs_nothing() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let (visitor, node) = (place.visitor().await, place.node("a").await);
    submit(&visitor, plan("p", &[("t", None), ("u", None)])).await;
    assert!(claim(&visitor, 10).await.is_empty());
    assert!(visitor.letters().await.unwrap().is_empty());
    claim_one(&node).await;
    let refused = operator(&visitor, "t", Command::Pause(ann())).await;
    assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
    operator(&visitor, "u", Command::Cancel(ann())).await.unwrap();
    assert_eq!(visitor.nodes().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_letter_reaches_the_node_that_holds_its_task_and_its_answer_comes_back() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let (node, other, visitor) = (place.node("a").await, place.node("b").await, place.visitor().await);
    submit(&node, plan("p", &[("t", None)])).await;
    let letter = || Letter { id: "one".to_owned(), task: task_id("t"), body: "pause".to_owned() };
    assert_eq!(visitor.post(letter()).await.unwrap(), None, "nobody holds it");
    claim_one(&node).await;
    node.called().await;
    let called = node.called();
    let no = visitor.post(letter()).await.unwrap().expect("a node holds it");
    tokio::time::timeout(PATIENCE, called).await.expect("the holder is called");
    assert!(other.letters().await.unwrap().is_empty());
    let posted = node.letters().await.unwrap();
    assert_eq!(posted.iter().map(|posted| (posted.no, posted.letter.clone())).collect::<Vec<_>>(), [(no, letter())]);
    assert_eq!(visitor.answer_to(no).await.unwrap(), Answered::NotYet);
    node.answer(no, "done".to_owned()).await.unwrap();
    assert!(node.letters().await.unwrap().is_empty());
    assert_eq!(visitor.answer_to(no).await.unwrap(), Answered::With("done".to_owned()));
}

#[tokio::test]
async fn a_letter_that_is_posted_again_is_still_one_letter() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let (node, visitor) = (place.node("a").await, place.visitor().await);
    submit(&node, plan("p", &[("t", None)])).await;
    claim_one(&node).await;
    let letter = |id: &str| Letter { id: id.to_owned(), task: task_id("t"), body: "go".to_owned() };
    let no = visitor.post(letter("one")).await.unwrap().expect("a node holds it");
    assert_eq!(visitor.post(letter("one")).await.unwrap(), Some(no));
    assert_eq!(node.letters().await.unwrap().len(), 1);
    node.answer(no, "done".to_owned()).await.unwrap();
    assert_eq!(visitor.post(letter("one")).await.unwrap(), Some(no));
    assert!(node.letters().await.unwrap().is_empty(), "it is answered already");
    assert_ne!(visitor.post(letter("two")).await.unwrap(), Some(no));
}

#[tokio::test]
async fn nodes_are_called_when_another_leaves_work_and_also_after_their_connection_was_cut() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let (a, b) = (place.node("a").await, place.node("b").await);
    b.called().await;
    submit(&a, plan("p", &[("t", None)])).await;
    tokio::time::timeout(PATIENCE, b.called()).await.expect("b is called");
    // What a node leaves itself is no call.
    submit(&b, plan("q", &[("u", None)])).await;
    assert!(tokio::time::timeout(Duration::from_millis(200), b.called()).await.is_err());
    claim(&a, 10).await;
    let _: i64 = place.ask(redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub")).await;
    tokio::time::timeout(PATIENCE, b.called()).await.expect("b listens again, and looks once");
    submit(&a, plan("r", &[("v", None)])).await;
    tokio::time::timeout(PATIENCE, b.called()).await.expect("b is called");
}

async fn node_with_brief_locks(place: &Place, name: &str, lock_ttl: u64) -> RedisStore {
    let membership = Membership { lock_ttl: Millis::new(lock_ttl), ..Membership::node(name, "boot") };
    RedisStore::open(&place.url, membership).await.unwrap()
}

#[tokio::test]
async fn the_lock_of_a_running_or_paused_task_is_renewed_by_the_beat_of_any_node() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let (a, b) = (node_with_brief_locks(&place, "a", 4000).await, node_with_brief_locks(&place, "b", 4000).await);
    submit(&a, plan("p", &[("t", Some("running")), ("u", Some("paused"))])).await;
    let held = claim(&a, 10).await;
    let pausing = does(&a, &held[1], Command::Pause(ann())).await;
    does(&a, &pausing, success(0)).await;
    assert_eq!(a.task(&task_id("u")).await.unwrap().unwrap().task.status(), TaskStatus::Paused);
    let before = a.locks().await.unwrap();
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        b.beat(Beat::default()).await.unwrap();
    }
    let after = a.locks().await.unwrap();
    assert_eq!(after.len(), 2, "they would have opened by now");
    assert!(before.iter().zip(&after).all(|(before, after)| before.expires_at < after.expires_at));
    assert!(before.iter().zip(&after).all(|(before, after)| before.fence == after.fence));
}

#[tokio::test]
async fn the_lock_of_a_lost_task_that_waits_for_a_person_opens_in_the_end() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let membership = Membership { lease: SHORT_LEASE, lock_ttl: Millis::new(900), ..Membership::node("a", "boot") };
    let a = RedisStore::open(&place.url, membership).await.unwrap();
    let b = node_with_brief_locks(&place, "b", 900).await;
    submit(&a, manual(plan("p", &[("t", Some("tenant"))]))).await;
    claim_one(&a).await;
    submit(&b, plan("q", &[("u", Some("tenant"))])).await;
    assert!(claim(&b, 10).await.is_empty());
    let blocked = b.task(&task_id("u")).await.unwrap().unwrap().blocked_by;
    assert_eq!(blocked.as_deref(), Some("p:t"));
    let taken = until("the lock to open", || async {
        b.beat(Beat::default()).await.unwrap();
        claim(&b, 10).await.pop()
    })
    .await;
    assert_eq!(taken.key.id, task_id("u"));
    assert_eq!(b.locks().await.unwrap()[0].task, task_id("u"));
    // The lost task has to get it again, and cannot.
    let only = milepost_store::ClaimRequest {
        node: "b".into(),
        only: Some(redis_server::given::plan_id("p")),
        plans: true,
        workflows: Default::default(),
        recovery: Default::default(),
        limit: 1,
        now: Some(redis_server::given::now()),
    };
    assert!(b.claim(only).await.unwrap().tasks.is_empty());
}

#[tokio::test]
async fn the_lock_of_another_program_counts_and_its_end_lets_tasks_run() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let a = place.node("a").await;
    let lock = place.key("lock:tenant:租户 1");
    let _: String = place.ask(redis::cmd("SET").arg(&lock).arg("java:deploy").arg("NX").arg("EX").arg(9000)).await;
    submit(&a, plan("p", &[("t", Some("租户 1"))])).await;
    assert!(claim(&a, 1).await.is_empty());
    let task = a.task(&task_id("t")).await.unwrap().unwrap();
    assert_eq!(task.blocked_by.as_deref(), Some("java:deploy"));
    let _: i64 = place.ask(redis::cmd("DEL").arg(&lock)).await;
    // It is looked for now and then; here, at once.
    let renew = place.key("mp:renew");
    let _: i64 = place.ask(redis::cmd("ZADD").arg(renew).arg(0).arg("租户 1")).await;
    a.beat(Beat::default()).await.unwrap();
    claim_one(&a).await;
    let locks = a.locks().await.unwrap();
    assert_eq!(locks[0].tenant, Tenant::parse("租户 1").unwrap());
}

#[tokio::test]
async fn a_server_that_has_forgotten_the_scripts_is_told_them_again() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let a = place.node("a").await;
    submit(&a, plan("p", &[("t", None)])).await;
    let held = claim_one(&a).await;
    let _: String = place.ask(redis::cmd("SCRIPT").arg("FLUSH")).await;
    let held = does(&a, &held, success(0)).await;
    does(&a, &held, success(1)).await;
}
