//! Answers to questions; changes nothing.

use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::Plan;
use milepost_core::task::TaskStatus;

use crate::error::StoreError;
use crate::model::{
    EventQuery, LockRow, LogChunk, LogQuery, Page, PlanQuery, PlanRow, StoredEvent, StoredTask, TaskQuery, TaskRow,
    TasksOf, TokenRow,
};

use super::data::{Data, Held};

impl Data {
    pub(super) fn plan(&self, id: &PlanId) -> Option<PlanRow> {
        self.plan_nos.get(id).map(|no| self.plan_row(*no))
    }

    pub(super) fn definition(&self, id: &PlanId) -> Option<Plan> {
        self.plan_nos.get(id).map(|no| (*self.plan_entry(*no).plan).clone())
    }

    pub(super) fn plans(&self, query: &PlanQuery) -> Page<PlanRow> {
        let before = query.after.unwrap_or(i64::MAX);
        let rows = self.plans.range(..before).rev().map(|(no, _)| (*no, self.plan_row(*no)));
        let rows = rows.filter(|(_, row)| !query.open_only || row.ended_at.is_none());
        page(rows, query.limit)
    }

    pub(super) fn task(&self, id: &TaskId) -> Option<StoredTask> {
        self.task_nos.get(id).map(|no| self.stored_task(*no))
    }

    pub(super) fn tasks(&self, query: &TaskQuery) -> Result<Page<TaskRow>, StoreError> {
        let wanted = |no: &i64| query.statuses.is_empty() || query.statuses.contains(&self.entry(*no).task.status());
        match &query.of {
            TasksOf::Plan(id) => {
                let order = &self.plan_entry(self.find_plan(id)?).order;
                let start = query.after.map_or(0, |after| usize::try_from(after + 1).unwrap_or(0));
                let rest = order.iter().enumerate().skip(start).filter(|(_, no)| wanted(no));
                Ok(page(rest.map(|(at, no)| (at as i64, self.task_row(*no))), query.limit))
            }
            TasksOf::Tenant(tenant) => {
                let before = query.after.unwrap_or(i64::MAX);
                let nos = self.tenants.get(tenant).into_iter().flat_map(|tasks| tasks.range(..before).rev());
                Ok(page(nos.filter(|no| wanted(no)).map(|no| (*no, self.task_row(*no))), query.limit))
            }
        }
    }

    pub(super) fn events(&self, query: &EventQuery) -> Result<Vec<StoredEvent>, StoreError> {
        let entry = self.entry(self.find_task(&query.task)?);
        let numbered = (1..).zip(&entry.events).skip(usize::try_from(query.after).unwrap_or(usize::MAX));
        let stored = numbered.map(|(sequence, record)| StoredEvent { sequence, record: record.clone() });
        Ok(stored.take(query.limit).collect())
    }

    pub(super) fn logs(&self, query: &LogQuery) -> Result<Vec<LogChunk>, StoreError> {
        let entry = self.entry(self.find_task(&query.task)?);
        let wanted = |chunk: &&LogChunk| {
            query.stage.as_ref().is_none_or(|stage| *stage == chunk.stage)
                && query.attempt.is_none_or(|attempt| attempt == chunk.attempt)
        };
        Ok(entry.output.iter().filter(wanted).cloned().collect())
    }

    pub(super) fn locks(&self) -> Vec<LockRow> {
        let row = |(tenant, lock): (&milepost_core::id::Tenant, &super::data::Lock)| {
            let spec = self.entry(lock.task).task.spec();
            LockRow {
                tenant: tenant.clone(),
                plan: spec.plan.clone(),
                task: spec.id.clone(),
                since: lock.since,
                fence: lock.fence,
                expires_at: lock.expires_at.map(|at| self.sessions.timestamp(at)),
            }
        };
        self.locks.iter().map(row).collect()
    }

    /// Oldest first.
    pub(super) fn tokens(&self) -> Vec<TokenRow> {
        let mut tokens: Vec<TokenRow> = self.tokens.values().cloned().collect();
        tokens.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        tokens
    }

    pub(super) fn stored_task(&self, no: i64) -> StoredTask {
        let entry = self.entry(no);
        StoredTask {
            key: entry.key.clone(),
            task: entry.task.clone(),
            epoch: entry.lease(),
            orphaned: matches!(self.held(no), Held::Orphaned { .. }),
            waits_for_person: self.waits_for_person(no),
            blocked_by: self.blocked_by(no),
            set_aside: None,
            progress: entry.progress,
            claim_events: Vec::new(),
        }
    }

    fn task_row(&self, no: i64) -> TaskRow {
        let entry = self.entry(no);
        let (task, spec) = (&entry.task, entry.task.spec());
        let stage = task.current_stage().map(|index| task.stage(index));
        let failure = task.failure().filter(|_| task.status() != TaskStatus::Completed).map(|failure| &failure.cause);
        let cause = failure.or_else(|| stage.and_then(|(_, state)| state.cause.as_ref()));
        TaskRow {
            key: entry.key.clone(),
            plan: spec.plan.clone(),
            tenant: spec.tenant.clone(),
            status: task.status(),
            interrupted: task.status().is_active()
                && (task.interrupted() || matches!(self.held(no), Held::Orphaned { .. })),
            pause_requested: task.pause_requested().is_some(),
            awaits_message: task.awaits_message(),
            version: task.version(),
            done: task.done().len() as u32,
            stages: task.stages().len() as u32,
            stage: stage.map(|(definition, _)| definition.name.clone()),
            attempt: stage.map_or(0, |(_, state)| state.attempt),
            next_due: task.next_due(),
            blocked_by: self.blocked_by(no),
            set_aside: None,
            reason: cause.map(|cause| cause.reason.clone()),
            progress: entry.progress,
            created_at: spec.created_at,
            started_at: task.started_at(),
            ended_at: task.ended_at(),
            updated_at: task.updated_at(),
        }
    }

    /// The holder of the tenant that a task waits for, as `planId:taskId`.
    fn blocked_by(&self, no: i64) -> Option<String> {
        let status = self.entry(no).task.status();
        let waits = status == TaskStatus::Pending || status.is_active() && self.held(no) == Held::Nobody;
        let holder = self.tenant_holder(no).filter(|_| waits)?;
        let spec = self.entry(holder).task.spec();
        Some(format!("{}:{}", spec.plan, spec.id))
    }
}

/// Looks one item further than asked for, so that the last page says that it is the last.
pub(super) fn page<T>(mut rows: impl Iterator<Item = (i64, T)>, limit: usize) -> Page<T> {
    let (cursors, items): (Vec<i64>, Vec<T>) = rows.by_ref().take(limit).unzip();
    let next = if rows.next().is_some() { cursors.last().copied() } else { None };
    Page { items, next }
}
