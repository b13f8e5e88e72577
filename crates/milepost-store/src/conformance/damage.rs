//! Tasks whose log or definition fails its checksum: they hold nobody up, show as what they are, and end by a repair.

use milepost_core::plan::PlanCommand;
use milepost_core::task::{Command, PlanStatus, Rejection, StageStatus, TaskStatus, decide};
use serde_json::json;

use super::given::{Scene, ann, ids, plan, retry, success, task_id, tenant};
use super::{Damage, Harness};
use crate::model::EventQuery;

fn from_start() -> Command {
    Command::Retry { by: ann(), from_checkpoint: false }
}

/// `a` runs its second stage, and the commit of its first cannot be read; then its node is gone. None where nothing can
/// be damaged.
async fn damaged_while_it_ran(harness: &dyn Harness) -> Option<Scene<'_>> {
    let mut scene = Scene::with(harness, plan("p").max(1).task_of("a", "x").task_of("b", "x")).await;
    let held = scene.claim_one("a").await;
    scene.does(&held, success(0)).await;
    let is_damaged = scene.damage(Damage::Row { task: "a", sequence: 4 }).await;
    scene.crash().await;
    is_damaged.then_some(scene)
}

pub(super) async fn a_damaged_task_leaves_its_tenant_to_the_next_in_line(harness: &dyn Harness) {
    let with_input = plan("p").task_of("a", "x").task_with("b", |task| {
        task.tenant = Some(tenant("x"));
        task.input = json!({ "some": "input" });
    });
    let mut scene = Scene::with(harness, with_input.task_of("c", "x")).await;
    let first = scene.claim_one("a").await;
    if !scene.damage(Damage::Definition { task: "b" }).await {
        return;
    }
    scene.finishes(&first).await;
    assert_eq!(ids(&scene.claim().await), ["c"]);
    let rows = scene.rows("p").await;
    let why = rows[1].set_aside.as_ref().expect("b is set aside");
    assert!(why.contains("checksum"), "{why}");
    assert_eq!((rows[1].status, rows[1].blocked_by.as_deref()), (TaskStatus::Pending, Some("p:c")));
    assert_eq!((&rows[0].set_aside, &rows[2].set_aside), (&None, &None));
    assert_eq!(scene.task("b").await.set_aside.as_ref(), Some(why));
}

pub(super) async fn a_damaged_task_that_ran_gives_back_its_slot_and_its_tenant(harness: &dyn Harness) {
    let Some(mut scene) = damaged_while_it_ran(harness).await else { return };
    scene.claim_one("b").await;
    assert_eq!(scene.locks().await, [("x".to_owned(), "b".to_owned())]);
    let a = scene.task("a").await;
    assert!(a.task.damage().is_some_and(|why| why.contains("checksum")), "{:?}", a.task.damage());
    assert_eq!((a.task.status(), a.task.version()), (TaskStatus::Running, 5));
    // Also for an owner that only reads of it.
    scene.crash().await;
    let b = scene.claim_one("b").await;
    scene.finishes(&b).await;
    assert_eq!(ids(&scene.claim().await), Vec::<&str>::new());
    assert_eq!(scene.plan_status("p").await, PlanStatus::Running);
    assert!(scene.rows("p").await[0].set_aside.is_some());
}

pub(super) async fn a_damaged_creation_is_noticed_by_whoever_reads_the_task(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b")).await;
    if !scene.damage(Damage::Row { task: "a", sequence: 1 }).await {
        return;
    }
    assert!(scene.task("a").await.task.damage().is_some_and(|why| why.contains("checksum")));
    assert_eq!(ids(&scene.claim().await), ["b"]);
    assert!(scene.rows("p").await[0].set_aside.is_some());
    assert_eq!(scene.log("a").await, ["EVENT_LOST"]);
    scene.operator("a", Command::Repair(ann())).await;
    assert_eq!(scene.log("a").await, ["EVENT_LOST", "TASK_REPAIRED", "TASK_FAILED"]);
    assert_eq!(scene.status("a").await, TaskStatus::Failed);
}

pub(super) async fn a_repaired_task_ends_as_failed_with_what_could_be_read_and_its_plan_ends(harness: &dyn Harness) {
    let Some(mut scene) = damaged_while_it_ran(harness).await else { return };
    let b = scene.claim_one("b").await;
    scene.finishes(&b).await;
    let committed = scene.operator("a", Command::Repair(ann())).await;
    assert_eq!(committed.plan, Some(PlanStatus::Failed));
    let plan = scene.plan("p").await;
    assert_eq!((plan.status, plan.ended_at.is_some(), plan.counts.failed), (PlanStatus::Failed, true, 1));
    for _ in 0..2 {
        let a = scene.task("a").await;
        assert_eq!((a.task.status(), a.task.version(), a.task.damage()), (TaskStatus::Failed, 7, None));
        assert!(a.task.failure().is_some_and(|failure| failure.cause.reason.contains("checksum")));
        assert_eq!((a.set_aside, a.task.stage(0).1.status), (None, StageStatus::Cancelled));
        let log = ["TASK_CREATED", "TASK_STARTED", "STAGE_STARTED", "EVENT_LOST", "EVENT_LOST", "TASK_REPAIRED"];
        assert_eq!(scene.log("a").await, [&log[..], &["TASK_FAILED"]].concat());
        scene.crash().await;
    }
}

pub(super) async fn a_repaired_task_runs_again_from_its_start(harness: &dyn Harness) {
    let Some(mut scene) = damaged_while_it_ran(harness).await else { return };
    let b = scene.claim_one("b").await;
    scene.finishes(&b).await;
    scene.operator("a", Command::Repair(ann())).await;
    let refused = decide(&scene.task("a").await.task, retry(), scene.now);
    assert!(
        matches!(&refused, Err(Rejection::PartlyLost { hint, .. }) if hint.contains("--from-start")),
        "{refused:?}"
    );
    scene.try_operator("a", from_start(), Some(PlanCommand::Retry)).await.unwrap();
    let a = scene.claim_one("a").await;
    scene.finishes(&a).await;
    assert_eq!((scene.status("a").await, scene.plan_status("p").await), (TaskStatus::Completed, PlanStatus::Completed));
}

pub(super) async fn a_task_whose_definition_is_damaged_can_be_given_up_and_not_run_again(harness: &dyn Harness) {
    let mut scene =
        Scene::with(harness, plan("p").task_with("a", |task| task.input = json!({ "some": "input" }))).await;
    if !scene.damage(Damage::Definition { task: "a" }).await {
        return;
    }
    assert!(scene.task("a").await.task.damage().is_some_and(|why| why.contains("definition of task a")));
    assert_eq!(ids(&scene.claim().await), Vec::<&str>::new());
    scene.operator("a", Command::Repair(ann())).await;
    assert_eq!((scene.status("a").await, scene.plan_status("p").await), (TaskStatus::Failed, PlanStatus::Failed));
    let refused = decide(&scene.task("a").await.task, from_start(), scene.now);
    assert!(matches!(refused, Err(Rejection::PartlyLost { .. })), "{refused:?}");
}

pub(super) async fn a_paused_task_that_is_damaged_gives_its_tenant_back_when_it_is_repaired(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "x").task_of("b", "x")).await;
    let held = scene.claim_one("a").await;
    let held = scene.does(&held, Command::Pause(ann())).await;
    scene.does(&held, success(0)).await;
    assert_eq!(scene.status("a").await, TaskStatus::Paused);
    if !scene.damage(Damage::Row { task: "a", sequence: 2 }).await {
        return;
    }
    assert_eq!(ids(&scene.claim().await), Vec::<&str>::new());
    scene.operator("a", Command::Repair(ann())).await;
    assert_eq!(scene.status("a").await, TaskStatus::Failed);
    scene.claim_one("b").await;
}

pub(super) async fn a_cancelled_plan_ends_when_its_damaged_task_is_repaired(harness: &dyn Harness) {
    let Some(mut scene) = damaged_while_it_ran(harness).await else { return };
    scene.verb("p", PlanCommand::Cancel).await;
    scene.operator("b", Command::Cancel(ann())).await;
    let plan = scene.plan("p").await;
    assert_eq!((plan.status, plan.ended_at), (PlanStatus::Cancelled, None));
    scene.operator("a", Command::Repair(ann())).await;
    let plan = scene.plan("p").await;
    assert_eq!((plan.status, plan.ended_at.is_some()), (PlanStatus::Cancelled, true));
}

pub(super) async fn what_can_be_read_of_a_damaged_log_is_read_with_dense_numbers(harness: &dyn Harness) {
    let Some(scene) = damaged_while_it_ran(harness).await else { return };
    for limit in [1, 2, 3, 1000] {
        let (mut numbers, mut kinds) = (Vec::new(), Vec::new());
        loop {
            let after = numbers.last().copied().unwrap_or(0);
            let page = scene.store.events(EventQuery { task: task_id("a"), after, limit }).await.unwrap();
            if page.is_empty() {
                break;
            }
            numbers.extend(page.iter().map(|event| event.sequence));
            kinds.extend(page.iter().map(|event| event.record.event().kind()));
        }
        assert_eq!(numbers, [1, 2, 3, 4, 5], "{limit} at a time");
        assert_eq!(kinds, ["TASK_CREATED", "TASK_STARTED", "STAGE_STARTED", "EVENT_LOST", "EVENT_LOST"]);
    }
}
