//! A function is run again, and what it has done is not.

use std::sync::Arc;

use futures::future::try_join_all;
use milepost_core::failure::Failure;
use milepost_core::task::{Event, StageStatus, TaskStatus};
use milepost_engine::Verb;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::{Diary, Flow, RETRY, World, flow, of_task, stage};

/// Three stages in a row; the `hold` one waits for ever while the test says so.
fn chain(diary: &Diary, hold: Option<&'static str>) -> Flow {
    let diary = diary.clone();
    flow("chain", move |ctx, input| {
        let diary = diary.clone();
        async move {
            let mut sum = input.as_i64().unwrap();
            for name in ["a", "b", "c"] {
                let before = sum;
                let work = || async {
                    diary.note(name);
                    if hold == Some(name) {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, Failure>(before * 2)
                };
                sum = ctx.stage(name).run(work).await?;
            }
            Ok(json!(sum))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_workflow_returns_what_its_function_returns_and_its_stages_are_in_the_log() {
    let (world, diary) = (World::new(), Diary::default());
    let chain = chain(&diary, None);
    let node = world.node(chain.registry());
    assert_eq!(node.flow(&chain, "w", json!(1)).await, Ok(json!(8)));
    assert_eq!(
        node.log("w").await,
        [
            "TASK_CREATED",
            "TASK_STARTED",
            "STAGE_STARTED a 1",
            "STAGE_COMPLETED a 1",
            "STAGE_STARTED b 1",
            "STAGE_COMPLETED b 1",
            "STAGE_STARTED c 1",
            "STAGE_COMPLETED c 1",
            "TASK_COMPLETED"
        ]
    );
    // Asked for again under the same id, it is not run again.
    assert_eq!(node.flow(&chain, "w", json!(1)).await, Ok(json!(8)));
    assert_eq!(diary.lines(), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_completed_stages_answer_from_the_log_and_the_cut_off_attempt_repeats_its_number() {
    let (world, before) = (World::new(), Diary::default());
    let held = chain(&before, Some("b"));
    let node = world.node(held.registry());
    node.begin(&held, "w", json!(1)).await;
    node.until("w", |task| task.stages().len() == 2).await;

    let (world, after) = (world.crashed(), Diary::default());
    let whole = chain(&after, None);
    let node = world.node(whole.registry());
    assert_eq!(node.outcome("w").await, Ok(json!(8)));
    assert_eq!(after.lines(), ["b", "c"]);
    assert_eq!(node.count("w", "STAGE_STARTED b 1").await, 2);
    assert_eq!(node.count("w", "STAGE_COMPLETED a 1").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_the_running_stage_finish_and_the_next_node_goes_on_behind_it() {
    let (world, gate, diary) = (World::new(), Arc::new(Notify::new()), Diary::default());
    let make = |gate: Arc<Notify>, diary: Diary| {
        flow("two", move |ctx, _| {
            let (gate, diary) = (gate.clone(), diary.clone());
            async move {
                let first = || async {
                    diary.note("first");
                    gate.notified().await;
                    Ok::<_, Failure>(1)
                };
                let first = ctx.stage("first").run(first).await?;
                let second = || async { Ok::<_, Failure>(diary.count("second")) };
                let second = ctx.stage("second").run(second).await?;
                Ok(json!([first, second]))
            }
        })
    };
    let two = make(gate.clone(), diary.clone());
    let store = world.store();
    let node = world.node_on(store.clone(), two.registry());
    node.begin(&two, "w", Value::Null).await;
    node.until("w", |task| task.stages().len() == 1).await;
    let stopped = node.stop();
    gate.notify_one();
    stopped.await;
    let task = node.task("w").await;
    assert_eq!((task.interrupted(), stage(&task, "first")), (true, StageStatus::Completed));

    let node = world.node_on(store, two.registry());
    assert_eq!(node.outcome("w").await, Ok(json!([1, 1])));
    assert_eq!(diary.lines(), ["first", "second"]);
}

#[tokio::test(start_paused = true)]
async fn stages_that_are_awaited_together_run_together_and_share_commits() {
    let (world, gate) = (World::new(), Arc::new(Notify::new()));
    let many = flow("many", {
        let gate = gate.clone();
        move |ctx, _| {
            let gate = gate.clone();
            async move {
                let all = (0..20).map(|n| {
                    let gate = gate.clone();
                    ctx.stage("part").run(move || {
                        let gate = gate.clone();
                        async move {
                            gate.notified().await;
                            Ok::<_, Failure>(n)
                        }
                    })
                });
                let sum: i64 = try_join_all(all).await?.into_iter().sum();
                Ok(json!(sum))
            }
        }
    });
    let node = world.node(many.registry());
    node.begin(&many, "w", Value::Null).await;
    let task = node.until("w", |task| task.stages().len() == 20).await;
    assert_eq!((stage(&task, "part"), stage(&task, "part.20")), (StageStatus::Running, StageStatus::Running));
    gate.notify_waiters();
    assert_eq!(node.outcome("w").await, Ok(json!(190)));
    // All were begun by one commit, and ended by another.
    let positions = node.records("w").await;
    let starts: Vec<_> =
        positions.iter().filter(|record| matches!(record.event(), Event::StageStarted { .. })).collect();
    assert_eq!(starts.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn branches_count_and_name_their_stages_by_themselves_whichever_is_faster() {
    let make = |slow: &'static str| {
        flow("branches", move |ctx, _| async move {
            let side = |name: &'static str| {
                let ctx = ctx.branch(name);
                async move {
                    let first = || async {
                        tokio::time::sleep(std::time::Duration::from_millis(if name == slow { 50 } else { 1 })).await;
                        Ok::<_, Failure>(1)
                    };
                    let first = ctx.stage("step").run(first).await?;
                    ctx.stage("step").run(|| async { Ok::<_, Failure>(first + 1) }).await
                }
            };
            let (left, right) = futures::try_join!(side("left"), side("right"))?;
            let end = || async { Ok::<_, Failure>(left + right) };
            Ok(json!(ctx.stage("end").run(end).await?))
        })
    };
    for slow in ["left", "right"] {
        let world = World::new();
        let branches = make(slow);
        let node = world.node(branches.registry());
        assert_eq!(node.flow(&branches, "w", Value::Null).await, Ok(json!(4)));
        let task = node.task("w").await;
        let mut names: Vec<String> = task.stages().map(|(definition, _)| definition.name.to_string()).collect();
        names.sort();
        assert_eq!(names, ["end", "left.step", "left.step.2", "right.step", "right.step.2"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_takes_effect_at_the_stage_boundary_and_a_resume_replays() {
    let (world, gate, diary) = (World::new(), Arc::new(Notify::new()), Diary::default());
    let gated = flow("gated", {
        let (gate, diary) = (gate.clone(), diary.clone());
        move |ctx, _| {
            let (gate, diary) = (gate.clone(), diary.clone());
            async move {
                let work = || async {
                    diary.note("a");
                    gate.notified().await;
                    Ok::<_, Failure>(())
                };
                ctx.stage("a").run(work).await?;
                ctx.stage("b").run(|| async { diary.noted("b") }).await?;
                Ok(Value::Null)
            }
        }
    });
    let node = world.node(gated.registry());
    node.begin(&gated, "w", Value::Null).await;
    node.until("w", |task| task.stages().len() == 1).await;
    node.does(of_task("w"), Verb::Pause).await;
    assert_eq!(node.status("w").await, TaskStatus::Running);
    gate.notify_one();
    node.until_status("w", TaskStatus::Paused).await;
    node.does(of_task("w"), Verb::Resume).await;
    assert_eq!(node.outcome("w").await, Ok(Value::Null));
    assert_eq!(diary.lines(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_drops_the_function_where_it_stands() {
    let (world, diary) = (World::new(), Diary::default());
    let held = chain(&diary, Some("b"));
    let node = world.node(held.registry());
    node.begin(&held, "w", json!(1)).await;
    node.until("w", |task| task.stages().len() == 2).await;
    node.does(of_task("w"), Verb::Cancel).await;
    assert_eq!(node.status("w").await, TaskStatus::Cancelled);
    assert!(node.refuses(of_task("w"), RETRY).await.contains("CANCELLED"));
}

#[tokio::test(start_paused = true)]
async fn a_step_that_lost_a_race_is_left_out_and_a_replay_takes_the_same_turn() {
    let make = |hold: bool, diary: Diary| {
        flow("race", move |ctx, _| {
            let diary = diary.clone();
            async move {
                let slow = ctx.stage("slow").run(|| async {
                    std::future::pending::<()>().await;
                    Ok::<_, Failure>(0)
                });
                let fast = ctx.stage("fast").run(|| async { Ok::<_, Failure>(diary.count("fast")) });
                let won = tokio::select! {
                    slow = slow => slow?,
                    fast = fast => fast?,
                };
                let last = || async {
                    if hold {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, Failure>(won)
                };
                Ok(json!(ctx.stage("last").run(last).await?))
            }
        })
    };
    let (world, diary) = (World::new(), Diary::default());
    let race = make(true, diary.clone());
    let node = world.node(race.registry());
    node.begin(&race, "w", Value::Null).await;
    let done =
        |task: &milepost_core::task::Task| task.stages().len() == 3 && stage(task, "slow") == StageStatus::Skipped;
    node.until("w", done).await;
    let world = world.crashed();
    let node = world.node(make(false, diary.clone()).registry());
    assert_eq!(node.outcome("w").await, Ok(json!(1)));
    assert_eq!(diary.lines(), ["fast"]);
}
