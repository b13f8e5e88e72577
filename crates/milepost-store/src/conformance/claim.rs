//! Taking tasks on: what, in which order, how many, and when.

use std::collections::BTreeSet;
use std::sync::Arc;

use milepost_core::plan::{PlanCommand, WorkflowRef};
use milepost_core::task::{Command, PlanStatus, Record, TaskStatus};
use milepost_core::time::Millis;

use crate::clock::wall_clock;
use crate::error::StoreError;
use crate::model::{ClaimRequest, Wake};

use super::Harness;
use super::given::{BACKOFF, Scene, ann, failure, fatal, ids, plan, plan_id, stage, success};

pub(super) async fn a_claim_takes_pending_tasks_of_running_plans_only(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    assert!(ids(&scene.claim().await).is_empty());
    scene.submit_for_later(plan("ready").task("a")).await;
    scene.submit(plan("running").task("b")).await;
    scene.submit(plan("paused").task("c")).await;
    scene.verb("paused", PlanCommand::Pause).await;
    assert_eq!(ids(&scene.claim().await), ["b"]);
    scene.verb("ready", PlanCommand::Start).await;
    assert_eq!(ids(&scene.claim().await), ["a"]);
}

pub(super) async fn a_claim_commits_the_start_of_the_task_and_of_every_ready_stage(harness: &dyn Harness) {
    let stages = vec![stage("left", &[]), stage("right", &[]), stage("both", &[0, 1])];
    let mut scene = Scene::with(harness, plan("p").task("a").stages(stages)).await;
    scene.later(Millis::new(5));
    let claimed = scene.claim_one("a").await;
    let log = ["TASK_CREATED", "TASK_STARTED", "STAGE_STARTED", "STAGE_STARTED"];
    assert_eq!(scene.log("a").await, log);
    let added: Vec<_> = claimed.claim_events.iter().map(|record| record.event().kind()).collect();
    assert_eq!(added, log[1..]);
    assert!(claimed.epoch > 0 && !claimed.orphaned);
    assert_eq!((claimed.task.version(), claimed.task.status()), (4, TaskStatus::Running));
    assert_eq!(claimed.task.node().map(|node| &**node), Some("node-1"));
    let stored = scene.task("a").await;
    assert_eq!((stored.task, stored.epoch, stored.key), (claimed.task, claimed.epoch, claimed.key));
    assert!(stored.claim_events.is_empty());
    let row = scene.rows("p").await.remove(0);
    assert_eq!((row.status, row.started_at, row.interrupted), (TaskStatus::Running, Some(scene.now), false));
}

pub(super) async fn tasks_are_claimed_by_plan_then_priority_then_position(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    let mixed = |id: &str, names: [&str; 4]| {
        let priorities = [0, 7, -3, 7];
        names
            .iter()
            .zip(priorities)
            .fold(plan(id), |plan, (name, priority)| plan.task_with(name, |task| task.priority = priority))
    };
    scene.submit(mixed("z", ["z0", "z1", "z2", "z3"])).await;
    scene.submit(mixed("a", ["a0", "a1", "a2", "a3"])).await;
    assert_eq!(ids(&scene.claim().await), ["z1", "z3", "z0", "z2", "a1", "a3", "a0", "a2"]);
}

/// Whether it is new, asleep or was left behind.
pub(super) async fn a_workflow_goes_only_to_a_node_that_knows_it_in_this_version(harness: &dyn Harness) {
    let version = |version| WorkflowRef { name: "checkout".into(), version };
    let mut scene = Scene::with(harness, plan("w").task("w").workflow(version(1))).await;
    scene.submit(plan("p").task("p")).await;
    scene.workflows = [version(2)].into();
    scene.plans = false;
    assert!(ids(&scene.claim().await).is_empty());
    scene.plans = true;
    assert_eq!(ids(&scene.claim().await), ["p"]);
    assert!(ids(&scene.claim_only("w").await).is_empty());

    scene.workflows = [version(1), version(2)].into();
    let held = scene.claim_one("w").await;
    let due = scene.now + BACKOFF;
    let woken = Command::Remember(vec![("now".to_owned(), serde_json::Value::Null)]);
    scene.parks(&held, woken, Wake::At(due)).await;
    scene.now = due;
    scene.workflows = Arc::default();
    let nothing = scene.claim().await;
    assert_eq!((ids(&nothing).len(), nothing.next_due), (0, None));

    scene.workflows = [version(1)].into();
    scene.claim_one("w").await;
    scene.crash().await;
    scene.workflows = [version(2)].into();
    assert_eq!(ids(&scene.claim().await), ["p"]);
    scene.workflows = [version(1)].into();
    scene.claim_one("w").await;
}

pub(super) async fn a_claim_takes_no_more_than_its_limit(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b").task("c").task("d").task("e")).await;
    assert!(ids(&scene.claim_up_to(0).await).is_empty());
    assert_eq!(ids(&scene.claim_up_to(2).await), ["a", "b"]);
    assert_eq!(ids(&scene.claim_up_to(2).await), ["c", "d"]);
    assert_eq!(ids(&scene.claim_up_to(2).await), ["e"]);
    // What ends in being claimed counts as well.
    scene.submit(plan("q").task("f").task("g").task("h").stages(vec![])).await;
    assert_eq!(scene.claim_up_to(2).await.ended.len(), 2);
    assert_eq!(scene.claim_up_to(2).await.ended.len(), 1);
}

pub(super) async fn a_claimed_task_is_not_claimed_again(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    scene.claim_one("a").await;
    scene.later(Millis::from_secs(3600));
    assert!(ids(&scene.claim().await).is_empty());
    assert!(ids(&scene.claim_only("p").await).is_empty());
}

pub(super) async fn claims_made_at_once_never_share_a_task(harness: &dyn Harness) {
    let tasks = (0..40).fold(plan("p"), |plan, n| plan.task_of(&format!("t{n}"), &format!("tenant-{}", n % 20)));
    let scene = Scene::with(harness, tasks.max(15)).await;
    let claims: Vec<_> = (0..8)
        .map(|n| {
            let (store, now) = (scene.store.clone(), scene.now);
            let request = ClaimRequest {
                node: format!("node-{n}").into(),
                only: None,
                plans: true,
                workflows: Arc::default(),
                recovery: milepost_core::plan::Recovery::Auto,
                limit: 3,
                now: Some(now),
            };
            tokio::spawn(async move { store.claim(request).await.expect("a claim of what is there") })
        })
        .collect();
    let (mut taken, mut tenants) = (BTreeSet::new(), BTreeSet::new());
    for claim in claims {
        for stored in claim.await.unwrap().tasks {
            assert!(taken.insert(stored.key.id));
            assert!(tenants.insert(stored.task.spec().tenant.clone()));
        }
    }
    assert_eq!((taken.len(), scene.plan("p").await.counts.running), (15, 15));
}

pub(super) async fn a_plan_never_exceeds_its_max_concurrency(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, (0..9).fold(plan("p"), |plan, n| plan.task(&format!("t{n}"))).max(3)).await;
    let claimed = scene.claim().await;
    assert_eq!(ids(&claimed), ["t0", "t1", "t2"]);
    assert!(ids(&scene.claim().await).is_empty());
    scene.finishes(&claimed.tasks[1]).await;
    assert_eq!(ids(&scene.claim().await), ["t3"]);
    assert_eq!(scene.plan("p").await.counts.running, 3);
}

pub(super) async fn a_full_plan_does_not_hold_up_the_next(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b").max(1)).await;
    scene.submit(plan("q").task("c")).await;
    assert_eq!(ids(&scene.claim().await), ["a", "c"]);
}

pub(super) async fn an_ended_or_paused_task_gives_its_slot_back(harness: &dyn Harness) {
    let tasks = ["completes", "fails", "is-cancelled", "pauses", "last"];
    let mut scene = Scene::with(harness, tasks.iter().fold(plan("p"), |plan, id| plan.task(id)).max(1)).await;
    let task = scene.claim_one("completes").await;
    scene.finishes(&task).await;
    let task = scene.claim_one("fails").await;
    scene.does(&task, fatal(0)).await;
    let task = scene.claim_one("is-cancelled").await;
    scene.does(&task, Command::Cancel(ann())).await;
    let task = scene.claim_one("pauses").await;
    let task = scene.does(&task, Command::Pause(ann())).await;
    assert!(ids(&scene.claim().await).is_empty(), "it pauses at the end of its stage");
    scene.does(&task, success(0)).await;
    scene.claim_one("last").await;
}

pub(super) async fn a_task_without_stages_ends_in_its_claim_and_ends_its_plan(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t").task_of("b", "t").stages(vec![]).max(1)).await;
    let claimed = scene.claim().await;
    assert!(claimed.tasks.is_empty());
    let ended: Vec<_> =
        claimed.ended.iter().map(|task| (task.key.id.as_str(), task.task.status(), task.epoch)).collect();
    assert_eq!(ended, [("a", TaskStatus::Completed, 0), ("b", TaskStatus::Completed, 0)]);
    assert_eq!(claimed.settled, [plan_id("p")]);
    assert_eq!(scene.log("a").await, ["TASK_CREATED", "TASK_STARTED", "TASK_COMPLETED"]);
    let row = scene.plan("p").await;
    assert_eq!((row.status, row.ended_at), (PlanStatus::Completed, Some(scene.now)));
    assert!(scene.locks().await.is_empty());
}

pub(super) async fn a_claim_for_one_plan_takes_nothing_of_others(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    scene.submit(plan("q").task("b")).await;
    scene.submit(plan("r").task("c")).await;
    let task = scene.claim_only("p").await.tasks.remove(0);
    let due = scene.falls_asleep(&task).await;
    assert_eq!(scene.claim_up_to(0).await.next_due, Some(due));
    scene.now = due;
    let claimed = scene.claim_only("q").await;
    assert_eq!((ids(&claimed), claimed.next_due), (vec!["b"], None));
    assert_eq!(ids(&scene.claim_only("p").await), ["a"]);
    assert_eq!(ids(&scene.claim().await), ["c"]);
}

pub(super) async fn a_claim_for_an_unknown_plan_finds_nothing(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let claimed = scene.try_claim(Some("nowhere"), 10).await;
    assert!(matches!(claimed, Err(StoreError::NotFound { what: "plan", .. })), "{claimed:?}");
}

pub(super) async fn a_parked_task_is_claimed_when_it_is_due_and_not_before(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let due = scene.falls_asleep(&task).await;
    let parked = scene.task("a").await;
    assert_eq!((parked.task.status(), parked.epoch, parked.orphaned), (TaskStatus::Running, 0, false));
    assert!(!scene.rows("p").await[0].interrupted);
    scene.now = due - Millis::new(1);
    assert!(ids(&scene.claim().await).is_empty());
    assert!(ids(&scene.claim_only("p").await).is_empty());
    scene.now = due;
    let woken = scene.claim_one("a").await;
    assert!(woken.epoch > 0);
    let log = ["TASK_CREATED", "TASK_STARTED", "STAGE_STARTED", "RETRY_SCHEDULED", "STAGE_STARTED"];
    assert_eq!(scene.log("a").await, log);
    assert_eq!(woken.task.stage(0).1.attempt, 2);
}

pub(super) async fn a_parked_task_keeps_its_slot(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b").max(1)).await;
    let task = scene.claim_one("a").await;
    scene.falls_asleep(&task).await;
    assert!(ids(&scene.claim().await).is_empty());
}

pub(super) async fn a_parked_task_waits_while_its_plan_is_paused(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let due = scene.falls_asleep(&task).await;
    scene.verb("p", PlanCommand::Pause).await;
    assert_eq!(scene.claim().await.next_due, None);
    scene.now = due;
    assert!(ids(&scene.claim().await).is_empty());
    assert!(ids(&scene.claim_only("p").await).is_empty());
    scene.verb("p", PlanCommand::Resume).await;
    scene.claim_one("a").await;
}

pub(super) async fn a_claim_says_when_the_next_parked_task_is_due(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b").task("c")).await;
    let claimed = scene.claim().await;
    assert_eq!(claimed.next_due, None);
    let first = scene.falls_asleep(&claimed.tasks[1]).await;
    let second = scene.falls_asleep(&claimed.tasks[0]).await;
    assert!(first < second);
    assert_eq!(scene.claim().await.next_due, Some(first));
    scene.now = first;
    let woken = scene.claim().await;
    assert_eq!((ids(&woken), woken.next_due), (vec!["b"], Some(second)));
}

/// The scene plays long ago, and the clocks of stores and of this machine are of today.
pub(super) async fn a_claim_that_is_told_no_time_goes_by_the_stores_clock(harness: &dyn Harness) {
    let (hour, minute) = (Millis::from_secs(3600), Millis::from_secs(60));
    let mut scene = Scene::with(harness, plan("p").task("a").task("b").max(2)).await;
    let held = scene.claim().await.tasks;
    let today = wall_clock();
    for (task, due) in held.iter().zip([today - hour, today + hour]) {
        scene.parks(task, failure(0, 1), Wake::At(due)).await;
    }
    assert!(ids(&scene.claim().await).is_empty(), "long ago nothing was due");
    let request = ClaimRequest {
        node: "node-1".into(),
        only: None,
        plans: true,
        workflows: Arc::default(),
        recovery: milepost_core::plan::Recovery::Auto,
        limit: 10,
        now: None,
    };
    let claimed = scene.store.claim(request).await.unwrap();
    assert_eq!((ids(&claimed), claimed.next_due), (vec!["a"], Some(today + hour)));
    assert!(claimed.now.since(today) < minute && today.since(claimed.now) < minute, "{}, {today}", claimed.now);
    let events = &claimed.tasks[0].claim_events;
    let is_of_then = |record: &Record| record.at() <= claimed.now && claimed.now.since(record.at()) < minute;
    assert!(!events.is_empty() && events.iter().all(is_of_then), "{events:?}");
}

pub(super) async fn a_claim_with_nothing_due_takes_the_lease_and_adds_no_event(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    // Woken before its stage is due, as for a task's own time limit.
    let early = scene.now + Millis::new(100);
    let parked = scene.parks(&task, super::given::failure(0, 1), Wake::At(early)).await;
    scene.now = early;
    let woken = scene.claim_one("a").await;
    assert!(woken.epoch > 0 && woken.claim_events.is_empty());
    assert_eq!(woken.task, parked.task);
    assert_eq!(scene.task("a").await.epoch, woken.epoch);
    assert!(ids(&scene.claim().await).is_empty());
    scene.later(BACKOFF);
    let task = scene.does(&woken, Command::Wake).await;
    assert_eq!(task.task.stage(0).1.attempt, 2);
}

pub(super) async fn what_is_due_is_claimed_before_what_is_pending(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    scene.submit(plan("q").task_with("b", |task| task.priority = 9)).await;
    scene.now = scene.falls_asleep(&task).await;
    assert_eq!(ids(&scene.claim_up_to(1).await), ["a"]);
    assert_eq!(ids(&scene.claim_up_to(1).await), ["b"]);
}

pub(super) async fn a_rollback_that_nobody_holds_is_claimed_whatever_the_plans_status(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    scene.does(&task, fatal(0)).await;
    assert_eq!(scene.plan_status("p").await, PlanStatus::Failed);
    scene.operator("a", Command::Rollback(ann())).await;
    let task = scene.claim_one("a").await;
    assert_eq!((task.task.status(), scene.plan_status("p").await), (TaskStatus::RollingBack, PlanStatus::Failed));
    let task = scene.finishes(&task).await;
    assert_eq!((task.task.status(), scene.plan_status("p").await), (TaskStatus::RolledBack, PlanStatus::Failed));
}

pub(super) async fn a_rollback_asked_for_by_an_operator_waits_for_a_slot(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b").task("c").max(1)).await;
    for id in ["a", "b"] {
        let task = scene.claim_one(id).await;
        scene.does(&task, fatal(0)).await;
    }
    scene.operator("a", Command::Rollback(ann())).await;
    scene.operator("b", Command::Rollback(ann())).await;
    let first = scene.claim_one("a").await;
    assert!(ids(&scene.claim().await).is_empty());
    scene.finishes(&first).await;
    let second = scene.claim_one("b").await;
    scene.finishes(&second).await;
    scene.claim_one("c").await;
}

pub(super) async fn a_rollback_asked_for_by_somebody_whose_clock_is_ahead_is_due_when_its_time_comes(
    harness: &dyn Harness,
) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b").max(2)).await;
    let right = scene.claim_up_to(1).await.tasks.remove(0);
    scene.does(&right, fatal(0)).await;
    let now = scene.now;
    scene.later(BACKOFF);
    scene.operator("a", Command::Rollback(ann())).await;
    let asked_at = std::mem::replace(&mut scene.now, now);
    let claimed = scene.claim().await;
    assert_eq!((ids(&claimed), claimed.next_due), (vec!["b"], Some(asked_at)));
    scene.now = asked_at;
    scene.claim_one("a").await;
}
