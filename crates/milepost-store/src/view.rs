//! What the store's rows look like to the outside.

use milepost_core::api::{DeadLetterView, LockView, LogView, NodeView, PlanView, TokenView};
use milepost_core::task::{TaskContext, TaskView};

use crate::books::Entry;
use crate::error::StoreError;
use crate::model::{LockRow, LogChunk, PlanRow, StoredTask, TokenRow};
use crate::nodes::NodeRow;

impl From<&PlanRow> for PlanView {
    fn from(row: &PlanRow) -> Self {
        Self {
            plan_id: row.id.clone(),
            status: row.status,
            tasks: row.counts,
            progress: row.counts.percent(),
            max_concurrency: row.max_concurrency,
            waits_for_person: row.waits_for_person,
            version: row.version,
            changed_by: row.changed_by.clone(),
            created_at: row.created_at,
            started_at: row.started_at,
            ended_at: row.ended_at,
        }
    }
}

impl From<&StoredTask> for TaskView {
    fn from(stored: &StoredTask) -> Self {
        let context = TaskContext {
            blocked_by: stored.blocked_by.clone(),
            set_aside: stored.set_aside.clone(),
            orphaned: stored.orphaned,
            progress: stored.progress,
        };
        TaskView::new(&stored.task, context)
    }
}

impl From<&LogChunk> for LogView {
    fn from(chunk: &LogChunk) -> Self {
        let text = String::from_utf8_lossy(&chunk.bytes).into_owned();
        Self { stage: chunk.stage.clone(), attempt: chunk.attempt, at: chunk.at, text }
    }
}

impl TryFrom<&Entry> for DeadLetterView {
    type Error = StoreError;

    fn try_from(entry: &Entry) -> Result<Self, StoreError> {
        serde_json::from_str(&entry.body).map_err(|error| StoreError::Damaged {
            what: format!("dead letter {}", entry.key),
            detail: error.to_string(),
        })
    }
}

impl From<&LockRow> for LockView {
    fn from(row: &LockRow) -> Self {
        Self {
            tenant_id: row.tenant.clone(),
            owner: format!("{}:{}", row.plan, row.task),
            plan_id: row.plan.clone(),
            task_id: row.task.clone(),
            since: row.since,
            fence: row.fence,
            expires_at: row.expires_at,
        }
    }
}

impl From<&NodeRow> for NodeView {
    fn from(row: &NodeRow) -> Self {
        Self {
            node_id: row.name.clone(),
            boot_id: row.boot_id.clone(),
            started_at: row.started_at,
            seen_at: row.seen_at,
            live: row.live,
            in_hand: row.in_hand,
            capacity: row.capacity,
        }
    }
}

impl From<&TokenRow> for TokenView {
    fn from(row: &TokenRow) -> Self {
        Self {
            id: row.id.clone(),
            name: row.name.clone(),
            scope: row.scope,
            tenants: row.tenants.clone(),
            created_at: row.created_at,
            expires_at: row.expires_at,
            revoked_at: row.revoked_at,
        }
    }
}
