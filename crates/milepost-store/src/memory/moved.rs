//! Taking in a plan that another store has had, as it was there.

use std::sync::Arc;

use crate::error::{Clash, StoreError};
use crate::going;
use crate::model::{LockRow, TaskRef, Wake};
use crate::moved::{MovedPlan, MovedTask};

use super::changes::Logged;
use super::data::{Data, Hold, Lock, PlanEntry, TaskEntry};
use super::line::{Place, PlanLine};

impl Data {
    pub(super) fn import(&mut self, moved: MovedPlan) -> Result<(), StoreError> {
        let id = moved.plan.definition.id.clone();
        if self.plan_nos.contains_key(&id) {
            return Err(Clash::OtherContent { plan: id, difference: "it is there already".to_owned() }.into());
        }
        self.check_task_ids(&moved.plan, None)?;
        let is_held = |lock: &&LockRow| self.locks.contains_key(&lock.tenant);
        let busy: Vec<String> = moved.locks.iter().filter(is_held).map(|lock| lock.tenant.to_string()).collect();
        if !busy.is_empty() {
            return Err(Clash::TenantsBusy { plan: id, busy }.into());
        }
        let no = self.next_no();
        let row = moved.row;
        let go = going::when_moved(moved.plan.definition.settings.recovery);
        let entry = PlanEntry {
            plan: Arc::new(moved.plan),
            status: row.status,
            version: row.version,
            changed_by: row.changed_by.clone(),
            created_at: row.created_at,
            started_at: row.started_at,
            ended_at: row.ended_at,
            go,
            order: Vec::new(),
            statuses: Default::default(),
            slots: 0,
            line: PlanLine::default(),
        };
        self.plan_nos.insert(id, no);
        self.plans.insert(no, entry);
        let at = row.ended_at.or(row.started_at).unwrap_or(row.created_at);
        self.log_plan(no, row.changed_by, at);
        for (at, task) in moved.tasks.into_iter().enumerate() {
            self.import_task(no, at, task);
        }
        for lock in moved.locks {
            let task = self.find_task(&lock.task)?;
            // The next claim's fence is larger than any that this tenant has had.
            self.last_lease = self.last_lease.max(lock.fence);
            let LockRow { tenant, since, fence, .. } = lock;
            self.locks.insert(tenant.clone(), Lock { task, since, fence, expires_at: None });
            self.look_at_tenant(&tenant);
        }
        self.look_at_plan(no);
        Ok(())
    }

    fn import_task(&mut self, plan: i64, at: usize, moved: MovedTask) {
        let no = self.next_no();
        let hold = match moved.is_orphan() {
            // No owner has this number: the first one's is 1.
            true => Hold::By { owner: 0, lease: 0 },
            false if moved.task.status().is_active() => Hold::Nobody(moved.wake),
            false => Hold::Nobody(Wake::Recovery),
        };
        let slot = moved.task.status().is_active() && !moved.is_asked();
        let spec = moved.task.spec().clone();
        let entry = self.plan_entry_mut(plan);
        entry.order.push(no);
        entry.count(moved.task.status(), 1);
        entry.slots += u32::from(slot);
        self.task_nos.insert(spec.id.clone(), no);
        if let Some(tenant) = &spec.tenant {
            self.tenants.entry(tenant.clone()).or_default().insert(no);
        }
        let count = moved.events.len();
        let entry = TaskEntry {
            key: TaskRef { id: spec.id.clone(), no },
            plan,
            at,
            task: moved.task,
            events: moved.events,
            hold,
            slot,
            place: Place::Nowhere,
            go: going::HELD,
            progress: None,
            output: moved.output,
        };
        self.tasks.insert(no, entry);
        self.log(Logged::Task { no, sequence: 1, count });
        self.place(no);
    }
}
