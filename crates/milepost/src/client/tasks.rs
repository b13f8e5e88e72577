//! Tasks, by their own id or their tenant's.

use milepost_core::api::{CheckpointView, Explanation, List, LockView, LogView};
use milepost_core::id::{StageName, TaskId, Tenant};
use milepost_core::task::{EventView, TaskView};

use super::connection::{Client, Query};
use super::error::ClientError;

/// Which events of a task.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    /// Only larger sequence numbers; a list's `nextCursor` goes on where it ended.
    pub after: Option<String>,
    pub attempt: Option<u32>,
    pub limit: Option<u32>,
}

/// Which of a task's output.
#[derive(Debug, Clone, Default)]
pub struct LogFilter {
    pub stage: Option<StageName>,
    pub attempt: Option<u32>,
    pub cursor: Option<String>,
}

impl Client {
    pub async fn task(&self, task: &TaskId) -> Result<TaskView, ClientError> {
        self.get(&["tasks", task.as_str()], Query::default()).await
    }

    pub async fn events(&self, task: &TaskId, filter: &EventFilter) -> Result<List<EventView>, ClientError> {
        let query = Query::default().with("after", filter.after.as_ref());
        let query = query.with("attempt", filter.attempt).with("limit", filter.limit);
        self.get(&["tasks", task.as_str(), "events"], query).await
    }

    pub async fn checkpoint(&self, task: &TaskId) -> Result<CheckpointView, ClientError> {
        self.get(&["tasks", task.as_str(), "checkpoint"], Query::default()).await
    }

    /// What its stages printed.
    pub async fn logs(&self, task: &TaskId, filter: &LogFilter) -> Result<List<LogView>, ClientError> {
        let query = Query::default().with("stage", filter.stage.as_ref());
        let query = query.with("attempt", filter.attempt).with("cursor", filter.cursor.as_ref());
        self.get(&["tasks", task.as_str(), "logs"], query).await
    }

    /// Why it is not running.
    pub async fn explain(&self, task: &TaskId) -> Result<Explanation, ClientError> {
        self.get(&["tasks", task.as_str(), "explain"], Query::default()).await
    }

    /// The task of the tenant that matters most.
    pub async fn tenant_task(&self, tenant: &Tenant) -> Result<TaskView, ClientError> {
        self.get(&["tenants", tenant.as_str(), "task"], Query::default()).await
    }

    pub async fn tenant_checkpoint(&self, tenant: &Tenant) -> Result<CheckpointView, ClientError> {
        self.get(&["tenants", tenant.as_str(), "checkpoint"], Query::default()).await
    }

    /// Who holds the tenant; not found when nobody does.
    pub async fn tenant_lock(&self, tenant: &Tenant) -> Result<LockView, ClientError> {
        self.get(&["tenants", tenant.as_str(), "lock"], Query::default()).await
    }
}
