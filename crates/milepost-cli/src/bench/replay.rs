//! How fast recorded logs are read and folded, as when there is no snapshot to go on from.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::BoxFuture;
use milepost_core::failure::Failure;
use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::WorkflowRef;
use milepost_core::task::Task;
use milepost_engine::Registry;
use milepost_engine::workflow::{Context, Run, Workflow};
use milepost_store::{EventQuery, Resubmit, Start, Store};
use serde_json::{Value, json};

use super::figures::{Figures, Latencies, Taken};
use super::kind::result;
use super::workloads::{Before, Size, engine, micros, prefix, run_to_end};

/// Stages one after the other, each with the result of the other workloads.
struct Chain {
    stages: usize,
}

impl Workflow for Chain {
    fn reference(&self) -> WorkflowRef {
        WorkflowRef { name: "bench-chain".into(), version: 1 }
    }

    fn run(&self, context: Context, _input: Arc<Value>) -> BoxFuture<'static, Result<Value, Failure>> {
        let stages = self.stages;
        Box::pin(async move {
            let value = Value::Object((*result()).clone());
            for _ in 0..stages {
                context.stage("step").run(|| std::future::ready(Ok::<_, Failure>(value.clone()))).await?;
            }
            Ok(Value::Null)
        })
    }
}

/// Workflows are run and recorded, then every log is read whole and folded.
pub(super) async fn replay(store: Arc<dyn Store>, size: Size) -> Result<Figures> {
    let chain = Arc::new(Chain { stages: size.stages });
    let (prefix, workflow) = (prefix(), chain.reference());
    let engine = engine(store.clone(), Registry::new().with_workflow(chain), size.in_flight);
    let mut tasks = Vec::new();
    for index in 0..size.tasks {
        let id = TaskId::parse(format!("{prefix}-{index}")).context("a prefix and a number are a name")?;
        let plan = Run::new(workflow.clone(), id.clone(), Value::Null).plan();
        engine.submit(Arc::new(plan), Start::AtOnce, Resubmit::Same).await?;
        tasks.push(id);
    }
    for task in &tasks {
        run_to_end(&engine, &PlanId::parse(task.as_str()).context("plans and tasks have names alike")?).await?;
    }
    engine.stop().await;

    let (mut latencies, mut events, mut elapsed) = (Latencies::new(), 0, Duration::ZERO);
    let before = Before::now(&*store);
    for id in &tasks {
        let stored = store.task(id).await?.context("a task that ran is stored")?.task;
        let start = Instant::now();
        let log = store.events(EventQuery { task: id.clone(), after: 1, limit: usize::MAX }).await?;
        let mut task = Task::created(stored.spec().clone());
        for event in &log {
            task.apply_in_place(&event.record)?;
        }
        let took = start.elapsed();
        latencies.record(micros(took));
        (events, elapsed) = (events + log.len(), elapsed + took);
        ensure!(task == stored, "the log of task {id} does not give the task that is stored");
    }
    // Without what it takes to compare.
    let taken = Taken { elapsed, ..before.taken(&*store) };
    let per_second = events as f64 / taken.elapsed.as_secs_f64();
    Ok(Figures {
        workload: "replay",
        tasks: size.tasks,
        stages: size.stages,
        in_flight: size.in_flight,
        taken,
        latencies,
        more: json!({ "events": events, "eventsPerSecond": per_second }),
    })
}
