//! Breakers and adaptive delays: what one run learns, others on the node heed; the log alone tells what became of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use milepost_core::breaker::{Breaker, Guard};
use milepost_core::failure::{ErrorType, Failure};
use milepost_core::retry::{RetryPolicy, Strategy};
use milepost_core::task::{Event, Record};
use milepost_core::time::Millis;
use serde_json::{Value, json};

use crate::support::{Diary, Flow, Node, World, flow};

const COOL_DOWN: Millis = Millis::from_secs(20);

/// A second apart, three attempts, and a breaker of two failures in a row.
fn guarded(guard: Guard) -> RetryPolicy {
    RetryPolicy {
        max_attempts: 3,
        strategy: Strategy::Fixed,
        base: Millis::from_secs(1),
        jitter: false,
        guard: Some(Box::new(guard)),
        ..RetryPolicy::default()
    }
}

fn breaking() -> RetryPolicy {
    let breaker = Some(Breaker::after(2).cool_down(COOL_DOWN.as_duration()));
    guarded(Guard { breaker, ..Guard::default() })
}

/// Another system, which can be away.
#[derive(Clone, Default)]
struct Remote {
    away: Arc<AtomicBool>,
    calls: Diary,
}

impl Remote {
    fn is_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    fn call(&self) -> Result<(), Failure> {
        self.calls.note("call");
        let away = self.away.load(Ordering::SeqCst);
        if away { Err(Failure::retryable(ErrorType::Network, "no answer")) } else { Ok(()) }
    }

    fn calls(&self) -> usize {
        self.calls.lines().len()
    }

    /// A workflow of one stage that calls it.
    fn caller(&self, policy: RetryPolicy) -> Flow {
        let remote = self.clone();
        flow("caller", move |ctx, _| {
            let (remote, policy) = (remote.clone(), policy.clone());
            async move {
                ctx.stage("call").retry(policy).run(|| async { remote.call() }).await?;
                Ok(Value::Null)
            }
        })
    }
}

/// What the log says of each wait: the attempt to come, the delay in milliseconds, and why.
async fn waits(node: &Node, id: &str) -> Vec<(u32, u64, ErrorType, String)> {
    let of = |record: &Record| match record.event() {
        Event::RetryScheduled { attempt, delay, cause, .. } => {
            Some((*attempt, delay.get(), cause.error_type, cause.reason.clone()))
        }
        _ => None,
    };
    node.records(id).await.iter().filter_map(of).collect()
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_keeps_other_runs_from_trying_until_it_half_opens() {
    let (world, remote) = (World::new(), Remote::default());
    remote.is_away(true);
    let caller = remote.caller(breaking());
    let node = world.node(caller.registry());
    node.begin(&caller, "first", Value::Null).await;
    // Its second failure opens the breaker, its third attempt is refused.
    node.until("first", |task| task.version() >= 8).await;
    assert_eq!(remote.calls(), 2);
    let opened = node.records("first").await.iter().rev().find_map(|record| match record.event() {
        Event::RetryScheduled { attempt: 3, cause, .. } if cause.error_type == ErrorType::Network => Some(record.at()),
        _ => None,
    });
    let until = opened.expect("a second failure") + COOL_DOWN;

    remote.is_away(false);
    assert_eq!(node.flow(&caller, "second", Value::Null).await, Ok(Value::Null));
    assert_eq!(node.outcome("first").await, Ok(Value::Null));
    let of_second = waits(&node, "second").await;
    let (attempt, delay, error_type, reason) = of_second.first().expect("a refusal").clone();
    assert_eq!((attempt, error_type), (1, ErrorType::Unavailable));
    assert_eq!(reason, format!("the breaker of `caller/call` is open until {until}"));
    let refused =
        node.records("second").await.into_iter().find(|it| matches!(it.event(), Event::RetryScheduled { .. }));
    assert!(refused.expect("a refusal").at() + Millis::new(delay) >= until);
    assert_eq!(remote.calls(), 4, "one success of each run, after the two failures");
}

#[tokio::test(start_paused = true)]
async fn a_half_open_breaker_lets_one_run_of_many_try() {
    let (world, remote) = (World::new(), Remote::default());
    remote.is_away(true);
    let policy = RetryPolicy { max_attempts: 100, ..breaking() };
    let caller = remote.caller(policy);
    let node = world.node(caller.registry());
    for run in 0..8 {
        node.begin(&caller, &format!("w-{run}"), Value::Null).await;
    }
    for run in 0..8 {
        node.until(&format!("w-{run}"), |task| task.next_due().is_some()).await;
    }
    // Those that were let through before the second failure was known.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = remote.calls();
    assert!(before <= 8);
    // Five cool-downs: one try in each, and each finds nobody.
    tokio::time::sleep(COOL_DOWN.as_duration() * 5).await;
    let tries = remote.calls() - before;
    assert!((4..=6).contains(&tries), "{tries} tries");
    remote.is_away(false);
    for run in 0..8 {
        assert_eq!(node.outcome(&format!("w-{run}")).await, Ok(Value::Null));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stage_is_not_given_up_for_attempts_that_were_refused() {
    let (world, remote) = (World::new(), Remote::default());
    remote.is_away(true);
    let breaker = Some(Breaker::after(1).cool_down(COOL_DOWN.as_duration()));
    let caller = remote.caller(guarded(Guard { breaker, ..Guard::default() }));
    let node = world.node(caller.registry());
    assert_eq!(node.flow(&caller, "w", Value::Null).await, Err("no answer".to_owned()));
    assert_eq!(remote.calls(), 3, "as many as the policy has attempts");
    let refused = waits(&node, "w").await.into_iter().filter(|wait| wait.2 == ErrorType::Unavailable);
    assert_eq!(refused.map(|wait| wait.0).collect::<Vec<_>>(), [2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_waited_out_as_recorded_by_a_node_that_knows_of_no_failure() {
    let (world, remote) = (World::new(), Remote::default());
    remote.is_away(true);
    let caller = remote.caller(breaking());
    let node = world.node(caller.registry());
    node.begin(&caller, "w", Value::Null).await;
    let task = node.until("w", |task| task.version() >= 8).await;
    let (due, recorded) = (task.next_due().expect("a wait"), waits(&node, "w").await);
    assert_eq!(recorded.last().map(|wait| wait.2), Some(ErrorType::Unavailable));

    remote.is_away(false);
    let world = world.crashed();
    let node = world.node(caller.registry());
    assert_eq!(node.outcome("w").await, Ok(Value::Null));
    assert_eq!(waits(&node, "w").await, recorded);
    let third = |record: &&Record| matches!(record.event(), Event::StageStarted { attempt: 3, .. });
    let records = node.records("w").await;
    let started = records.iter().rfind(third).expect("a third attempt");
    assert!(started.at() >= due && started.at().since(due) < Millis::new(100));
}

#[tokio::test(start_paused = true)]
async fn stages_that_share_a_key_share_a_breaker_and_others_do_not() {
    let (world, diary) = (World::new(), Diary::default());
    let policy = |key: &str| {
        let breaker = Some(Breaker::after(1).cool_down(COOL_DOWN.as_duration()));
        let guard = Guard { breaker, key: Some(key.to_owned()), ..Guard::default() };
        RetryPolicy { max_attempts: 1, ..guarded(guard) }
    };
    let shop = flow("shop", {
        let diary = diary.clone();
        move |ctx, _| {
            let diary = diary.clone();
            async move {
                let fails = || async { Err::<(), _>(Failure::retryable(ErrorType::Network, "no answer")) };
                let _ = ctx.stage("charge").retry(policy("payments")).run(fails).await;
                ctx.stage("ship").retry(policy("parcels")).run(|| async { diary.noted("ship") }).await?;
                ctx.stage("refund").retry(policy("payments")).run(|| async { diary.noted("refund") }).await?;
                Ok(Value::Null)
            }
        }
    });
    let node = world.node(shop.registry());
    assert_eq!(node.flow(&shop, "w", Value::Null).await, Ok(Value::Null));
    assert_eq!(diary.lines(), ["ship", "refund"]);
    let log = node.log("w").await;
    assert!(!log.iter().any(|line| line.starts_with("RETRY_SCHEDULED ship")), "{log:?}");
    assert!(log.iter().any(|line| line.starts_with("RETRY_SCHEDULED refund 1 after")), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn an_adaptive_delay_grows_with_the_failures_of_other_runs_and_is_in_the_log() {
    let (world, remote) = (World::new(), Remote::default());
    remote.is_away(true);
    let caller = remote.caller(guarded(Guard { adaptive: true, ..Guard::default() }));
    let node = world.node(caller.registry());
    let mut delays = Vec::new();
    for run in ["a", "b", "c"] {
        assert!(node.flow(&caller, run, Value::Null).await.is_err());
        delays.extend(waits(&node, run).await.into_iter().map(|wait| wait.1));
    }
    // One second, times (failures + 4) / 4, over nine failures of which each third ended a run.
    assert_eq!(delays, [1250, 1500, 2000, 2250, 2750, 3000]);
}

#[tokio::test(start_paused = true)]
async fn without_a_guard_no_run_heeds_another() {
    let (world, remote) = (World::new(), Remote::default());
    remote.is_away(true);
    let caller = remote.caller(RetryPolicy { guard: None, ..breaking() });
    let node = world.node(caller.registry());
    for run in ["a", "b", "c"] {
        assert!(node.flow(&caller, run, Value::Null).await.is_err());
        let of_run: Vec<_> = waits(&node, run).await.into_iter().map(|wait| (wait.0, wait.1)).collect();
        assert_eq!(of_run, [(2, 1000), (3, 1000)]);
    }
    let policy = node.records("a").await.iter().find_map(|record| match record.event() {
        Event::StageStarted { step: Some(step), .. } => Some(json!(step.retry)),
        _ => None,
    });
    assert_eq!(policy.expect("a step")["guard"], Value::Null, "nothing is written of what is off");
}
