//! One attempt: its time limit, its cancelling, its panics.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::failure::ErrorType;
use milepost_core::task::{PlanStatus, TaskStatus};
use milepost_engine::stage::{Outcome, StageCall, StageKind};
use milepost_engine::{Registry, Verb};

use crate::support::{Gate, Journal, World, error_type, kind, of_task};

#[tokio::test(start_paused = true)]
async fn an_attempt_that_outlives_its_timeout_is_cancelled_and_counts_as_a_retryable_timeout() {
    let (world, gate) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", gate.kind()));
    let retry = "{max_attempts: 2, strategy: fixed, base: 1s, jitter: false}";
    let row = node
        .run(&format!(
            "{{plan: p, stages: [{{name: s, uses: gate, timeout: 3s, retry: {retry}}}], tasks: [{{id: t}}]}}"
        ))
        .await;
    assert_eq!(row.status, PlanStatus::Failed);
    assert_eq!(gate.cancelled(), ["t/s/1", "t/s/2"], "each was told to end");
    let task = node.task("t").await;
    assert_eq!(error_type(&task), ErrorType::Timeout);
    assert_eq!(task.ended_at().unwrap().since(task.started_at().unwrap()).get(), 7000);
    assert_eq!(
        node.log("t").await[2..],
        ["STAGE_STARTED s 1", "RETRY_SCHEDULED s 2 after 1000", "STAGE_STARTED s 2", "STAGE_FAILED s 2", "TASK_FAILED"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_does_not_listen_is_dropped_after_a_grace_and_its_late_result_is_ignored() {
    let world = World::new();
    let (gone, mut is_gone) = tokio::sync::mpsc::unbounded_channel::<()>();
    let deaf = kind(move |_| {
        let gone = gone.clone();
        async move {
            let _dropped = gone;
            tokio::time::sleep(Duration::from_secs(100)).await;
            Outcome::success()
        }
    });
    let node = world.node(Registry::new().with("deaf", deaf));
    node.run("{plan: p, stages: [{name: s, uses: deaf, timeout: 1s, retry: {max_attempts: 1}}], tasks: [{id: t}]}")
        .await;
    let task = node.task("t").await;
    assert_eq!((task.status(), error_type(&task)), (TaskStatus::Failed, ErrorType::Timeout));
    assert_eq!(task.ended_at().unwrap().since(task.started_at().unwrap()).get(), 11_000);
    assert!(is_gone.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_success_that_comes_after_the_timeout_is_not_counted() {
    let world = World::new();
    let late = kind(|call: StageCall| async move {
        call.cancel.cancelled().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        Outcome::success()
    });
    let node = world.node(Registry::new().with("late", late));
    node.run("{plan: p, stages: [{name: s, uses: late, timeout: 1s, retry: {max_attempts: 1}}], tasks: [{id: t}]}")
        .await;
    assert_eq!(node.status("t").await, TaskStatus::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_outlives_its_task_timeout_fails_and_its_attempts_are_cancelled() {
    let (world, gate) = (World::new(), Gate::shut());
    let node = world.node(Registry::new().with("gate", gate.kind()));
    node.run("{plan: p, task_timeout: 10s, stages: [{name: a, uses: gate, needs: []}, {name: b, uses: gate, needs: []}], tasks: [{id: t}]}").await;
    let task = node.task("t").await;
    assert_eq!((task.status(), error_type(&task)), (TaskStatus::Failed, ErrorType::Timeout));
    assert_eq!(task.ended_at().unwrap().since(task.started_at().unwrap()).get(), 10_000);
    assert_eq!(gate.cancelled().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_task_timeout_strikes_a_task_that_waits_for_a_retry_too_long_to_be_held() {
    let world = World::new();
    let flaky = crate::support::Flaky::default();
    flaky.fail("s", 9);
    let node = world.node(Registry::new().with("flaky", flaky.kind()));
    let retry = "{strategy: fixed, base: 10m, max: 1h, jitter: false}";
    node.run(&format!(
        "{{plan: p, task_timeout: 90s, stages: [{{name: s, uses: flaky, retry: {retry}}}], tasks: [{{id: t}}]}}"
    ))
    .await;
    let task = node.task("t").await;
    assert_eq!((task.status(), error_type(&task)), (TaskStatus::Failed, ErrorType::Timeout));
    assert_eq!(task.ended_at().unwrap().since(task.started_at().unwrap()).get(), 90_000);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_retryable_failure_and_other_tasks_go_on() {
    let (world, journal) = (World::new(), Journal::default());
    let noted = journal.clone();
    let panics = kind(move |call: StageCall| {
        let noted = noted.clone();
        async move {
            noted.note(&call);
            assert!(call.task.as_str() != "bad", "out of cheese");
            Outcome::success()
        }
    });
    let node = world.node(Registry::new().with("panics", panics));
    let retry = "{max_attempts: 2, strategy: fixed, base: 1s, jitter: false}";
    let row = node.run(&format!("{{plan: p, stages: [{{name: s, uses: panics, retry: {retry}}}], tasks: [{{id: a}}, {{id: bad}}, {{id: z}}]}}")).await;
    assert_eq!((row.counts.completed, row.counts.failed), (2, 1));
    assert_eq!(journal.count("bad/s/2"), 1);
    let task = node.task("bad").await;
    assert_eq!(error_type(&task), ErrorType::Unknown);
    assert!(task.failure().unwrap().cause.reason.contains("out of cheese"));
}

/// Panics before it has made its future, as a kind that is written without `async fn` may.
struct EarlyPanic;

impl StageKind for EarlyPanic {
    fn run<'a, 'b>(&'a self, _: StageCall) -> std::pin::Pin<Box<dyn Future<Output = Outcome> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        panic!("too early")
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_panics_before_it_begins_fails_its_stage_and_nothing_else() {
    let world = World::new();
    let node = world.node(Registry::new().with("early", Arc::new(EarlyPanic)));
    node.run("{plan: p, stages: [{name: s, uses: early, retry: {max_attempts: 1}}], tasks: [{id: t}]}").await;
    assert_eq!(error_type(&node.task("t").await), ErrorType::Unknown);
    node.idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_running_attempts_before_the_tenant_is_free_for_the_next() {
    let (world, journal) = (World::new(), Journal::default());
    let (noted, started) = (journal.clone(), Gate::shut());
    let slow_to_end = {
        let started = started.clone();
        kind(move |call: StageCall| {
            let (noted, started) = (noted.clone(), started.clone());
            async move {
                noted.note(&call);
                started.let_go(1);
                call.cancel.cancelled().await;
                // The next task of the tenant must not start while this still cleans up.
                for _ in 0..50 {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    assert_eq!(noted.count("b/s/1"), 0, "two of a tenant at once");
                }
                Outcome::success()
            }
        })
    };
    let node = world.node(Registry::new().with("slow", slow_to_end).with("noop", journal.kind()));
    node.submit("{plan: p, tasks: [{id: a, tenant: x, stages: [{name: s, uses: slow}]}, {id: b, tenant: x, stages: [{name: s, uses: noop}]}]}").await;
    node.until("a", |task| task.started_at().is_some()).await;
    node.does(of_task("a"), Verb::Cancel).await;
    assert_eq!(node.status("a").await, TaskStatus::Cancelled);
    node.ended("p").await;
    assert_eq!(journal.calls(), ["a/s/1", "b/s/1"]);
    assert_eq!(node.count("a", "STAGE_COMPLETED s 1").await, 0, "its late success is ignored");
}
