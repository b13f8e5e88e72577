//! Retries: when they fire, what is recorded, and what a wait survives.

use std::sync::{Arc, Mutex};

use milepost_core::failure::{ErrorType, Failure};
use milepost_core::id::StageName;
use milepost_core::retry::{RetryPolicy, seed_of};
use milepost_core::task::{Event, PlanStatus, StageStatus, TaskStatus};
use milepost_core::time::{Millis, Timestamp};
use milepost_engine::stage::{Outcome, StageCall};
use milepost_engine::{Registry, Verb};

use crate::support::{Flaky, World, kind, of_plan, of_task, stage};

const LONG: &str = "
plan: p
stages: [{ name: s, uses: flaky, retry: { max_attempts: 3, strategy: fixed, base: 10m, max: 1h, jitter: false } }]
tasks: [{ id: t, tenant: x }]";
const SHORT: &str = "
plan: p
stages: [{ name: s, uses: flaky, retry: { max_attempts: 3, strategy: fixed, base: 20s, jitter: false } }]
tasks: [{ id: t, tenant: x }]";

fn failing(times: u32) -> (Flaky, Registry) {
    let flaky = Flaky::default();
    flaky.fail("s", times);
    (flaky.clone(), Registry::new().with("flaky", flaky.kind()))
}

#[tokio::test(start_paused = true)]
async fn retries_come_after_exactly_the_delays_of_the_policy_and_each_is_recorded() {
    let world = World::new();
    let times: Arc<Mutex<Vec<Timestamp>>> = Arc::default();
    let (noted, clock) = (times.clone(), world.clock.clone());
    let fails = kind(move |_| {
        noted.lock().unwrap().push(clock.now());
        async { Outcome::Failure(Failure::retryable(ErrorType::Network, "no route")) }
    });
    let node = world.node(Registry::new().with("fails", fails));
    node.run("{plan: p, stages: [{name: s, uses: fails, retry: {max_attempts: 7}}], tasks: [{id: t}]}").await;
    let policy = RetryPolicy { max_attempts: 7, ..RetryPolicy::default() };
    let name = StageName::parse("s").unwrap();
    let expected: Vec<u64> = (1..7).map(|attempt| policy.delay(seed_of("t"), &name, attempt).get()).collect();
    let times = times.lock().unwrap().clone();
    let waited: Vec<u64> = times.windows(2).map(|pair| pair[1].since(pair[0]).get()).collect();
    assert_eq!(waited, expected);
    let recorded = node.records("t").await;
    let recorded = recorded.iter().filter_map(|record| match record.event() {
        Event::RetryScheduled { attempt, delay, cause, .. } => Some((*attempt, delay.get(), cause.reason.clone())),
        _ => None,
    });
    let expected = (2..).zip(expected).map(|(attempt, delay)| (attempt, delay, "no route".to_owned()));
    assert_eq!(recorded.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_stage_that_asks_for_more_time_gets_it() {
    let world = World::new();
    let busy = kind(|call: StageCall| async move {
        if call.attempt > 1 {
            return Outcome::success();
        }
        Outcome::Failure(Failure::retryable(ErrorType::Unavailable, "busy").after(Millis::from_secs(17)))
    });
    let node = world.node(Registry::new().with("busy", busy));
    node.run("{plan: p, stages: [{name: s, uses: busy}], tasks: [{id: t}]}").await;
    let task = node.task("t").await;
    assert_eq!(task.ended_at().unwrap().since(task.started_at().unwrap()).get(), 17_000);
}

#[tokio::test(start_paused = true)]
async fn a_short_wait_is_held_and_a_retry_keeps_its_due_time_across_a_crash() {
    let (world, (flaky, registry)) = (World::new(), failing(1));
    let node = world.node(registry);
    node.submit(SHORT).await;
    let before = node.until("t", |task| stage(task, "s") == StageStatus::RetryWait).await;
    assert_eq!(node.engine.in_hand(), 1);

    let world = world.crashed();
    let (after, registry) = failing(0);
    let node = world.node(registry);
    tokio::time::advance(std::time::Duration::from_secs(19)).await;
    assert_eq!(after.journal.calls(), [""; 0], "not before its due time");
    node.ended("p").await;
    let task = node.task("t").await;
    assert_eq!(task.ended_at(), before.next_due());
    assert_eq!(after.journal.calls(), ["t/s/2"]);
    assert!(flaky.journal.calls().starts_with(&["t/s/1".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_came_due_while_nobody_ran_fires_at_once_and_once() {
    let (world, (_, registry)) = (World::new(), failing(1));
    let node = world.node(registry);
    node.submit(LONG).await;
    node.until("t", |task| stage(task, "s") == StageStatus::RetryWait).await;
    node.idle().await;
    let world = world.crashed();
    tokio::time::sleep(std::time::Duration::from_secs(1200)).await;
    let (after, registry) = failing(0);
    let node = world.node(registry);
    node.ended("p").await;
    assert_eq!(after.journal.calls(), ["t/s/2"]);
}

#[tokio::test(start_paused = true)]
async fn a_long_wait_is_given_back_keeps_its_tenant_and_wakes_by_itself_on_time() {
    let (world, (flaky, registry)) = (World::new(), failing(2));
    let node = world.node(registry);
    node.submit(LONG).await;
    for attempt in 2..=3 {
        let task = node.until("t", |task| task.stage(0).1.attempt == attempt && task.next_due().is_some()).await;
        node.idle().await;
        assert_eq!(task.status(), TaskStatus::Running);
        assert_eq!(node.stored("t").await.epoch, 0, "its lease was given back");
        assert_eq!(node.engine.store().locks().await.unwrap().len(), 1);
    }
    node.ended("p").await;
    let task = node.task("t").await;
    assert_eq!(task.ended_at().unwrap().since(task.started_at().unwrap()).get(), 1_200_000);
    assert_eq!(flaky.journal.calls(), ["t/s/1", "t/s/2", "t/s/3"]);
}

/// Time goes on while a commit is on its way: what was decided before it must not be decided again after it.
#[tokio::test(start_paused = true)]
async fn a_wait_just_too_long_to_hold_is_given_back_also_when_the_store_was_slow_to_take_it() {
    let (world, (flaky, registry)) = (World::new(), failing(1));
    let store = crate::support::Faulty::over(world.store());
    let node = world.node_on(store.clone(), registry);
    let plan = LONG.replace("10m", "31s");
    store.commits_take(std::time::Duration::from_secs(5));
    node.submit(&plan).await;
    node.until("t", |task| stage(task, "s") == StageStatus::RetryWait).await;
    node.idle().await;
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!(flaky.journal.calls(), ["t/s/1", "t/s/2"]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_a_retry_can_be_paused_and_resumed_and_its_retry_keeps_its_time() {
    for (text, due) in [(SHORT, 20_000), (LONG, 600_000)] {
        let (world, (flaky, registry)) = (World::new(), failing(1));
        let node = world.node(registry);
        node.submit(text).await;
        node.until("t", |task| stage(task, "s") == StageStatus::RetryWait).await;
        if text == LONG {
            node.idle().await;
        }
        node.does(of_task("t"), Verb::Pause).await;
        assert_eq!(node.status("t").await, TaskStatus::Paused);
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        node.does(of_task("t"), Verb::Resume).await;
        if text == LONG {
            node.until_status("t", TaskStatus::Running).await;
            node.idle().await;
            assert_eq!(stage(&node.task("t").await, "s"), StageStatus::RetryWait, "not held all the while");
        }
        node.ended("p").await;
        let task = node.task("t").await;
        assert_eq!(task.ended_at().unwrap().since(task.started_at().unwrap()).get(), due);
        assert_eq!(flaky.journal.calls(), ["t/s/1", "t/s/2"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_came_due_while_its_task_was_paused_runs_at_the_resume_and_not_before() {
    let (world, (flaky, registry)) = (World::new(), failing(1));
    let node = world.node(registry);
    node.submit(LONG).await;
    node.until("t", |task| stage(task, "s") == StageStatus::RetryWait).await;
    node.does(of_plan("p"), Verb::Pause).await;
    tokio::time::sleep(std::time::Duration::from_secs(3000)).await;
    assert_eq!(flaky.journal.calls(), ["t/s/1"]);
    node.does(of_plan("p"), Verb::Resume).await;
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!(flaky.journal.calls(), ["t/s/1", "t/s/2"]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_a_retry_can_be_cancelled_and_never_runs_again() {
    for text in [SHORT, LONG] {
        let (world, (flaky, registry)) = (World::new(), failing(1));
        let node = world.node(registry);
        node.submit(text).await;
        node.until("t", |task| stage(task, "s") == StageStatus::RetryWait).await;
        if text == LONG {
            node.idle().await;
        }
        node.does(of_task("t"), Verb::Cancel).await;
        assert_eq!(node.status("t").await, TaskStatus::Cancelled);
        tokio::time::sleep(std::time::Duration::from_secs(3000)).await;
        assert_eq!(flaky.journal.calls(), ["t/s/1"]);
        assert!(node.engine.store().locks().await.unwrap().is_empty());
        assert_eq!(node.plan("p").await.status, PlanStatus::Failed);
    }
}

#[tokio::test(start_paused = true)]
async fn the_start_of_a_retry_that_runs_on_is_recorded_before_it_ends() {
    let world = World::new();
    let gate = crate::support::Gate::shut();
    let (flaky, registry) = failing(0);
    let inner = gate.kind();
    let first_fails = kind(move |call: StageCall| {
        let inner = inner.clone();
        async move {
            if call.attempt == 1 {
                return Outcome::Failure(Failure::retryable(ErrorType::Network, "no route"));
            }
            inner.run(call).await
        }
    });
    let node = world.node(registry.with("flaky", first_fails));
    node.submit(SHORT).await;
    gate.inside(1).await;
    node.until("t", |task| task.stage(0).1.attempt == 2 && stage(task, "s") == StageStatus::Running).await;
    gate.open();
    node.ended("p").await;
    assert_eq!(node.count("t", "STAGE_STARTED s 2").await, 1);
    assert_eq!(flaky.journal.calls(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_manual_retry_counts_attempts_from_one_again() {
    let (world, (flaky, registry)) = (World::new(), failing(3));
    let node = world.node(registry);
    assert_eq!(node.run(SHORT).await.status, PlanStatus::Failed);
    node.does(of_task("t"), crate::support::RETRY).await;
    assert_eq!(node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!(flaky.journal.calls(), ["t/s/1", "t/s/2", "t/s/3", "t/s/1"]);
}

#[tokio::test(start_paused = true)]
async fn thousands_of_waiting_retries_all_fire_and_none_early() {
    let world = World::new();
    let early: Arc<Mutex<Vec<String>>> = Arc::default();
    let started: Arc<Mutex<std::collections::HashMap<String, Timestamp>>> = Arc::default();
    let (noted, clock) = (early.clone(), world.clock.clone());
    let once = kind(move |call: StageCall| {
        let now = clock.now();
        let mut started = started.lock().unwrap();
        let first = *started.entry(call.task.to_string()).or_insert(now);
        if call.attempt == 2 && now.since(first) < Millis::from_secs(40) {
            noted.lock().unwrap().push(call.task.to_string());
        }
        async move {
            if call.attempt == 2 {
                Outcome::success()
            } else {
                Outcome::Failure(Failure::retryable(ErrorType::Network, "no"))
            }
        }
    });
    let node = world.node(Registry::new().with("once", once));
    let tasks: Vec<String> = (0..2000).map(|i| format!("{{id: t{i}}}")).collect();
    let retry = "{strategy: fixed, base: 40s, jitter: false}";
    let text = format!(
        "{{plan: p, max_concurrency: 5000, stages: [{{name: s, uses: once, retry: {retry}}}], tasks: [{}]}}",
        tasks.join(",")
    );
    let row = node.run(&text).await;
    assert_eq!(row.counts.completed, 2000);
    assert_eq!(*early.lock().unwrap(), [""; 0]);
}
