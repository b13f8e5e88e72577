//! Watching over a run: until the plan has ended, a person stops it, or nothing of it can go on.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use milepost_core::id::{PlanId, TaskId};
use milepost_core::task::{PlanStatus, TaskStatus};
use milepost_engine::Engine;
use milepost_store::{PlanRow, StoreError, TaskQuery, TasksOf};

use super::{Run, nothing_to_do};
use crate::exit::{Exit, Failure, chain};
use crate::output;
use crate::progress::{Progress, paused};
use crate::signals::Signals;
use crate::views::MOST_SHOWN;

/// How often to look whether anything is left to wait for, when the plan itself does not change; and never for more
/// than a tenth of the time, because counting a large plan takes a while.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The same on a store that others share: each look is a question to a server.
const LOOK_AT_SERVER_EVERY: Duration = Duration::from_secs(1);

/// How a run ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The plan is over.
    Ended(PlanId),
    /// `on_task_failure: pause` stopped it, and a person has to decide.
    PausedByFailure(PlanId),
    /// What is left waits for something that nobody here works on.
    Stuck(PlanId, Vec<Waiting>),
    /// Ctrl-C or SIGTERM, at the stage boundary.
    Interrupted(PlanId),
}

/// A task that cannot be run, and what keeps it.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) task: TaskId,
    pub(crate) why: Why,
}

#[derive(Debug)]
pub(crate) enum Why {
    /// The holder of its tenant, as `plan:task`.
    BlockedBy(String),
    /// It cannot be read, or no claim could take it.
    SetAside(String),
}

impl Ending {
    pub(super) fn plan(&self) -> &PlanId {
        match self {
            Ending::Ended(plan)
            | Ending::PausedByFailure(plan)
            | Ending::Stuck(plan, _)
            | Ending::Interrupted(plan) => plan,
        }
    }

    pub(super) fn exit(&self, status: PlanStatus) -> Exit {
        match (self, status) {
            // Also when it was stopped in its very last moment.
            (_, PlanStatus::Completed) => Exit::Done,
            (Ending::Interrupted(_), _) => Exit::Interrupted,
            (Ending::Ended(_) | Ending::PausedByFailure(_) | Ending::Stuck(..), _) => Exit::TaskFailed,
        }
    }
}

pub(super) async fn supervise(
    run: &Run<'_>,
    plan: &PlanId,
    mut signals: Signals,
    progress: &Progress,
) -> Result<Ending, Failure> {
    tokio::select! {
        ending = settled(run, plan, progress) => return Ok(ending?),
        () = signals.next() => {}
        why = run.engine.ousted() => {
            run.engine.stop().await;
            return Err(Failure::new(Exit::OutOfReach, why).help("give each node a name of its own, with --node"));
        }
    }
    progress.stopping();
    output::message("stopping after the running stages; press Ctrl-C again to stop now");
    tokio::select! {
        () = run.engine.stop() => Ok(Ending::Interrupted(plan.clone())),
        () = signals.next() => {
            // What runs dies with this process; its attempts are repeated by the next one.
            if let Some(listener) = &run.listener {
                let _ = std::fs::remove_file(listener.file());
            }
            output::message("stopped at once; the running stages will be repeated");
            std::process::exit(Exit::Interrupted as i32)
        }
    }
}

async fn settled(run: &Run<'_>, plan: &PlanId, progress: &Progress) -> Result<Ending, StoreError> {
    let engine = &run.engine;
    let look_every = if engine.store().is_shared() { LOOK_AT_SERVER_EVERY } else { LOOK_EVERY };
    let mut told_paused = false;
    let mut stuck_before = false;
    let mut away = false;
    loop {
        let changes = engine.plan_changes(plan);
        let looked_at = Instant::now();
        let row = match engine.store().plan(plan).await {
            // A server may come back, and what runs goes on meanwhile as its node has been told to.
            Err(error @ StoreError::Unavailable { .. }) if engine.store().is_shared() => {
                if !std::mem::replace(&mut away, true) {
                    output::message(&format!("the store is away, waiting for it: {}", chain(&error)));
                }
                tokio::time::sleep(look_every).await;
                continue;
            }
            row => row?,
        };
        if std::mem::take(&mut away) {
            output::message("the store is back");
        }
        let row = row.ok_or_else(|| StoreError::NotFound { what: "plan", id: plan.to_string() })?;
        if nothing_to_do(&row) {
            return Ok(Ending::Ended(row.id));
        }
        if row.status == PlanStatus::Paused {
            if row.changed_by.is_none() && nothing_active(&row) {
                return Ok(Ending::PausedByFailure(row.id));
            }
            if !std::mem::replace(&mut told_paused, true) {
                say_it_is_paused(run, &row);
            }
        } else if std::mem::take(&mut told_paused) && row.status == PlanStatus::Running {
            output::message(&format!("plan {plan} goes on"));
        }
        progress.plan(row.status);
        match waits_for_nobody(engine, &row).await {
            // Seen twice: in between, something may just have been about to be claimed.
            Ok(Some(waiting)) if stuck_before => return Ok(Ending::Stuck(row.id, waiting)),
            Ok(waiting) => stuck_before = waiting.is_some(),
            // The next look tells of it.
            Err(StoreError::Unavailable { .. }) if engine.store().is_shared() => {}
            Err(error) => return Err(error),
        }
        tokio::select! {
            _ = changes => {}
            () = time_to_look(engine, &row, look_every.max(looked_at.elapsed() * 9)) => {}
        }
    }
}

/// While tasks are in hand, their plan says by itself when it changes; that costs nothing.
async fn time_to_look(engine: &Engine, row: &PlanRow, wait: Duration) {
    loop {
        tokio::time::sleep(wait).await;
        if row.status != PlanStatus::Running || engine.in_hand() == 0 {
            return;
        }
    }
}

fn nothing_active(row: &PlanRow) -> bool {
    row.counts.running + row.counts.rolling_back == 0
}

fn say_it_is_paused(run: &Run<'_>, row: &PlanRow) {
    output::message(&paused(run.context, &row.id, row.changed_by.as_ref()));
}

/// What is left when every open task waits for a tenant or cannot be read, and nobody here can change that.
async fn waits_for_nobody(engine: &Engine, row: &PlanRow) -> Result<Option<Vec<Waiting>>, StoreError> {
    // A paused task waits for a person, who can resume it from elsewhere.
    if row.status != PlanStatus::Running || row.counts.paused > 0 || engine.in_hand() > 0 {
        return Ok(None);
    }
    let statuses = vec![TaskStatus::Pending, TaskStatus::Running, TaskStatus::RollingBack];
    let query = TaskQuery { of: TasksOf::Plan(row.id.clone()), statuses, after: None, limit: MOST_SHOWN };
    let rows = engine.store().tasks(query).await?.items;
    let waiting = rows.into_iter().map(|row| {
        let why = row.set_aside.map(Why::SetAside).or(row.blocked_by.map(Why::BlockedBy))?;
        Some(Waiting { task: row.key.id, why })
    });
    let waiting: Option<Vec<Waiting>> = waiting.collect();
    let Some(waiting) = waiting.filter(|waiting| !waiting.is_empty()) else { return Ok(None) };
    // Where others run plans as well, whoever has a tenant may be at work elsewhere, and gives it back.
    if engine.store().is_shared() {
        let locks = engine.store().locks().await?;
        let owners: HashSet<String> = locks.iter().map(|lock| format!("{}:{}", lock.plan, lock.task)).collect();
        if waiting.iter().any(|waiting| matches!(&waiting.why, Why::BlockedBy(owner) if owners.contains(owner))) {
            return Ok(None);
        }
    }
    Ok(Some(waiting))
}
