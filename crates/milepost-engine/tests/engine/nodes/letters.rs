//! Verbs for tasks that another node holds: they reach it, and the answer is the one it would have given at home.

use std::time::Duration;

use milepost_core::failure::{ErrorType, Failure};
use milepost_core::id::{IdempotencyKey, StageName};
use milepost_core::task::{By, Rejection, TaskStatus};
use milepost_engine::{Registry, Verb, VerbError};
use serde_json::json;

use crate::support::{Answers, Cluster, Gate, Journal, Member, RETRY, flow, of_task, task_id};

struct Two {
    holder: Member,
    other: Member,
    gate: Gate,
}

/// Task `t` is in the gate on one node; another node has nothing.
async fn two() -> Two {
    let (cluster, gate, journal) = (Cluster::new(), Gate::shut(), Journal::default());
    let registry = Registry::new().with("gate", gate.kind()).with("noop", journal.kind());
    let holder = cluster.node("one", &registry);
    holder.node.submit("{plan: p, stages: [{name: a, uses: gate, rollback: {uses: noop}}, {name: b, uses: gate}], tasks: [{id: t}]}").await;
    gate.inside(1).await;
    Two { holder, other: cluster.node("two", &registry), gate }
}

#[tokio::test(start_paused = true)]
async fn a_pause_and_a_resume_reach_the_node_that_holds_the_task() {
    let two = two().await;
    let asked_at = tokio::time::Instant::now();
    two.other.node.does(of_task("t"), Verb::Pause).await;
    assert!(asked_at.elapsed() < Duration::from_secs(1), "{:?}", asked_at.elapsed());
    assert!(two.holder.node.task("t").await.pause_requested().is_some());
    two.other.node.does(of_task("t"), Verb::Resume).await;
    assert!(two.holder.node.task("t").await.pause_requested().is_none());
    two.other.node.does(of_task("t"), Verb::Pause).await;
    two.gate.let_go(1);
    two.other.sees("t", |task| task.status() == TaskStatus::Paused).await;
    assert_eq!(two.holder.node.count("t", "TASK_PAUSED").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_reaches_the_node_that_holds_the_task_and_ends_its_attempt() {
    let two = two().await;
    two.other.node.does(of_task("t"), Verb::Cancel).await;
    assert_eq!(two.other.node.status("t").await, TaskStatus::Cancelled);
    assert_eq!(two.gate.cancelled(), ["t/a/1"]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_from_another_node_says_what_it_would_have_said_at_home() {
    let two = two().await;
    for verb in [RETRY, Verb::Rollback] {
        let at_home = two.holder.node.operate(of_task("t"), verb).await.expect_err("a refusal");
        let elsewhere = two.other.node.operate(of_task("t"), verb).await.expect_err("a refusal");
        assert!(matches!(elsewhere, VerbError::Rejected(_)), "{elsewhere:?}");
        assert_eq!(elsewhere.to_string(), at_home.to_string());
    }
}

#[tokio::test(start_paused = true)]
async fn a_verb_for_another_version_than_the_holders_is_refused() {
    let two = two().await;
    let version = two.other.node.task("t").await.version();
    let asked = |expected| two.other.node.engine.operate_expecting(of_task("t"), Verb::Pause, By::new("x"), expected);
    let refused = asked(Some(version + 1)).await.expect_err("a refusal");
    assert!(matches!(refused, VerbError::Version { found, .. } if found == version), "{refused:?}");
    asked(Some(version)).await.expect("the version is right");
}

#[tokio::test(start_paused = true)]
async fn a_retry_and_a_rollback_of_a_task_that_nobody_holds_are_made_by_whoever_is_asked() {
    let (cluster, journal) = (Cluster::new(), Journal::default());
    let broken = crate::support::kind(|_| async {
        milepost_engine::stage::Outcome::Failure(Failure::fatal(ErrorType::Business, "no"))
    });
    let registry = Registry::new().with("broken", broken).with("noop", journal.kind());
    let runs = cluster.node("one", &registry);
    let asks = cluster.visitor();
    asks.node.submit("{plan: p, stages: [{name: a, uses: noop, rollback: {uses: noop}}, {name: b, uses: broken}], tasks: [{id: t}]}").await;
    asks.sees("t", |task| task.status() == TaskStatus::Failed).await;
    asks.node.does(of_task("t"), RETRY).await;
    asks.sees("t", |task| task.status() == TaskStatus::Failed && task.version() > 6).await;
    asks.node.does(of_task("t"), Verb::Rollback).await;
    asks.sees("t", |task| task.status() == TaskStatus::RolledBack).await;
    assert_eq!(runs.node.count("t", "TASK_RETRIED").await, 1);
    assert_eq!(journal.count("t/a/1/undo"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_signal_reaches_the_node_that_holds_the_workflow() {
    let cluster = Cluster::new();
    let waits = flow("waits", |ctx, _| async move {
        let word: serde_json::Value = ctx.signal("word").await?;
        Ok(json!({ "heard": word }))
    });
    let one = cluster.node("one", &waits.registry());
    one.node.begin(&waits, "w", json!(null)).await;
    one.sees("w", |task| task.flow().is_some_and(|flow| flow.open().next().is_some())).await;
    let two = cluster.node("two", &waits.registry());
    two.node.signal("w", "word", json!("hello")).await;
    assert_eq!(two.node.outcome("w").await.unwrap(), json!({ "heard": "hello" }));
}

#[tokio::test(start_paused = true)]
async fn a_signal_that_its_holder_committed_before_it_died_unanswered_is_there_once() {
    let cluster = Cluster::new();
    let waits = flow("waits", |ctx, _| async move {
        let first: serde_json::Value = ctx.signal("word").await?;
        let second: serde_json::Value = ctx.signal("word").await?;
        Ok(json!([first, second]))
    });
    let one = cluster.node("one", &waits.registry());
    one.node.begin(&waits, "w", json!(null)).await;
    one.sees("w", |task| task.flow().is_some_and(|flow| flow.open().next().is_some())).await;
    let two = cluster.node("two", &waits.registry());
    one.line.answer(Answers::Forgets);
    let dies = async {
        while two.node.count("w", "SIGNAL_RECEIVED").await == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        one.cut();
    };
    tokio::join!(two.node.signal("w", "word", json!("hello")), dies);
    assert_eq!(two.node.count("w", "SIGNAL_RECEIVED").await, 1);
    two.node.signal("w", "word", json!("bye")).await;
    assert_eq!(two.node.outcome("w").await.unwrap(), json!(["hello", "bye"]));
}

#[tokio::test(start_paused = true)]
async fn a_reused_key_is_refused_by_another_node_as_at_home() {
    let cluster = Cluster::new();
    let waits = flow("waits", |ctx, _| async move { ctx.signal::<serde_json::Value>("other").await });
    let (one, two) = (cluster.node("one", &waits.registry()), cluster.visitor());
    one.node.begin(&waits, "w", json!(null)).await;
    one.sees("w", |task| task.flow().is_some_and(|flow| flow.open().next().is_some())).await;
    let signal = async |member: &Member, payload: i32| {
        let (key, name) = (IdempotencyKey::parse("k").unwrap(), StageName::parse("word").unwrap());
        member.node.engine.signal_under(key, &task_id("w"), name, json!(payload), By::new("ann")).await
    };
    for member in [&one, &two] {
        signal(member, 1).await.expect("the same signal");
        let refused = signal(member, 2).await.expect_err("another signal");
        assert!(matches!(refused, VerbError::Rejected(Rejection::KeyReused { .. })), "{refused:?}");
    }
    assert_eq!(one.node.count("w", "SIGNAL_RECEIVED").await, 1);
}

/// A node that holds a workflow which waits.
async fn waiting(cluster: &Cluster) -> Member {
    let waits = flow("waits", |ctx, _| async move { ctx.signal::<serde_json::Value>("word").await });
    let one = cluster.node("one", &waits.registry());
    one.node.begin(&waits, "w", json!(null)).await;
    one.sees("w", |task| task.flow().is_some_and(|flow| flow.open().next().is_some())).await;
    one
}

/// A signal that has no key: received again, it would be there twice.
fn word(payload: i32) -> serde_json::Value {
    let signal = json!({ "name": "other", "payload": payload, "by": { "who": "ann" }, "id": null });
    json!({ "v": 1, "asked": { "signal": signal }, "expected": null })
}

async fn until_answered(cluster: &Cluster, letter: i64) {
    while cluster.answer_to(letter).await.is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_a_look_finds_which_began_before_its_answer_is_not_carried_out_again() {
    let cluster = Cluster::new();
    let one = waiting(&cluster).await;
    one.line.letters_take(Duration::from_millis(1500));
    one.line.commits_take(Duration::from_secs(2));
    // Found after a second and a half, and answered after two more; a second letter lets the node look again in between.
    let first = cluster.post("w", &word(1)).await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(cluster.answer_to(first).await, None);
    let second = cluster.post("w", &word(2)).await;
    until_answered(&cluster, second).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(one.node.count("w", "SIGNAL_RECEIVED").await, 2);
}

#[tokio::test(start_paused = true)]
async fn what_was_done_and_could_not_be_answered_is_answered_later_and_not_done_again() {
    let cluster = Cluster::new();
    let one = waiting(&cluster).await;
    one.line.swallows_answers(true);
    let letter = cluster.post("w", &word(1)).await;
    while one.node.count("w", "SIGNAL_RECEIVED").await == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.answer_to(letter).await, None);
    one.line.swallows_answers(false);
    // Whatever calls the node next.
    let other = cluster.visitor();
    other.node.signal("w", "other", json!(2)).await;
    until_answered(&cluster, letter).await;
    let answer = cluster.answer_to(letter).await.unwrap();
    assert!(answer.contains("done"), "{answer}");
    assert_eq!(one.node.count("w", "SIGNAL_RECEIVED").await, 2);
}

/// What a pause of the last stage is answered, where the holder records it, cannot say so, and then ends the task.
async fn paused_unanswered(two: &Two, then: impl AsyncFnOnce()) -> Result<(), VerbError> {
    two.gate.let_go(1);
    two.gate.inside(1).await;
    two.holder.line.swallows_answers(true);
    let ends = async {
        two.other.sees("t", |task| task.pause_requested().is_some()).await;
        two.gate.let_go(1);
        two.other.sees("t", |task| task.status() == TaskStatus::Completed).await;
        then().await;
    };
    tokio::join!(two.other.node.operate(of_task("t"), Verb::Pause), ends).0.map(drop)
}

#[tokio::test(start_paused = true)]
async fn what_a_holder_has_done_is_its_answer_however_late_though_the_task_has_ended() {
    let two = two().await;
    let answers_late = async || {
        tokio::time::sleep(Duration::from_secs(10)).await;
        two.holder.line.swallows_answers(false);
    };
    paused_unanswered(&two, answers_late).await.expect("it was done");
}

#[tokio::test(start_paused = true)]
async fn what_a_holder_may_have_done_before_it_died_is_not_called_refused() {
    let two = two().await;
    let error = paused_unanswered(&two, async || two.holder.cut()).await.expect_err("nobody can say");
    assert!(matches!(error, VerbError::InDoubt(_)), "{error:?}");
    let words = "before it said whether it was done; now: cannot pause task t: it is COMPLETED";
    assert!(error.to_string().ends_with(words), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_verb_for_the_task_of_a_node_that_dies_is_carried_out_once_it_is_found_dead() {
    let two = two().await;
    two.holder.cut();
    let asked_at = tokio::time::Instant::now();
    two.other.node.does(of_task("t"), Verb::Cancel).await;
    assert_eq!(two.other.node.status("t").await, TaskStatus::Cancelled);
    assert!(asked_at.elapsed() < Duration::from_secs(30), "{:?}", asked_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_lives_and_does_not_answer_is_waited_for_half_a_minute() {
    let cluster = Cluster::new();
    let asks = cluster.visitor();
    asks.node.submit("{plan: p, stages: [{name: a, uses: noop}], tasks: [{id: t}]}").await;
    cluster.deaf_node_takes_all("deaf").await;
    let asked_at = tokio::time::Instant::now();
    let refused = asks.node.operate(of_task("t"), Verb::Cancel).await.expect_err("no answer");
    assert!(refused.to_string().contains("could not answer"), "{refused}");
    assert!(asked_at.elapsed() < Duration::from_secs(35), "{:?}", asked_at.elapsed());
}
