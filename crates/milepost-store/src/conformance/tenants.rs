//! The tenant lock: no two tasks of one tenant at once, and nobody starves for it.

use milepost_core::plan::PlanCommand;
use milepost_core::task::{Command, PlanStatus, TaskStatus};

use super::Harness;
use super::given::{Scene, ann, ended, fatal, ids, plan, plan_id, retry, success, task_id, tenant};

pub(super) async fn two_tasks_of_one_tenant_are_never_active_at_once(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t").task_of("b", "t").task_of("c", "t")).await;
    for id in ["a", "b", "c"] {
        let task = scene.claim_one(id).await;
        assert!(ids(&scene.claim().await).is_empty());
        scene.finishes(&task).await;
    }
}

pub(super) async fn a_tenant_is_locked_across_plans(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t")).await;
    scene.submit(plan("q").task_of("b", "t").task_of("c", "u")).await;
    let claimed = scene.claim().await;
    assert_eq!(ids(&claimed), ["a", "c"]);
    scene.finishes(&claimed.tasks[0]).await;
    scene.claim_one("b").await;
}

pub(super) async fn a_blocked_task_takes_no_slot_and_holds_up_nobody_behind_it(harness: &dyn Harness) {
    let tasks = plan("p").task_of("a", "t").task_of("b", "t").task_of("c", "t").task("d").task_of("e", "u");
    let mut scene = Scene::with(harness, tasks.max(3)).await;
    assert_eq!(ids(&scene.claim().await), ["a", "d", "e"]);
    assert_eq!(scene.status("b").await, TaskStatus::Pending);
    assert_eq!(scene.log("b").await, ["TASK_CREATED"]);
}

pub(super) async fn a_blocked_task_says_who_blocks_it(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t").task("free")).await;
    scene.submit(plan("q").task_of("b", "t")).await;
    assert_eq!(scene.task("b").await.blocked_by, None);
    let task = scene.claim().await.tasks.remove(0);
    assert_eq!(scene.task("b").await.blocked_by.as_deref(), Some("p:a"));
    assert_eq!(scene.rows("q").await[0].blocked_by.as_deref(), Some("p:a"));
    assert_eq!(scene.task("a").await.blocked_by, None);
    assert_eq!(scene.task("free").await.blocked_by, None);
    scene.finishes(&task).await;
    assert_eq!(scene.task("b").await.blocked_by, None);
}

pub(super) async fn a_paused_task_keeps_its_tenant(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t").task_of("b", "t")).await;
    let task = scene.claim_one("a").await;
    let task = scene.does(&task, Command::Pause(ann())).await;
    let task = scene.does(&task, success(0)).await;
    assert_eq!(task.task.status(), TaskStatus::Paused);
    assert!(ids(&scene.claim().await).is_empty());
    assert_eq!(scene.locks().await, [("t".to_owned(), "a".to_owned())]);
    scene.operator("a", Command::Cancel(ann())).await;
    scene.claim_one("b").await;
}

pub(super) async fn a_task_that_was_paused_before_it_started_has_no_lock(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t").task_of("b", "t")).await;
    scene.operator("a", Command::Pause(ann())).await;
    assert!(scene.locks().await.is_empty());
    let task = scene.claim_one("b").await;
    scene.operator("a", Command::Resume(ann())).await;
    assert!(ids(&scene.claim().await).is_empty());
    scene.finishes(&task).await;
    scene.claim_one("a").await;
}

pub(super) async fn a_tenant_is_free_again_however_its_task_ended(harness: &dyn Harness) {
    let tasks = ["completes", "fails", "is-cancelled", "is-rolled-back", "fails-to-roll-back", "last"];
    let mut scene = Scene::with(harness, tasks.iter().fold(plan("p"), |plan, id| plan.task_of(id, "t"))).await;
    let task = scene.claim_one("completes").await;
    scene.finishes(&task).await;
    let task = scene.claim_one("fails").await;
    scene.does(&task, fatal(0)).await;
    let task = scene.claim_one("is-cancelled").await;
    scene.does(&task, Command::Cancel(ann())).await;
    for (id, status) in [("is-rolled-back", TaskStatus::RolledBack), ("fails-to-roll-back", TaskStatus::RollbackFailed)]
    {
        let task = scene.claim_one(id).await;
        let task = scene.does(&task, Command::Pause(ann())).await;
        scene.does(&task, success(0)).await;
        scene.operator(id, Command::Rollback(ann())).await;
        let task = scene.claim_one(id).await;
        let task = match status {
            TaskStatus::RolledBack => scene.finishes(&task).await,
            _ => scene.does(&task, fatal(0)).await,
        };
        assert_eq!(task.task.status(), status);
    }
    scene.claim_one("last").await;
    assert_eq!(scene.locks().await, [("t".to_owned(), "last".to_owned())]);
}

pub(super) async fn a_task_takes_its_own_lock_again_under_a_higher_fence(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t")).await;
    let task = scene.claim_one("a").await;
    let first = scene.store.locks().await.unwrap().remove(0);
    scene.now = scene.falls_asleep(&task).await;
    assert_eq!(scene.store.locks().await.unwrap().first(), Some(&first));
    scene.claim_one("a").await;
    let second = scene.store.locks().await.unwrap().remove(0);
    assert!(second.fence > first.fence, "{second:?}");
    scene.crash().await;
    scene.claim_one("a").await;
    let third = scene.store.locks().await.unwrap().remove(0);
    assert!(third.fence > second.fence, "{third:?}");
    assert_eq!(third.since, first.since);
}

pub(super) async fn a_resumed_task_comes_before_others_of_its_tenant(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t").task_of("b", "t").max(1)).await;
    let task = scene.claim_one("a").await;
    let urgent = plan("q").task_with("urgent", |task| (task.priority, task.tenant) = (9, Some(tenant("t"))));
    scene.submit(urgent).await;
    let task = scene.does(&task, Command::Pause(ann())).await;
    scene.does(&task, success(0)).await;
    scene.operator("a", Command::Resume(ann())).await;
    assert_eq!(scene.status("a").await, TaskStatus::Pending);
    let task = scene.claim_one("a").await;
    scene.finishes(&task).await;
}

pub(super) async fn locks_name_tenant_plan_and_task(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t").task_of("b", "t")).await;
    assert!(scene.store.locks().await.unwrap().is_empty());
    scene.claim_one("a").await;
    let locks = scene.store.locks().await.unwrap();
    assert_eq!(locks.len(), 1);
    let lock = &locks[0];
    assert_eq!((&lock.tenant, &lock.plan, &lock.task), (&tenant("t"), &plan_id("p"), &task_id("a")));
    assert_eq!(lock.since, scene.now);
    assert!(lock.fence > 0);
}

pub(super) async fn waiters_of_a_plan_that_does_not_run_do_not_starve_others(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("first").task_of("a", "t")).await;
    let task = scene.claim_one("a").await;
    scene.submit_for_later(plan("ready").task_of("b", "t")).await;
    scene.submit(plan("paused").task_of("c", "t")).await;
    scene.verb("paused", PlanCommand::Pause).await;
    scene.submit(plan("full").task("d").task_of("e", "t").max(1)).await;
    scene.claim_one("d").await;
    scene.submit(plan("running").task_of("f", "t")).await;
    scene.finishes(&task).await;
    let task = scene.claim_one("f").await;
    scene.verb("paused", PlanCommand::Resume).await;
    scene.finishes(&task).await;
    scene.claim_one("c").await;
}

pub(super) async fn a_rollback_asked_for_by_an_operator_waits_for_its_tenant(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t").task_of("b", "t")).await;
    let task = scene.claim_one("a").await;
    scene.does(&task, fatal(0)).await;
    let other = scene.claim_one("b").await;
    scene.operator("a", Command::Rollback(ann())).await;
    let claimed = scene.claim().await;
    // No instant will bring it on: only the other's end.
    assert_eq!((ids(&claimed), claimed.next_due), (vec![], None));
    let waiting = scene.task("a").await;
    assert_eq!((waiting.task.status(), waiting.blocked_by.as_deref()), (TaskStatus::RollingBack, Some("p:b")));
    scene.finishes(&other).await;
    let task = scene.claim_one("a").await;
    let task = scene.does(&task, ended(0, 1, milepost_core::task::StageResult::Skip("nothing there".to_owned()))).await;
    assert_eq!(task.task.status(), TaskStatus::RolledBack);
    scene.try_operator("a", retry(), Some(PlanCommand::Retry)).await.unwrap();
    scene.claim_one("a").await;
}

pub(super) async fn a_lost_node_keeps_the_locks_of_its_tasks(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t").manual()).await;
    scene.submit(plan("q").task_of("b", "t")).await;
    scene.claim_one("a").await;
    scene.crash().await;
    assert!(ids(&scene.claim().await).is_empty());
    assert_eq!(scene.task("b").await.blocked_by.as_deref(), Some("p:a"));
    assert_eq!(ids(&scene.claim_only("p").await), ["a"]);
}

pub(super) async fn a_task_that_ends_in_its_claim_lets_the_next_of_its_tenant_run(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("holder", "t")).await;
    let waiting = plan("q").stages(vec![]).task_of("a", "t").task_of("b", "t").task_of("c", "t");
    scene.submit(waiting).await;
    let holder = scene.claim_one("holder").await;
    assert!(ids(&scene.claim().await).is_empty());
    scene.finishes(&holder).await;
    // One at a time, so that each has to let the next one go in a claim that does not reach it.
    for _ in 0..3 {
        assert_eq!(scene.claim_up_to(1).await.ended.len(), 1);
    }
    assert_eq!(scene.plan_status("q").await, PlanStatus::Completed);
}

pub(super) async fn a_waiter_that_is_paused_or_cancelled_lets_the_next_of_its_tenant_run(harness: &dyn Harness) {
    for (name, command) in [("paused", Command::Pause(ann())), ("cancelled", Command::Cancel(ann()))] {
        for before_the_tenant_is_free in [true, false] {
            let mut scene = Scene::with(harness, plan("p").task_of("holder", "t")).await;
            scene.submit(plan("q").task_of("first", "t").task_of("second", "t")).await;
            let holder = scene.claim_one("holder").await;
            assert!(ids(&scene.claim().await).is_empty());
            if before_the_tenant_is_free {
                scene.operator("first", command.clone()).await;
            }
            scene.finishes(&holder).await;
            if !before_the_tenant_is_free {
                scene.operator("first", command.clone()).await;
            }
            assert_eq!(ids(&scene.claim().await), ["second"], "{name}, {before_the_tenant_is_free}");
        }
    }
}

pub(super) async fn waiters_of_plans_that_wait_for_a_person_do_not_starve_others(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("first", "t").automatic()).await;
    for n in 0..20 {
        scene.submit(plan(&format!("held-{n}")).task_of(&format!("h-{n}"), "t").manual()).await;
    }
    scene.submit(plan("q").task_of("last", "t").automatic()).await;
    // All others line up for their tenant.
    scene.claim_one("first").await;
    scene.crash().await;
    let first = scene.claim_one("first").await;
    scene.finishes(&first).await;
    scene.claim_one("last").await;
}
