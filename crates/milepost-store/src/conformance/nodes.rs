//! Several nodes on one store: whose lease is over, and that time in which nobody could write counts against nobody.
//! Where only one can have the store there is nothing to ask.

use milepost_core::task::{Command, TaskStatus};
use milepost_core::time::Millis;

use crate::error::StoreError;
use crate::nodes::{Beat, LEASE, Membership};

use super::Harness;
use super::given::{Scene, ann, ids, plan, success};

const HOUR: Millis = Millis::from_secs(3600);
/// Less than from beat to beat: a slow machine takes time of its own.
const STEP: Millis = Millis::from_secs(3);
/// A lease, and what is left of the last step.
const AT_MOST: Millis = Millis::new(LEASE.get() + STEP.get());

fn node(name: &str) -> Membership {
    Membership::node(name, "boot")
}

/// Two nodes and a visitor, on a store of their own.
async fn three(harness: &dyn Harness) -> Option<[Scene<'_>; 3]> {
    let first = Scene::new(harness).await;
    let three = [
        first.joined(node("one")).await?,
        first.joined(node("two")).await?,
        first.joined(Membership::visitor()).await?,
    ];
    first.store.leave().await.unwrap();
    Some(three)
}

async fn beats(scene: &Scene<'_>) {
    assert!(!scene.store.beat(Beat::default()).await.unwrap().lost, "it has lost its lease");
}

async fn may_not_touch(visitor: &mut Scene<'_>, task: &str) {
    let refused = visitor.try_operator(task, Command::Cancel(ann()), None).await;
    assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
}

/// How long it takes a node that beats to be given what another has.
async fn until_taken(harness: &dyn Harness, by: &mut Scene<'_>) -> Millis {
    let mut waited = Millis::ZERO;
    beats(by).await;
    while ids(&by.claim().await).is_empty() {
        harness.passes(STEP).await;
        waited = waited.saturating_add(STEP);
        assert!(waited <= Millis::from_secs(60), "it is never given it");
        beats(by).await;
    }
    waited
}

/// Whoever is the first to come back: another node with a beat or a claim, or a person.
pub(super) async fn a_store_that_was_away_costs_nobody_its_lease(harness: &dyn Harness) {
    for first in ["beat", "claim", "operator", "its own beat"] {
        let Some([mut one, mut two, mut visitor]) = three(harness).await else { return };
        one.submit(plan("p").task("a")).await;
        let held = one.claim_one("a").await;
        harness.passes(HOUR).await;
        match first {
            "beat" => beats(&two).await,
            "claim" => assert!(ids(&two.claim().await).is_empty(), "it was taken over"),
            "operator" => may_not_touch(&mut visitor, "a").await,
            _ => beats(&one).await,
        }
        assert!(ids(&two.claim().await).is_empty(), "it was taken over after a {first}");
        may_not_touch(&mut visitor, "a").await;
        beats(&two).await;
        beats(&one).await;
        one.finishes(&held).await;
    }
}

pub(super) async fn a_node_that_does_not_come_back_with_the_store_loses_its_tasks_after_its_lease(
    harness: &dyn Harness,
) {
    let Some([mut one, mut two, _]) = three(harness).await else { return };
    one.submit(plan("p").task("a")).await;
    one.claim_one("a").await;
    harness.passes(HOUR).await;
    let waited = until_taken(harness, &mut two).await;
    assert!(waited > Millis::ZERO && waited <= AT_MOST, "after {waited}");
    assert!(two.log("a").await.contains(&"TASK_INTERRUPTED"));
}

pub(super) async fn a_node_that_falls_silent_loses_its_tasks_after_its_lease_while_others_beat(harness: &dyn Harness) {
    let Some([mut one, mut two, _]) = three(harness).await else { return };
    one.submit(plan("p").task("a")).await;
    let held = one.claim_one("a").await;
    let waited = until_taken(harness, &mut two).await;
    assert!(waited > STEP && waited <= AT_MOST, "after {waited}");
    let late = one.decision(&held, success(0));
    assert!(matches!(one.store.commit(late).await, Err(StoreError::Fenced { .. })));
    assert!(one.store.beat(Beat::default()).await.unwrap().lost);
}

pub(super) async fn a_tenant_stays_closed_through_hours_without_a_node(harness: &dyn Harness) {
    for in_good_order in [true, false] {
        let Some([mut one, two, _]) = three(harness).await else { return };
        one.submit(plan("p").task_of("a", "x").task_of("b", "x").max(2)).await;
        let held = one.claim_one("a").await;
        let held = one.does(&held, Command::Pause(ann())).await;
        let paused = one.does(&held, success(0)).await;
        assert_eq!(paused.task.status(), TaskStatus::Paused);
        for left in [&one, &two] {
            if in_good_order {
                left.store.leave().await.unwrap();
            }
        }
        harness.passes(Millis::from_secs(10 * 3600)).await;
        let three = one.joined(node("three")).await;
        let mut three = three.expect("it can be shared");
        assert!(ids(&three.claim().await).is_empty(), "its tenant was given to another");
        beats(&three).await;
        assert!(ids(&three.claim().await).is_empty(), "its tenant was given to another");
        assert_eq!(three.locks().await, [("x".to_owned(), "a".to_owned())]);
    }
}

pub(super) async fn a_visitor_alone_finds_out_that_a_node_is_gone(harness: &dyn Harness) {
    let Some([mut one, two, mut visitor]) = three(harness).await else { return };
    two.store.leave().await.unwrap();
    one.submit(plan("p").task("a")).await;
    one.claim_one("a").await;
    harness.passes(HOUR).await;
    let mut waited = Millis::ZERO;
    loop {
        beats(&visitor).await;
        match visitor.try_operator("a", Command::Cancel(ann()), None).await {
            Ok(_) => break,
            Err(StoreError::Fenced { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        harness.passes(STEP).await;
        waited = waited.saturating_add(STEP);
    }
    assert!(waited > Millis::ZERO && waited <= AT_MOST, "after {waited}");
}
