//! What was committed, as one sequence that can be followed from any place in it.

use std::sync::Arc;

use milepost_core::plan::PlanCommand;
use milepost_core::task::Command;
use milepost_core::time::Millis;

use crate::error::StoreError;
use crate::model::{Change, ChangeQuery, Changed, Commit, LeaseChange, Position, Resubmit, Start, Wake};
use crate::store::Store;

use super::Harness;
use super::given::{Scene, ann, everything_after, fatal, plan, plan_id, success, task_id, tenant};

/// A change in a word or two: `p RUNNING by ann`, `a@2 TASK_STARTED STAGE_STARTED`.
fn told(change: &Change) -> String {
    match &change.what {
        Changed::Task { task, sequence, records, .. } => {
            let kinds: Vec<&str> = records.iter().map(|record| record.event().kind()).collect();
            format!("{task}@{sequence} {}", kinds.join(" "))
        }
        Changed::Plan { status, by: Some(by), .. } => format!("{} {status} by {}", change.plan, by.who),
        Changed::Plan { status, by: None, .. } => format!("{} {status}", change.plan),
    }
}

async fn all(scene: &Scene<'_>, plan: Option<&str>) -> Vec<Change> {
    everything_after(&*scene.store, Position(0), plan.map(plan_id), 1000).await.items
}

/// What came after, in words.
async fn since(scene: &Scene<'_>, after: Position) -> Vec<String> {
    let changes = everything_after(&*scene.store, after, None, 1000).await;
    changes.items.iter().map(told).collect()
}

pub(super) async fn every_commit_and_every_plan_status_is_a_change_in_order(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    scene.submit_for_later(plan("p").task_of("a", "t").task("b").max(1)).await;
    scene.verb("p", PlanCommand::Start).await;
    let task = scene.claim_one("a").await;
    let task = scene.does(&task, success(0)).await;
    scene.finishes(&task).await;
    let task = scene.claim_one("b").await;
    scene.does(&task, fatal(0)).await;
    let changes = all(&scene, None).await;
    assert_eq!(
        changes.iter().map(told).collect::<Vec<_>>(),
        [
            "p READY",
            "a@1 TASK_CREATED",
            "b@1 TASK_CREATED",
            "p RUNNING by ann",
            "a@2 TASK_STARTED STAGE_STARTED",
            "a@4 STAGE_COMPLETED STAGE_STARTED",
            "a@6 STAGE_COMPLETED TASK_COMPLETED",
            "b@2 TASK_STARTED STAGE_STARTED",
            "b@4 STAGE_FAILED TASK_FAILED",
            "p FAILED",
        ]
    );
    assert!(changes.windows(2).all(|pair| pair[0].position < pair[1].position));
    assert!(changes.iter().all(|change| change.plan == plan_id("p")));
    assert!(matches!(&changes[1].what, Changed::Task { tenant: Some(t), .. } if *t == tenant("t")), "{:?}", changes[1]);
    assert!(matches!(&changes[9].what, Changed::Plan { at, .. } if *at == scene.now), "{:?}", changes[9]);
}

pub(super) async fn a_plan_started_with_its_submission_changes_once(harness: &dyn Harness) {
    let scene = Scene::with(harness, plan("p").task("a")).await;
    assert_eq!(since(&scene, Position(0)).await, ["p RUNNING", "a@1 TASK_CREATED"]);
}

pub(super) async fn every_way_to_a_plan_status_is_a_change(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b").max(1)).await;
    let mut seen = scene.store.newest().await.unwrap();
    scene.verb("p", PlanCommand::Pause).await;
    scene.verb("p", PlanCommand::Resume).await;
    // Again, and nothing to change.
    scene.verb("p", PlanCommand::Resume).await;
    assert_eq!(since(&scene, seen).await, ["p PAUSED by ann", "p RUNNING by ann"]);

    let task = scene.claim_one("a").await;
    seen = scene.store.newest().await.unwrap();
    let fails = Commit { plan: Some(PlanCommand::Pause), ..scene.decision(&task, fatal(0)) };
    scene.store.commit(fails).await.unwrap();
    assert_eq!(since(&scene, seen).await, ["a@4 STAGE_FAILED TASK_FAILED", "p PAUSED"]);

    scene.verb("p", PlanCommand::Resume).await;
    let task = scene.claim_one("b").await;
    scene.does(&task, fatal(0)).await;
    seen = scene.store.newest().await.unwrap();
    let reset = Command::Retry { by: ann(), from_checkpoint: true };
    scene.try_operator("a", reset.clone(), Some(PlanCommand::Reset)).await.unwrap();
    scene.try_operator("b", reset, Some(PlanCommand::Retry)).await.unwrap();
    assert_eq!(since(&scene, seen).await, ["a@6 TASK_RETRIED", "p READY", "b@6 TASK_RETRIED", "p RUNNING"]);

    // CANCELLED from the word on, and once more when its last task has ended.
    seen = scene.store.newest().await.unwrap();
    scene.verb("p", PlanCommand::Cancel).await;
    scene.operator("a", Command::Cancel(ann())).await;
    scene.operator("b", Command::Cancel(ann())).await;
    let words = ["p CANCELLED by ann", "a@7 TASK_CANCELLED", "b@7 TASK_CANCELLED", "p CANCELLED"];
    assert_eq!(since(&scene, seen).await, words);
}

pub(super) async fn a_plan_that_ends_in_a_claim_is_a_change(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").stages(vec![]).task("a")).await;
    let seen = scene.store.newest().await.unwrap();
    scene.claim().await;
    assert_eq!(since(&scene, seen).await, ["a@2 TASK_STARTED TASK_COMPLETED", "p COMPLETED"]);
}

pub(super) async fn what_is_refused_is_no_change(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let seen = scene.store.newest().await.unwrap();
    scene.try_submit(plan("p").task("b"), Start::AtOnce, Resubmit::Same).await.unwrap_err();
    scene.try_submit(plan("q").task("a"), Start::AtOnce, Resubmit::Same).await.unwrap_err();
    scene.try_verb("p", PlanCommand::Start).await.unwrap();
    let stale = Commit { expected: 1, ..scene.decision(&task, success(0)) };
    scene.store.commit(stale).await.unwrap_err();
    scene.submit(plan("p").task("a")).await;
    assert_eq!(since(&scene, seen).await, Vec::<String>::new());
    assert_eq!(scene.store.newest().await.unwrap(), seen);
    // A lease that is given back without a word is nothing to see either.
    let silent = Commit {
        events: Arc::new([]),
        task: Arc::new(task.task.clone()),
        lease: LeaseChange::Release(Wake::At(scene.now + Millis::from_secs(1))),
        ..scene.decision(&task, success(0))
    };
    scene.store.commit(silent).await.unwrap();
    assert_eq!(since(&scene, seen).await, Vec::<String>::new());
}

pub(super) async fn changes_are_followed_in_steps_without_a_gap_or_a_repeat(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    assert_eq!(scene.store.newest().await.unwrap(), Position(0));
    scene.submit(plan("p").task("a").task("b")).await;
    scene.submit(plan("q").task("c")).await;
    for task in scene.claim().await.tasks {
        scene.finishes(&task).await;
    }
    let whole = all(&scene, None).await;
    for limit in 1..=4 {
        assert_eq!(everything_after(&*scene.store, Position(0), None, limit).await.items, whole, "{limit} at a time");
    }
    for (index, change) in whole.iter().enumerate() {
        let rest = everything_after(&*scene.store, change.position, None, 1000).await;
        assert_eq!(rest.items, whole[index + 1..]);
    }
    let newest = scene.store.newest().await.unwrap();
    assert_eq!(whole.last().map(|change| change.position), Some(newest));
    let nothing = scene.store.changes(ChangeQuery { after: newest, plan: None, limit: 10 }).await.unwrap();
    assert!(nothing.items.is_empty() && !nothing.more);
    assert_eq!(nothing.upto, newest);
}

pub(super) async fn the_changes_of_one_plan_are_its_own_and_its_tasks(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    scene.submit(plan("q").task("b")).await;
    // Tasks of one plan lie between those of another.
    scene.update(plan("p").task("a").task("c")).await.unwrap();
    for task in scene.claim().await.tasks {
        scene.finishes(&task).await;
    }
    let whole = all(&scene, None).await;
    for id in ["p", "q"] {
        let own: Vec<Change> = whole.iter().filter(|change| change.plan == plan_id(id)).cloned().collect();
        assert!(own.len() > 4);
        assert_eq!(all(&scene, Some(id)).await, own);
        assert_eq!(everything_after(&*scene.store, Position(0), Some(plan_id(id)), 2).await.items, own);
    }
    // What others did has been looked at too, and need not be looked at again.
    let query = ChangeQuery { after: Position(0), plan: Some(plan_id("p")), limit: 1000 };
    let mut found = scene.store.changes(query.clone()).await.unwrap();
    while found.more {
        found = scene.store.changes(ChangeQuery { after: found.upto, ..query.clone() }).await.unwrap();
    }
    assert_eq!(found.upto, scene.store.newest().await.unwrap());
}

pub(super) async fn the_changes_of_an_unknown_plan_are_not_found(harness: &dyn Harness) {
    let scene = Scene::with(harness, plan("p").task("a")).await;
    let query = ChangeQuery { after: Position(0), plan: Some(plan_id("nowhere")), limit: 10 };
    let missing = scene.store.changes(query).await;
    assert!(matches!(missing, Err(StoreError::NotFound { what: "plan", .. })), "{missing:?}");
}

pub(super) async fn an_update_is_a_change_of_its_plan_and_takes_removed_tasks_out_of_the_log(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("gone").max(1)).await;
    let task = scene.claim_one("a").await;
    scene.finishes(&task).await;
    // The last word of the log is that of a task that goes.
    let task = scene.claim_one("gone").await;
    scene.falls_asleep(&task).await;
    let seen = scene.store.newest().await.unwrap();
    scene.update(plan("p").task("a").task("new").max(1)).await.unwrap();
    assert_eq!(since(&scene, seen).await, ["new@1 TASK_CREATED", "p RUNNING"]);
    let mentions = |changes: &[Change], id: &str| {
        changes.iter().any(|change| matches!(&change.what, Changed::Task { task, .. } if *task == task_id(id)))
    };
    let whole = all(&scene, Some("p")).await;
    assert!(mentions(&whole, "a") && mentions(&whole, "new") && !mentions(&whole, "gone"));
}

pub(super) async fn positions_are_never_given_twice(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b")).await;
    let claimed = scene.claim().await;
    let task = scene.does(&claimed.tasks[0], Command::Cancel(ann())).await;
    assert!(task.task.status().is_ended());
    scene.falls_asleep(&claimed.tasks[1]).await;
    let seen = scene.store.newest().await.unwrap();
    // All that the newest positions were for goes away, and then the owner.
    scene.update(plan("p").task("a")).await.unwrap();
    let after_update = scene.store.newest().await.unwrap();
    assert!(after_update > seen);
    scene.crash().await;
    assert_eq!(scene.store.newest().await.unwrap(), after_update);
    scene.submit(plan("q").task("c")).await;
    let later = everything_after(&*scene.store, after_update, None, 1000).await.items;
    assert_eq!(later.iter().map(told).collect::<Vec<_>>(), ["q RUNNING", "c@1 TASK_CREATED"]);
}

pub(super) async fn changes_survive_a_restart(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    scene.finishes(&task).await;
    let before = all(&scene, None).await;
    scene.crash().await;
    assert_eq!(all(&scene, None).await, before);
}

/// A position that is seen before a smaller one would hide the smaller one from whoever goes on from it.
pub(super) async fn who_follows_while_others_commit_misses_nothing(harness: &dyn Harness) {
    const TASKS: usize = 16;
    let many = (0..TASKS).fold(plan("p").max(TASKS as u32), |plan, n| plan.task(&format!("t{n}")));
    let mut scene = Scene::with(harness, many).await;
    let claimed = scene.claim().await.tasks;
    let start = scene.store.newest().await.unwrap();
    let follower = {
        let store = scene.store.clone();
        tokio::spawn(async move { follow_to_the_end(&*store, start).await })
    };
    let commits = claimed.into_iter().map(|task| {
        let first = scene.decision(&task, success(0));
        let next = crate::model::StoredTask { task: (*first.task).clone(), ..task };
        let (second, store) = (scene.decision(&next, success(1)), scene.store.clone());
        tokio::spawn(async move {
            store.commit(first).await.unwrap();
            store.commit(second).await.unwrap();
        })
    });
    for commit in commits.collect::<Vec<_>>() {
        commit.await.unwrap();
    }
    let followed = follower.await.unwrap();
    assert_eq!(followed.len(), 2 * TASKS + 1);
    assert_eq!(followed, everything_after(&*scene.store, start, None, 1000).await.items);
}

/// Until the plan's last word, which has to come.
async fn follow_to_the_end(store: &dyn Store, start: Position) -> Vec<Change> {
    let mut followed: Vec<Change> = Vec::new();
    let mut after = start;
    loop {
        let changes = store.changes(ChangeQuery { after, plan: None, limit: 3 }).await.unwrap();
        assert!(changes.items.iter().all(|change| change.position > after && change.position <= changes.upto));
        assert!(changes.upto >= after);
        after = changes.upto;
        followed.extend(changes.items);
        if matches!(followed.last(), Some(Change { what: Changed::Plan { .. }, .. })) {
            return followed;
        }
        tokio::task::yield_now().await;
    }
}
