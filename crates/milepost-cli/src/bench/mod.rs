//! `milepost bench`: figures of this machine and store, beside what both give a bare loop in the same run.

mod figures;
mod idle;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(not(feature = "kafka"))]
#[path = "no_kafka.rs"]
mod kafka;
mod kind;
mod plans;
mod replay;
mod subject;
mod takeover;
mod workflow;
mod workloads;

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use milepost_engine::Options;

use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Data;
use crate::store_url::StoreUrl;

use figures::{Figures, mean_batch, peak_rss};
use kafka::Brokers;
use plans::Shape;
use subject::{Opened, Subject};
use workloads::Size;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Tasks of no-op stages with 64-byte results
    Chain,
    /// Tasks of one stage
    Single,
    /// As chain, but each stage fails once and is retried after the shortest wait
    Retry,
    /// Accepting tasks, one by one and all in one plan
    Submit,
    /// Retries that fall due within two seconds: how late they start
    Timers,
    /// From opening a store with interrupted tasks to all of them running again
    Resume,
    /// Reading the whole logs of workflows and folding them, without snapshots
    Replay,
    /// Workflows of one stage, one after another, that fails never, once or three times
    Workflow,
    /// A node with nothing to do: what it asks its store all the same
    Idle,
    /// Two nodes as processes, one killed in the middle of its stages: how long until the other one goes on with them
    Takeover,
    /// From messages in a topic to completed tasks of three no-op stages, beside the same plans submitted directly
    Kafka,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    workload: Workload,
    /// Tasks to run [default: as many as take a few seconds]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    tasks: Option<u32>,
    /// Stages of each task [default: 10; 3 for `kafka`; 1 for `single`, `submit`, `timers` and `workflow`; 10,000 for `replay`]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    stages: Option<u32>,
    /// Tasks in flight at once; `workflow` has one
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    in_flight: u32,
    /// Put this many tasks into the store first, which nobody runs
    #[arg(long, default_value_t = 0)]
    stored: u32,
    /// How long `idle` looks
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// How often `takeover` kills a node
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Where `kafka` publishes and reads [default: the brokers of the configuration]
    #[arg(long, value_name = "HOST:PORT[,...]")]
    kafka: Option<String>,
}

pub(crate) async fn bench(context: &Context, args: &Args) -> Outcome {
    let named = context.named_store()?;
    if args.workload == Workload::Takeover {
        takeover::must_be_shared(named.as_ref())?;
    }
    let is_kafka = args.workload == Workload::Kafka;
    let brokers = is_kafka.then(|| Brokers::new(context, args.kafka.as_deref())).transpose()?;
    let figures =
        run(args, named, brokers).await.map_err(|error| Failure::new(Exit::OutOfReach, format!("{error:#}")))?;
    let mut data = Data::new();
    data.json(&figures);
    Ok(Exit::Done)
}

/// Runs the workload on the store that was named, or on a fresh file here that is deleted afterwards, and answers one
/// JSON object.
async fn run(args: &Args, named: Option<StoreUrl>, brokers: Option<Brokers>) -> Result<serde_json::Value> {
    let subject = Subject::new(named)?;
    if args.workload == Workload::Takeover {
        return takeover::takeover(subject.url(), args.tasks.map_or(16, |tasks| tasks as usize), args.rounds).await;
    }
    let options = Options { capacity: args.in_flight as usize, ..workloads::node() };
    let opened = subject.open(&options).await?;
    let raw = subject.raw()?;
    workloads::fill(&opened.store, args.stored as usize).await?;
    let (figures, opened) = measure(args, &subject, opened, brokers).await?;
    let rss = peak_rss();
    opened.store.leave().await?;
    opened.cut_off();
    let batch = mean_batch(&figures.taken.stats).round() as usize;
    let raw = raw.finish(batch).await?;
    let mut json = figures.json(&subject.url().to_string(), rss, &raw);
    json["stored"] = args.stored.into();
    Ok(json)
}

async fn measure(
    args: &Args,
    subject: &Subject,
    opened: Opened,
    brokers: Option<Brokers>,
) -> Result<(Figures, Opened)> {
    let in_flight = args.in_flight as usize;
    let size = |tasks: usize, stages: usize| Size {
        tasks: args.tasks.map_or(tasks, |tasks| tasks as usize),
        stages: args.stages.map_or(stages, |stages| stages as usize),
        in_flight,
    };
    // One task at a time pays a sync for every stage.
    let few = |tasks: usize| if in_flight < 16 { tasks / 10 } else { tasks };
    let store = opened.store.clone();
    let figures = match args.workload {
        Workload::Chain => {
            let size = size(few(20_000), 10);
            workloads::chain("chain", store, size, Shape::chain(size.stages)).await?
        }
        Workload::Single => workloads::single(store, size(few(100_000), 1)).await?,
        Workload::Retry => {
            let size = size(few(20_000), 10);
            workloads::chain("retry", store, size, Shape::retry(size.stages)).await?
        }
        Workload::Submit => workloads::submit(store, size(200_000, 1)).await?,
        Workload::Timers => workloads::timers(store, size(10_000, 1)).await?,
        Workload::Replay => replay::replay(store, size(10, 10_000)).await?,
        Workload::Workflow => workflow::workflow(store, size(1000, 1)).await?,
        Workload::Idle => idle::idle(store, Duration::from_secs(args.seconds.into())).await?,
        Workload::Resume => {
            drop(store);
            return workloads::resume(subject, opened, size(10_000, 10)).await;
        }
        Workload::Kafka => {
            drop(store);
            let brokers = brokers.expect("it was asked for with them");
            return kafka::kafka(subject, opened, size(few(5000), 3), &brokers).await;
        }
        Workload::Takeover => unreachable!("it has processes of its own, and was run before this"),
    };
    Ok((figures, opened))
}
