//! What a task that a message set off leaves behind when it ends: what is to be said of it, and what was given up.

use std::sync::Arc;

use milepost_core::message::Arrival;
use milepost_core::plan::PlanCommand;
use milepost_core::task::{Command, MAX_TAKEOVERS, PlanStatus, TaskStatus};
use milepost_core::time::Millis;
use serde_json::Value;

use crate::books::{Addressee, Book, Parcel};
use crate::error::StoreError;

use super::Harness;
use super::books::all_entries;
use super::given::{Scene, ann, fatal, plan, retry, success};
use super::messages::{arrival, receive};

/// What is to be published, in order.
async fn parcels(scene: &Scene<'_>) -> Vec<Parcel> {
    let entries = all_entries(&*scene.store, Book::Outbox, scene.now).await;
    entries.iter().map(|entry| serde_json::from_str(&entry.body).unwrap()).collect()
}

fn addressees(parcels: &[Parcel]) -> Vec<Addressee> {
    parcels.iter().map(|parcel| parcel.to.clone()).collect()
}

/// The names of what was given up, and what is said of each.
async fn dead_letters(scene: &Scene<'_>) -> Vec<(String, Value)> {
    let entries = all_entries(&*scene.store, Book::DeadLetters, scene.now).await;
    entries.into_iter().map(|entry| (entry.key, serde_json::from_str(&entry.body).unwrap())).collect()
}

async fn names(scene: &Scene<'_>) -> Vec<String> {
    dead_letters(scene).await.into_iter().map(|(name, _)| name).collect()
}

/// A scene in which the plan's one task has its message and is to fail or complete.
async fn with_message<'a>(harness: &'a dyn Harness, id: &str) -> Scene<'a> {
    let mut scene = Scene::with(harness, plan("p").by_message().task(id)).await;
    receive(&mut scene, id, "m-1").await;
    scene
}

pub(super) async fn a_completed_task_leaves_what_is_to_be_said_of_it(harness: &dyn Harness) {
    let mut scene = with_message(harness, "a").await;
    let held = scene.claim_one("a").await;
    let held = scene.does(&held, success(0)).await;
    assert_eq!(parcels(&scene).await, []);
    scene.does(&held, success(1)).await;
    for _ in 0..2 {
        let parcels = parcels(&scene).await;
        assert_eq!(addressees(&parcels), [Addressee::Completed]);
        assert_eq!((parcels[0].key.as_str(), &parcels[0].body["messageId"]), ("a", &Value::from("m-1")));
        assert_eq!(parcels[0].body["outputs"]["one"]["from"], 0);
        assert_eq!(dead_letters(&scene).await, []);
        scene.crash().await;
    }
}

pub(super) async fn a_task_without_stages_leaves_it_in_its_claim(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").by_message().stages(vec![]).task("a").task("b")).await;
    receive(&mut scene, "b", "m-1").await;
    let claimed = scene.claim().await;
    assert_eq!((claimed.tasks.len(), claimed.ended.len()), (0, 1));
    assert_eq!(addressees(&parcels(&scene).await), [Addressee::Completed]);
}

pub(super) async fn a_failed_task_leaves_word_of_it_and_its_dead_letter_in_order(harness: &dyn Harness) {
    let mut scene = with_message(harness, "a").await;
    let held = scene.claim_one("a").await;
    let held = scene.does(&held, success(0)).await;
    scene.does(&held, fatal(1)).await;
    for _ in 0..2 {
        let parcels = parcels(&scene).await;
        assert_eq!(addressees(&parcels), [Addressee::Failed, Addressee::DeadLetters]);
        assert_eq!(parcels[0].body["lastCallbackIndex"], 1);
        let letters = dead_letters(&scene).await;
        assert_eq!(letters.len(), 1);
        let (name, letter) = &letters[0];
        assert_eq!((&letter["id"], &letter["failedStage"]), (&Value::from(name.as_str()), &Value::from("two")));
        assert_eq!((&letter["originalMessageId"], &parcels[1].body), (&Value::from("m-1"), letter));
        scene.crash().await;
    }
}

pub(super) async fn a_message_that_comes_too_late_fails_its_task_and_is_given_up(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").by_message().task_of("a", "t")).await;
    let late = Arrival { deadline: Some(scene.now - Millis::new(1)), ..arrival("m-1", scene.now) };
    scene.operator("a", Command::Receive(late.into())).await;
    assert_eq!(scene.status("a").await, TaskStatus::Failed);
    assert_eq!(scene.log("a").await, ["TASK_CREATED", "MESSAGE_RECEIVED", "TASK_FAILED", "DEAD_LETTERED"]);
    assert_eq!(addressees(&parcels(&scene).await), [Addressee::Failed, Addressee::DeadLetters]);
    assert_eq!(names(&scene).await.len(), 1);
    assert!(scene.store.entry(Book::Messages, "m-1", scene.now).await.unwrap().is_some());
    assert!(scene.claim().await.tasks.is_empty());
}

pub(super) async fn a_task_that_was_not_started_in_time_is_given_up_in_its_claim(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").by_message().task_of("a", "t").task_of("b", "t")).await;
    scene.operator("b", Command::Cancel(ann())).await;
    let soon = Arrival { deadline: Some(scene.now + Millis::from_secs(1)), ..arrival("m-1", scene.now) };
    scene.operator("a", Command::Receive(soon.into())).await;
    scene.later(Millis::from_secs(2));
    let claimed = scene.claim().await;
    assert_eq!((claimed.tasks.len(), claimed.ended.len(), claimed.settled.len()), (0, 1, 1));
    assert_eq!(addressees(&parcels(&scene).await), [Addressee::Failed, Addressee::DeadLetters]);
    assert_eq!(dead_letters(&scene).await[0].1["errorType"], "EXPIRED");
    assert!(scene.locks().await.is_empty());
}

pub(super) async fn a_task_that_is_given_up_in_its_claim_pauses_a_plan_that_stops_at_failures(harness: &dyn Harness) {
    let three = plan("p").by_message().pauses_on_failure().max(1).task("a").task("b").task("c");
    let mut scene = Scene::with(harness, three).await;
    let soon = Arrival { deadline: Some(scene.now + Millis::from_secs(1)), ..arrival("m-1", scene.now) };
    scene.operator("a", Command::Receive(soon.into())).await;
    receive(&mut scene, "b", "m-2").await;
    scene.later(Millis::from_secs(2));
    let claimed = scene.claim().await;
    assert_eq!((claimed.tasks.len(), claimed.ended.len(), claimed.settled.len()), (0, 1, 1));
    assert_eq!(scene.plan_status("p").await, PlanStatus::Paused);
    scene.verb("p", PlanCommand::Resume).await;
    scene.claim_one("b").await;
}

pub(super) async fn a_task_in_a_crash_loop_is_given_up_in_its_claim(harness: &dyn Harness) {
    let mut scene = with_message(harness, "a").await;
    scene.submit(plan("q").task("b")).await;
    assert_eq!(scene.claim().await.tasks.len(), 2);
    for _ in 1..MAX_TAKEOVERS {
        scene.crash().await;
        assert_eq!(scene.claim().await.tasks.len(), 2);
    }
    scene.crash().await;
    assert_eq!(scene.claim().await.ended.len(), 2);
    // What no message set off is told to nobody, but a person finds it.
    let parcels = parcels(&scene).await;
    assert_eq!(addressees(&parcels), [Addressee::Failed, Addressee::DeadLetters]);
    assert!(parcels.iter().all(|parcel| parcel.key == "a"));
    let letters = dead_letters(&scene).await;
    let tasks: Vec<&Value> = letters.iter().map(|(_, letter)| &letter["taskId"]).collect();
    assert_eq!(tasks, ["a", "b"]);
}

pub(super) async fn a_task_that_no_message_set_off_leaves_nothing(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b")).await;
    let claimed = scene.claim().await;
    scene.finishes(&claimed.tasks[0]).await;
    scene.does(&claimed.tasks[1], fatal(0)).await;
    for book in Book::ALL {
        assert_eq!(all_entries(&*scene.store, book, scene.now).await, []);
    }
}

pub(super) async fn a_retry_strikes_out_the_dead_letter(harness: &dyn Harness) {
    let mut scene = with_message(harness, "a").await;
    let held = scene.claim_one("a").await;
    scene.does(&held, fatal(0)).await;
    assert_eq!(names(&scene).await.len(), 1);
    scene.try_operator("a", retry(), Some(PlanCommand::Retry)).await.unwrap();
    assert_eq!(names(&scene).await.len(), 0);
    let held = scene.claim_one("a").await;
    scene.does(&held, fatal(0)).await;
    let second = names(&scene).await;
    assert_eq!(second.len(), 1);
    let message = Arc::new(arrival("m-2", scene.now));
    scene
        .try_operator("a", Command::Redrive { by: ann(), message: message.clone() }, Some(PlanCommand::Retry))
        .await
        .unwrap();
    assert_eq!(names(&scene).await.len(), 0);
    assert!(scene.store.entry(Book::Messages, "m-2", scene.now).await.unwrap().is_some());
    assert_eq!(scene.claim_one("a").await.task.message(), Some(&message));
    // What was to be said is said all the same.
    assert_eq!(parcels(&scene).await.len(), 4);
}

pub(super) async fn a_refused_commit_changes_nothing_in_the_books(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").by_message().task("a").task("waits")).await;
    receive(&mut scene, "a", "m-1").await;
    let held = scene.claim_one("a").await;
    let late = scene.decision(&held, fatal(0));
    let held = scene.does(&held, success(0)).await;
    assert!(matches!(scene.store.commit(late).await, Err(StoreError::Conflict { .. })));
    assert_eq!((parcels(&scene).await.len(), names(&scene).await.len()), (0, 0));
    let commit = scene.decision(&held, fatal(1));
    scene.store.commit(commit.clone()).await.unwrap();
    assert!(matches!(scene.store.commit(commit).await, Err(StoreError::Conflict { .. })));
    scene.verb("p", PlanCommand::Cancel).await;
    let refused = scene.try_operator("a", retry(), Some(PlanCommand::Retry)).await;
    assert!(matches!(refused, Err(StoreError::Plan(_))), "{refused:?}");
    assert_eq!((parcels(&scene).await.len(), names(&scene).await.len()), (2, 1));
}

pub(super) async fn a_task_added_again_under_its_name_can_be_given_up_again(harness: &dyn Harness) {
    let mut scene = with_message(harness, "a").await;
    let held = scene.claim_one("a").await;
    scene.does(&held, fatal(0)).await;
    let first = names(&scene).await;
    scene.update(plan("p").by_message().task("b")).await.unwrap();
    scene.update(plan("p").by_message().task("b").task("a")).await.unwrap();
    scene.verb("p", PlanCommand::Start).await;
    receive(&mut scene, "a", "m-2").await;
    let held = scene.claim_one("a").await;
    scene.does(&held, fatal(0)).await;
    let letters = dead_letters(&scene).await;
    assert_eq!((letters.len(), &letters[0].0), (1, &first[0]));
    assert_eq!(letters[0].1["originalMessageId"], "m-2");
    assert_eq!(parcels(&scene).await.len(), 4);
}
