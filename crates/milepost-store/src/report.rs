//! What people want to know of a plan as a whole, put together from a few questions to its store.

use milepost_core::api::{PlanProgress, PlanReport, PlanView, TaskFailureView, TaskProgress};
use milepost_core::id::PlanId;
use milepost_core::task::{TaskStatus, TaskView, percent};

use crate::error::StoreError;
use crate::model::{PlanRow, TaskQuery, TaskRow, TasksOf};
use crate::store::Store;

/// Failures, running and waiting tasks are shown up to this many; a plan may have any number.
pub const MOST_SHOWN: usize = 20;

/// States in which a task ended otherwise than asked for, without anybody having asked for that.
const FAILED: [TaskStatus; 3] = [TaskStatus::Failed, TaskStatus::RolledBack, TaskStatus::RollbackFailed];
const RUNNING: [TaskStatus; 2] = [TaskStatus::Running, TaskStatus::RollingBack];
const WAITING: [TaskStatus; 2] = [TaskStatus::Pending, TaskStatus::Paused];

/// The plan, what runs and waits of it, and what failed.
pub async fn plan_report(store: &dyn Store, row: &PlanRow) -> Result<PlanReport, StoreError> {
    let counts = &row.counts;
    let running = tasks_in(store, row, counts.running + counts.rolling_back, &RUNNING).await?;
    let waiting = tasks_in(store, row, counts.pending + counts.paused, &WAITING).await?;
    let failures = failures(store, row).await?;
    Ok(PlanReport { plan: PlanView::from(row), running, waiting, failures })
}

/// How the plan's first failed tasks failed.
pub async fn failures(store: &dyn Store, row: &PlanRow) -> Result<Vec<TaskFailureView>, StoreError> {
    let counts = &row.counts;
    let count = counts.failed + counts.rolled_back + counts.rollback_failed;
    Ok(tasks_in(store, row, count, &FAILED).await?.iter().map(TaskFailureView::from).collect())
}

/// How far the plan is, and what of it runs.
pub async fn plan_progress(store: &dyn Store, row: &PlanRow) -> Result<PlanProgress, StoreError> {
    let counts = row.counts;
    let running = match counts.running + counts.rolling_back {
        0 => Vec::new(),
        _ => store.tasks(first(&row.id, &RUNNING)).await?.items.iter().map(task_progress).collect(),
    };
    let (plan_id, status) = (row.id.clone(), row.status);
    Ok(PlanProgress { plan_id, status, tasks: counts, percent: counts.percent(), running })
}

/// How far a task is, as far as its row tells.
pub fn task_progress(row: &TaskRow) -> TaskProgress {
    TaskProgress {
        task_id: row.key.id.clone(),
        plan_id: row.plan.clone(),
        status: row.status,
        stage: row.stage.clone(),
        completed_stages: row.done.into(),
        total_stages: row.stages.into(),
        percent: percent(row.status, row.done as usize, row.stages as usize, row.progress),
        done: row.progress.map(|(done, _)| done),
        // A total of 0 is one that is not known yet.
        total: row.progress.map(|(_, total)| total).filter(|total| *total > 0),
    }
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
