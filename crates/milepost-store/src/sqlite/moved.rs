//! Taking in a plan that another store has had, as it was there.

use std::collections::HashMap;

use milepost_core::id::TaskId;
use milepost_core::task::{Record, Task};
use milepost_core::time::Timestamp;
use rusqlite::{OptionalExtension, params};

use crate::codec::{SharedPlan, encode_config, encode_events};
use crate::error::Clash;
use crate::going;
use crate::model::{LockRow, TaskRef, Wake};
use crate::moved::{MovedPlan, MovedTask};
use crate::row::RowImage;
use crate::snapshot::{SHORTEST, Snapshot};

use super::board::OpenPlan;
use super::codec::PlanDigest;
use super::commit::Standing;
use super::writer::{Performed, Writer};

/// Events in one row of the log: a row is read whole, and a log may be long.
const EVENTS_A_ROW: usize = 200;
/// The lease of a node that another store knew: no owner's epoch ever comes near it.
const LEASE_OF_OLD: u64 = i64::MAX as u64;

impl Writer {
    pub(super) fn import(&mut self, moved: MovedPlan) -> Performed<()> {
        // Other commits share the transaction, so everything is checked before anything is written.
        if let Some(clash) = self.import_clash(&moved)? {
            return Ok(Err(clash.into()));
        }
        let (no, first) = (self.board.next_plan, self.board.next_task);
        self.board.next_plan += 1;
        self.show_imported(no, &moved);
        let MovedPlan { plan, row, tasks, locks } = moved;
        // A position is the next one's fence, so none may be behind those that tenants have had.
        let fences = locks.iter().map(|lock| i64::try_from(lock.fence).unwrap_or(i64::MAX - 1) + 1);
        self.board.next_event = fences.fold(self.board.next_event, i64::max);
        let at = row.ended_at.or(row.started_at).unwrap_or(row.created_at);
        self.log_plan(no, row.changed_by.as_ref(), at)?;
        for (definition, task) in plan.tasks.iter().zip(tasks) {
            let (body, crc) = encode_config(definition);
            self.import_task(no, task, body, crc)?;
        }
        let numbers: HashMap<&TaskId, i64> = plan.tasks.iter().map(|task| &task.id).zip(first..).collect();
        for lock in locks {
            if let Some(task) = numbers.get(&lock.task) {
                self.import_lock(lock, *task)?;
            }
        }
        let definition = serde_json::to_string(&plan.definition).expect("a plan's definition came from JSON or YAML");
        let by = row.changed_by.as_ref().map(|by| serde_json::to_string(by).expect("two strings are JSON"));
        self.connection
            .prepare_cached(
                "INSERT INTO plans (no, id, status, version, definition, digest, first_task, last_task, created_at, \
                 started_at, ended_at, changed_by, go) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
            )?
            .execute(params![
                no,
                row.id.as_str(),
                row.status.code(),
                row.version as i64,
                definition,
                PlanDigest::of(&definition, &plan.tasks).bytes(),
                first,
                self.board.next_task - 1,
                row.created_at.as_millis(),
                row.started_at.map(Timestamp::as_millis),
                row.ended_at.map(Timestamp::as_millis),
                by,
                going::when_moved(plan.definition.settings.recovery),
            ])?;
        if row.ended_at.is_some() && row.counts.open() == 0 {
            self.board.forget_plan(no);
        }
        Ok(Ok(()))
    }

    /// Its id, a task's or a tenant is taken.
    fn import_clash(&self, moved: &MovedPlan) -> rusqlite::Result<Option<Clash>> {
        let id = &moved.plan.definition.id;
        let there = self
            .connection
            .prepare_cached("SELECT 1 FROM plans WHERE id = ?1")?
            .query_row([id.as_str()], |_| Ok(()))
            .optional()?;
        if there.is_some() {
            return Ok(Some(Clash::OtherContent { plan: id.clone(), difference: "it is there already".to_owned() }));
        }
        let is_held = |lock: &&LockRow| self.board.held.contains_key(&lock.tenant);
        let busy: Vec<String> = moved.locks.iter().filter(is_held).map(|lock| lock.tenant.to_string()).collect();
        if !busy.is_empty() {
            return Ok(Some(Clash::TenantsBusy { plan: id.clone(), busy }));
        }
        self.task_clash(&moved.plan.tasks)
    }

    /// Brings the plan into memory; one that has ended is forgotten again when it is written.
    fn show_imported(&mut self, no: i64, moved: &MovedPlan) {
        let open = OpenPlan {
            shared: SharedPlan::new(moved.plan.definition.clone()),
            status: moved.row.status,
            version: moved.row.version,
            go: going::when_moved(moved.plan.definition.settings.recovery),
            counts: moved.row.counts,
            ended: moved.row.ended_at.is_some(),
            may_have_ready: true,
        };
        self.board.plan_numbers.insert(moved.row.id.clone(), no);
        self.board.plans.insert(no, open);
        for (task, number) in moved.tasks.iter().zip(self.board.next_task..) {
            if task.is_asked() {
                self.board.leave_slot(no, number);
            }
        }
        self.board.offer(no);
        self.board.recount(no);
    }

    fn import_task(&mut self, plan: i64, moved: MovedTask, body: Option<String>, crc: u32) -> rusqlite::Result<()> {
        let standing = standing(&moved);
        let MovedTask { task, events, output, .. } = moved;
        let (no, spec) = (self.board.next_task, task.spec());
        let key = TaskRef { id: spec.id.clone(), no };
        self.board.next_task += 1;
        let tenant = spec.tenant.as_ref().map(|tenant| tenant.as_str());
        self.connection
            .prepare_cached(
                "INSERT INTO task_configs (no, id, plan, tenant, created_at, body, crc) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![no, spec.id.as_str(), plan, tenant, spec.created_at.as_millis(), body, crc])?;
        self.connection
            .prepare_cached(
                "INSERT INTO task_runtimes (no, plan, rank, status, version, lease, last_event, done, total, attempt, \
                 flags, updated_at) VALUES (?1, ?2, ?3, 0, 1, 0, 0, 0, 0, 0, 0, 0)",
            )?
            .execute(params![no, plan, -i64::from(spec.priority)])?;
        let position = self.import_events(no, &task, &events)?;
        self.transition(no, position, &RowImage::of(&task), standing, true)?;
        self.append_output(&key, &output)?;
        match (task.status().is_active(), standing.wake_at) {
            (true, Some(at)) => {
                self.board.parked.insert((at, no, plan, task.status()));
            }
            (true, None) => self.board.orphan(plan, no, task.status()),
            (false, _) => {}
        }
        Ok(())
    }

    /// The last row's position.
    fn import_events(&mut self, no: i64, task: &Task, events: &[Record]) -> rusqlite::Result<i64> {
        let (mut position, mut version) = (0, 0);
        for events in events.chunks(EVENTS_A_ROW) {
            position = self.append(no, version, position, Some(&encode_events(events)))?;
            version += events.len() as u64;
        }
        if task.version() >= SHORTEST
            && let Some(snapshot) = Snapshot::of(task)
        {
            self.keep_snapshot(no, position, &snapshot)?;
        }
        Ok(position)
    }

    fn import_lock(&mut self, lock: LockRow, task: i64) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached("INSERT INTO locks (tenant, task, since, fence) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![lock.tenant.as_str(), task, lock.since.as_millis(), lock.fence as i64])?;
        self.board.held.insert(lock.tenant, task);
        Ok(())
    }
}

fn standing(moved: &MovedTask) -> Standing {
    let wake_at = match moved.wake {
        Wake::At(at) if moved.task.status().is_active() => Some(at),
        Wake::At(_) | Wake::Recovery => None,
    };
    let lease = if moved.is_orphan() { LEASE_OF_OLD } else { 0 };
    Standing { lease, wake_at, asked: moved.is_asked() }
}
