//! The one write path: versions, leases, operators, and what becomes of the plan.

use milepost_core::plan::PlanCommand;
use milepost_core::task::{Command, PlanStatus, TaskStatus};
use milepost_core::time::Millis;

use crate::error::StoreError;
use crate::model::{Commit, EventQuery, Holder, LeaseChange, TaskRef, Wake};

use super::Harness;
use super::given::{Scene, ann, failure, fatal, ids, plan, retry, success, task_id};

pub(super) async fn a_commit_is_visible_with_dense_sequence_numbers(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let task = scene.does(&task, success(0)).await;
    let stored = scene.task("a").await;
    assert_eq!((&stored.task, stored.epoch), (&task.task, task.epoch));
    assert_eq!((stored.task.version(), stored.task.done().len()), (5, 1));
    scene.finishes(&task).await;
    let events = scene.store.events(EventQuery { task: task_id("a"), after: 0, limit: 100 }).await.unwrap();
    let sequences: Vec<u64> = events.iter().map(|event| event.sequence).collect();
    assert_eq!(sequences, (1..=7).collect::<Vec<_>>());
    let log = ["TASK_CREATED", "TASK_STARTED", "STAGE_STARTED", "STAGE_COMPLETED", "STAGE_STARTED", "STAGE_COMPLETED"];
    assert_eq!(scene.log("a").await[..6], log);
    assert_eq!(scene.log("a").await[6], "TASK_COMPLETED");
}

pub(super) async fn a_commit_on_an_old_version_is_refused_with_the_version_found(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let stale = scene.decision(&task, failure(0, 1));
    scene.does(&task, success(0)).await;
    match scene.store.commit(stale).await {
        Err(StoreError::Conflict { task, expected, found }) => {
            assert_eq!((task, expected, found), (task_id("a"), 3, 5));
        }
        other => panic!("{other:?}"),
    }
}

pub(super) async fn a_commit_under_another_lease_is_fenced(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let before = scene.snapshot("p").await;
    for lease in [0, task.epoch + 1, task.epoch + 1000] {
        let commit = Commit { holder: Holder::Lease(lease), ..scene.decision(&task, success(0)) };
        match scene.store.commit(commit).await {
            Err(StoreError::Fenced { task: id, expected, found }) => {
                assert_eq!((id, expected, found), (task_id("a"), lease, task.epoch));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(scene.snapshot("p").await, before);
}

pub(super) async fn a_commit_after_the_lease_was_given_back_is_refused(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let due = scene.now + Millis::new(1) + super::given::BACKOFF;
    let parked = scene.parks(&task, failure(0, 1), Wake::At(due)).await;
    scene.now = due;
    let late = scene.decision(&parked, Command::Wake);
    let fenced = scene.store.commit(late.clone()).await;
    assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
    // Nor does the next lease make the last one good again.
    scene.claim_one("a").await;
    let fenced = scene.store.commit(late).await;
    assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
}

pub(super) async fn a_commit_sent_twice_is_a_conflict_even_if_the_first_ended_the_task(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let first = scene.decision(&task, success(0));
    scene.store.commit(first.clone()).await.unwrap();
    let again = scene.store.commit(first).await;
    assert!(matches!(again, Err(StoreError::Conflict { .. })), "{again:?}");
    let task = crate::model::StoredTask { task: scene.task("a").await.task, ..task };
    let last = scene.decision(&task, success(1));
    scene.store.commit(last.clone()).await.unwrap();
    let again = scene.store.commit(last).await;
    assert!(matches!(again, Err(StoreError::Conflict { .. })), "{again:?}");
    assert_eq!(scene.plan_status("p").await, PlanStatus::Completed);
}

pub(super) async fn a_commit_for_an_unknown_task_is_not_found(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let commit = scene.decision(&task, success(0));
    let stranger = TaskRef { id: task_id("stranger"), no: task.key.no + 1000 };
    let missing = scene.store.commit(Commit { key: stranger, ..commit }).await;
    assert!(matches!(missing, Err(StoreError::NotFound { what: "task", .. })), "{missing:?}");
}

pub(super) async fn an_operator_is_refused_while_a_live_node_holds_the_task(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let before = scene.snapshot("p").await;
    let refused = scene.try_operator("a", Command::Cancel(ann()), None).await;
    assert!(matches!(&refused, Err(StoreError::Fenced { found, .. }) if *found == task.epoch), "{refused:?}");
    assert_eq!(scene.snapshot("p").await, before);
    scene.does(&task, Command::Cancel(ann())).await;
}

pub(super) async fn an_operator_may_change_a_task_that_nobody_holds(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("parked").task("failed").task("pending").max(2)).await;
    let claimed = scene.claim().await;
    scene.falls_asleep(&claimed.tasks[0]).await;
    scene.does(&claimed.tasks[1], fatal(0)).await;
    scene.operator("parked", Command::Cancel(ann())).await;
    assert_eq!(scene.status("parked").await, TaskStatus::Cancelled);
    scene.operator("failed", retry()).await;
    assert_eq!(scene.status("failed").await, TaskStatus::Pending);
    scene.operator("pending", Command::Pause(ann())).await;
    assert_eq!(scene.status("pending").await, TaskStatus::Paused);
    let claimed = scene.claim().await;
    assert_eq!((ids(&claimed), claimed.next_due), (vec!["failed"], None));
    // What an operator decided on must still be so.
    let stored = scene.task("pending").await;
    let stale = Commit { holder: Holder::Operator, ..scene.decision(&stored, Command::Cancel(ann())) };
    scene.operator("pending", Command::Resume(ann())).await;
    let conflict = scene.store.commit(stale).await;
    assert!(matches!(conflict, Err(StoreError::Conflict { .. })), "{conflict:?}");
}

pub(super) async fn an_operator_may_change_an_orphan_and_its_old_lease_is_void(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t").task_of("b", "t").max(1).manual()).await;
    let task = scene.claim_one("a").await;
    let late = scene.decision(&task, success(0));
    scene.crash().await;
    scene.operator("a", Command::Cancel(ann())).await;
    let ended = scene.task("a").await;
    assert_eq!((ended.task.status(), ended.epoch, ended.orphaned), (TaskStatus::Cancelled, 0, false));
    assert!(scene.store.commit(late).await.is_err());
    assert_eq!(scene.status("a").await, TaskStatus::Cancelled);
    assert_eq!(super::given::ids(&scene.claim_only("p").await), ["b"]);
}

pub(super) async fn an_orphan_that_an_operator_leaves_running_is_still_taken_over(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    scene.claim_one("a").await;
    scene.crash().await;
    scene.operator("a", Command::Pause(ann())).await;
    let asked = scene.task("a").await;
    assert_eq!((asked.task.status(), asked.epoch, asked.orphaned), (TaskStatus::Running, 0, false));
    assert!(scene.rows("p").await[0].pause_requested);
    let claimed = scene.claim().await;
    assert_eq!(claimed.ended[0].task.status(), TaskStatus::Paused);
}

pub(super) async fn the_commit_that_ends_the_last_task_ends_the_plan(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b")).await;
    let claimed = scene.claim().await;
    scene.finishes(&claimed.tasks[0]).await;
    assert_eq!(scene.plan_status("p").await, PlanStatus::Running);
    let task = scene.does(&claimed.tasks[1], success(0)).await;
    scene.later(Millis::new(7));
    let commit = scene.decision(&task, success(1));
    let committed = scene.store.commit(commit).await.unwrap();
    assert_eq!(committed.plan, Some(PlanStatus::Completed));
    let row = scene.plan("p").await;
    assert_eq!((row.status, row.ended_at, row.counts.completed), (PlanStatus::Completed, Some(scene.now), 2));
}

pub(super) async fn a_plan_with_a_task_that_did_not_complete_is_failed(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("fails").task("a").task("b")).await;
    let claimed = scene.claim().await;
    scene.does(&claimed.tasks[0], fatal(0)).await;
    assert_eq!(scene.plan_status("fails").await, PlanStatus::Running);
    scene.finishes(&claimed.tasks[1]).await;
    assert_eq!(scene.plan_status("fails").await, PlanStatus::Failed);
    scene.submit(plan("is-cancelled").task("c")).await;
    let committed = scene.operator("c", Command::Cancel(ann())).await;
    assert_eq!(committed.plan, Some(PlanStatus::Failed));
}

pub(super) async fn a_paused_task_keeps_its_plan_open(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b")).await;
    scene.operator("a", Command::Pause(ann())).await;
    let task = scene.claim_one("b").await;
    scene.finishes(&task).await;
    assert_eq!(scene.plan_status("p").await, PlanStatus::Running);
    scene.operator("a", Command::Resume(ann())).await;
    let task = scene.claim_one("a").await;
    scene.finishes(&task).await;
    assert_eq!(scene.plan_status("p").await, PlanStatus::Completed);
}

pub(super) async fn a_task_that_pauses_gives_its_lease_back(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let task = scene.does(&task, Command::Pause(ann())).await;
    assert_eq!(scene.task("a").await.epoch, task.epoch);
    scene.does(&task, success(0)).await;
    assert_eq!((scene.status("a").await, scene.task("a").await.epoch), (TaskStatus::Paused, 0));
    scene.crash().await;
    assert!(!scene.task("a").await.orphaned);
    assert!(ids(&scene.claim().await).is_empty());
}

pub(super) async fn a_plan_can_be_paused_in_the_commit_that_fails_a_task(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b").max(1)).await;
    let task = scene.claim_one("a").await;
    let commit = Commit { plan: Some(PlanCommand::Pause), ..scene.decision(&task, fatal(0)) };
    let committed = scene.store.commit(commit).await.unwrap();
    assert_eq!(committed.plan, Some(PlanStatus::Paused));
    assert_eq!(scene.plan_status("p").await, PlanStatus::Paused);
    assert!(ids(&scene.claim().await).is_empty());
    scene.verb("p", PlanCommand::Resume).await;
    scene.claim_one("b").await;
}

pub(super) async fn a_pause_with_the_last_failure_still_ends_the_plan(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let commit = Commit { plan: Some(PlanCommand::Pause), ..scene.decision(&task, fatal(0)) };
    let committed = scene.store.commit(commit).await.unwrap();
    assert_eq!(committed.plan, Some(PlanStatus::Failed));
    assert_eq!(scene.plan_status("p").await, PlanStatus::Failed);
}

pub(super) async fn a_refused_plan_command_refuses_the_whole_commit(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b").max(1)).await;
    let task = scene.claim_one("a").await;
    scene.does(&task, fatal(0)).await;
    scene.verb("p", PlanCommand::Cancel).await;
    let before = scene.snapshot("p").await;
    let refused = scene.try_operator("a", retry(), Some(PlanCommand::Retry)).await;
    assert!(matches!(refused, Err(StoreError::Plan(_))), "{refused:?}");
    assert_eq!(scene.snapshot("p").await, before);
}

pub(super) async fn a_retried_task_reopens_its_ended_plan_running(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t")).await;
    let task = scene.claim_one("a").await;
    scene.does(&task, fatal(0)).await;
    let committed = scene.try_operator("a", retry(), Some(PlanCommand::Retry)).await.unwrap();
    assert_eq!(committed.plan, Some(PlanStatus::Running));
    let row = scene.plan("p").await;
    assert_eq!((row.status, row.ended_at, row.counts.pending), (PlanStatus::Running, None, 1));
    let task = scene.claim_one("a").await;
    scene.finishes(&task).await;
    assert_eq!(scene.plan_status("p").await, PlanStatus::Completed);
}

pub(super) async fn a_reset_task_reopens_its_ended_plan_ready(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    scene.does(&task, fatal(0)).await;
    let committed = scene.try_operator("a", retry(), Some(PlanCommand::Reset)).await.unwrap();
    assert_eq!(committed.plan, Some(PlanStatus::Ready));
    assert_eq!(scene.plan("p").await.ended_at, None);
    assert!(ids(&scene.claim().await).is_empty());
    scene.verb("p", PlanCommand::Start).await;
    scene.claim_one("a").await;
}

pub(super) async fn a_rollback_leaves_the_task_unheld_and_claimable(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t").task_of("b", "t").manual()).await;
    let task = scene.claim_one("a").await;
    let task = scene.does(&task, Command::Pause(ann())).await;
    scene.does(&task, success(0)).await;
    scene.operator("a", Command::Rollback(ann())).await;
    let asked = scene.task("a").await;
    assert_eq!((asked.task.status(), asked.epoch, asked.orphaned), (TaskStatus::RollingBack, 0, false));
    assert!(!scene.rows("p").await[0].interrupted);
    // A person asked for it, so that a manual plan has nothing to wait for; and its tenant was its own all along.
    let task = scene.claim_one("a").await;
    assert_eq!(task.claim_events.len(), 1);
    scene.finishes(&task).await;
    scene.claim_one("b").await;
}

pub(super) async fn positions_only_grow(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b")).await;
    let claimed = scene.claim().await;
    let mut last = None;
    for task in &claimed.tasks {
        let commit = scene.decision(task, success(0));
        let position = scene.store.commit(commit).await.unwrap().position;
        assert!(last.is_none_or(|last| position > last));
        last = Some(position);
    }
    scene.crash().await;
    let committed = scene.operator("a", Command::Cancel(ann())).await;
    assert!(last.is_some_and(|last| committed.position > last));
}

pub(super) async fn a_conflict_changes_nothing(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t")).await;
    let task = scene.claim_one("a").await;
    let stale = Commit {
        lease: LeaseChange::Release(Wake::Recovery),
        plan: Some(PlanCommand::Pause),
        ..scene.decision(&task, fatal(0))
    };
    let task = scene.does(&task, success(0)).await;
    let before = scene.snapshot("p").await;
    let conflict = scene.store.commit(stale).await;
    assert!(matches!(conflict, Err(StoreError::Conflict { .. })), "{conflict:?}");
    assert_eq!(scene.snapshot("p").await, before);
    scene.finishes(&task).await;
}

pub(super) async fn of_two_commits_made_at_once_on_one_version_one_is_taken(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let commits: Vec<_> = [success(0), failure(0, 1), Command::Cancel(ann()), Command::Pause(ann())]
        .into_iter()
        .map(|command| {
            let (store, commit) = (scene.store.clone(), scene.decision(&task, command));
            tokio::spawn(async move { store.commit(commit).await })
        })
        .collect();
    let mut taken = 0;
    for commit in commits {
        match commit.await.unwrap() {
            Ok(_) => taken += 1,
            Err(StoreError::Conflict { expected, .. }) => assert_eq!(expected, task.task.version()),
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(taken, 1);
    assert_eq!(scene.log("a").await.len() as u64, scene.task("a").await.task.version());
}

pub(super) async fn a_lease_can_be_given_back_without_an_event(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t")).await;
    let task = scene.claim_one("a").await;
    let task = scene.does(&task, failure(0, 1)).await;
    let due = task.task.next_due().expect("it waits for its second attempt");
    let parked = scene.parks(&task, Command::Wake, Wake::At(due)).await;
    assert_eq!(parked.task.version(), task.task.version());
    assert_eq!(scene.task("a").await.epoch, 0);
    assert_eq!(scene.claim().await.next_due, Some(due));
    scene.now = due;
    scene.claim_one("a").await;
}

pub(super) async fn a_task_that_rolls_back_by_itself_keeps_lease_slot_and_tenant(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t").task("b").max(1).rolls_back()).await;
    scene.submit(plan("q").task_of("c", "t")).await;
    let task = scene.claim_one("a").await;
    let task = scene.does(&task, fatal(0)).await;
    assert_eq!(scene.status("a").await, TaskStatus::RollingBack);
    assert_eq!(scene.task("a").await.epoch, task.epoch);
    assert!(ids(&scene.claim().await).is_empty());
    scene.finishes(&task).await;
    assert_eq!(ids(&scene.claim().await), ["b", "c"]);
}
