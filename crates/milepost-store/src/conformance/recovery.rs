//! After a crash: who had what, who may go on with it, and who may not any more.

use milepost_core::failure::ErrorType;
use milepost_core::plan::{PlanCommand, Recovery};
use milepost_core::task::{By, Command, Event, MAX_TAKEOVERS, PlanStatus, StageStatus, TaskStatus};
use milepost_core::time::Millis;
use std::sync::Arc;

use crate::error::StoreError;
use crate::model::{ClaimRequest, Commit, Holder, LeaseChange, PlanChange, Start, Submission, Wake};

use super::Harness;
use super::given::{Scene, ann, failure, fatal, ids, plan, plan_id, running_stage, success};

pub(super) async fn the_tasks_of_a_lost_owner_are_orphaned_and_shown_as_interrupted(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("held").task("parked").task("waits").max(2)).await;
    let claimed = scene.claim().await;
    scene.falls_asleep(&claimed.tasks[1]).await;
    assert!(!scene.task("held").await.orphaned);
    scene.crash().await;
    let orphan = scene.task("held").await;
    assert!(orphan.orphaned);
    assert_eq!((orphan.epoch, &orphan.task), (claimed.tasks[0].epoch, &claimed.tasks[0].task));
    assert!(!scene.task("parked").await.orphaned && !scene.task("waits").await.orphaned);
    let interrupted: Vec<bool> = scene.rows("p").await.iter().map(|row| row.interrupted).collect();
    assert_eq!(interrupted, [true, false, false]);
}

pub(super) async fn an_orphan_is_taken_over_with_an_interruption_that_names_the_lost_node(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let before = scene.claim_one("a").await;
    scene.crash().await;
    scene.later(Millis::from_secs(1));
    let request = ClaimRequest {
        node: "node-2".into(),
        only: None,
        plans: true,
        workflows: Arc::default(),
        recovery: Recovery::Auto,
        limit: 10,
        now: Some(scene.now),
    };
    let after = scene.store.claim(request).await.unwrap().tasks.remove(0);
    assert!(after.epoch > 0 && after.epoch != before.epoch && !after.orphaned);
    let Event::TaskInterrupted { node, taken_by, automatic, .. } = after.claim_events[0].event() else {
        panic!("{:?}", after.claim_events);
    };
    assert_eq!((&**node, taken_by.as_deref(), *automatic), ("node-1", Some("node-2"), true));
    assert_eq!((after.task.takeovers(), after.task.interrupted()), (1, false));
    assert_eq!(after.task.node().map(|node| &**node), Some("node-2"));
    assert!(!scene.rows("p").await[0].interrupted);
    let log = ["TASK_CREATED", "TASK_STARTED", "STAGE_STARTED", "TASK_INTERRUPTED", "STAGE_STARTED"];
    assert_eq!(scene.log("a").await, log);
    scene.finishes(&after).await;
    assert_eq!(scene.plan_status("p").await, PlanStatus::Completed);
}

pub(super) async fn an_attempt_cut_off_by_a_crash_is_repeated_under_its_number(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let task = scene.does(&task, success(0)).await;
    let due = scene.now + Millis::new(1) + super::given::BACKOFF;
    scene.parks(&task, failure(1, 1), Wake::At(due)).await;
    scene.now = due;
    scene.claim_one("a").await;
    scene.crash().await;
    let task = scene.claim_one("a").await;
    let states: Vec<_> = task.task.stages().map(|(_, state)| (state.status, state.attempt)).collect();
    assert_eq!(states, [(StageStatus::Completed, 1), (StageStatus::Running, 2)]);
}

pub(super) async fn an_orphan_of_a_manual_plan_is_left_alone_until_a_person_asks(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b").manual().max(1)).await;
    scene.claim_one("a").await;
    scene.crash().await;
    assert!(ids(&scene.claim().await).is_empty());
    assert!(scene.task("a").await.orphaned);
    let taken = scene.claim_only("p").await;
    assert_eq!(ids(&taken), ["a"]);
    let task = &taken.tasks[0];
    assert!(
        matches!(task.claim_events[0].event(), Event::TaskInterrupted { automatic: false, .. }),
        "{:?}",
        task.claim_events
    );
    assert_eq!(task.task.takeovers(), 0);
}

pub(super) async fn an_orphan_keeps_its_slot(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b").task("c").manual().max(2)).await;
    scene.claim_up_to(1).await;
    scene.crash().await;
    scene.verb("p", PlanCommand::Resume).await;
    assert_eq!(ids(&scene.claim().await), ["b"]);
    assert_eq!(scene.plan("p").await.counts.running, 2);
    assert_eq!(ids(&scene.claim_only("p").await), ["a"]);
}

pub(super) async fn what_was_interrupted_is_claimed_before_what_is_pending(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_with("urgent", |task| task.priority = 9).max(1)).await;
    scene.verb("p", PlanCommand::Pause).await;
    scene.submit(plan("q").task("a")).await;
    scene.claim_one("a").await;
    scene.verb("p", PlanCommand::Resume).await;
    scene.crash().await;
    assert_eq!(ids(&scene.claim_up_to(1).await), ["a"]);
    assert_eq!(ids(&scene.claim_up_to(1).await), ["urgent"]);
}

pub(super) async fn an_orphan_of_a_paused_plan_waits_for_the_resume(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    scene.claim_one("a").await;
    scene.verb("p", PlanCommand::Pause).await;
    scene.crash().await;
    assert!(ids(&scene.claim().await).is_empty());
    assert!(ids(&scene.claim_only("p").await).is_empty());
    scene.verb("p", PlanCommand::Resume).await;
    scene.claim_one("a").await;
}

pub(super) async fn a_task_released_for_recovery_is_taken_up_without_a_second_interruption(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let stop = Command::Interrupt { reason: "the node was stopped".to_owned() };
    scene.parks(&task, stop, Wake::Recovery).await;
    let released = scene.task("a").await;
    assert_eq!((released.epoch, released.orphaned), (0, false));
    assert!(scene.rows("p").await[0].interrupted);
    let task = scene.claim_one("a").await;
    assert_eq!((task.task.takeovers(), task.task.interrupted()), (0, false));
    let log = ["TASK_CREATED", "TASK_STARTED", "STAGE_STARTED", "TASK_INTERRUPTED", "TASK_STARTED", "STAGE_STARTED"];
    assert_eq!(scene.log("a").await, log);
    // A crash after that is another interruption.
    scene.crash().await;
    assert_eq!(scene.claim_one("a").await.task.takeovers(), 1);
}

pub(super) async fn a_task_released_for_recovery_in_a_manual_plan_waits_for_a_person(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").manual()).await;
    let task = scene.claim_one("a").await;
    let stop = Command::Interrupt { reason: "the node was stopped".to_owned() };
    scene.parks(&task, stop, Wake::Recovery).await;
    assert!(ids(&scene.claim().await).is_empty());
    scene.crash().await;
    assert!(ids(&scene.claim().await).is_empty());
    assert_eq!(ids(&scene.claim_only("p").await), ["a"]);
}

pub(super) async fn ten_takeovers_in_a_row_fail_the_task_and_end_its_plan(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task_of("a", "t").task_of("b", "t")).await;
    scene.operator("b", Command::Cancel(ann())).await;
    scene.claim_one("a").await;
    for _ in 1..MAX_TAKEOVERS {
        scene.crash().await;
        scene.claim_one("a").await;
    }
    scene.crash().await;
    let last = scene.claim().await;
    assert!(last.tasks.is_empty());
    assert_eq!(last.settled, [plan_id("p")]);
    let task = &last.ended[0].task;
    assert_eq!((task.status(), last.ended[0].epoch), (TaskStatus::Failed, 0));
    assert_eq!(task.failure().map(|failure| failure.cause.error_type), Some(ErrorType::CrashLoop));
    assert_eq!(scene.log("a").await.last(), Some(&"DEAD_LETTERED"));
    assert_eq!(scene.plan_status("p").await, PlanStatus::Failed);
    assert!(scene.locks().await.is_empty());
    scene.crash().await;
    assert!(ids(&scene.claim().await).is_empty());
}

pub(super) async fn a_lost_owner_can_commit_nothing(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b").max(1)).await;
    let task = scene.claim_one("a").await;
    let late = scene.decision(&task, success(0));
    let waiting = scene.task("b").await;
    let operator = Commit { holder: Holder::Operator, ..scene.decision(&waiting, Command::Cancel(ann())) };
    let old = scene.crash().await;
    for taken_over in [false, true] {
        if taken_over {
            scene.claim_one("a").await;
        }
        let before = scene.snapshot("p").await;
        for commit in [late.clone(), operator.clone()] {
            let lost = commit.holder == late.holder;
            match old.commit(commit).await {
                Err(StoreError::Fenced { .. }) => {}
                // A backend whose old handle is cut off from the data cannot know more.
                Err(StoreError::Unavailable { .. } | StoreError::Owned { .. }) => {}
                other => panic!("a lost owner's commit ({lost}): {other:?}"),
            }
        }
        assert_eq!(scene.snapshot("p").await, before);
    }
}

pub(super) async fn a_lost_owner_can_claim_nothing(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b").max(1)).await;
    scene.claim_one("a").await;
    let old = scene.crash().await;
    let before = scene.snapshot("p").await;
    let request = ClaimRequest {
        node: "node-1".into(),
        only: None,
        plans: true,
        workflows: Arc::default(),
        recovery: Recovery::Auto,
        limit: 10,
        now: Some(scene.now),
    };
    assert!(old.claim(request).await.is_err());
    let submission = Submission {
        plan: plan("q").task("c").0.into(),
        start: Start::AtOnce,
        resubmit: crate::model::Resubmit::Same,
        request: None,
        entries: Vec::new(),
        now: scene.now,
    };
    assert!(old.submit(submission).await.is_err());
    assert_eq!(scene.snapshot("p").await, before);
    assert_eq!(scene.store.plan(&plan_id("q")).await.unwrap(), None);
}

pub(super) async fn a_lease_of_a_lost_owner_is_worth_nothing_to_the_new_one(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let late = scene.decision(&task, success(0));
    scene.crash().await;
    let before = scene.snapshot("p").await;
    let fenced = scene.store.commit(late.clone()).await;
    assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
    assert_eq!(scene.snapshot("p").await, before);
    let taken = scene.claim_one("a").await;
    match scene.store.commit(late).await {
        Err(StoreError::Fenced { expected, found, .. }) => assert_eq!((expected, found), (task.epoch, taken.epoch)),
        other => panic!("{other:?}"),
    }
    scene.finishes(&taken).await;
}

pub(super) async fn a_restart_loses_nothing_that_was_acknowledged(harness: &dyn Harness) {
    let tasks = plan("p").task_of("a", "t").task("b").task("c").task("d").max(3);
    let mut scene = Scene::with(harness, tasks.clone()).await;
    let claimed = scene.claim().await;
    scene.does(&claimed.tasks[0], success(0)).await;
    scene.does(&claimed.tasks[1], fatal(0)).await;
    scene.falls_asleep(&claimed.tasks[2]).await;
    scene.operator("d", Command::Pause(ann())).await;
    scene.verb("p", PlanCommand::Pause).await;
    let mut tasks_before = Vec::new();
    for id in ["a", "b", "c", "d"] {
        tasks_before.push((scene.task(id).await.task, scene.log(id).await));
    }
    let (plan_before, locks_before) = (scene.plan("p").await, scene.store.locks().await.unwrap());
    scene.crash().await;
    for (id, before) in ["a", "b", "c", "d"].iter().zip(tasks_before) {
        assert_eq!((scene.task(id).await.task, scene.log(id).await), before);
    }
    assert_eq!(scene.plan("p").await, plan_before);
    assert_eq!(scene.store.locks().await.unwrap(), locks_before);
    assert_eq!(scene.store.definition(&plan_id("p")).await.unwrap(), Some(tasks.0));
}

pub(super) async fn parked_tasks_survive_a_restart_and_wake_on_time(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let task = scene.claim_one("a").await;
    let due = scene.falls_asleep(&task).await;
    scene.crash().await;
    assert_eq!(scene.claim().await.next_due, Some(due));
    scene.now = due - Millis::new(1);
    assert!(ids(&scene.claim().await).is_empty());
    scene.now = due;
    // It slept and lost nothing, so nobody has to be asked.
    let woken = scene.claim_one("a").await;
    assert!(!scene.log("a").await.contains(&"TASK_INTERRUPTED"));
    scene.crash().await;
    let late = Commit { lease: LeaseChange::Keep, ..scene.decision(&woken, failure(0, 2)) };
    assert!(matches!(scene.store.commit(late).await, Err(StoreError::Fenced { .. })));
}

pub(super) async fn an_interrupted_rollback_goes_on_after_a_restart(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").rolls_back()).await;
    let task = scene.claim_one("a").await;
    let task = scene.does(&task, success(0)).await;
    let task = scene.does(&task, fatal(1)).await;
    assert_eq!(task.task.status(), TaskStatus::RollingBack);
    scene.crash().await;
    assert!(scene.rows("p").await[0].interrupted);
    // Whatever has become of the plan meanwhile.
    scene.verb("p", PlanCommand::Cancel).await;
    let task = scene.claim_one("a").await;
    assert!(matches!(task.claim_events[0].event(), Event::TaskInterrupted { automatic: true, .. }));
    let task = scene.finishes(&task).await;
    assert_eq!((task.task.status(), scene.plan_status("p").await), (TaskStatus::RolledBack, PlanStatus::Cancelled));
}

pub(super) async fn nothing_of_a_manual_plan_starts_after_a_restart_until_a_person_says_so(harness: &dyn Harness) {
    for word in [PlanCommand::Resume, PlanCommand::Start, PlanCommand::RetryTasks] {
        let tasks = plan("p").task("sleeps").task("waits").task_of("held", "t").task_of("behind", "t").manual();
        let mut scene = Scene::with(harness, tasks.max(3)).await;
        assert!(!scene.plan("p").await.waits_for_person);
        let claimed = scene.claim_up_to(2).await;
        assert_eq!(ids(&claimed), ["sleeps", "waits"]);
        let due = scene.falls_asleep(&claimed.tasks[0]).await;
        scene.finishes(&claimed.tasks[1]).await;
        // While its node is there, it goes on by itself.
        scene.claim_one("held").await;
        scene.crash().await;
        scene.now = due;
        assert!(scene.plan("p").await.waits_for_person);
        for _ in 0..2 {
            let claimed = scene.claim().await;
            assert_eq!((ids(&claimed), claimed.next_due), (vec![], None));
            assert!(scene.plan("p").await.waits_for_person);
            for (id, waits) in [("sleeps", true), ("behind", true), ("held", true), ("waits", false)] {
                assert_eq!(scene.task(id).await.waits_for_person, waits, "{id}");
            }
        }
        let before = scene.plan("p").await;
        let after = scene.verb("p", word).await;
        assert_eq!((after.status, after.waits_for_person), (PlanStatus::Running, false));
        assert!(after.version > before.version && after.changed_by == Some(ann()), "{after:?}");
        // What lost its node waits for a word about itself.
        assert_eq!(ids(&scene.claim().await), ["sleeps"]);
        scene.operator_finds_it_interrupted("held", Command::Resume(ann())).await;
        let held = scene.claim_one("held").await;
        scene.finishes(&held).await;
        scene.claim_one("behind").await;
        scene.crash().await;
        scene.claim().await;
        assert!(scene.plan("p").await.waits_for_person);
    }
}

pub(super) async fn one_task_of_a_manual_plan_can_be_set_going_alone(harness: &dyn Harness) {
    let tasks = plan("p").task_of("first", "t").task_of("second", "t").task("fails").task("sleeps").task("other");
    let mut scene = Scene::with(harness, tasks.manual().max(10)).await;
    scene.operator("other", Command::Pause(ann())).await;
    scene.operator("first", Command::Pause(ann())).await;
    let claimed = scene.claim().await;
    assert_eq!(ids(&claimed), ["second", "fails", "sleeps"]);
    scene.does(&claimed.tasks[1], fatal(0)).await;
    scene.falls_asleep(&claimed.tasks[2]).await;
    scene.crash().await;
    scene.operator("first", Command::Resume(ann())).await;
    scene.crash().await;
    assert!(ids(&scene.claim().await).is_empty());
    // Its tenant is still with the one that lost its node.
    scene.operator("first", Command::LetGo(ann())).await;
    assert!(!scene.task("first").await.waits_for_person && scene.plan("p").await.waits_for_person);
    assert!(ids(&scene.claim().await).is_empty());
    scene.operator_finds_it_interrupted("second", Command::Cancel(ann())).await;
    let first = scene.claim_one("first").await;
    scene.try_operator("fails", super::given::retry(), Some(PlanCommand::Retry)).await.unwrap();
    let fails = scene.claim_one("fails").await;
    // It is set going, so it also goes on after a wait.
    let due = scene.falls_asleep(&fails).await;
    scene.now = due;
    let fails = scene.claim_one("fails").await;
    scene.finishes(&fails).await;
    scene.finishes(&first).await;
    assert!(ids(&scene.claim().await).is_empty());
    assert_eq!(scene.status("sleeps").await, TaskStatus::Running);
    scene.operator("other", Command::Resume(ann())).await;
    scene.crash().await;
    // Not claimed in time, it waits again.
    assert!(ids(&scene.claim().await).is_empty());
    assert!(scene.task("other").await.waits_for_person);
}

pub(super) async fn what_is_set_going_while_no_node_is_there_starts_with_the_next_one(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b").manual().max(1)).await;
    scene.crash().await;
    assert_eq!(scene.claim().await.tasks.len(), 1, "it was submitted before any node claimed");
    scene.crash().await;
    scene.verb("p", PlanCommand::Resume).await;
    assert!(!scene.plan("p").await.waits_for_person);
    // Whoever said so goes away, and so do others who only look.
    scene.crash().await;
    scene.crash().await;
    assert!(!scene.plan("p").await.waits_for_person);
    scene.operator_finds_it_interrupted("a", Command::Cancel(ann())).await;
    scene.claim_one("b").await;
    scene.crash().await;
    assert!(scene.plan("p").await.waits_for_person);
    assert!(ids(&scene.claim().await).is_empty());
}

pub(super) async fn a_manual_plan_submitted_again_to_start_at_once_goes_on(harness: &dyn Harness) {
    let tasks = || plan("p").task("a").task("b").manual().max(1);
    let mut scene = Scene::with(harness, tasks()).await;
    let a = scene.claim_one("a").await;
    scene.finishes(&a).await;
    scene.crash().await;
    assert!(ids(&scene.claim().await).is_empty());
    let looked = scene.submit_for_later(tasks()).await;
    assert!(looked.plan.waits_for_person);
    assert!(ids(&scene.claim().await).is_empty());
    assert!(!scene.submit(tasks()).await.plan.waits_for_person);
    scene.claim_one("b").await;
}

pub(super) async fn a_plan_that_does_not_say_follows_the_setting_of_the_node(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("silent").task("a").task("b").max(1)).await;
    scene.submit(plan("says").task("c").automatic()).await;
    let claimed = scene.claim().await;
    assert_eq!(ids(&claimed), ["a", "c"]);
    scene.crash().await;
    scene.recovery = Recovery::Manual;
    scene.claim_one("c").await;
    assert!(scene.plan("silent").await.waits_for_person && !scene.plan("says").await.waits_for_person);
    scene.verb("silent", PlanCommand::Resume).await;
    assert!(ids(&scene.claim().await).is_empty());
    scene.operator_finds_it_interrupted("a", Command::Cancel(ann())).await;
    scene.claim_one("b").await;
    scene.crash().await;
    scene.recovery = Recovery::Auto;
    assert_eq!(ids(&scene.claim().await), ["b", "c"]);
    assert!(!scene.plan("silent").await.waits_for_person);
}

pub(super) async fn a_task_that_is_set_going_waits_for_no_other_that_is_not(harness: &dyn Harness) {
    let tasks = ["lost", "one", "two", "wanted", "also"].iter().fold(plan("p"), |plan, id| plan.task_of(id, "t"));
    let mut scene = Scene::with(harness, tasks.manual().max(10)).await;
    // The others line up for their tenant.
    scene.claim_one("lost").await;
    scene.crash().await;
    scene.operator_finds_it_interrupted("lost", Command::Cancel(ann())).await;
    for id in ["wanted", "also"] {
        scene.operator(id, Command::LetGo(ann())).await;
    }
    let wanted = scene.claim_one("wanted").await;
    scene.finishes(&wanted).await;
    let also = scene.claim_one("also").await;
    scene.finishes(&also).await;
    assert!(ids(&scene.claim().await).is_empty());
    scene.verb("p", PlanCommand::Resume).await;
    let one = scene.claim_one("one").await;
    scene.finishes(&one).await;
    scene.claim_one("two").await;
}

pub(super) async fn a_claim_of_one_plan_leaves_the_words_for_others_alone(harness: &dyn Harness) {
    let manual = |id: &str, tasks: [&str; 2]| plan(id).task(tasks[0]).task(tasks[1]).manual().max(1);
    let mut scene = Scene::with(harness, manual("p", ["a", "b"])).await;
    scene.submit(manual("q", ["c", "d"])).await;
    for _ in 0..2 {
        assert_eq!(ids(&scene.claim_only("p").await), ["a"]);
        scene.crash().await;
    }
    // Whoever has run it is gone, and it was for as long as that.
    assert!(scene.plan("p").await.waits_for_person && !scene.plan("q").await.waits_for_person);
    let held = scene.claim_one("c").await;
    assert!(scene.plan("p").await.waits_for_person);
    scene.finishes(&held).await;
    scene.claim_one("d").await;
}

pub(super) async fn a_plan_that_is_retried_after_its_end_is_set_going(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").task("b").manual().max(1)).await;
    let held = scene.claim_one("a").await;
    scene.does(&held, fatal(0)).await;
    scene.crash().await;
    assert!(ids(&scene.claim().await).is_empty());
    scene.operator("b", Command::Cancel(ann())).await;
    assert_eq!(scene.plan_status("p").await, PlanStatus::Failed);
    scene.try_operator("a", super::given::retry(), Some(PlanCommand::Retry)).await.unwrap();
    assert!(!scene.plan("p").await.waits_for_person);
    scene.claim_one("a").await;
    scene.crash().await;
    assert!(ids(&scene.claim().await).is_empty());
    assert!(scene.plan("p").await.waits_for_person);
}

pub(super) async fn who_changed_a_plan_is_kept_while_its_status_is(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a")).await;
    let paused = scene.verb("p", PlanCommand::Pause).await;
    let by = By { who: "bob".to_owned(), why: None };
    for command in [PlanCommand::ChangeTasks, PlanCommand::RetryTasks] {
        let change = PlanChange { plan: plan_id("p"), command, by: by.clone(), expected: None, now: scene.now };
        scene.store.change_plan(change).await.unwrap();
    }
    let after = scene.plan("p").await;
    assert_eq!((after.version, after.changed_by), (paused.version + 2, Some(ann())));
}

pub(super) async fn a_rollback_that_sleeps_after_the_end_of_its_manual_plan_waits_for_a_person(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").manual()).await;
    let task = scene.claim_one("a").await;
    let task = scene.does(&task, success(0)).await;
    scene.does(&task, fatal(1)).await;
    assert_eq!(scene.plan_status("p").await, PlanStatus::Failed);
    scene.operator("a", Command::Rollback(ann())).await;
    let task = scene.claim_one("a").await;
    let due = scene.now + Millis::new(1) + super::given::BACKOFF;
    let (stage, attempt) = running_stage(&task.task).expect("it is being undone");
    scene.parks(&task, failure(stage, attempt), Wake::At(due)).await;
    scene.crash().await;
    for now in [scene.now, due] {
        scene.now = now;
        let claimed = scene.claim().await;
        assert_eq!((ids(&claimed), claimed.next_due), (vec![], None));
    }
    assert!(scene.task("a").await.waits_for_person);
    let task = scene.claim_only("p").await.tasks.remove(0);
    assert_eq!(scene.finishes(&task).await.task.status(), TaskStatus::RolledBack);
}

/// In its own plan, and in others that come after plans of which nothing may start.
pub(super) async fn a_rollback_that_is_set_going_waits_for_no_other_that_is_not(harness: &dyn Harness) {
    let held: Vec<String> = (0..20).map(|n| format!("held-{n}")).collect();
    let tasks = held.iter().fold(plan("p"), |plan, id| plan.task(id)).task("wanted");
    let mut scene = Scene::with(harness, tasks.manual().max(1)).await;
    scene.submit(plan("q").task("held").manual()).await;
    scene.submit(plan("r").task("auto").automatic()).await;
    for _ in 0..=held.len() {
        for task in scene.claim().await.tasks {
            scene.does(&task, fatal(0)).await;
        }
    }
    for id in held.iter().map(String::as_str).chain(["held"]) {
        scene.operator(id, Command::Rollback(ann())).await;
    }
    scene.crash().await;
    assert!(ids(&scene.claim().await).is_empty());
    scene.operator("auto", Command::Rollback(ann())).await;
    let auto = scene.claim_up_to(1).await;
    assert_eq!(ids(&auto), ["auto"]);
    scene.finishes(&auto.tasks[0]).await;
    scene.operator("wanted", Command::Rollback(ann())).await;
    let wanted = scene.claim_one("wanted").await;
    scene.finishes(&wanted).await;
    assert!(ids(&scene.claim().await).is_empty());
    assert_eq!(ids(&scene.claim_only("q").await), ["held"]);
}

pub(super) async fn a_claim_of_one_plan_uses_its_words_up_though_its_node_cannot_run_it(harness: &dyn Harness) {
    let mut scene = Scene::with(harness, plan("p").task("a").manual()).await;
    scene.plans = false;
    assert!(ids(&scene.claim_only("p").await).is_empty());
    scene.plans = true;
    scene.crash().await;
    assert!(scene.plan("p").await.waits_for_person);
    assert!(ids(&scene.claim().await).is_empty());
}
