//! What a workflow's retries cost: runs of one function, one after another, whose stages fail a given number of times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use milepost::{Context, ErrorType, Failure, Milepost, Retry, TypedWorkflow, Workflow, WorkflowRef};
use milepost_core::id::TaskId;
use milepost_core::task::Event;
use milepost_core::time::Millis;
use milepost_store::{EventQuery, Store};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::figures::{Figures, Latencies};
use super::workloads::{Before, Size, micros, prefix};

/// How often each stage fails before it succeeds.
const FAILURES: [u32; 3] = [0, 1, 3];
const NAMES: [&str; 3] = ["noRetry", "oneRetry", "threeRetries"];
/// The shortest wait that there is; it is taken off again.
const BASE: Duration = Duration::from_millis(1);

/// What one run is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Order {
    stages: usize,
    failures: u32,
    policy: Policy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Policy {
    /// One attempt.
    Never,
    /// As many as the failures ask for, and more.
    Five,
}

/// The function that is measured.
#[derive(Debug, Clone, Copy)]
struct Bench;

fn bench() -> Bench {
    Bench
}

impl Workflow for Bench {
    fn reference(&self) -> WorkflowRef {
        WorkflowRef { name: "bench".into(), version: 1 }
    }

    fn run(&self, context: Context, input: Arc<Value>) -> futures::future::BoxFuture<'static, Result<Value, Failure>> {
        Box::pin(async move {
            let order = Order::deserialize(&*input)?;
            let retry = match order.policy {
                Policy::Never => Retry::never(),
                Policy::Five => Retry::exponential(BASE).attempts(5),
            };
            for _ in 0..order.stages {
                let calls = AtomicU32::new(0);
                let work = || async {
                    if calls.fetch_add(1, Ordering::Relaxed) < order.failures {
                        return Err(Failure::retryable(ErrorType::Unavailable, "asked to fail"));
                    }
                    Ok("0123456789abcdef0123456789abcdef01234567890123456789".to_owned())
                };
                context.stage("s").retry(retry.clone()).run(work).await?;
            }
            Ok(Value::Null)
        })
    }
}

impl TypedWorkflow for Bench {
    type Input = Order;
    type Output = Value;
}

/// One run at a time, so that what is measured is one run and not the others it waits for.
pub(super) async fn workflow(store: Arc<dyn Store>, size: Size) -> Result<Figures> {
    let engine = Milepost::on(store.clone()).workflow(bench).start().await?;
    let driver = Driver { engine, store: store.clone(), prefix: prefix(), stages: size.stages };
    // What is read and compiled for the first run is no part of any.
    for index in 0..20 {
        driver.run(&format!("warm-{index}"), 3, Policy::Five).await?;
    }
    let before = Before::now(&*store);
    let mut all = FAILURES.map(|_| Latencies::new());
    // Taken in turns: a disk that is slow for a while is slow for all of them.
    for index in 0..size.tasks {
        for (failures, latencies) in FAILURES.iter().zip(&mut all) {
            latencies.record(driver.run(&format!("{index}-{failures}"), *failures, Policy::Five).await?);
        }
    }
    let taken = before.taken(&*store);
    let idle = driver.idle_policy(size.tasks).await?;
    driver.engine.stop().await;
    let cases = NAMES.iter().zip(&all).map(|(name, latencies)| ((*name).to_owned(), latencies.json())).collect();
    let [latencies, ..] = all;
    Ok(Figures {
        workload: "workflow",
        tasks: size.tasks * FAILURES.len(),
        stages: size.stages,
        in_flight: 1,
        taken,
        latencies,
        more: json!({ "withoutBackoffMs": Value::Object(cases), "idlePolicyCost": idle }),
    })
}

struct Driver {
    engine: milepost::Engine,
    store: Arc<dyn Store>,
    prefix: String,
    stages: usize,
}

impl Driver {
    /// One run from its submission to its result, in microseconds, without the backoff that its log has.
    async fn run(&self, name: &str, failures: u32, policy: Policy) -> Result<u64> {
        let id = format!("{}-{name}", self.prefix);
        let order = Order { stages: self.stages, failures, policy };
        let start = Instant::now();
        self.engine.run(bench, order).id(id.as_str()).await?;
        let took = start.elapsed();
        let waited = if failures == 0 { Millis::ZERO } else { self.waited(&id, failures).await? };
        Ok(micros(took.saturating_sub(waited.as_duration())))
    }

    async fn waited(&self, id: &str, failures: u32) -> Result<Millis> {
        let query = EventQuery { task: TaskId::parse(id)?, after: 0, limit: usize::MAX };
        let events = self.store.events(query).await?;
        let delays = events.iter().filter_map(|event| match event.record.event() {
            Event::RetryScheduled { delay, .. } => Some(*delay),
            _ => None,
        });
        let delays: Vec<Millis> = delays.collect();
        ensure!(delays.len() == failures as usize * self.stages, "a benchmark run was retried {} times", delays.len());
        Ok(delays.into_iter().fold(Millis::ZERO, Millis::saturating_add))
    }

    /// How much longer a run takes with a policy that never fires: the median of pairs of runs, the order changing.
    async fn idle_policy(&self, pairs: usize) -> Result<f64> {
        let mut ratios = Vec::with_capacity(pairs);
        for index in 0..pairs {
            let order =
                if index.is_multiple_of(2) { [Policy::Five, Policy::Never] } else { [Policy::Never, Policy::Five] };
            let (mut with, mut without) = (0, 0);
            for policy in order {
                let took = self.run(&format!("idle-{index}-{policy:?}"), 0, policy).await?;
                match policy {
                    Policy::Five => with = took,
                    Policy::Never => without = took,
                }
            }
            ratios.push(with as f64 / without.max(1) as f64);
        }
        ratios.sort_unstable_by(f64::total_cmp);
        let middle = ratios.len() / 2;
        let median =
            if ratios.len().is_multiple_of(2) { (ratios[middle - 1] + ratios[middle]) / 2.0 } else { ratios[middle] };
        Ok(median - 1.0)
    }
}
