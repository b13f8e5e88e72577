//! Reading a plan whole, to move it: through the seam alone, so that it works from any store to any other.

use std::collections::HashMap;

use milepost_core::id::{PlanId, TaskId};
use milepost_core::task::Record;

use crate::codec::damaged;
use crate::error::StoreError;
use crate::model::{EventQuery, LockRow, LogQuery, PlanQuery, PlanRow, StoredTask, Wake};
use crate::moved::{MovedPlan, MovedTask};
use crate::store::Store;

/// Events read at a time.
const EVENTS: usize = 10_000;
/// Plans read at a time.
const PLANS: usize = 1000;

/// Every plan, in the order in which they came.
pub async fn all_plans(store: &dyn Store) -> Result<Vec<PlanRow>, StoreError> {
    let (mut plans, mut after) = (Vec::new(), None);
    loop {
        let page = store.plans(PlanQuery { open_only: false, after, limit: PLANS }).await?;
        plans.extend(page.items);
        after = page.next;
        if after.is_none() {
            plans.reverse();
            return Ok(plans);
        }
    }
}

/// All that the store has of a plan, none when it has no such plan. Nothing may run meanwhile. `locks` are the store's:
/// those of other plans are passed over, and those of tenants that their tasks are not of, which SQLite files of earlier
/// versions may have.
pub async fn read_moved(store: &dyn Store, id: &PlanId, locks: &[LockRow]) -> Result<Option<MovedPlan>, StoreError> {
    let (Some(row), Some(plan)) = (store.plan(id).await?, store.definition(id).await?) else { return Ok(None) };
    let mut tasks = Vec::with_capacity(plan.tasks.len());
    for definition in &plan.tasks {
        let missing = || damaged(format!("plan {id}"), format!("its task {} is missing", definition.id));
        let stored = store.task(&definition.id).await?.ok_or_else(missing)?;
        if let Some(reason) = stored.task.damage() {
            let next = format!("{reason}; `milepost store repair --task {}` ends it as FAILED", definition.id);
            return Err(damaged(format!("task {}", definition.id), next));
        }
        let events = read_events(store, &stored).await?;
        let output = store.logs(LogQuery { task: definition.id.clone(), stage: None, attempt: None }).await?;
        tasks.push(MovedTask { wake: wake_of(&stored), events, output, task: stored.task });
    }
    let tenants: HashMap<&TaskId, _> = plan.tasks.iter().map(|task| (&task.id, task.tenant.as_ref())).collect();
    let is_its_own = |lock: &&LockRow| tenants.get(&lock.task) == Some(&Some(&lock.tenant));
    let mut locks: Vec<LockRow> = locks.iter().filter(|lock| lock.plan == *id).filter(is_its_own).cloned().collect();
    locks.sort_by(|a, b| a.tenant.as_str().cmp(b.tenant.as_str()));
    Ok(Some(MovedPlan { plan, row, tasks, locks }))
}

async fn read_events(store: &dyn Store, stored: &StoredTask) -> Result<Vec<Record>, StoreError> {
    let task = &stored.key.id;
    let mut events: Vec<Record> = Vec::new();
    loop {
        let after = events.len() as u64;
        let found = store.events(EventQuery { task: task.clone(), after, limit: EVENTS }).await?;
        let last = found.len() < EVENTS;
        events.extend(found.into_iter().map(|event| event.record));
        if last {
            break;
        }
    }
    if events.len() as u64 != stored.task.version() {
        let detail = format!("it has {} events, and the task is at version {}", events.len(), stored.task.version());
        return Err(damaged(format!("the log of task {task}"), detail));
    }
    Ok(events)
}

/// When a task that nobody holds goes on. A workflow that waits to be told something is woken at once, looks, and waits
/// again: what it waits for may have come while it was moved.
fn wake_of(stored: &StoredTask) -> Wake {
    let task = &stored.task;
    if !task.status().is_active() || stored.epoch != 0 || stored.orphaned || task.interrupted() {
        return Wake::Recovery;
    }
    let due = [task.next_due(), task.deadline()].into_iter().flatten().min();
    Wake::At(due.filter(|_| task.next_due().is_some()).unwrap_or(task.updated_at()))
}
