//! `milepost bench`: figures of this machine and store, beside what both give a bare loop in the same run.

mod figures;
mod kind;
mod plans;
mod replay;
mod workflow;
mod workloads;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use milepost_store::sqlite::{SqliteStore, raw};

use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Data;

use figures::{Figures, mean_batch, peak_rss};
use plans::Shape;
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
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    workload: Workload,
    /// Tasks to run [default: as many as take a few seconds]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    tasks: Option<u32>,
    /// Stages of each task [default: 10; 1 for `single`, `submit`, `timers` and `workflow`; 10,000 for `replay`]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    stages: Option<u32>,
    /// Tasks in flight at once; `workflow` has one
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    in_flight: u32,
    /// Put this many tasks into the store first, which nobody runs
    #[arg(long, default_value_t = 0)]
    stored: u32,
}

pub(crate) async fn bench(context: &Context, args: &Args) -> Outcome {
    let path = context.named_store()?.map(|store| store.path);
    let figures = run(args, path).await.map_err(|error| Failure::new(Exit::OutOfReach, format!("{error:#}")))?;
    let mut data = Data::new();
    data.json(&figures);
    Ok(Exit::Done)
}

/// Runs the workload on `path`, or on a fresh file here that is deleted afterwards, and answers one JSON object.
async fn run(args: &Args, path: Option<PathBuf>) -> Result<serde_json::Value> {
    let scratch;
    let path = match path {
        Some(path) => path,
        None => {
            scratch = tempfile::Builder::new()
                .prefix("milepost-bench-")
                .tempdir_in(".")
                .context("no folder for the store")?;
            scratch.path().join("bench.db")
        }
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let store = Arc::new(SqliteStore::open(&path)?);
    let raw = raw::Measurement::start(folder, kind::result()).map_err(|error| anyhow::anyhow!(error))?;
    workloads::fill(&store, args.stored as usize).await?;
    let (figures, store) = measure(args, &path, store).await?;
    let rss = peak_rss();
    store.close();
    let batch = mean_batch(&figures.taken.stats).round() as usize;
    let raw = raw.finish(batch).map_err(|error| anyhow::anyhow!(error))?;
    let mut json = figures.json(&format!("sqlite:{}", path.display()), rss, &raw);
    json["stored"] = args.stored.into();
    Ok(json)
}

async fn measure(args: &Args, path: &Path, store: Arc<SqliteStore>) -> Result<(Figures, Arc<SqliteStore>)> {
    let in_flight = args.in_flight as usize;
    let size = |tasks: usize, stages: usize| Size {
        tasks: args.tasks.map_or(tasks, |tasks| tasks as usize),
        stages: args.stages.map_or(stages, |stages| stages as usize),
        in_flight,
    };
    // One task at a time pays a sync for every stage.
    let few = |tasks: usize| if in_flight < 16 { tasks / 10 } else { tasks };
    let kept = store.clone();
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
        Workload::Resume => {
            drop(kept);
            return workloads::resume(path, store, size(10_000, 10)).await;
        }
    };
    Ok((figures, kept))
}
