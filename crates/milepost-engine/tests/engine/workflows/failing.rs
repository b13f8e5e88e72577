//! Retries, timeouts, panics, and undoing what was done.

use std::time::Duration;

use milepost_core::failure::{ErrorType, Failure};
use milepost_core::retry::{RetryPolicy, Strategy};
use milepost_core::task::{Event, Record, TaskStatus};
use milepost_core::time::Millis;
use milepost_engine::Verb;
use serde_json::{Value, json};

use crate::support::{Diary, Flow, RETRY, World, error_type, flow, of_task};

fn fixed(base_ms: u64, max_attempts: u32) -> RetryPolicy {
    RetryPolicy {
        max_attempts,
        strategy: Strategy::Fixed,
        base: Millis::new(base_ms),
        jitter: false,
        ..RetryPolicy::default()
    }
}

fn refused() -> Failure {
    Failure::retryable(ErrorType::Network, "connection refused")
}

/// Fails `failures` times, then answers with how often it was called.
fn flaky(diary: &Diary, failures: usize, policy: RetryPolicy) -> Flow {
    let diary = diary.clone();
    flow("flaky", move |ctx, _| {
        let (diary, policy) = (diary.clone(), policy.clone());
        async move {
            let work = || async {
                let calls = diary.count("call");
                if calls <= failures { Err(refused()) } else { Ok(calls) }
            };
            let calls = ctx.stage("call").retry(policy).run(work).await;
            match calls {
                Ok(calls) => Ok(json!(calls)),
                Err(failure) => {
                    let exceeded = failure.max_retries_exceeded();
                    Ok(json!(exceeded.map(|exceeded| (exceeded.attempts, exceeded.last_reason))))
                }
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_stage_that_fails_is_tried_again_after_the_delay_that_the_log_names() {
    let (world, diary) = (World::new(), Diary::default());
    let flaky = flaky(&diary, 3, RetryPolicy::default());
    let node = world.node(flaky.registry());
    assert_eq!(node.flow(&flaky, "w", Value::Null).await, Ok(json!(4)));
    let (mut due, mut retries) = (None, 0);
    for record in node.records("w").await {
        match record.event() {
            Event::RetryScheduled { delay, .. } => {
                retries += 1;
                due = Some(record.at() + *delay);
            }
            Event::StageStarted { attempt: 2.., .. } => {
                let due = due.take().expect("a retry follows its schedule");
                assert!(record.at() >= due && record.at().since(due) < Millis::new(100));
            }
            _ => {}
        }
    }
    assert_eq!(retries, 3);
}

#[tokio::test(start_paused = true)]
async fn a_stage_out_of_attempts_says_how_many_it_made_and_why_the_last_one_failed() {
    let (world, diary) = (World::new(), Diary::default());
    let flaky = flaky(&diary, 9, fixed(10, 3));
    let node = world.node(flaky.registry());
    assert_eq!(node.flow(&flaky, "w", Value::Null).await, Ok(json!([3, "connection refused"])));
    assert_eq!(diary.lines().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_retry_keeps_its_attempt_and_its_due_time_across_a_crash() {
    let (world, diary) = (World::new(), Diary::default());
    let flaky = flaky(&diary, 1, fixed(20_000, 5));
    let node = world.node(flaky.registry());
    node.begin(&flaky, "w", Value::Null).await;
    let waiting = node.until("w", |task| task.next_due().is_some()).await;
    let due = waiting.next_due().unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;

    let world = world.crashed();
    let node = world.node(flaky.registry());
    let calls = node.outcome("w").await.unwrap();
    // The old node lives on in this process: it may begin the attempt as well, and can write nothing of it.
    assert!([json!(2), json!(3)].contains(&calls), "{calls}");
    let second = |record: &&Record| matches!(record.event(), Event::StageStarted { attempt: 2, .. });
    let records = node.records("w").await;
    let started = records.iter().find(second).expect("a second attempt");
    assert!(started.at() >= due && started.at().since(due) < Millis::new(100));
    assert_eq!(node.count("w", "STAGE_STARTED call 1").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_of_one_attempt_and_a_panic_is_a_failure() {
    let (world, diary) = (World::new(), Diary::default());
    let odd = flow("odd", {
        let diary = diary.clone();
        move |ctx, _| {
            let diary = diary.clone();
            async move {
                let work = || async {
                    match diary.count("call") {
                        1 => std::future::pending().await,
                        2 => panic!("lost my nerve"),
                        calls => Ok::<_, Failure>(calls),
                    }
                };
                let stage = ctx.stage("call").retry(fixed(1, 5)).timeout(Duration::from_secs(2));
                Ok(json!(stage.run(work).await?))
            }
        }
    });
    let node = world.node(odd.registry());
    assert_eq!(node.flow(&odd, "w", Value::Null).await, Ok(json!(3)));
    let reasons: Vec<String> = node
        .records("w")
        .await
        .iter()
        .filter_map(|record| match record.event() {
            Event::RetryScheduled { cause, .. } => Some(cause.reason.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, ["did not end within its timeout of 2s", "the stage panicked: lost my nerve"]);
}

#[tokio::test(start_paused = true)]
async fn a_function_that_panics_fails_its_task_and_nothing_else() {
    let world = World::new();
    let wild = flow("wild", |_, _| async { panic!("off the rails") });
    let node = world.node(wild.registry());
    assert_eq!(node.flow(&wild, "w", Value::Null).await, Err("the stage panicked: off the rails".to_owned()));
}

/// Charges, ships, and fails to notify; the first two can be undone.
fn saga(diary: &Diary, works: bool, hold_undo: bool) -> Flow {
    let diary = diary.clone();
    flow("saga", move |ctx, _| {
        let diary = diary.clone();
        async move {
            for name in ["charge", "ship"] {
                let undo = {
                    let diary = diary.clone();
                    move |result: Option<String>| {
                        let diary = diary.clone();
                        async move {
                            if hold_undo && name == "charge" {
                                std::future::pending::<()>().await;
                            }
                            diary.note(format!("undo {}", result.unwrap()));
                            Ok::<_, Failure>(())
                        }
                    }
                };
                let work = || async {
                    diary.note(name);
                    Ok::<_, Failure>(format!("{name} done"))
                };
                ctx.stage(name).rollback_of(undo).run(work).await?;
            }
            let notify = || async {
                diary.note("notify");
                if works { Ok(()) } else { Err(Failure::fatal(ErrorType::Business, "no such address")) }
            };
            ctx.stage("notify").run(notify).await?;
            Ok(json!("done"))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_workflow_that_fails_undoes_its_completed_stages_the_last_one_first_each_with_its_result() {
    let (world, diary) = (World::new(), Diary::default());
    let saga = saga(&diary, false, false);
    let node = world.node(saga.registry());
    assert_eq!(node.flow(&saga, "w", Value::Null).await, Err("no such address".to_owned()));
    assert_eq!(diary.lines(), ["charge", "ship", "notify", "undo ship done", "undo charge done"]);
    let task = node.task("w").await;
    assert_eq!((task.status(), error_type(&task)), (TaskStatus::RolledBack, ErrorType::Business));
    assert_eq!(task.failure().unwrap().stage.as_ref().unwrap().as_str(), "notify");
}

#[tokio::test(start_paused = true)]
async fn a_crash_in_the_middle_of_undoing_goes_on_with_the_stage_it_was_at() {
    let (world, before) = (World::new(), Diary::default());
    let held = saga(&before, false, true);
    let node = world.node(held.registry());
    node.begin(&held, "w", Value::Null).await;
    let undone =
        |task: &milepost_core::task::Task| task.done().len() == 1 && task.undo().is_some_and(|undo| undo.running);
    node.until("w", undone).await;

    let (world, after) = (world.crashed(), Diary::default());
    let node = world.node(saga(&after, false, false).registry());
    assert!(node.outcome("w").await.is_err());
    assert_eq!(node.status("w").await, TaskStatus::RolledBack);
    assert_eq!(before.lines(), ["charge", "ship", "notify", "undo ship done"]);
    assert_eq!(after.lines(), ["undo charge done"]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_of_a_failed_workflow_asks_again_for_what_failed_and_for_nothing_else() {
    let (world, diary) = (World::new(), Diary::default());
    let moody = flow("moody", {
        let diary = diary.clone();
        move |ctx, _| {
            let diary = diary.clone();
            async move {
                let handled = || async {
                    diary.note("handled");
                    Err::<(), _>(Failure::fatal(ErrorType::Business, "never mind"))
                };
                let handled = ctx.stage("handled").run(handled).await.is_err();
                ctx.stage("kept").run(|| async { diary.noted("kept") }).await?;
                let last = || async {
                    if diary.count("last") == 1 { Err(Failure::fatal(ErrorType::Business, "not yet")) } else { Ok(()) }
                };
                ctx.stage("last").run(last).await?;
                Ok(json!(handled))
            }
        }
    });
    let node = world.node(moody.registry());
    assert_eq!(node.flow(&moody, "w", Value::Null).await, Err("not yet".to_owned()));
    assert_eq!(node.status("w").await, TaskStatus::Failed);
    node.does(of_task("w"), RETRY).await;
    assert_eq!(node.outcome("w").await, Ok(json!(true)));
    assert_eq!(diary.lines(), ["handled", "kept", "last", "last"]);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_is_too_large_or_no_json_fails_the_stage_with_persistence() {
    let world = World::new();
    let large = flow("large", |ctx, _| async move {
        let work = || async { Ok::<_, Failure>("x".repeat(2 * 1024 * 1024)) };
        let failure = ctx.stage("big").run(work).await.unwrap_err();
        let odd = || async { Ok::<_, Failure>(std::collections::HashMap::from([((1, 2), 3)])) };
        let unfit = ctx.stage("odd").run(odd).await.unwrap_err();
        Ok(json!([failure.error_type, unfit.error_type]))
    });
    let node = world.node(large.registry());
    assert_eq!(node.flow(&large, "w", Value::Null).await, Ok(json!(["PERSISTENCE", "PERSISTENCE"])));
}

#[tokio::test(start_paused = true)]
async fn a_person_may_roll_back_what_diverged_as_far_as_the_code_still_knows_how() {
    let make = |diary: &Diary, last: &'static str| {
        let diary = diary.clone();
        flow("drifts", move |ctx, _| {
            let diary = diary.clone();
            async move {
                for name in ["one", last] {
                    let undo = {
                        let diary = diary.clone();
                        move || {
                            let diary = diary.clone();
                            async move { diary.noted(format!("undo {name}")) }
                        }
                    };
                    ctx.stage(name).rollback(undo).run(|| async { Ok::<_, Failure>(()) }).await?;
                }
                ctx.signal::<Value>("go").await
            }
        })
    };
    let (world, diary) = (World::new(), Diary::default());
    let node = world.node(make(&diary, "two").registry());
    node.begin(&make(&diary, "two"), "w", Value::Null).await;
    node.until("w", |task| task.stages().len() == 3).await;
    let world = world.crashed();
    let node = world.node(make(&diary, "other").registry());
    node.until_status("w", TaskStatus::Failed).await;
    node.does(of_task("w"), Verb::Rollback).await;
    node.until_status("w", TaskStatus::RollbackFailed).await;
    // The second stage's handler is not in this code; the first one's is.
    assert_eq!(diary.lines(), ["undo one"]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_from_the_start_forgets_everything() {
    let (world, diary) = (World::new(), Diary::default());
    let saga = saga(&diary, false, false);
    let node = world.node(saga.registry());
    node.flow(&saga, "w", Value::Null).await.unwrap_err();
    node.does(of_task("w"), Verb::Retry { from_checkpoint: false }).await;
    node.until("w", |task| task.status() == TaskStatus::RolledBack && diary.lines().len() == 10).await;
    let again: Vec<String> = diary.lines().drain(5..).collect();
    assert_eq!(again, ["charge", "ship", "notify", "undo ship done", "undo charge done"]);
}
