//! A plan's own status: the verbs, and what its tasks may do in each.

use milepost_core::plan::{PlanCommand, next_plan_status};
use milepost_core::task::{Command, PlanStatus};

use crate::error::StoreError;
use crate::model::PlanChange;

use super::Harness;
use super::given::{Scene, ann, fatal, ids, plan, plan_id};

const VERBS: [PlanCommand; 6] = [
    PlanCommand::Start,
    PlanCommand::Pause,
    PlanCommand::Resume,
    PlanCommand::Cancel,
    PlanCommand::Retry,
    PlanCommand::Reset,
];

/// A plan in each status that a plan can come to, named after it, with a task that is open wherever it may be.
async fn plan_in(scene: &mut Scene<'_>, id: &str, status: PlanStatus) {
    let tasks = plan(id).task(&format!("{id}-a"));
    match status {
        PlanStatus::Created | PlanStatus::Ready => {
            scene.submit_for_later(tasks).await;
        }
        PlanStatus::Running => {
            scene.submit(tasks).await;
        }
        PlanStatus::Paused => {
            scene.submit(tasks).await;
            scene.verb(id, PlanCommand::Pause).await;
        }
        PlanStatus::Completed | PlanStatus::Failed => {
            scene.submit(tasks).await;
            let task = scene.claim_only(id).await.tasks.remove(0);
            match status {
                PlanStatus::Completed => scene.finishes(&task).await,
                _ => scene.does(&task, fatal(0)).await,
            };
        }
        PlanStatus::Cancelled => {
            scene.submit(tasks).await;
            scene.verb(id, PlanCommand::Cancel).await;
        }
    }
}

const REACHABLE: [PlanStatus; 6] = [
    PlanStatus::Ready,
    PlanStatus::Running,
    PlanStatus::Paused,
    PlanStatus::Completed,
    PlanStatus::Failed,
    PlanStatus::Cancelled,
];

pub(super) async fn every_verb_follows_the_table_of_plan_statuses(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    for status in REACHABLE {
        for verb in VERBS {
            let id = format!("{status}-{verb:?}").replace('_', "-");
            plan_in(&mut scene, &id, status).await;
            let before = scene.plan(&id).await;
            assert_eq!(before.status, status);
            let expected = next_plan_status(&id, status, &before.counts, verb);
            match (scene.try_verb(&id, verb).await, expected) {
                (Ok(row), Ok(expected)) => {
                    assert_eq!(row.status, expected, "{verb:?} on {status}");
                    assert_eq!(row, scene.plan(&id).await);
                }
                (Err(StoreError::Plan(rejection)), Err(expected)) => assert_eq!(rejection, expected),
                (found, expected) => panic!("{verb:?} on {status}: {found:?}, not {expected:?}"),
            }
        }
    }
}

pub(super) async fn a_refused_verb_changes_nothing(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    plan_in(&mut scene, "p", PlanStatus::Completed).await;
    let before = scene.snapshot("p").await;
    for verb in VERBS {
        let refused = scene.try_verb("p", verb).await;
        assert!(matches!(refused, Err(StoreError::Plan(_))), "{verb:?}: {refused:?}");
    }
    assert_eq!(scene.snapshot("p").await, before);
}

pub(super) async fn a_change_of_status_grows_the_version_and_says_who_asked(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    let mut version = scene.submit_for_later(plan("p").task("a")).await.plan.version;
    assert_eq!(scene.plan("p").await.changed_by, None);
    for verb in [PlanCommand::Start, PlanCommand::Pause, PlanCommand::Resume, PlanCommand::Cancel] {
        let row = scene.verb("p", verb).await;
        assert!(row.version > version, "{verb:?}");
        assert_eq!(row.changed_by, Some(ann()));
        version = row.version;
    }
}

pub(super) async fn an_end_that_nobody_asked_for_names_nobody(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    scene.submit_for_later(plan("p").task("a")).await;
    let started = scene.verb("p", PlanCommand::Start).await;
    let task = scene.claim_one("a").await;
    scene.finishes(&task).await;
    let row = scene.plan("p").await;
    assert_eq!((row.status, row.changed_by), (PlanStatus::Completed, None));
    assert!(row.version > started.version);
}

pub(super) async fn a_plan_knows_when_it_started_and_ended(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    scene.submit_for_later(plan("p").task("a")).await;
    let row = scene.verb("p", PlanCommand::Start).await;
    let started = Some(scene.now);
    assert_eq!((row.started_at, row.ended_at), (started, None));
    scene.verb("p", PlanCommand::Pause).await;
    let row = scene.verb("p", PlanCommand::Resume).await;
    assert_eq!((row.started_at, row.ended_at), (started, None));
    // Cancelled at once, but not over while a task of it is open.
    let row = scene.verb("p", PlanCommand::Cancel).await;
    assert_eq!((row.started_at, row.ended_at), (started, None));
    scene.operator("a", Command::Cancel(ann())).await;
    let row = scene.plan("p").await;
    assert_eq!((row.status, row.ended_at), (PlanStatus::Cancelled, Some(scene.now)));
}

pub(super) async fn pending_tasks_of_a_paused_plan_are_claimed_after_its_resume(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task_of("b", "t")).await;
    scene.verb("p", PlanCommand::Pause).await;
    assert!(ids(&scene.claim().await).is_empty());
    assert!(ids(&scene.claim_only("p").await).is_empty());
    scene.verb("p", PlanCommand::Resume).await;
    assert_eq!(ids(&scene.claim().await), ["a", "b"]);
}

pub(super) async fn pending_tasks_of_a_cancelled_plan_are_never_claimed(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b").max(1)).await;
    let task = scene.claim_one("a").await;
    scene.verb("p", PlanCommand::Cancel).await;
    scene.does(&task, Command::Cancel(ann())).await;
    assert!(ids(&scene.claim().await).is_empty());
    assert!(ids(&scene.claim_only("p").await).is_empty());
    scene.crash().await;
    assert!(ids(&scene.claim().await).is_empty());
    scene.operator("b", Command::Cancel(ann())).await;
    assert_eq!(scene.plan_status("p").await, PlanStatus::Cancelled);
}

pub(super) async fn a_verb_for_an_unknown_plan_finds_nothing(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    let missing = scene.try_verb("nowhere", PlanCommand::Start).await;
    assert!(matches!(missing, Err(StoreError::NotFound { what: "plan", .. })), "{missing:?}");
}

pub(super) async fn a_verb_on_another_version_than_expected_changes_nothing(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let seen = scene.plan("p").await.version;
    let paused = scene.store.change_plan(pause_at(&scene, seen)).await.unwrap();
    assert_eq!((paused.status, paused.version > seen), (PlanStatus::Paused, true));
    let (before, newest) = (scene.snapshot("p").await, scene.store.newest().await.unwrap());
    match scene.store.change_plan(pause_at(&scene, seen)).await {
        Err(StoreError::PlanConflict { plan, expected, found }) => {
            assert_eq!((plan, expected, found), (plan_id("p"), seen, paused.version));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!((scene.snapshot("p").await, scene.store.newest().await.unwrap()), (before, newest));
    // It comes before the question whether the plan's status allows it.
    let cancelled = scene.verb("p", PlanCommand::Cancel).await;
    let late = scene.store.change_plan(pause_at(&scene, paused.version)).await;
    assert!(matches!(late, Err(StoreError::PlanConflict { .. })), "{late:?}");
    let refused = scene.store.change_plan(pause_at(&scene, cancelled.version)).await;
    assert!(matches!(refused, Err(StoreError::Plan(_))), "{refused:?}");
}

fn pause_at(scene: &Scene<'_>, version: u64) -> PlanChange {
    let (command, expected) = (PlanCommand::Pause, Some(version));
    PlanChange { plan: plan_id("p"), command, by: ann(), expected, now: scene.now }
}

pub(super) async fn an_update_grows_the_version(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let before = scene.plan("p").await;
    let updated = scene.update(plan("p").task("a").max(3)).await.unwrap().plan;
    assert_eq!((updated.status, updated.max_concurrency), (before.status, 3));
    assert!(updated.version > before.version);
    // The same again changes nothing, not even that.
    assert_eq!(scene.update(plan("p").task("a").max(3)).await.unwrap().plan, updated);
}
