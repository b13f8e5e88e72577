//! Workflows that run workflows.

use std::sync::Arc;

use futures::future::try_join_all;
use milepost_core::failure::{ErrorType, Failure};
use milepost_core::plan::PlanCommand;
use milepost_core::task::{By, Command, TaskStatus, decide};
use milepost_engine::{Registry, Verb};
use milepost_store::{Commit, Holder, LeaseChange, PlanChange, Store, Wake};
use serde_json::{Value, json};

use crate::support::{Diary, Flow, RETRY, World, flow, of_plan, of_task, plan_id, task_id};

fn both(one: &Flow, two: &Flow) -> Registry {
    one.registry().with_workflow(Arc::new(two.clone()))
}

/// The child waits for good.
fn one_that_waits_and_its_parent() -> (Flow, Flow) {
    let waits = flow("waits", |ctx, _| async move { ctx.signal::<Value>("never").await });
    let child = waits.clone();
    let parent = flow("parent", move |ctx, _| {
        let child = child.clone();
        async move { ctx.child("part", || child, Value::Null).await }
    });
    (waits, parent)
}

/// Doubles its input; fails on a negative one.
fn double(diary: &Diary) -> Flow {
    let diary = diary.clone();
    flow("double", move |ctx, input| {
        let diary = diary.clone();
        async move {
            let number = input.as_i64().unwrap();
            let work = || async {
                diary.note(format!("double {number}"));
                if number < 0 { Err(Failure::fatal(ErrorType::Business, "negative")) } else { Ok(number * 2) }
            };
            Ok(json!(ctx.stage("double").run(work).await?))
        }
    })
}

/// The sum of the doubles of 0 to its input.
fn fan_out(double: &Flow) -> Flow {
    let double = double.clone();
    flow("fan-out", move |ctx, input| {
        let double = double.clone();
        async move {
            let children = (0..input.as_i64().unwrap()).map(|n| ctx.child("part", || double.clone(), json!(n)));
            let parts = try_join_all(children).await?;
            Ok(json!(parts.iter().filter_map(Value::as_i64).sum::<i64>()))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_parent_gets_the_results_of_its_children_and_each_runs_once() {
    let (world, diary) = (World::new(), Diary::default());
    let double = double(&diary);
    let parent = fan_out(&double);
    let node = world.node(both(&double, &parent));
    assert_eq!(node.flow(&parent, "w", json!(30)).await, Ok(json!(870)));
    assert_eq!(diary.lines().len(), 30);
    assert_eq!(node.status("w.part.30").await, TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn parents_that_wait_leave_their_places_to_their_children() {
    let (world, diary) = (World::new(), Diary::default());
    let double = double(&diary);
    let parent = fan_out(&double);
    let node = world.idle_node(world.store(), both(&double, &parent), |options| options.capacity = 2);
    node.engine.start();
    for n in 0..10 {
        node.begin(&parent, &format!("w{n}"), json!(3)).await;
    }
    for n in 0..10 {
        assert_eq!(node.outcome(&format!("w{n}")).await, Ok(json!(6)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_children_run_starts_none_of_them_twice() {
    let (world, diary) = (World::new(), Diary::default());
    let held = flow("child", |ctx, input| async move {
        if input == 1 {
            ctx.signal::<Value>("never").await?;
        }
        Ok(input)
    });
    let parent = |child: &Flow| {
        let (child, diary) = (child.clone(), diary.clone());
        flow("parent", move |ctx, _| {
            let (child, diary) = (child.clone(), diary.clone());
            async move {
                let first = ctx.child("first", || child.clone(), json!(0)).await?;
                diary.note("first");
                let second = ctx.child("second", || child, json!(1)).await?;
                Ok(json!([first, second]))
            }
        })
    };
    let node = world.node(both(&held, &parent(&held)));
    node.begin(&parent(&held), "w", Value::Null).await;
    node.until_stored("w.second").await;
    node.until("w.second", |task| task.stages().len() == 1).await;
    let world = world.crashed();
    let node = world.node(both(&held, &parent(&held)));
    node.signal("w.second", "never", Value::Null).await;
    assert_eq!(node.outcome("w").await, Ok(json!([0, 1])));
    assert_eq!(node.count("w.first", "TASK_STARTED").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_childs_failure_is_its_parents_to_handle_and_a_retry_asks_for_another_child() {
    let (world, diary) = (World::new(), Diary::default());
    let moody = flow("moody", {
        let diary = diary.clone();
        move |ctx, _| {
            let diary = diary.clone();
            async move {
                let work = || async {
                    let first = diary.count("call") == 1;
                    if first { Err(Failure::fatal(ErrorType::Business, "not today")) } else { Ok(7) }
                };
                Ok(json!(ctx.stage("call").run(work).await?))
            }
        }
    });
    let parent = {
        let moody = moody.clone();
        flow("parent", move |ctx, _| {
            let moody = moody.clone();
            async move { ctx.child("part", || moody, Value::Null).await }
        })
    };
    let node = world.node(both(&moody, &parent));
    assert_eq!(node.flow(&parent, "w", Value::Null).await, Err("not today".to_owned()));
    node.does(of_task("w"), RETRY).await;
    assert_eq!(node.outcome("w").await, Ok(json!(7)));
    assert_eq!(node.status("w.part").await, TaskStatus::Failed);
    assert_eq!(node.status("w.part.r1").await, TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_parent_takes_its_children_with_it() {
    let world = World::new();
    let (waits, parent) = one_that_waits_and_its_parent();
    let node = world.node(both(&waits, &parent));
    node.begin(&parent, "w", Value::Null).await;
    node.until_stored("w.part").await;
    node.until("w.part", |task| task.stages().len() == 1).await;
    node.does(of_task("w"), Verb::Cancel).await;
    node.until_status("w.part", TaskStatus::Cancelled).await;
}

#[tokio::test(start_paused = true)]
async fn children_of_a_parent_that_was_cancelled_just_before_a_crash_are_cancelled_after_it() {
    let world = World::new();
    let (waits, parent) = one_that_waits_and_its_parent();
    let node = world.node(both(&waits, &parent));
    node.begin(&parent, "w", Value::Null).await;
    node.until_stored("w.part").await;
    node.until("w.part", |task| task.stages().len() == 1).await;
    // Both have given their leases back, so nothing but the start of a node can tell the child.
    node.idle().await;
    let crashed = world.crashed();
    let store = crashed.store();
    cancel_alone(&*store, "w").await;
    let node = crashed.node_on(store, both(&waits, &parent));
    node.until_status("w.part", TaskStatus::Cancelled).await;
}

/// The commit of a cancel, and nothing of what follows it.
async fn cancel_alone(store: &dyn Store, task: &str) {
    let stored = store.task(&task_id(task)).await.unwrap().unwrap();
    let cancel = Command::Cancel(By::new("tester"));
    let decision = decide(&stored.task, cancel, stored.task.updated_at()).unwrap();
    let commit = Commit {
        key: stored.key,
        holder: Holder::Operator,
        expected: stored.task.version(),
        events: decision.events.into(),
        task: Arc::new(decision.task),
        lease: LeaseChange::Release(Wake::Recovery),
        plan: None,
        output: Vec::new(),
    };
    store.commit(commit).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_is_asked_again_reaches_the_children_that_the_first_did_not_come_to_tell() {
    for again in [of_task("w"), of_plan("w")] {
        let world = World::new();
        let (waits, parent) = one_that_waits_and_its_parent();
        let store = world.store();
        let node = world.node_on(store.clone(), both(&waits, &parent));
        node.begin(&parent, "w", Value::Null).await;
        node.until_stored("w.part").await;
        node.until("w.part", |task| task.stages().len() == 1).await;
        node.idle().await;
        let (plan, by) = (plan_id("w"), By::new("tester"));
        let change = PlanChange { plan, command: PlanCommand::Cancel, by, expected: None, now: world.clock.now() };
        store.change_plan(change).await.unwrap();
        cancel_alone(&*store, "w").await;
        node.does(again, Verb::Cancel).await;
        node.until_status("w.part", TaskStatus::Cancelled).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_gave_its_lease_back_is_woken_by_the_end_of_its_child() {
    let world = World::new();
    let waits = flow("waits", |ctx, _| async move { ctx.signal::<Value>("go").await });
    let parent = {
        let waits = waits.clone();
        flow("parent", move |ctx, _| {
            let waits = waits.clone();
            async move { ctx.child("part", || waits, Value::Null).await }
        })
    };
    let node = world.node(both(&waits, &parent));
    node.begin(&parent, "w", Value::Null).await;
    node.until_stored("w.part").await;
    node.until("w.part", |task| task.stages().len() == 1).await;
    node.idle().await;
    let begun = world.clock.now();
    node.signal("w.part", "go", json!("home")).await;
    assert_eq!(node.outcome("w").await, Ok(json!("home")));
    assert!(world.clock.now().since(begun) < milepost_core::time::Millis::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_child_whose_id_is_taken_by_something_else_is_a_failure_of_its_parent() {
    let (world, diary) = (World::new(), Diary::default());
    let double = double(&diary);
    let parent = fan_out(&double);
    let node = world.node(both(&double, &parent));
    node.flow(&double, "w.part", json!(5)).await.unwrap();
    let refused = node.flow(&parent, "w", json!(1)).await.unwrap_err();
    assert!(refused.contains("plan w.part exists with other content"), "{refused}");
}
