//! Clock and dice repeat themselves, and code that no longer fits its log is stopped with words that help.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use milepost_core::failure::{ErrorType, Failure};
use milepost_core::task::TaskStatus;
use serde_json::{Value, json};

use crate::support::{Diary, Flow, RETRY, World, error_type, flow, of_task};

async fn ok() -> Result<(), Failure> {
    Ok(())
}

/// Runs the stages of the list in a row and then waits for a signal.
fn list(stages: &'static [&'static str]) -> Flow {
    flow("list", move |ctx, _| async move {
        for stage in stages {
            match stage.split_once('=') {
                Some((stage, input)) => ctx.stage(stage).input(&input).run(ok).await?,
                None if *stage == "stage nap" => ctx.stage("nap").run(ok).await?,
                None if *stage == "nap" => ctx.sleep("nap", Duration::from_millis(1)).await?,
                None => ctx.stage(*stage).run(ok).await?,
            }
        }
        ctx.signal::<Value>("go").await
    })
}

/// Runs one list until it waits, and another after a crash; the task as that leaves it.
async fn changed(was: &'static [&'static str], is: &'static [&'static str]) -> (World, crate::support::Node) {
    let world = World::new();
    let old = list(was);
    let node = world.node(old.registry());
    node.begin(&old, "w", Value::Null).await;
    node.until("w", |task| task.stages().len() == was.len() + 1).await;
    let world = world.crashed();
    let node = world.node(list(is).registry());
    node.until("w", |task| task.status() == TaskStatus::Failed).await;
    (world, node)
}

#[tokio::test(start_paused = true)]
async fn code_that_asks_for_something_else_than_its_log_has_is_told_the_stage_and_both_sides() {
    for (was, is, words) in [
        (
            &["charge", "pack", "ship"][..],
            &["charge", "pack", "notify"][..],
            "other-stage: the log has stage `ship` third, the code asked for `notify`",
        ),
        (
            &["charge", "ship"],
            &["ship", "charge"],
            "other-order: the log has stage `ship` second, the code asked for it first",
        ),
        (&["charge", "ship"], &["charge"], "other-order: the log has signal `go` third, the code asked for it second"),
        (&["charge=5"], &["charge=6"], "changed-input: the log has stage `charge` with input"),
        (&["nap"], &["stage nap"], "other-kind: the log has `nap` as a sleep, the code asked for it as a stage"),
        (&["stage nap"], &["nap"], "other-kind: the log has `nap` as a stage, the code asked for it as a sleep"),
        (&["nap"], &["nap.2"], "other-stage: the log has sleep `nap` first, the code asked for `nap.2`"),
    ] {
        let (_world, node) = changed(was, is).await;
        let task = node.task("w").await;
        let reason = &task.failure().unwrap().cause.reason;
        assert!(reason.starts_with(words), "{reason}");
        assert_eq!((error_type(&task), task.done().len()), (ErrorType::Determinism, was.len()));
        assert_eq!(node.log("w").await.last().unwrap(), "TASK_FAILED");
    }
}

#[tokio::test(start_paused = true)]
async fn code_that_returns_too_early_is_missing_a_stage() {
    let make = |early: bool| {
        flow("early", move |ctx, _| async move {
            ctx.stage("a").run(ok).await?;
            if !early {
                ctx.stage("b").run(ok).await?;
                ctx.signal::<Value>("go").await?;
            }
            Ok(Value::Null)
        })
    };
    let world = World::new();
    let node = world.node(make(false).registry());
    node.begin(&make(false), "w", Value::Null).await;
    node.until("w", |task| task.stages().len() == 3).await;
    let world = world.crashed();
    let node = world.node(make(true).registry());
    let reason = node.outcome("w").await.unwrap_err();
    assert_eq!(reason, "missing-stage: the log has stage `b` second, the code returned without it");
}

#[tokio::test(start_paused = true)]
async fn after_a_divergence_the_right_code_goes_on_from_what_was_recorded() {
    let (world, node) = changed(&["a", "b"], &["a", "x"]).await;
    node.stop().await;
    let world = world.crashed();
    let node = world.node(list(&["a", "b"]).registry());
    node.does(of_task("w"), RETRY).await;
    node.signal("w", "go", json!("now")).await;
    assert_eq!(node.outcome("w").await, Ok(json!("now")));
    assert_eq!(node.count("w", "STAGE_COMPLETED a 1").await, 1);
    assert_eq!(node.count("w", "STAGE_COMPLETED b 1").await, 1);
}

#[tokio::test(start_paused = true)]
async fn time_and_chance_are_the_same_in_every_replay() {
    let make = |seen: Diary| {
        flow("dice", move |ctx, _| {
            let seen = seen.clone();
            async move {
                let drawn = (ctx.now(), ctx.random::<u64>(), ctx.random::<u64>(), ctx.uuid());
                assert_ne!(drawn.1, drawn.2);
                assert_eq!(drawn.3.get_version_num(), 4);
                seen.note(format!("{drawn:?}"));
                ctx.stage("a").run(ok).await?;
                ctx.signal::<Value>("go").await?;
                seen.note(format!("{drawn:?} {:?}", ctx.now()));
                Ok(json!(ctx.branch("side").random::<f64>() < 1.0))
            }
        })
    };
    let (world, seen) = (World::new(), Diary::default());
    let dice = make(seen.clone());
    let node = world.node(dice.registry());
    node.begin(&dice, "w", Value::Null).await;
    node.until("w", |task| task.stages().len() == 2).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let world = world.crashed();
    let node = world.node(dice.registry());
    node.signal("w", "go", Value::Null).await;
    assert_eq!(node.outcome("w").await, Ok(json!(true)));
    let lines = seen.lines();
    assert_eq!(lines[0], lines[1]);
    assert!(lines[2].starts_with(&lines[0]), "{lines:?}");
    let values: Vec<String> =
        node.log("w").await.into_iter().filter(|line| line.starts_with("VALUE_RECORDED")).collect();
    assert_eq!(values.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn patched_code_runs_as_new_only_where_the_old_has_not_been() {
    let make = |patched: bool| {
        flow("patch", move |ctx, _| async move {
            ctx.stage("a").run(ok).await?;
            if patched && ctx.patched("extra") {
                ctx.stage("extra").run(ok).await?;
            }
            ctx.stage("b").run(ok).await?;
            ctx.signal::<Value>("go").await?;
            let late = patched && ctx.patched("late");
            Ok(json!(late))
        })
    };
    let world = World::new();
    let node = world.node(make(false).registry());
    node.begin(&make(false), "old", Value::Null).await;
    node.until("old", |task| task.stages().len() == 3).await;
    let world = world.crashed();
    let node = world.node(make(true).registry());
    node.signal("old", "go", Value::Null).await;
    assert_eq!(node.outcome("old").await, Ok(json!(true)));
    assert_eq!(node.count("old", "STAGE_STARTED extra 1").await, 0);
    node.begin(&make(true), "new", Value::Null).await;
    node.signal("new", "go", Value::Null).await;
    assert_eq!(node.outcome("new").await, Ok(json!(true)));
    assert_eq!(node.count("new", "STAGE_STARTED extra 1").await, 1);
}

#[tokio::test(start_paused = true)]
async fn the_function_can_tell_a_replay_from_a_first_run() {
    let (world, seen) = (World::new(), Diary::default());
    let tells = flow("tells", {
        let seen = seen.clone();
        move |ctx, _| {
            let seen = seen.clone();
            async move {
                seen.note(format!("start {}", ctx.is_replaying()));
                ctx.stage("a").run(ok).await?;
                ctx.signal::<Value>("go").await?;
                seen.note(format!("end {}", ctx.is_replaying()));
                Ok(Value::Null)
            }
        }
    });
    let node = world.node(tells.registry());
    node.begin(&tells, "w", Value::Null).await;
    node.until("w", |task| task.stages().len() == 2).await;
    let world = world.crashed();
    let node = world.node(tells.registry());
    node.signal("w", "go", Value::Null).await;
    node.outcome("w").await.unwrap();
    assert_eq!(seen.lines(), ["start false", "start true", "end false"]);
}

#[tokio::test(start_paused = true)]
async fn a_workflow_that_continues_as_new_leaves_its_history_behind() {
    let world = World::new();
    let counts = flow("counts", |ctx, input| async move {
        let count = input.as_u64().unwrap();
        let next = ctx.stage("count").run(|| async { Ok::<_, Failure>(count + 1) }).await?;
        if next < 50 {
            return ctx.continue_as_new(next);
        }
        Ok(json!(next))
    });
    let node = world.node(counts.registry());
    assert_eq!(node.flow(&counts, "w", json!(0)).await, Ok(json!(50)));
    let task = node.task("w").await;
    assert_eq!((task.stages().len(), task.flow().unwrap().generation()), (1, 50));
    assert_eq!(node.count("w", "TASK_CONTINUED").await, 49);
}

#[tokio::test(start_paused = true)]
async fn two_stages_of_one_name_are_a_validation_failure() {
    let world = World::new();
    let clash = flow("clash", |ctx, _| async move {
        ctx.stage("a.2").run(ok).await?;
        ctx.stage("a").run(ok).await?;
        let failure = ctx.stage("a").run(ok).await.unwrap_err();
        let odd = ctx.stage("no spaces").run(ok).await.unwrap_err();
        Ok(json!([failure.error_type, failure.reason, odd.error_type]))
    });
    let node = world.node(clash.registry());
    let told = node.flow(&clash, "w", Value::Null).await.unwrap();
    assert_eq!(told[0], "VALIDATION");
    assert!(told[1].as_str().unwrap().contains("`a.2`"));
    assert_eq!(told[2], "VALIDATION");
}

#[tokio::test(start_paused = true)]
async fn values_are_durable_before_the_stage_that_may_use_them_runs() {
    let (world, inside) = (World::new(), Arc::new(AtomicBool::new(false)));
    let uses = flow("uses", {
        let inside = inside.clone();
        move |ctx, _| {
            let inside = inside.clone();
            async move {
                let key = ctx.uuid();
                let work = || async {
                    inside.store(true, Ordering::SeqCst);
                    std::future::pending::<()>().await;
                    Ok::<_, Failure>(key.to_string())
                };
                Ok(json!(ctx.stage("use").run(work).await?))
            }
        }
    });
    let node = world.node(uses.registry());
    node.begin(&uses, "w", Value::Null).await;
    crate::support::bounded("the stage", async {
        while !inside.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let log = node.log("w").await;
    assert_eq!(log[2..], ["VALUE_RECORDED", "STAGE_STARTED use 1"]);
}
