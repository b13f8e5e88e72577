//! Storing plans: whole or not at all.

use milepost_core::plan::PlanCommand;
use milepost_core::task::{Command, PlanStatus, TaskStatus};

use crate::error::{Clash, StoreError};
use crate::model::{Difference, EventQuery, Resubmit, Start, StoredTask};

use super::Harness;
use super::given::{Scene, ann, fatal, ids, plan, plan_id, stage, success, task_id};

pub(super) async fn a_new_plan_appears_whole_with_its_tasks_pending(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    let submitted = scene.submit_for_later(plan("p").task("a").task_of("b", "t").task("c").max(3)).await;
    assert!(submitted.created);
    assert_eq!(submitted.difference, Difference::default());
    assert_eq!(submitted.plan, scene.plan("p").await);
    let row = submitted.plan;
    assert_eq!((row.counts.total, row.counts.pending, row.counts.open()), (3, 3, 3));
    assert_eq!((row.max_concurrency, row.created_at, row.ended_at), (3, scene.now, None));
    let rows = scene.rows("p").await;
    assert_eq!(rows.iter().map(|row| row.key.id.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    for row in rows {
        assert_eq!((row.status, row.version, row.done, row.stages), (TaskStatus::Pending, 1, 0, 2));
        let stored = scene.task(row.key.id.as_str()).await;
        assert_eq!((stored.key, stored.epoch, stored.orphaned), (row.key, 0, false));
    }
}

pub(super) async fn the_first_event_of_a_task_is_its_creation(harness: &dyn Harness) {
    let scene = Scene::with(harness, plan("p").task("a")).await;
    let events = scene.store.events(EventQuery { task: task_id("a"), after: 0, limit: 10 }).await.unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].sequence, events[0].record.event().kind()), (1, "TASK_CREATED"));
    assert_eq!(events[0].record.at(), scene.now);
}

pub(super) async fn a_plan_submitted_for_later_is_ready_and_one_to_start_at_once_is_running(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    let later = scene.submit_for_later(plan("later").task("a")).await.plan;
    assert_eq!((later.status, later.started_at), (PlanStatus::Ready, None));
    let at_once = scene.submit(plan("at-once").task("b")).await.plan;
    assert_eq!((at_once.status, at_once.started_at), (PlanStatus::Running, Some(scene.now)));
}

pub(super) async fn the_same_plan_again_changes_nothing(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task_of("b", "t")).await;
    scene.claim().await;
    let before = scene.snapshot("p").await;
    for resubmit in [Resubmit::Same, Resubmit::Update] {
        let again = plan("p").task("a").task_of("b", "t");
        let submitted = scene.try_submit(again, Start::AtOnce, resubmit).await.unwrap();
        assert!(!submitted.created);
        assert_eq!(submitted.difference, Difference::default());
        assert_eq!(scene.snapshot("p").await, before);
    }
}

pub(super) async fn the_same_plan_again_carries_on_in_any_status(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("failed").task("a")).await;
    let task = scene.claim_one("a").await;
    scene.does(&task, fatal(0)).await;
    scene.submit(plan("paused").task("b")).await;
    scene.verb("paused", PlanCommand::Pause).await;
    scene.submit(plan("cancelled").task("c")).await;
    scene.verb("cancelled", PlanCommand::Cancel).await;
    for (id, task, status) in [
        ("failed", "a", PlanStatus::Failed),
        ("paused", "b", PlanStatus::Paused),
        ("cancelled", "c", PlanStatus::Cancelled),
    ] {
        let before = scene.snapshot(id).await;
        let submitted = scene.submit(plan(id).task(task)).await;
        assert_eq!((submitted.created, submitted.plan.status), (false, status));
        assert_eq!(scene.snapshot(id).await, before);
    }
}

pub(super) async fn the_same_plan_again_to_start_at_once_starts_a_ready_plan_only(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    scene.submit_for_later(plan("p").task("a")).await;
    assert_eq!(scene.submit_for_later(plan("p").task("a")).await.plan.status, PlanStatus::Ready);
    let started = scene.submit(plan("p").task("a")).await;
    assert!(!started.created);
    assert_eq!((started.plan.status, started.plan.started_at), (PlanStatus::Running, Some(scene.now)));
    assert_eq!(scene.submit_for_later(plan("p").task("a")).await.plan.status, PlanStatus::Running);
    assert_eq!(ids(&scene.claim().await), ["a"]);
}

pub(super) async fn other_content_under_the_same_name_is_refused(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let before = scene.snapshot("p").await;
    let others = [
        plan("p").task("a").task("b"),
        plan("p").task("z"),
        plan("p").task("a").max(3),
        plan("p").task_of("a", "t"),
        plan("p").task("a").stages(vec![stage("one", &[])]),
    ];
    for other in others {
        let refused = scene.try_submit(other, Start::AtOnce, Resubmit::Same).await;
        match refused {
            Err(StoreError::Clash(Clash::OtherContent { plan, difference })) => {
                assert_eq!(plan, plan_id("p"));
                assert!(!difference.is_empty());
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(scene.snapshot("p").await, before);
    }
    assert!(scene.store.task(&task_id("b")).await.unwrap().is_none());
}

pub(super) async fn a_task_id_of_another_plan_is_refused_even_as_the_last_of_many(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let many = (0..50).fold(plan("q"), |plan, n| plan.task(&format!("q-{n}")));
    let refused = scene.try_submit(many.task("a"), Start::AtOnce, Resubmit::Same).await;
    match refused {
        Err(StoreError::Clash(Clash::TaskId { task, owner })) => {
            assert_eq!((task, owner), (task_id("a"), plan_id("p")));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(scene.store.plan(&plan_id("q")).await.unwrap(), None);
    assert!(scene.store.task(&task_id("q-0")).await.unwrap().is_none());
    assert_eq!(ids(&scene.claim().await), ["a"]);
    // The names it did not get are free.
    scene.submit(plan("r").task("q-0")).await;
}

pub(super) async fn an_update_adds_and_removes_tasks_and_keeps_the_progress_of_the_others(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("gone").task("kept").max(2)).await;
    let claimed = scene.claim().await;
    let kept = scene.does(&claimed.tasks[1], success(0)).await;
    scene.does(&claimed.tasks[0], Command::Cancel(ann())).await;
    scene.does(&kept, Command::Pause(ann())).await;
    let kept = scene.does(&StoredTask { task: scene.task("kept").await.task, ..kept }, success(1)).await;
    assert_eq!(kept.task.status(), TaskStatus::Completed);
    let log = scene.log("kept").await;
    let before = scene.task("kept").await;

    let updated = scene.update(plan("p").task("new").task("kept").max(2)).await.unwrap();
    assert_eq!((updated.created, updated.difference), (false, Difference { added: 1, removed: 1 }));
    assert_eq!((updated.plan.counts.total, updated.plan.counts.pending, updated.plan.counts.completed), (2, 1, 1));
    let order: Vec<String> = scene.rows("p").await.iter().map(|row| row.key.id.to_string()).collect();
    assert_eq!(order, ["kept", "new"]);
    assert!(scene.store.task(&task_id("gone")).await.unwrap().is_none());
    let events = scene.store.events(EventQuery { task: task_id("gone"), after: 0, limit: 10 }).await;
    assert!(matches!(events, Err(StoreError::NotFound { .. })), "{events:?}");
    assert_eq!(scene.log("kept").await, log);
    let after = scene.task("kept").await;
    assert_eq!((after.key, after.task), (before.key, before.task));
    assert_eq!(scene.log("new").await, ["TASK_CREATED"]);
    let mut definition = scene.store.definition(&plan_id("p")).await.unwrap().unwrap();
    definition.tasks.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(definition, plan("p").task("kept").task("new").max(2).0);
    // The name of a task that is gone is free.
    scene.submit(plan("q").task("gone")).await;
    assert_eq!(scene.log("gone").await, ["TASK_CREATED"]);
}

pub(super) async fn an_update_folds_a_kept_task_over_its_new_stages(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let task = scene.does(&task, success(0)).await;
    scene.does(&task, fatal(1)).await;
    let stages = || vec![stage("zero", &[]), stage("one", &[]), stage("two", &[1]), stage("three", &[2])];
    scene.update(plan("p").task("a").stages(stages())).await.unwrap();
    let kept = scene.task("a").await.task;
    assert_eq!((kept.status(), kept.spec().stages.len()), (TaskStatus::Failed, 4));
    assert_eq!(kept.done().len(), 1);
    assert_eq!(kept.spec().created_at, task.task.spec().created_at);
    let row = scene.rows("p").await.remove(0);
    assert_eq!((row.done, row.stages, row.version), (1, 4, kept.version()));
}

pub(super) async fn an_update_is_refused_while_a_live_node_has_a_task_of_the_plan(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b").max(1)).await;
    let task = scene.claim_one("a").await;
    let before = scene.snapshot("p").await;
    let refused = scene.update(plan("p").task("a").task("c").max(1)).await;
    assert!(
        matches!(&refused, Err(StoreError::Clash(Clash::Running { plan })) if *plan == plan_id("p")),
        "{refused:?}"
    );
    assert_eq!(scene.snapshot("p").await, before);

    scene.falls_asleep(&task).await;
    scene.update(plan("p").task("a").task("c").max(1)).await.expect("a sleeping task is nobody's");
    scene.crash().await;
    scene.update(plan("p").task("a").max(1)).await.expect("an orphan is nobody's");
}

pub(super) async fn an_update_that_clashes_changes_nothing(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("other").task("taken")).await;
    scene.submit(plan("p").task("a").task("b")).await;
    let before = scene.snapshot("p").await;
    let refused = scene.update(plan("p").task("a").task("c").task("taken")).await;
    assert!(matches!(refused, Err(StoreError::Clash(Clash::TaskId { .. }))), "{refused:?}");
    assert_eq!(scene.snapshot("p").await, before);
    assert!(scene.store.task(&task_id("c")).await.unwrap().is_none());
}

pub(super) async fn an_ended_plan_that_gains_tasks_is_ready_again(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    scene.finishes(&task).await;
    assert_eq!(scene.plan_status("p").await, PlanStatus::Completed);
    let updated = scene.update(plan("p").task("a").task("b")).await.unwrap().plan;
    assert_eq!((updated.status, updated.ended_at), (PlanStatus::Ready, None));
    assert!(ids(&scene.claim().await).is_empty());

    let third = plan("p").task("a").task("b").task("c");
    let updated = scene.try_submit(third, Start::AtOnce, Resubmit::Update).await.unwrap().plan;
    assert_eq!(updated.status, PlanStatus::Running);
    assert_eq!(ids(&scene.claim().await), ["b", "c"]);
}

pub(super) async fn an_update_that_leaves_nothing_to_run_ends_the_plan(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b").max(1)).await;
    let task = scene.claim_one("a").await;
    scene.finishes(&task).await;
    assert_eq!(scene.plan_status("p").await, PlanStatus::Running);
    let updated = scene.update(plan("p").task("a").max(1)).await.unwrap().plan;
    assert_eq!((updated.status, updated.ended_at), (PlanStatus::Completed, Some(scene.now)));
}

pub(super) async fn an_update_that_removes_a_task_frees_its_slot_and_its_tenant(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t").task("b").max(1)).await;
    scene.submit(plan("q").task_of("c", "t")).await;
    let task = scene.claim_one("a").await;
    scene.falls_asleep(&task).await;
    assert!(ids(&scene.claim().await).is_empty());
    scene.update(plan("p").task("b").max(1)).await.unwrap();
    assert_eq!(ids(&scene.claim().await), ["b", "c"]);
}

pub(super) async fn an_update_that_gives_a_task_another_tenant_frees_the_one_it_had(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t")).await;
    let task = scene.claim_one("a").await;
    let due = scene.falls_asleep(&task).await;
    scene.submit(plan("q").task_of("b", "t").task_of("c", "u")).await;
    let holder = scene.claim_one("c").await;
    scene.update(plan("p").task_of("a", "u")).await.unwrap();
    scene.claim_one("b").await;
    // For its new tenant it has to wait.
    scene.now = due;
    assert!(ids(&scene.claim().await).is_empty());
    scene.finishes(&holder).await;
    scene.claim_one("a").await;
}

pub(super) async fn an_update_to_fewer_slots_leaves_those_that_are_taken_and_starts_nothing_until_there_is_room(
    harness: &dyn Harness,
) {
    let tasks = |max| ["a", "b", "c", "d", "e"].iter().fold(plan("p"), |plan, id| plan.task(id)).max(max);
    let mut scene = Scene::with(harness, tasks(3)).await;
    let claimed = scene.claim().await;
    assert_eq!(ids(&claimed), ["a", "b", "c"]);
    scene.falls_asleep(&claimed.tasks[0]).await;
    let due = scene.falls_asleep(&claimed.tasks[1]).await;
    scene.crash().await;
    scene.update(tasks(1)).await.expect("nobody has a task of it");

    // Three have slots of one: one that a lost node had, and two that sleep.
    let orphan = scene.claim_one("c").await;
    scene.now = due;
    let woken = scene.claim().await;
    assert_eq!(ids(&woken), ["a", "b"]);
    for task in [&woken.tasks[0], &orphan] {
        scene.finishes(task).await;
        assert!(ids(&scene.claim().await).is_empty(), "the plan is full still");
    }
    scene.finishes(&woken.tasks[1]).await;
    for id in ["d", "e"] {
        let task = scene.claim_one(id).await;
        scene.finishes(&task).await;
    }
    assert_eq!(scene.plan_status("p").await, PlanStatus::Completed);
}

pub(super) async fn a_plan_that_refuses_busy_tenants_is_not_stored_and_names_them(harness: &dyn Harness) {
    let holders = plan("p").task_of("a", "t-1").task_of("b", "t-2").task_of("c", "t-3");
    let mut scene = Scene::with(harness, holders).await;
    let claimed = scene.claim().await;
    scene.finishes(&claimed.tasks[2]).await;
    let refusing = plan("q").task_of("x", "t-1").task_of("y", "t-2").task_of("z", "t-3").task_of("w", "t-1");
    let refused = scene.try_submit(refusing.refuses_busy_tenants(), Start::AtOnce, Resubmit::Same).await;
    match refused {
        Err(StoreError::Clash(Clash::TenantsBusy { plan, mut busy })) => {
            busy.sort();
            assert_eq!((plan, busy), (plan_id("q"), vec!["t-1".to_owned(), "t-2".to_owned()]));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(scene.store.plan(&plan_id("q")).await.unwrap(), None);
    assert!(scene.store.task(&task_id("x")).await.unwrap().is_none());
}

pub(super) async fn a_plan_that_refuses_busy_tenants_is_stored_when_they_are_free(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    // Somebody waits for the tenant, and nobody holds it.
    scene.submit_for_later(plan("p").task_of("a", "t")).await;
    let twice = plan("q").task_of("x", "t").task_of("y", "t").refuses_busy_tenants();
    scene.submit(twice.clone()).await;
    assert_eq!(ids(&scene.claim().await), ["x"]);
    // Its own lock is no reason to refuse it.
    let again = scene.submit(twice).await;
    assert!(!again.created);
}

pub(super) async fn an_update_looks_for_busy_tenants_among_new_tasks_only(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    let refusing = || plan("p").task_of("a", "t").refuses_busy_tenants();
    scene.submit_for_later(refusing()).await;
    scene.submit(plan("q").task_of("holder", "t")).await;
    scene.claim_one("holder").await;
    scene.update(refusing().task_of("b", "u")).await.expect("the task that waits was accepted before");
    let before = scene.snapshot("p").await;
    let refused = scene.update(refusing().task_of("b", "u").task_of("c", "t")).await;
    assert!(matches!(refused, Err(StoreError::Clash(Clash::TenantsBusy { .. }))), "{refused:?}");
    assert_eq!(scene.snapshot("p").await, before);
}

pub(super) async fn an_update_may_add_to_a_tenant_that_its_own_plan_holds(harness: &dyn Harness) {
    let refusing = || plan("p").task_of("a", "t").refuses_busy_tenants();
    let mut scene = Scene::with(harness, refusing()).await;
    let task = scene.claim_one("a").await;
    scene.falls_asleep(&task).await;
    scene.update(refusing().task_of("b", "t")).await.expect("its tasks run one after another");
}
