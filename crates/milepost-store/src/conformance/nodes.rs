//! Several nodes on one store: whose lease is over, and that time in which nobody could write counts against nobody.
//! Where only one can have the store there is nothing to ask.

use std::time::Duration;

use milepost_core::plan::{PlanCommand, Recovery};
use milepost_core::task::{Command, TaskStatus};
use milepost_core::time::{Millis, Timestamp};

use crate::error::StoreError;
use crate::model::{Commit, Holder, LeaseChange, StoredTask, Wake};
use crate::nodes::{Answered, Beat, LEASE, Letter, Membership};

use super::Harness;
use super::given::{PlanBuilder, Scene, ann, failure, fatal, ids, plan, success};
use super::messages::receive;

/// Whoever was called hears of it sooner.
const QUIET_FOR: Duration = Duration::from_millis(500);
const HOUR: Millis = Millis::from_secs(3600);
const YEARS: Millis = Millis::from_secs(100 * 365 * 24 * 3600);
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
    assert_eq!(scene.store.beat(Beat::default()).await.unwrap().losses, 0, "it has lost its lease");
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
    for first in ["beat", "claim", "operator", "its own beat", "its own commit"] {
        let Some([mut one, mut two, mut visitor]) = three(harness).await else { return };
        one.submit(plan("p").task("a")).await;
        let held = one.claim_one("a").await;
        harness.passes(HOUR).await;
        match first {
            "beat" => beats(&two).await,
            "claim" => assert!(ids(&two.claim().await).is_empty(), "it was taken over"),
            "operator" => may_not_touch(&mut visitor, "a").await,
            "its own commit" => {
                one.finishes(&held).await;
                continue;
            }
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
    for _ in 0..2 {
        // Also for whoever did not hear it the first time.
        assert_eq!(one.store.beat(Beat::default()).await.unwrap().losses, 1);
    }
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

/// Manual plans, of which only one task runs at a time.
fn manual(id: &str, tasks: &[&str]) -> PlanBuilder {
    tasks.iter().fold(plan(id), |plan, task| plan.task(task)).manual().max(1)
}

/// It beats until the lease of whoever does not has run out.
async fn outlasts_the_others(harness: &dyn Harness, scene: &Scene<'_>) {
    let mut waited = Millis::ZERO;
    while waited <= AT_MOST {
        beats(scene).await;
        harness.passes(STEP).await;
        waited = waited.saturating_add(STEP);
    }
    beats(scene).await;
}

async fn takes(scene: &mut Scene<'_>, task: &str) {
    let held = scene.claim_one(task).await;
    scene.finishes(&held).await;
}

pub(super) async fn a_node_that_leaves_in_good_order_hands_its_era_on(harness: &dyn Harness) {
    let Some([mut one, mut two, _]) = three(harness).await else { return };
    one.submit(manual("p", &["a", "b"])).await;
    takes(&mut one, "a").await;
    harness.passes(STEP).await;
    one.store.leave().await.unwrap();
    takes(&mut two, "b").await;
}

pub(super) async fn a_store_that_was_away_ends_no_era(harness: &dyn Harness) {
    let Some([mut one, mut two, _]) = three(harness).await else { return };
    one.submit(manual("p", &["a", "b"])).await;
    let held = one.claim_one("a").await;
    harness.passes(HOUR).await;
    let claimed = two.claim().await;
    assert!(ids(&claimed).is_empty() && !claimed.knows_era, "it cannot tell yet");
    beats(&one).await;
    assert!(two.claim_up_to(0).await.knows_era);
    one.finishes(&held).await;
    takes(&mut one, "b").await;
}

/// Nobody can tell whether the last node is gone or only late: a word that is given then is good in either case.
pub(super) async fn a_word_that_is_given_to_nobody_in_particular_is_not_lost_with_the_era(harness: &dyn Harness) {
    let Some([mut one, mut two, mut visitor]) = three(harness).await else { return };
    one.submit(manual("p", &["a", "b"])).await;
    takes(&mut one, "a").await;
    visitor.submit(manual("q", &["c", "d"])).await;
    takes(&mut two, "c").await;
    let mut waited = Millis::ZERO;
    while waited <= AT_MOST {
        beats(&two).await;
        two.claim_up_to(0).await;
        harness.passes(STEP).await;
        waited = waited.saturating_add(STEP);
    }
    takes(&mut two, "d").await;
    assert!(two.plan("p").await.waits_for_person);
}

pub(super) async fn a_word_that_is_given_while_a_node_is_there_is_for_its_era(harness: &dyn Harness) {
    for by_visitor in [true, false] {
        for dies in [true, false] {
            let Some([mut one, mut two, mut visitor]) = three(harness).await else { return };
            one.submit(manual("p", &["a"])).await;
            takes(&mut one, "a").await;
            let who = if by_visitor { &mut visitor } else { &mut two };
            who.submit(manual("q", &["b"])).await;
            two.store.leave().await.unwrap();
            if dies {
                beats(&one).await;
                harness.passes(Millis::from_secs(1)).await;
            } else {
                one.store.leave().await.unwrap();
            }
            let mut three = one.joined(node("three")).await.expect("it can be shared");
            let mut waited = Millis::ZERO;
            while waited <= AT_MOST {
                beats(&three).await;
                assert!(ids(&three.claim().await).is_empty(), "{by_visitor} {dies}");
                harness.passes(STEP).await;
                waited = waited.saturating_add(STEP);
            }
            assert!(three.plan("q").await.waits_for_person);
        }
    }
}

pub(super) async fn whoever_sets_a_task_going_calls_the_other_nodes(harness: &dyn Harness) {
    let Some([mut one, mut two, _]) = three(harness).await else { return };
    one.submit(manual("p", &["a", "b"])).await;
    for scene in [&mut one, &mut two] {
        scene.store.leave().await.unwrap();
    }
    let mut three = one.joined(node("three")).await.expect("it can be shared");
    takes(&mut three, "a").await;
    three.store.leave().await.unwrap();
    let mut four = one.joined(node("four")).await.expect("it can be shared");
    assert!(ids(&four.claim().await).is_empty());
    let mut visitor = one.joined(Membership::visitor()).await.expect("it can be shared");
    while tokio::time::timeout(Duration::from_millis(700), four.store.called()).await.is_ok() {}
    visitor.operator("b", Command::LetGo(ann())).await;
    tokio::time::timeout(Duration::from_secs(20), four.store.called()).await.expect("it is called");
    takes(&mut four, "b").await;
}

/// Others of its plan wait for their tenant, or for a person.
pub(super) async fn a_task_that_is_set_going_calls_a_node_whatever_else_of_its_plan_waits(harness: &dyn Harness) {
    let Some([mut one, two, mut visitor]) = three(harness).await else { return };
    two.store.leave().await.unwrap();
    one.submit(plan("runs").task("first").task_of("waits", "t").task_of("free", "u").manual().max(9)).await;
    one.submit(plan("ended").task("held").task("undone").max(9)).await;
    one.submit(plan("busy").task_of("busy", "t").automatic()).await;
    for task in one.claim_only("ended").await.tasks {
        one.does(&task, fatal(0)).await;
    }
    let first = one.claim_up_to(1).await.tasks.remove(0);
    one.finishes(&first).await;
    one.operator("held", Command::Rollback(ann())).await;
    one.store.leave().await.unwrap();
    let mut three = one.joined(node("three")).await.expect("it can be shared");
    three.recovery = Recovery::Manual;
    three.claim_one("busy").await;
    visitor.operator("waits", Command::LetGo(ann())).await;
    for (wanted, word) in [("free", Command::LetGo(ann())), ("undone", Command::Rollback(ann()))] {
        assert!(ids(&three.claim().await).is_empty());
        while tokio::time::timeout(QUIET_FOR, three.store.called()).await.is_ok() {}
        visitor.operator(wanted, word).await;
        let called = tokio::time::timeout(AT_MOST.as_duration(), three.store.called()).await;
        assert!(called.is_ok(), "nobody was called for {wanted}");
        three.claim_one(wanted).await;
    }
}

pub(super) async fn a_node_that_goes_on_with_plans_that_do_not_say_finds_them_in_the_era_of_one_that_does_not(
    harness: &dyn Harness,
) {
    let Some([mut one, two, _]) = three(harness).await else { return };
    one.submit(plan("p").task("asleep").task("waits").max(2)).await;
    let asleep = one.claim_up_to(1).await.tasks.remove(0);
    let due = one.falls_asleep(&asleep).await;
    one.store.leave().await.unwrap();
    two.store.leave().await.unwrap();
    let mut manual = one.joined(node("manual")).await.expect("it can be shared");
    (manual.recovery, manual.now) = (Recovery::Manual, due);
    let claimed = manual.claim().await;
    assert_eq!((ids(&claimed), claimed.next_due), (vec![], None));
    let mut other = one.joined(node("other")).await.expect("it can be shared");
    harness.passes(STEP).await;
    beats(&manual).await;
    other.now = due;
    assert_eq!(ids(&other.claim().await), ["asleep", "waits"]);
    assert!(ids(&manual.claim().await).is_empty());
}

/// A node that takes a message in runs its task by preference, and calls nobody; a visitor has to.
pub(super) async fn a_message_that_a_visitor_takes_in_calls_a_node(harness: &dyn Harness) {
    let Some([mut one, two, mut visitor]) = three(harness).await else { return };
    two.store.leave().await.unwrap();
    one.submit(plan("p").by_message().task("a").task("b")).await;
    for task in ["a", "b"] {
        assert!(ids(&one.claim().await).is_empty());
        while tokio::time::timeout(QUIET_FOR, one.store.called()).await.is_ok() {}
        receive(&mut visitor, task, task).await;
        let called = tokio::time::timeout(AT_MOST.as_duration(), one.store.called()).await;
        assert!(called.is_ok(), "nobody was called for {task}");
        one.claim_one(task).await;
    }
}

/// As a signal does, from whoever does not hold the task.
async fn wakes_at(by: &Scene<'_>, task: &str, at: Timestamp) {
    let StoredTask { key, task, .. } = by.task(task).await;
    let commit = Commit {
        key,
        holder: Holder::Operator,
        expected: task.version(),
        events: Vec::new().into(),
        task: task.into(),
        lease: LeaseChange::Release(Wake::At(at)),
        plan: None,
        output: Vec::new(),
    };
    by.store.commit(commit).await.unwrap();
}

/// By resuming its plan, or by saying something to it.
pub(super) async fn a_sleeper_that_a_visitor_lets_go_on_calls_a_node(harness: &dyn Harness) {
    let Some([mut one, two, mut visitor]) = three(harness).await else { return };
    two.store.leave().await.unwrap();
    one.submit(plan("p").task("a")).await;
    let held = one.claim_one("a").await;
    one.falls_asleep(&held).await;
    for how in ["resume", "wake"] {
        if how == "resume" {
            visitor.verb("p", PlanCommand::Pause).await;
        }
        assert!(ids(&one.claim().await).is_empty());
        while tokio::time::timeout(QUIET_FOR, one.store.called()).await.is_ok() {}
        if how == "resume" {
            visitor.verb("p", PlanCommand::Resume).await;
        } else {
            wakes_at(&visitor, "a", visitor.now).await;
        }
        let called = tokio::time::timeout(AT_MOST.as_duration(), one.store.called()).await;
        assert!(called.is_ok(), "nobody was called by a {how}");
    }
}

/// The node that wakes it has another clock, ahead of the store's, and does not know the task's workflow.
pub(super) async fn a_sleeper_that_another_node_lets_go_on_calls_one_that_can_run_it(harness: &dyn Harness) {
    let Some([mut one, mut two, _]) = three(harness).await else { return };
    two.plans = false;
    one.submit(plan("p").task("a")).await;
    let held = one.claim_one("a").await;
    // Both are still to come, whatever time the store has.
    let (ahead, late) = (one.now + YEARS, one.now + YEARS + YEARS);
    one.parks(&held, failure(0, 1), Wake::At(late)).await;
    assert!(ids(&one.claim().await).is_empty());
    while tokio::time::timeout(QUIET_FOR, one.store.called()).await.is_ok() {}
    wakes_at(&two, "a", ahead).await;
    assert!(ids(&two.claim().await).is_empty(), "it cannot run it");
    let called = tokio::time::timeout(AT_MOST.as_duration(), one.store.called()).await;
    assert!(called.is_ok(), "nobody was called who can run it");
}

pub(super) async fn a_letter_keeps_its_first_answer(harness: &dyn Harness) {
    let Some([mut one, _, visitor]) = three(harness).await else { return };
    one.submit(plan("p").task("a")).await;
    let held = one.claim_one("a").await;
    let letter = Letter { id: "letter-1".to_owned(), task: held.key.id.clone(), body: "{}".to_owned() };
    let no = visitor.store.post(letter).await.unwrap().expect("somebody holds it");
    let letters = one.store.letters().await.unwrap();
    assert_eq!(letters.iter().map(|posted| posted.no).collect::<Vec<_>>(), [no]);
    assert_eq!(visitor.store.answer_to(no).await.unwrap(), Answered::NotYet);
    for answer in ["first", "second"] {
        one.store.answer(no, answer.to_owned()).await.unwrap();
        assert_eq!(visitor.store.answer_to(no).await.unwrap(), Answered::With("first".to_owned()));
        assert!(one.store.letters().await.unwrap().is_empty());
    }
}

pub(super) async fn a_letter_to_a_node_that_is_gone_is_never_answered(harness: &dyn Harness) {
    let Some([mut one, _, visitor]) = three(harness).await else { return };
    one.submit(plan("p").task("a")).await;
    let held = one.claim_one("a").await;
    let letter = Letter { id: "letter-1".to_owned(), task: held.key.id.clone(), body: "{}".to_owned() };
    let no = visitor.store.post(letter).await.unwrap().expect("somebody holds it");
    // The task may have gone from there: whoever was asked is still there to answer.
    one.finishes(&held).await;
    assert_eq!(visitor.store.answer_to(no).await.unwrap(), Answered::NotYet);
    one.store.leave().await.unwrap();
    assert_eq!(visitor.store.answer_to(no).await.unwrap(), Answered::Never);
}

pub(super) async fn a_node_can_call_the_others(harness: &dyn Harness) {
    let Some([one, two, _]) = three(harness).await else { return };
    while tokio::time::timeout(QUIET_FOR, two.store.called()).await.is_ok() {}
    one.store.call().await.unwrap();
    let called = tokio::time::timeout(AT_MOST.as_duration(), two.store.called()).await;
    assert!(called.is_ok(), "nobody was called");
}

/// Its lease had run out, another era may have begun since, and it hears of neither before it goes.
pub(super) async fn a_node_that_was_given_up_says_nothing_of_an_era_when_it_leaves(harness: &dyn Harness) {
    let Some([mut one, two, mut visitor]) = three(harness).await else { return };
    one.submit(manual("p", &["a"])).await;
    takes(&mut one, "a").await;
    outlasts_the_others(harness, &two).await;
    two.store.leave().await.unwrap();
    visitor.submit(manual("q", &["b"])).await;
    one.store.leave().await.unwrap();
    let mut three = one.joined(node("three")).await.expect("it can be shared");
    takes(&mut three, "b").await;
}

/// Also when it was another beat that said when to look, for a lease that ran out before this one.
pub(super) async fn a_beat_that_ends_another_nodes_lease_says_to_look_at_once(harness: &dyn Harness) {
    let Some([one, mut two, _]) = three(harness).await else { return };
    two.submit(plan("p").task("a")).await;
    two.claim_one("a").await;
    loop {
        harness.passes(STEP).await;
        let asked_at = tokio::time::Instant::now();
        let look_again = one.store.beat(Beat::default()).await.unwrap().look_again;
        if one.task("a").await.orphaned {
            let most = asked_at.elapsed() + Duration::from_millis(100);
            return assert!(look_again.is_some_and(|wait| wait.as_duration() <= most), "{look_again:?}");
        }
    }
}

/// Somebody is there all the time: who was there together with a node of an era belongs to it, though it has no room to
/// claim again, and though that node comes back under its name.
pub(super) async fn a_rolling_restart_hands_the_era_on_by_nodes_that_are_full(harness: &dyn Harness) {
    let Some([mut one, mut two, _]) = three(harness).await else { return };
    one.submit(manual("p", &["a", "b", "c"])).await;
    takes(&mut one, "a").await;
    assert!(!two.claim_up_to(0).await.knows_era, "it cannot tell yet");
    harness.passes(STEP).await;
    beats(&one).await;
    one.store.leave().await.unwrap();
    let mut one = two.joined(node("one")).await.expect("it can be shared");
    assert!(!one.claim_up_to(0).await.knows_era, "it cannot tell yet");
    harness.passes(STEP).await;
    beats(&two).await;
    two.store.leave().await.unwrap();
    let mut two = one.joined(node("two")).await.expect("it can be shared");
    harness.passes(STEP).await;
    beats(&one).await;
    takes(&mut two, "b").await;
    takes(&mut one, "c").await;
}

/// However many are due before it that may not be taken.
pub(super) async fn a_node_that_cannot_tell_its_era_wakes_what_goes_on_by_itself(harness: &dyn Harness) {
    let Some([mut one, mut two, _]) = three(harness).await else { return };
    let sleepers: Vec<String> = (0..70).map(|n| format!("m-{n}")).collect();
    one.submit(sleepers.iter().fold(plan("p"), |plan, id| plan.task(id)).manual().max(100)).await;
    one.submit(plan("q").task("auto").automatic()).await;
    for held in one.claim().await.tasks {
        two.now = one.falls_asleep(&held).await;
    }
    let claimed = two.claim_up_to(1).await;
    assert_eq!((ids(&claimed), claimed.knows_era), (vec!["auto"], false));
}

/// Also what is said while it runs, and what is said for one task of it.
pub(super) async fn words_for_a_plan_that_a_node_runs_alone_are_for_that_node(harness: &dyn Harness) {
    let Some([mut one, two, mut visitor]) = three(harness).await else { return };
    two.store.leave().await.unwrap();
    visitor.submit(manual("p", &["a", "b", "c"])).await;
    let a = one.claim_only("p").await.tasks.remove(0);
    visitor.verb("p", PlanCommand::Resume).await;
    visitor.operator("b", Command::Pause(ann())).await;
    visitor.operator("b", Command::Resume(ann())).await;
    one.finishes(&a).await;
    let b = one.claim_only("p").await.tasks.remove(0);
    one.finishes(&b).await;
    one.store.leave().await.unwrap();
    let mut three = one.joined(node("three")).await.expect("it can be shared");
    assert!(ids(&three.claim().await).is_empty());
    assert!(three.plan("p").await.waits_for_person);
}

fn of_one_tenant(tasks: &[&str]) -> PlanBuilder {
    tasks.iter().fold(plan("p"), |plan, task| plan.task_of(task, "t")).max(10)
}

/// What is set going by itself goes through a pause.
async fn set_going(scene: &mut Scene<'_>, task: &str) {
    for command in [Command::Pause(ann()), Command::Resume(ann())] {
        scene.operator(task, command).await;
    }
}

/// It lined up for a node that takes them all, and that is gone when the tenant is free.
pub(super) async fn a_task_that_is_set_going_is_not_left_in_line_behind_one_that_is_not(harness: &dyn Harness) {
    let Some([mut one, two, mut visitor]) = three(harness).await else { return };
    one.submit(of_one_tenant(&["zero", "first", "ahead", "wanted"])).await;
    takes(&mut one, "zero").await;
    one.store.leave().await.unwrap();
    two.store.leave().await.unwrap();
    let mut manual = one.joined(node("manual")).await.expect("it can be shared");
    manual.recovery = Recovery::Manual;
    assert!(ids(&manual.claim().await).is_empty());
    let mut auto = one.joined(node("auto")).await.expect("it can be shared");
    harness.passes(STEP).await;
    beats(&manual).await;
    let first = auto.claim_one("first").await;
    set_going(&mut visitor, "wanted").await;
    assert!(ids(&auto.claim().await).is_empty());
    auto.finishes(&first).await;
    auto.store.leave().await.unwrap();
    manual.claim_one("wanted").await;
}

/// Whether its tenant is free before the era begins or after.
pub(super) async fn a_task_that_is_set_going_for_the_next_era_leaves_its_line(harness: &dyn Harness) {
    for free_before in [true, false] {
        let Some([mut one, mut two, mut visitor]) = three(harness).await else { return };
        one.submit(of_one_tenant(&["first", "ahead", "wanted"]).manual()).await;
        one.claim_one("first").await;
        set_going(&mut visitor, "wanted").await;
        assert!(ids(&one.claim().await).is_empty());
        outlasts_the_others(harness, &two).await;
        if !free_before {
            assert!(ids(&two.claim().await).is_empty());
        }
        visitor.operator_finds_it_interrupted("first", Command::Cancel(ann())).await;
        two.claim_one("wanted").await;
    }
}
