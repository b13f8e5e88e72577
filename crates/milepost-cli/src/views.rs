//! Plans and failures as JSON shows them, and the few questions to the store that these take.

use milepost_core::failure::ErrorType;
use milepost_core::id::{PlanId, StageName, TaskId, Tenant};
use milepost_core::plan::TaskCounts;
use milepost_core::task::{By, PlanStatus, TaskContext, TaskStatus, TaskView};
use milepost_core::time::Timestamp;
use milepost_store::{PlanRow, Store, StoreError, StoredTask, TaskQuery, TasksOf};
use serde::Serialize;

/// Failures and running tasks are shown up to this many; a plan may have any number.
pub(crate) const MOST_SHOWN: usize = 20;

/// States in which a task ended otherwise than asked for, without anybody having asked for that.
pub(crate) const FAILED: [TaskStatus; 3] = [TaskStatus::Failed, TaskStatus::RolledBack, TaskStatus::RollbackFailed];

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlanView {
    pub(crate) plan_id: PlanId,
    pub(crate) status: PlanStatus,
    pub(crate) tasks: TaskCounts,
    /// Completed tasks, in percent of all.
    pub(crate) progress: f64,
    pub(crate) max_concurrency: u32,
    pub(crate) version: u64,
    pub(crate) changed_by: Option<By>,
    pub(crate) created_at: Timestamp,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) ended_at: Option<Timestamp>,
}

impl From<&PlanRow> for PlanView {
    fn from(row: &PlanRow) -> Self {
        Self {
            plan_id: row.id.clone(),
            status: row.status,
            tasks: row.counts,
            progress: row.counts.percent(),
            max_concurrency: row.max_concurrency,
            version: row.version,
            changed_by: row.changed_by.clone(),
            created_at: row.created_at,
            started_at: row.started_at,
            ended_at: row.ended_at,
        }
    }
}

/// A plan and what failed of it.
#[derive(Debug, Serialize)]
pub(crate) struct PlanReport {
    #[serde(flatten)]
    pub(crate) plan: PlanView,
    pub(crate) failures: Vec<TaskFailureView>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskFailureView {
    pub(crate) task_id: TaskId,
    pub(crate) tenant_id: Option<Tenant>,
    pub(crate) status: TaskStatus,
    pub(crate) stage: Option<StageName>,
    pub(crate) attempts: Option<u32>,
    pub(crate) error_type: Option<ErrorType>,
    pub(crate) reason: Option<String>,
}

impl From<&TaskView> for TaskFailureView {
    fn from(task: &TaskView) -> Self {
        let failure = task.failure.as_ref();
        Self {
            task_id: task.task_id.clone(),
            tenant_id: task.tenant_id.clone(),
            status: task.status,
            stage: failure.and_then(|failure| failure.stage.clone()),
            attempts: failure.and_then(|failure| failure.attempts),
            error_type: failure.map(|failure| failure.error_type),
            reason: failure.map(|failure| failure.reason.clone()),
        }
    }
}

pub(crate) fn view(stored: &StoredTask) -> TaskView {
    let context =
        TaskContext { blocked_by: stored.blocked_by.clone(), orphaned: stored.orphaned, progress: stored.progress };
    TaskView::new(&stored.task, context)
}

/// The plan's first tasks in one of these states, each read in full.
pub(crate) async fn tasks_in(
    store: &dyn Store,
    plan: &PlanId,
    statuses: &[TaskStatus],
) -> Result<Vec<TaskView>, StoreError> {
    let of = TasksOf::Plan(plan.clone());
    let query = TaskQuery { of, statuses: statuses.to_vec(), after: None, limit: MOST_SHOWN };
    let mut tasks = Vec::new();
    for row in store.tasks(query).await?.items {
        // It may have been removed between the two questions.
        if let Some(stored) = store.task(&row.key.id).await? {
            tasks.push(view(&stored));
        }
    }
    Ok(tasks)
}

pub(crate) fn failed(counts: &TaskCounts) -> u64 {
    counts.failed + counts.rolled_back + counts.rollback_failed
}

pub(crate) async fn failures(store: &dyn Store, row: &PlanRow) -> Result<Vec<TaskFailureView>, StoreError> {
    // A plan of a hundred thousand tasks is not searched for what it does not have.
    if failed(&row.counts) == 0 {
        return Ok(Vec::new());
    }
    Ok(tasks_in(store, &row.id, &FAILED).await?.iter().map(TaskFailureView::from).collect())
}
