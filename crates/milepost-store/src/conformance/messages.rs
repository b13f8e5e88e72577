//! Tasks that messages set off: they wait until theirs is here, and each message is heard once.

use std::sync::Arc;

use milepost_core::message::Arrival;
use milepost_core::plan::Trigger;
use milepost_core::task::{Command, PlanStatus, TaskStatus};
use milepost_core::time::{Millis, Timestamp};

use crate::books::{Book, Entry};
use crate::error::StoreError;
use crate::model::{Claimed, Commit, Holder, Resubmit, Start, Submission};

use super::Harness;
use super::given::{Scene, ann, ids, plan, task_id};
use super::moved::{Memory, import};

/// How long ids are remembered here.
pub(super) const REMEMBERED: Millis = Millis::from_secs(60);

/// A message that came now and may start whenever it does.
pub(super) fn arrival(id: &str, now: Timestamp) -> Arrival {
    Arrival {
        id: id.into(),
        deadline: None,
        remembered_until: now + REMEMBERED,
        text: format!("{{\"messageId\":\"{id}\"}}").into(),
        origin: None,
    }
}

/// As it is kept when a message makes its own task.
pub(super) fn heard(message: &Arrival, now: Timestamp) -> Entry {
    let (book, key, body) = (Book::Messages, message.id.to_string(), "{}".to_owned());
    Entry { book, key, at: now, until: Some(message.remembered_until), body }
}

/// The task's message comes, under this id.
pub(super) async fn receive(scene: &mut Scene<'_>, task: &str, id: &str) {
    try_receive(scene, task, id).await.expect("it waits for a message");
}

pub(super) async fn try_receive(scene: &mut Scene<'_>, task: &str, id: &str) -> Result<(), StoreError> {
    let message = arrival(id, scene.now);
    scene.try_operator(task, Command::Receive(message.into()), None).await.map(|_| ())
}

fn is_empty(claimed: &Claimed) -> bool {
    claimed.tasks.is_empty() && claimed.ended.is_empty() && claimed.next_due.is_none()
}

async fn awaiting(scene: &Scene<'_>, plan: &str) -> Vec<bool> {
    scene.rows(plan).await.iter().map(|row| row.awaits_message).collect()
}

pub(super) async fn a_task_that_awaits_its_message_is_claimed_by_nobody(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").by_message().task("a").task_of("b", "t")).await;
    assert!(is_empty(&scene.claim().await));
    assert!(is_empty(&scene.claim_only("p").await));
    let row = scene.plan("p").await;
    assert_eq!((row.status, row.counts.pending), (PlanStatus::Running, 2));
    assert_eq!(awaiting(&scene, "p").await, [true, true]);
    assert!(scene.task("a").await.task.awaits_message());
    assert!(scene.locks().await.is_empty());
}

pub(super) async fn a_task_is_claimed_once_when_its_message_is_here(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").by_message().task("a").task("b")).await;
    receive(&mut scene, "b", "m-1").await;
    assert_eq!(awaiting(&scene, "p").await, [true, false]);
    let held = scene.claim_one("b").await;
    assert!(is_empty(&scene.claim().await));
    assert_eq!(held.task.message().map(|message| &*message.id), Some("m-1"));
    assert_eq!(scene.log("b").await, ["TASK_CREATED", "MESSAGE_RECEIVED", "TASK_STARTED", "STAGE_STARTED"]);
    scene.finishes(&held).await;
    assert_eq!(scene.plan_status("p").await, PlanStatus::Running, "the other one still waits");
    receive(&mut scene, "a", "m-2").await;
    let held = scene.claim_one("a").await;
    scene.finishes(&held).await;
    assert_eq!(scene.plan_status("p").await, PlanStatus::Completed);
}

pub(super) async fn a_restart_neither_loses_a_message_nor_the_wait_for_one(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").by_message().task("a").task_of("b", "t")).await;
    scene.crash().await;
    assert!(is_empty(&scene.claim().await));
    assert_eq!(awaiting(&scene, "p").await, [true, true]);
    receive(&mut scene, "b", "m-1").await;
    scene.crash().await;
    assert_eq!(awaiting(&scene, "p").await, [true, false]);
    let held = scene.claim_one("b").await;
    assert_eq!(held.task.message().map(|message| &*message.id), Some("m-1"));
    let again = scene.store.entry(Book::Messages, "m-1", scene.now).await.unwrap();
    assert!(again.is_some_and(|entry| entry.body.contains("\"b\"")));
}

pub(super) async fn a_task_that_awaits_its_message_holds_up_nobody(harness: &dyn Harness) {
    let urgent = plan("p").max(1).by_message().task_with("first", |task| {
        task.priority = 9;
        task.tenant = Some(super::given::tenant("t"));
    });
    let mut scene = Scene::with(harness, urgent.task_of("second", "t").task("third")).await;
    scene.submit(plan("q").task_of("other", "t")).await;
    let other = scene.claim_one("other").await;
    receive(&mut scene, "second", "m-2").await;
    assert!(is_empty(&scene.claim().await), "its tenant is busy");
    receive(&mut scene, "third", "m-3").await;
    let third = scene.claim_one("third").await;
    scene.finishes(&third).await;
    scene.finishes(&other).await;
    let second = scene.claim_one("second").await;
    receive(&mut scene, "first", "m-1").await;
    assert!(is_empty(&scene.claim().await));
    scene.finishes(&second).await;
    scene.claim_one("first").await;
}

pub(super) async fn a_task_paused_before_its_message_awaits_it_after_its_resume(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").by_message().task_of("a", "t")).await;
    scene.operator("a", Command::Pause(ann())).await;
    assert_eq!(awaiting(&scene, "p").await, [false], "it is paused");
    scene.operator("a", Command::Resume(ann())).await;
    for _ in 0..2 {
        assert_eq!((scene.status("a").await, awaiting(&scene, "p").await), (TaskStatus::Pending, vec![true]));
        assert!(is_empty(&scene.claim().await));
        scene.crash().await;
    }
    receive(&mut scene, "a", "m-1").await;
    scene.operator("a", Command::Pause(ann())).await;
    scene.operator("a", Command::Resume(ann())).await;
    scene.claim_one("a").await;
}

pub(super) async fn a_task_cancelled_before_its_message_ends_its_plan(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").by_message().task_of("a", "t")).await;
    scene.operator("a", Command::Cancel(ann())).await;
    assert_eq!(scene.plan_status("p").await, PlanStatus::Failed);
    assert!(is_empty(&scene.claim().await));
    assert_eq!(awaiting(&scene, "p").await, [false]);
    scene.submit(plan("q").task_of("other", "t")).await;
    scene.claim_one("other").await;
}

pub(super) async fn tasks_still_await_their_messages_after_the_plan_is_sent_again_or_changed(harness: &dyn Harness) {
    let small = plan("p").by_message().task("a").task_of("b", "t");
    let mut scene = Scene::with(harness, small.clone()).await;
    receive(&mut scene, "b", "m-1").await;
    scene.submit(small.clone()).await;
    let added = scene.update(small.task("c")).await.unwrap();
    assert_eq!((added.created, added.difference.added), (false, 1));
    assert_eq!(awaiting(&scene, "p").await, [true, false, true]);
    scene.claim_one("b").await;
    receive(&mut scene, "c", "m-2").await;
    scene.claim_one("c").await;
}

pub(super) async fn an_update_may_change_what_sets_tasks_off(harness: &dyn Harness) {
    let by_message = plan("p").by_message().task("a").task_of("b", "t");
    let mut scene = Scene::with(harness, by_message.clone()).await;
    let at_once = by_message.clone().settings(|settings| settings.trigger = Trigger::Start);
    scene.update(at_once).await.unwrap();
    assert_eq!(awaiting(&scene, "p").await, [false, false]);
    scene.update(by_message.clone()).await.unwrap();
    assert_eq!(awaiting(&scene, "p").await, [true, true]);
    assert!(is_empty(&scene.claim().await));
    scene.update(by_message.settings(|settings| settings.trigger = Trigger::Start)).await.unwrap();
    assert_eq!(ids(&scene.claim().await), ["a", "b"]);
}

pub(super) async fn an_imported_task_still_awaits_its_message(harness: &dyn Harness) {
    let memory = Memory::default();
    let mut from = Scene::with(&memory, plan("p").by_message().task("a").task_of("b", "t")).await;
    receive(&mut from, "b", "m-1").await;
    let mut to = Scene::new(harness).await;
    import(&from, &mut to).await;
    assert_eq!(awaiting(&to, "p").await, [true, false]);
    let held = to.claim_one("b").await;
    to.crash().await;
    assert_eq!(ids(&to.claim().await), ["b"]);
    assert_eq!(held.task.message().map(|message| &*message.id), Some("m-1"));
    receive(&mut to, "a", "m-2").await;
    to.claim_one("a").await;
}

pub(super) async fn a_message_heard_before_is_refused_and_changes_nothing(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").by_message().task("a").task("b")).await;
    receive(&mut scene, "a", "m-1").await;
    for _ in 0..2 {
        let before = (scene.snapshot("p").await, scene.store.newest().await.unwrap());
        let refused = try_receive(&mut scene, "b", "m-1").await;
        let is_kept = matches!(&refused, Err(StoreError::Kept { book: Book::Messages, key }) if key == "m-1");
        assert!(is_kept, "{refused:?}");
        assert_eq!((scene.snapshot("p").await, scene.store.newest().await.unwrap()), before);
        scene.crash().await;
    }
    assert_eq!(ids(&scene.claim().await), ["a"]);
    receive(&mut scene, "b", "m-2").await;
    scene.claim_one("b").await;
}

pub(super) async fn a_message_that_is_refused_refuses_no_other_that_comes_with_it(harness: &dyn Harness) {
    let tasks: Vec<String> = (0..12).map(|number| format!("t{number}")).collect();
    let whole = tasks.iter().fold(plan("p").by_message().max(100).task("first"), |plan, id| plan.task(id));
    let mut scene = Scene::with(harness, whole).await;
    receive(&mut scene, "first", "m-seen").await;
    let mut sent = Vec::new();
    for (number, id) in tasks.iter().enumerate() {
        let stored = scene.task(id).await;
        // Every third was heard before.
        let message = if number % 3 == 1 { "m-seen".to_owned() } else { format!("m-{id}") };
        let receive = Command::Receive(arrival(&message, scene.now).into());
        let commit = Commit { holder: Holder::Operator, ..scene.decision(&stored, receive) };
        let store = scene.store.clone();
        sent.push(tokio::spawn(async move { store.commit(commit).await }));
    }
    for (number, answer) in sent.into_iter().enumerate() {
        let answer = answer.await.unwrap();
        match number % 3 == 1 {
            true => assert!(matches!(answer, Err(StoreError::Kept { .. })), "{answer:?}"),
            false => assert!(answer.is_ok(), "{answer:?}"),
        }
    }
    let taken = scene.claim().await;
    let expected = tasks.iter().enumerate().filter(|(number, _)| number % 3 != 1).map(|(_, id)| id.as_str());
    assert_eq!(ids(&taken), ["first"].into_iter().chain(expected).collect::<Vec<_>>());
}

pub(super) async fn one_message_that_comes_many_times_at_once_is_heard_once(harness: &dyn Harness) {
    let tasks: Vec<String> = (0..6).map(|number| format!("t{number}")).collect();
    let mut scene = Scene::with(harness, tasks.iter().fold(plan("p").by_message(), |plan, id| plan.task(id))).await;
    let mut sent = Vec::new();
    for id in &tasks {
        let stored = scene.task(id).await;
        let receive = Command::Receive(arrival("m-1", scene.now).into());
        let commit = Commit { holder: Holder::Operator, ..scene.decision(&stored, receive) };
        let store = scene.store.clone();
        sent.push(tokio::spawn(async move { store.commit(commit).await }));
    }
    let mut taken = 0;
    for answer in sent {
        match answer.await.unwrap() {
            Ok(_) => taken += 1,
            Err(error) => assert!(matches!(error, StoreError::Kept { .. }), "{error:?}"),
        }
    }
    assert_eq!((taken, scene.claim().await.tasks.len()), (1, 1));
}

pub(super) async fn a_message_is_forgotten_when_its_time_is_over(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").by_message().task("a").task("b").task("c")).await;
    let came = scene.now;
    // What is told of a task happens a millisecond after it is asked for.
    receive(&mut scene, "a", "m-1").await;
    scene.now = came + REMEMBERED - Millis::new(2);
    assert!(matches!(try_receive(&mut scene, "b", "m-1").await, Err(StoreError::Kept { .. })));
    assert_eq!(scene.now, came + REMEMBERED - Millis::new(1));
    receive(&mut scene, "b", "m-1").await;
    // From here on it is the second one's.
    assert!(matches!(try_receive(&mut scene, "c", "m-1").await, Err(StoreError::Kept { .. })));
    let entry = scene.store.entry(Book::Messages, "m-1", scene.now).await.unwrap();
    assert!(entry.is_some_and(|entry| entry.body.contains("\"b\"")));
    assert_eq!(ids(&scene.claim().await), ["a", "b"]);
}

pub(super) async fn a_task_that_its_message_made_is_stored_with_it_and_claimed_at_once(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    let message = Arc::new(arrival("m-1", scene.now));
    let submission = |id: &str, message: &Arc<Arrival>| Submission {
        plan: Arc::new(plan(id).by_message().task_with(id, |task| task.message = Some(message.clone())).0),
        start: Start::AtOnce,
        resubmit: Resubmit::Same,
        request: None,
        entries: vec![heard(message, scene.now)],
        now: scene.now,
    };
    let (made, again) = (submission("made", &message), submission("again", &message));
    assert!(scene.store.submit(made).await.unwrap().created);
    assert!(matches!(scene.store.submit(again).await, Err(StoreError::Kept { .. })));
    assert!(scene.store.task(&task_id("again")).await.unwrap().is_none());
    for _ in 0..2 {
        assert_eq!(awaiting(&scene, "made").await, [false]);
        assert!(scene.store.entry(Book::Messages, "m-1", scene.now).await.unwrap().is_some());
        scene.crash().await;
    }
    let held = scene.claim_one("made").await;
    assert_eq!(held.task.message(), Some(&message));
    assert_eq!(scene.log("made").await, ["TASK_CREATED", "TASK_STARTED", "STAGE_STARTED"]);
}
