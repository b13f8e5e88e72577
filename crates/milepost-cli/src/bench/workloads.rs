//! What is measured: each drives the same submit, claim, commit and feed as `run` does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use milepost_core::id::PlanId;
use milepost_core::retry::{RetryPolicy, Strategy};
use milepost_core::task::{By, Event, PlanStatus};
use milepost_core::time::{Millis, Timestamp};
use milepost_engine::{Engine, Options, Registry, Target, Verb};
use milepost_store::{EventQuery, Resubmit, Start, Store, StoreStats, TaskQuery, TasksOf};
use serde_json::{Value, json};

use super::figures::{Figures, Latencies, Taken, bytes_written, cpu_time};
use super::kind::{Endless, registry};
use super::plans::Shape;
use super::subject::{Opened, Subject};

/// Counters before a measurement, to be taken off afterwards.
pub(super) struct Before {
    start: Instant,
    stats: StoreStats,
    bytes: u64,
    cpu: Duration,
}

impl Before {
    pub(super) fn now(store: &dyn Store) -> Self {
        Self { stats: store.stats(), bytes: bytes_written(), cpu: cpu_time(), start: Instant::now() }
    }

    pub(super) fn taken(&self, store: &dyn Store) -> Taken {
        let (elapsed, now) = (self.start.elapsed(), store.stats());
        let stats = StoreStats {
            syncs: now.syncs - self.stats.syncs,
            batches: now.batches - self.stats.batches,
            operations: now.operations - self.stats.operations,
            commits: now.commits - self.stats.commits,
            round_trips: now.round_trips - self.stats.round_trips,
        };
        Taken { elapsed, stats, bytes: bytes_written() - self.bytes, cpu: cpu_time().saturating_sub(self.cpu) }
    }
}

/// How much of a workload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) tasks: usize,
    pub(super) stages: usize,
    pub(super) in_flight: usize,
}

/// Whoever measures. One name for all of them: on a store that nodes share, each takes the place of the last.
pub(super) fn node() -> Options {
    Options::new("bench")
}

pub(super) fn engine(store: Arc<dyn Store>, registry: Registry, capacity: usize) -> Engine {
    let engine = Engine::new(store, registry, Options { capacity, ..node() });
    engine.start();
    engine
}

/// Names that no earlier run on the same store has used.
pub(super) fn prefix() -> String {
    format!("bench-{}", uuid::Uuid::now_v7().simple())
}

/// Puts tasks into the store that nobody runs, to see what a full store costs.
pub(super) async fn fill(store: &Arc<dyn Store>, tasks: usize) -> Result<()> {
    let engine = Engine::new(store.clone(), registry(), node());
    let mut left = tasks;
    while left > 0 {
        let now = left.min(100_000);
        engine.submit(Shape::chain(1).plan(&prefix(), now), Start::Later, Resubmit::Same).await?;
        left -= now;
    }
    Ok(())
}

/// One plan of many tasks, as `run` has it, `in_flight` of them at once.
pub(super) async fn chain(workload: &'static str, store: Arc<dyn Store>, size: Size, shape: Shape) -> Result<Figures> {
    let engine = engine(store.clone(), registry(), size.in_flight);
    let watcher = watch(&engine);
    let plan = Shape { max_concurrency: size.in_flight, ..shape }.plan(&prefix(), size.tasks);
    engine.submit(plan.clone(), Start::Later, Resubmit::Same).await?;
    let before = Before::now(&*store);
    engine.operate(Target::Plan(plan.definition.id.clone()), Verb::Start, By::new("bench")).await?;
    run_to_end(&engine, &plan.definition.id).await?;
    let taken = before.taken(&*store);
    engine.stop().await;
    watcher.abort();
    let (latencies, runs) = task_times(&*store, &plan.definition.id).await?;
    Ok(Figures {
        workload,
        tasks: size.tasks,
        stages: size.stages,
        in_flight: size.in_flight,
        taken,
        latencies,
        more: json!({ "runMs": runs.json() }),
    })
}

/// Somebody watches, as somebody does when a plan is run.
fn watch(engine: &Engine) -> tokio::task::JoinHandle<()> {
    let mut feed = engine.feed().watch();
    tokio::spawn(async move { while feed.next().await.is_some() {} })
}

/// From submission to end, and from start to end, as the store has them.
async fn task_times(store: &dyn Store, plan: &PlanId) -> Result<(Latencies, Latencies)> {
    let (mut latencies, mut runs) = (Latencies::new(), Latencies::new());
    let mut after = None;
    loop {
        let query = TaskQuery { of: TasksOf::Plan(plan.clone()), statuses: Vec::new(), after, limit: 1000 };
        let page = store.tasks(query).await?;
        for row in &page.items {
            let ended = row.ended_at.context("a task of an ended plan has ended")?;
            latencies.record(ended.since(row.created_at).get() * 1000);
            runs.record(ended.since(row.started_at.unwrap_or(ended)).get() * 1000);
        }
        after = page.next;
        if after.is_none() {
            return Ok((latencies, runs));
        }
    }
}

/// Keeps `in_flight` plans of one task going; a task's latency is from its submission to its end.
pub(super) async fn single(store: Arc<dyn Store>, size: Size) -> Result<Figures> {
    let engine = engine(store.clone(), registry(), size.in_flight);
    let watcher = watch(&engine);
    let (next, prefix, shape) = (Arc::new(AtomicUsize::new(0)), prefix(), Shape::chain(size.stages));
    let latencies = Arc::new(Mutex::new(Latencies::new()));
    let before = Before::now(&*store);
    let mut drivers = tokio::task::JoinSet::new();
    for _ in 0..size.in_flight {
        let (engine, next, shape, prefix) = (engine.clone(), next.clone(), shape.clone(), prefix.clone());
        let latencies = latencies.clone();
        drivers.spawn(async move {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= size.tasks {
                    return anyhow::Ok(());
                }
                let plan = shape.plan(&format!("{prefix}-{index}"), 1);
                let start = Instant::now();
                let ended = engine.plan_changes(&plan.definition.id);
                engine.submit(plan, Start::AtOnce, Resubmit::Same).await?;
                let status = ended.await.context("the engine stopped")?;
                ensure!(status == PlanStatus::Completed, "a benchmark plan ended {status}");
                latencies.lock().unwrap_or_else(PoisonError::into_inner).record(micros(start.elapsed()));
            }
        });
    }
    while let Some(driver) = drivers.join_next().await {
        driver.context("a driver panicked")??;
    }
    let taken = before.taken(&*store);
    engine.stop().await;
    watcher.abort();
    let latencies = std::mem::replace(&mut *latencies.lock().unwrap_or_else(PoisonError::into_inner), Latencies::new());
    Ok(Figures {
        workload: "single",
        tasks: size.tasks,
        stages: size.stages,
        in_flight: size.in_flight,
        taken,
        latencies,
        more: Value::Null,
    })
}

/// Accepting tasks without running them: one by one, then all in one plan.
pub(super) async fn submit(store: Arc<dyn Store>, size: Size) -> Result<Figures> {
    let engine = Engine::new(store.clone(), registry(), node());
    let (shape, name) = (Shape::chain(size.stages), prefix());
    let singles = size.tasks.min(2000);
    let mut latencies = Latencies::new();
    let one_by_one = Instant::now();
    for index in 0..singles {
        let plan = shape.plan(&format!("{name}-{index}"), 1);
        let start = Instant::now();
        engine.submit(plan, Start::Later, Resubmit::Same).await?;
        latencies.record(micros(start.elapsed()));
    }
    let one_by_one = singles as f64 / one_by_one.elapsed().as_secs_f64();
    let plan = shape.plan(&prefix(), size.tasks);
    let before = Before::now(&*store);
    engine.submit(plan, Start::Later, Resubmit::Same).await?;
    let taken = before.taken(&*store);
    Ok(Figures {
        workload: "submit",
        tasks: size.tasks,
        stages: size.stages,
        in_flight: 1,
        taken,
        latencies,
        more: json!({ "oneByOneTasksPerSecond": one_by_one, "oneByOneTasks": singles }),
    })
}

/// Retries that fall due within a second, all waiting at once; the figure is how late each one starts.
pub(super) async fn timers(store: Arc<dyn Store>, size: Size) -> Result<Figures> {
    let retry = RetryPolicy {
        strategy: Strategy::Fixed,
        base: Millis::from_secs(4),
        max_attempts: 2,
        ..RetryPolicy::default()
    };
    // With jitter of up to half the base they fall due over two seconds.
    let shape = Shape { failures: 1, retry, max_concurrency: size.tasks, ..Shape::chain(1) };
    let engine = engine(store.clone(), registry(), size.tasks);
    let plan = shape.plan(&prefix(), size.tasks);
    let before = Before::now(&*store);
    engine.submit(plan.clone(), Start::AtOnce, Resubmit::Same).await?;
    run_to_end(&engine, &plan.definition.id).await?;
    let taken = before.taken(&*store);
    engine.stop().await;
    let mut latencies = Latencies::new();
    let mut early = 0;
    for task in &plan.tasks {
        let events = store.events(EventQuery { task: task.id.clone(), after: 0, limit: 100 }).await?;
        let mut due: Option<Timestamp> = None;
        for event in &events {
            match (event.record.event(), due) {
                (Event::RetryScheduled { delay, .. }, _) => due = Some(event.record.at() + *delay),
                (Event::StageStarted { .. }, Some(due)) => {
                    early += u64::from(event.record.at() < due);
                    latencies.record(event.record.at().since(due).get() * 1000);
                }
                _ => {}
            }
        }
    }
    Ok(Figures {
        workload: "timers",
        tasks: size.tasks,
        stages: 1,
        in_flight: size.tasks,
        taken,
        latencies,
        more: json!({ "early": early, "windowMs": 2000 }),
    })
}

/// From opening a store that was cut off with all its tasks running, to all of them running again.
pub(super) async fn resume(subject: &Subject, opened: Opened, size: Size) -> Result<(Figures, Opened)> {
    let endless = Arc::new(Endless::default());
    let shape = Shape { kind: "endless", max_concurrency: size.tasks, ..Shape::chain(size.stages) };
    let plan = shape.plan(&prefix(), size.tasks);
    let kinds = |kind: &Arc<Endless>| Registry::new().with("endless", kind.clone());
    let first = engine(opened.store.clone(), kinds(&endless), size.tasks);
    first.submit(plan.clone(), Start::AtOnce, Resubmit::Same).await?;
    endless.wait_for(size.tasks).await;
    opened.cut_off();

    let again = Arc::new(Endless::default());
    let before =
        Before { stats: StoreStats::default(), bytes: bytes_written(), cpu: cpu_time(), start: Instant::now() };
    let options = Options { capacity: size.tasks, ..node() };
    let again_opened = subject.open(&options).await?;
    let took = before.start.elapsed();
    let second = Engine::new(again_opened.store.clone(), kinds(&again), options);
    second.start();
    let running_again = again.wait_for(size.tasks).await;
    let taken = before.taken(&*again_opened.store);
    let mut latencies = Latencies::new();
    running_again.into_iter().for_each(|at| latencies.record(micros(at - before.start)));
    let figures = Figures {
        workload: "resume",
        tasks: size.tasks,
        stages: size.stages,
        in_flight: size.tasks,
        taken,
        latencies,
        more: json!({ "openSeconds": took.as_secs_f64() }),
    };
    drop(second);
    Ok((figures, again_opened))
}

pub(super) async fn run_to_end(engine: &Engine, plan: &PlanId) -> Result<()> {
    let row = engine.wait_for_plan(plan, |row| row.status.is_ended()).await?;
    ensure!(row.status == PlanStatus::Completed, "a benchmark plan ended {}", row.status);
    Ok(())
}

pub(super) fn micros(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}
