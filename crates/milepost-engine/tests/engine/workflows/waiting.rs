//! Sleeps and signals: they survive the node, and take up nothing while they wait.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::failure::{ErrorType, Failure};
use milepost_core::task::{StageStatus, TaskStatus};
use milepost_core::time::Millis;
use milepost_engine::Verb;
use milepost_engine::workflow::{Run, Workflow};
use milepost_store::{Resubmit, Start};
use serde_json::{Value, json};

use crate::support::{DAWN, Diary, Flow, Node, World, error_type, flow, of_task, stage, task_id};

/// Long enough to give the lease back, and short enough for what bounds a test's waits.
const LONG: Duration = Duration::from_secs(40 * 60);

fn sleeper(diary: &Diary, length: Duration) -> Flow {
    let diary = diary.clone();
    flow("sleeper", move |ctx, _| {
        let diary = diary.clone();
        async move {
            ctx.stage("before").run(|| async { diary.noted("before") }).await?;
            ctx.sleep("night", length).await?;
            ctx.stage("after").run(|| async { diary.noted("after") }).await?;
            Ok(json!("awake"))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_sleep_ends_at_its_time_and_never_before() {
    for length in [0, 1, 29_000, 31_000, 2_400_000] {
        let (world, diary) = (World::new(), Diary::default());
        let sleeper = sleeper(&diary, Duration::from_millis(length));
        let node = world.node(sleeper.registry());
        let begun = world.clock.now();
        assert_eq!(node.flow(&sleeper, "w", Value::Null).await, Ok(json!("awake")));
        let slept = world.clock.now().since(begun);
        assert!((length..length + 1000).contains(&slept.get()), "{slept} for {length}");
        assert_eq!(diary.lines(), ["before", "after"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_workflow_whose_time_is_nearly_up_keeps_its_lease_though_it_sleeps_for_longer() {
    let (world, diary) = (World::new(), Diary::default());
    let sleeper = sleeper(&diary, LONG);
    let node = world.node(sleeper.registry());
    let mut run = Run::new(sleeper.reference(), task_id("w"), Value::Null);
    run.settings.task_timeout = Some(Millis::from_secs(10));
    node.engine.submit(Arc::new(run.plan()), Start::AtOnce, Resubmit::Same).await.expect("an accepted run");
    node.until("w", |task| task.next_due().is_some()).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let lease = node.stored("w").await.epoch;
    assert!(lease > 0, "its lease was given back");
    node.ended("w").await;
    assert_eq!(node.status("w").await, TaskStatus::Failed);
    assert_eq!(diary.lines(), ["before"]);
}

#[tokio::test(start_paused = true)]
async fn a_sleep_without_end_parks_and_can_still_be_read_and_cancelled() {
    let (world, diary) = (World::new(), Diary::default());
    let sleeper = sleeper(&diary, Duration::MAX);
    let node = world.node(sleeper.registry());
    node.begin(&sleeper, "w", Value::Null).await;
    node.until("w", |task| task.next_due().is_some()).await;
    node.idle().await;
    node.stop().await;

    let world = world.crashed();
    let node = world.node(sleeper.registry());
    assert_eq!(node.status("w").await, TaskStatus::Running);
    node.does(of_task("w"), Verb::Cancel).await;
    assert_eq!(node.status("w").await, TaskStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_long_sleep_gives_the_lease_back_and_outlives_its_node() {
    let (world, diary) = (World::new(), Diary::default());
    let sleeper = sleeper(&diary, LONG);
    let node = world.node(sleeper.registry());
    node.begin(&sleeper, "w", Value::Null).await;
    node.until("w", |task| task.next_due().is_some()).await;
    node.idle().await;
    let due = DAWN + Millis::from_secs(40 * 60);
    assert!(node.task("w").await.next_due().unwrap() >= due);
    node.stop().await;

    let world = world.crashed();
    let node = world.node(sleeper.registry());
    assert_eq!(node.outcome("w").await, Ok(json!("awake")));
    assert!(world.clock.now() >= due);
    assert_eq!(diary.lines(), ["before", "after"]);
    // Nobody's node went away: nobody had it.
    assert_eq!(node.count("w", "TASK_INTERRUPTED").await, 0);
}

/// Waits for two approvals, the second one with a deadline.
fn approval() -> Flow {
    flow("approval", |ctx, _| async move {
        let first: String = ctx.signal("approved").await?;
        let second = ctx.signal::<String>("approved").deadline(LONG).await;
        Ok(match second {
            Ok(second) => json!([first, second]),
            Err(failure) => json!([first, failure.error_type]),
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_signal_that_comes_early_is_kept_and_each_is_heard_once_and_in_order() {
    let (world, approval) = (World::new(), approval());
    let node = world.node(approval.registry());
    node.begin(&approval, "w", Value::Null).await;
    node.signal("w", "other", json!("nobody asks for this")).await;
    node.signal("w", "approved", json!("ann")).await;
    node.signal("w", "approved", json!("ben")).await;
    assert_eq!(node.outcome("w").await, Ok(json!(["ann", "ben"])));
}

#[tokio::test(start_paused = true)]
async fn a_signal_wakes_a_workflow_that_nobody_holds_and_outlives_a_crash() {
    let (world, approval) = (World::new(), approval());
    let node = world.node(approval.registry());
    node.begin(&approval, "w", Value::Null).await;
    node.until("w", |task| task.stages().len() == 1).await;
    node.idle().await;
    node.signal("w", "approved", json!("ann")).await;
    node.until("w", |task| task.stages().len() == 2).await;

    let world = world.crashed();
    let node = world.node(approval.registry());
    node.signal("w", "approved", json!("ben")).await;
    assert_eq!(node.outcome("w").await, Ok(json!(["ann", "ben"])));
}

#[tokio::test(start_paused = true)]
async fn a_signal_that_does_not_come_by_its_deadline_is_a_failure_that_the_function_can_handle() {
    let (world, approval) = (World::new(), approval());
    let node = world.node(approval.registry());
    node.begin(&approval, "w", Value::Null).await;
    node.signal("w", "approved", json!("ann")).await;
    let begun = world.clock.now();
    assert_eq!(node.outcome("w").await, Ok(json!(["ann", "TIMEOUT"])));
    assert!(world.clock.now().since(begun) >= Millis::from_secs(40 * 60));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_workflow_is_paused_at_once_and_hears_on_its_return_what_came_meanwhile() {
    let (world, approval) = (World::new(), approval());
    let node = world.node(approval.registry());
    node.begin(&approval, "w", Value::Null).await;
    node.until("w", |task| task.stages().len() == 1).await;
    node.does(of_task("w"), Verb::Pause).await;
    assert_eq!(node.status("w").await, TaskStatus::Paused);
    node.signal("w", "approved", json!("ann")).await;
    node.signal("w", "approved", json!("ben")).await;
    let task = node.task("w").await;
    assert_eq!((task.status(), stage(&task, "approved")), (TaskStatus::Paused, StageStatus::Running));
    node.does(of_task("w"), Verb::Resume).await;
    assert_eq!(node.outcome("w").await, Ok(json!(["ann", "ben"])));
}

#[tokio::test(start_paused = true)]
async fn a_signal_is_refused_by_what_has_ended_and_by_a_plan_of_stages() {
    let world = World::new();
    let quick = flow("quick", |_, _| async { Ok(Value::Null) });
    let node = world.node(quick.registry().with("noop", crate::support::Journal::default().kind()));
    node.flow(&quick, "w", Value::Null).await.unwrap();
    let by = milepost_core::task::By::new("tester");
    let name = milepost_core::id::StageName::parse("s").unwrap();
    let id = crate::support::task_id("w");
    let refused = node.engine.signal(&id, name.clone(), Value::Null, by.clone()).await.unwrap_err();
    assert!(refused.to_string().contains("cannot signal task w: it is COMPLETED"), "{refused}");
    node.run("{plan: p, stages: [{name: a, uses: noop}], tasks: [{id: t}]}").await;
    let refused = node.engine.signal(&crate::support::task_id("t"), name, Value::Null, by).await.unwrap_err();
    assert!(refused.to_string().contains("only a workflow"), "{refused}");
}

/// Begins a run that has no more time than this.
async fn begin_within(node: &Node, flow: &Flow, limit: Millis) {
    let mut run = Run::new(flow.reference(), task_id("w"), Value::Null);
    run.settings.task_timeout = Some(limit);
    node.engine.submit(Arc::new(run.plan()), Start::AtOnce, Resubmit::Same).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_task_timeout_ends_a_sleep_that_is_longer() {
    let (world, diary) = (World::new(), Diary::default());
    let sleeper = sleeper(&diary, LONG);
    let node = world.node(sleeper.registry());
    begin_within(&node, &sleeper, Millis::from_secs(60)).await;
    let task = node.ended_task("w").await;
    assert_eq!((task.status(), error_type(&task)), (TaskStatus::Failed, ErrorType::Timeout));
    assert!(world.clock.now().since(DAWN) < Millis::from_secs(62), "at its time");
}

#[tokio::test(start_paused = true)]
async fn a_task_timeout_ends_a_wait_and_undoes_what_was_done() {
    let (world, diary) = (World::new(), Diary::default());
    let stuck = flow("stuck", {
        let diary = diary.clone();
        move |ctx, _| {
            let diary = diary.clone();
            async move {
                let undo = {
                    let diary = diary.clone();
                    move || {
                        let diary = diary.clone();
                        async move { diary.noted("undo") }
                    }
                };
                ctx.stage("a").rollback(undo).run(|| async { diary.noted("a") }).await?;
                ctx.signal::<Value>("never").await
            }
        }
    });
    let node = world.node(stuck.registry());
    begin_within(&node, &stuck, Millis::from_secs(600)).await;
    assert!(node.outcome("w").await.unwrap_err().contains("task_timeout of 10m"));
    assert_eq!(diary.lines(), ["a", "undo"]);
    assert_eq!(error_type(&node.task("w").await), ErrorType::Timeout);
}

#[tokio::test(start_paused = true)]
async fn progress_is_of_the_whole_workflow_and_stays_when_a_stage_ends() {
    let world = World::new();
    let tells = flow("tells", |ctx, _| async move {
        ctx.progress(3, 4);
        ctx.stage("a").run(|| async { Ok::<_, Failure>(()) }).await?;
        ctx.signal::<Value>("go").await
    });
    let node = world.node(tells.registry());
    node.begin(&tells, "w", Value::Null).await;
    crate::support::bounded("progress", async {
        while node.stored("w").await.progress != Some((3, 4)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    node.signal("w", "go", json!(1)).await;
    assert_eq!(node.outcome("w").await, Ok(json!(1)));
}
