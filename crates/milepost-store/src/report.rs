//! What people want to know of a plan as a whole, put together from a few questions to its store.

use std::time::Duration;

use milepost_core::api::{PlanProgress, PlanReport, PlanView, TaskFailureView, TaskProgress};
use milepost_core::id::PlanId;
use milepost_core::pace::Outlook;
use milepost_core::task::{PlanStatus, StageProgress, TaskStatus, TaskView, percent};
use milepost_core::time::Timestamp;

use crate::error::StoreError;
use crate::model::{PlanRow, TaskQuery, TaskRow, TasksOf};
use crate::store::Store;

/// Failures, running and waiting tasks are shown up to this many; a plan may have any number.
pub const MOST_SHOWN: usize = 20;
/// Running and completed tasks whose pace and times an estimate is made from.
const MOST_MEASURED: usize = 1000;

/// States in which a task ended otherwise than asked for, without anybody having asked for that.
const FAILED: [TaskStatus; 3] = [TaskStatus::Failed, TaskStatus::RolledBack, TaskStatus::RollbackFailed];
const RUNNING: [TaskStatus; 2] = [TaskStatus::Running, TaskStatus::RollingBack];
const WAITING: [TaskStatus; 2] = [TaskStatus::Pending, TaskStatus::Paused];

/// The plan, how fast it goes, what runs and waits of it, and what failed.
pub async fn plan_report(store: &dyn Store, row: &PlanRow, progress: &PlanProgress) -> Result<PlanReport, StoreError> {
    let counts = &row.counts;
    let running = tasks_in(store, row, counts.running + counts.rolling_back, &RUNNING).await?;
    let waiting = tasks_in(store, row, counts.pending + counts.paused, &WAITING).await?;
    let failures = failures(store, row).await?;
    let PlanProgress { rate, eta_seconds, .. } = *progress;
    Ok(PlanReport { plan: PlanView::from(row), rate, eta_seconds, running, waiting, failures })
}

/// How the plan's first failed tasks failed.
pub async fn failures(store: &dyn Store, row: &PlanRow) -> Result<Vec<TaskFailureView>, StoreError> {
    let counts = &row.counts;
    let count = counts.failed + counts.rolled_back + counts.rollback_failed;
    Ok(tasks_in(store, row, count, &FAILED).await?.iter().map(TaskFailureView::from).collect())
}

/// How far the plan is, what of it runs, and how long the rest may take. `live` adds what the asker knows better than the
/// store.
pub async fn plan_progress(
    store: &dyn Store,
    row: &PlanRow,
    now: Timestamp,
    live: impl Fn(TaskProgress) -> TaskProgress,
) -> Result<PlanProgress, StoreError> {
    let (counts, at_once) = (row.counts, row.counts.running + row.counts.rolling_back);
    let query = TaskQuery { limit: MOST_MEASURED, ..first(&row.id, &RUNNING) };
    let rows = if at_once == 0 { Vec::new() } else { store.tasks(query).await?.items };
    let mut running: Vec<TaskProgress> = rows.iter().map(|row| live(task_progress(row))).collect();
    let rates = running.iter().filter_map(|task| task.rate);
    let rate = rates.reduce(|sum, rate| sum + rate);
    let begun = rows.iter().map(|row| now.since(row.started_at.unwrap_or(now)).as_duration());
    let outlook = Outlook {
        took: if row.status == PlanStatus::Running { took(store, row).await? } else { Vec::new() },
        running: running.iter().zip(begun).map(|(task, since)| task.underway(since)).collect(),
        at_once,
        waiting: counts.pending,
    };
    let eta_seconds = if row.status == PlanStatus::Running { outlook.eta_seconds() } else { None };
    running.truncate(MOST_SHOWN);
    let (plan_id, status, percent) = (row.id.clone(), row.status, counts.percent());
    Ok(PlanProgress { plan_id, status, tasks: counts, percent, rate, eta_seconds, running })
}

/// How long tasks of the plan took.
async fn took(store: &dyn Store, row: &PlanRow) -> Result<Vec<Duration>, StoreError> {
    if row.counts.completed == 0 {
        return Ok(Vec::new());
    }
    let completed = TaskQuery { limit: MOST_MEASURED, ..first(&row.id, &[TaskStatus::Completed]) };
    let took = |row: &TaskRow| Some(row.ended_at?.since(row.started_at?).as_duration());
    Ok(store.tasks(completed).await?.items.iter().filter_map(took).collect())
}

/// How far a task is, as far as its row tells.
pub fn task_progress(row: &TaskRow) -> TaskProgress {
    let progress = TaskProgress {
        task_id: row.key.id.clone(),
        plan_id: row.plan.clone(),
        status: row.status,
        stage: row.stage.clone(),
        completed_stages: row.done.into(),
        total_stages: row.stages.into(),
        percent: percent(row.status, row.done as usize, row.stages as usize, row.progress),
        done: None,
        total: None,
        rate: None,
        eta_seconds: None,
    };
    progress.with(row.progress.map(|(done, total)| StageProgress::new(done, total, None)))
}

/// The plan's first tasks in one of these states, each read in full. A plan of a hundred thousand tasks is not searched
/// for what it does not have: `count` says how many there are.
async fn tasks_in(
    store: &dyn Store,
    row: &PlanRow,
    count: u64,
    statuses: &[TaskStatus],
) -> Result<Vec<TaskView>, StoreError> {
    let mut tasks = Vec::new();
    if count == 0 {
        return Ok(tasks);
    }
    for row in store.tasks(first(&row.id, statuses)).await?.items {
        // It may have been removed between the two questions.
        if let Some(stored) = store.task(&row.key.id).await? {
            tasks.push(TaskView::from(&stored));
        }
    }
    Ok(tasks)
}

fn first(plan: &PlanId, statuses: &[TaskStatus]) -> TaskQuery {
    TaskQuery { of: TasksOf::Plan(plan.clone()), statuses: statuses.to_vec(), after: None, limit: MOST_SHOWN }
}
