//! How long the tasks of a node that was killed wait for another one: two processes of this program on one store.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use milepost_core::id::{PlanId, TaskId};
use milepost_core::task::{By, Event};
use milepost_core::time::Timestamp;
use milepost_engine::{Clock, Engine, Options, Target, Verb};
use milepost_store::{ChangeQuery, Changed, Position, Resubmit, Start, Store};
use serde_json::{Value, json};

use super::figures::Latencies;
use super::workloads::prefix;
use crate::exit::{Exit, Failure};
use crate::plan_file::registry;
use crate::store_url::StoreUrl;

/// More than any lease, and what a slow machine needs besides.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// So many stages of a fifth of a second each outlast the killing and the taking over.
const STAGES: usize = 600;

pub(super) fn must_be_shared(url: Option<&StoreUrl>) -> Result<(), Failure> {
    match url {
        Some(url) if url.secret().is_some() => Ok(()),
        Some(_) | None => Err(Failure::new(Exit::Usage, "`takeover` needs a store that several nodes share")
            .help("name one by `--store postgres://…`, mysql://… or redis://…")),
    }
}

pub(super) async fn takeover(url: &StoreUrl, tasks: usize, rounds: u32) -> Result<Value> {
    let store = url.visit().await.map_err(|failure| anyhow::anyhow!(failure.message))?;
    let (mut first, mut all) = (Latencies::new(), Latencies::new());
    let mut each = Vec::new();
    for _ in 0..rounds {
        let taken = round(url, &store, tasks).await?;
        first.record(taken.first * 1000);
        all.record(taken.all * 1000);
        each.push(json!({ "firstMs": taken.first, "allMs": taken.all }));
    }
    Ok(json!({
        "workload": "takeover",
        "store": url.to_string(),
        "tasks": tasks,
        "rounds": rounds,
        "leaseMs": milepost_store::LEASE.get(),
        // From the kill to the first new stage of the dead node's tasks, and to that of the last of them.
        "firstMs": first.json(),
        "allMs": all.json(),
        "each": each,
    }))
}

/// Milliseconds from the kill.
struct Taken {
    first: u64,
    all: u64,
}

async fn round(url: &StoreUrl, store: &Arc<dyn Store>, tasks: usize) -> Result<Taken> {
    let name = prefix();
    let engine = Engine::new(store.clone(), registry(), Options::new("bench"));
    let doomed = Node::start(url, &format!("{name}-a"))?;
    let plan = Arc::new(
        registry()
            .read_plan("bench", plan(&name, tasks).as_bytes())
            .map_err(|error| anyhow::anyhow!("the plan of the benchmark is refused: {error}"))?,
    );
    let id = plan.definition.id.clone();
    let from = store.newest().await?;
    engine.submit(plan, Start::AtOnce, Resubmit::Same).await?;
    // Two stages each: all of them are the doomed node's, and in the middle of their work.
    stages_started(store, &id, from, 2, tasks).await?;
    let heir = Node::start(url, &format!("{name}-b"))?;
    let killed_at = doomed.kill()?;
    let started = stages_started(store, &id, store.newest().await?, 1, tasks).await;
    let cancelled = engine.operate(Target::Plan(id), Verb::Cancel, By::new("bench")).await;
    heir.kill()?;
    let starts = started?;
    cancelled?;
    let since = |at: &Timestamp| at.since(killed_at).get();
    let (first, last) = (starts.first().context("somebody went on")?, starts.last().context("somebody went on")?);
    Ok(Taken { first: since(first), all: since(last) })
}

/// When each task had started so many stages after a position, in order.
async fn stages_started(
    store: &Arc<dyn Store>,
    plan: &PlanId,
    from: Position,
    stages: usize,
    tasks: usize,
) -> Result<Vec<Timestamp>> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let (mut after, mut counts) = (from, std::collections::HashMap::<TaskId, usize>::new());
    let (mut starts, mut done) = (Vec::new(), HashSet::new());
    loop {
        let changes = store.changes(ChangeQuery { after, plan: Some(plan.clone()), limit: 1000 }).await?;
        for change in changes.items {
            let Changed::Task { task, records, .. } = change.what else { continue };
            for record in records.iter().filter(|record| matches!(record.event(), Event::StageStarted { .. })) {
                let count = counts.entry(task.clone()).or_default();
                *count += 1;
                if *count == stages && done.insert(task.clone()) {
                    starts.push(record.at());
                }
            }
        }
        after = changes.upto;
        if done.len() == tasks {
            starts.sort_unstable();
            return Ok(starts);
        }
        ensure!(tokio::time::Instant::now() < deadline, "after {PATIENCE:?} only {} of {tasks} tasks run", done.len());
        if !changes.more {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn plan(name: &str, tasks: usize) -> String {
    let stages: String = (0..STAGES).map(|at| format!("  - {{ name: s{at}, run: sleep 0.2 }}\n")).collect();
    let tasks: String = (0..tasks).map(|at| format!("  - {{ id: {name}-{at} }}\n")).collect();
    format!("plan: {name}\nmax_concurrency: 1000\nstages:\n{stages}tasks:\n{tasks}")
}

/// A process of this program that serves; killed if it is left behind.
struct Node {
    child: Child,
}

impl Node {
    /// Waits until it listens. The store's address reaches it by its environment, where nobody else sees it.
    fn start(url: &StoreUrl, name: &str) -> Result<Self> {
        let program = std::env::current_exe().context("this program has no file")?;
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--quiet", "--json", "--node", name]);
        command.env("MILEPOST_STORE", url.secret().unwrap_or_default()).env_remove("MILEPOST_SERVER");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut node = Self { child: command.spawn().context("another node cannot be started")? };
        let stdout = node.child.stdout.take().context("it has a stdout")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("the other node says nothing")?;
        if !line.contains("listening") {
            bail!("the other node did not start; its own words are above");
        }
        Ok(node)
    }

    /// SIGKILL, and when that was.
    fn kill(mut self) -> Result<Timestamp> {
        let now = Clock::system().now();
        self.child.kill().context("the node cannot be killed")?;
        self.child.wait().context("the node does not end")?;
        Ok(now)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It has usually been killed already, which is no error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
