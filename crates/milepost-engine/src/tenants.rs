//! Which task people mean when they name a tenant.

use milepost_core::id::Tenant;
use milepost_core::task::TaskStatus;
use milepost_store::{Store, StoreError, TaskQuery, TaskRow, TasksOf};

/// Tasks looked at in one go. Few tenants have more.
const MANY: usize = 100;

/// What matters first; of several that matter alike, the newest.
const ORDER: [&[TaskStatus]; 5] = [
    &[TaskStatus::Running, TaskStatus::RollingBack],
    &[TaskStatus::Paused],
    &[TaskStatus::Failed, TaskStatus::RollbackFailed],
    &[TaskStatus::Pending],
    &[TaskStatus::Completed, TaskStatus::Cancelled, TaskStatus::RolledBack],
];

/// The task of a tenant that matters most: one that is being worked on, then one that waits for a person, then one that
/// waits for its turn, and else the one that ended last. A new task that waits must not hide an older one that failed.
pub async fn task_of_tenant(store: &dyn Store, tenant: &Tenant) -> Result<Option<TaskRow>, StoreError> {
    let query = |statuses: &[TaskStatus], limit| TaskQuery {
        of: TasksOf::Tenant(tenant.clone()),
        statuses: statuses.to_vec(),
        after: None,
        limit,
    };
    let newest = store.tasks(query(&[], MANY)).await?;
    if newest.next.is_none() {
        let rank = |row: &TaskRow| ORDER.iter().position(|group| group.contains(&row.status));
        // Of several that are least, the first is found: the newest.
        return Ok(newest.items.into_iter().min_by_key(rank));
    }
    for group in ORDER {
        if let Some(row) = store.tasks(query(group, 1)).await?.items.into_iter().next() {
            return Ok(Some(row));
        }
    }
    Ok(None)
}
