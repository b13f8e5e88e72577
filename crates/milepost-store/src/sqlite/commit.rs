//! One commit: the events that happened to a task and the row they leave behind, or nothing.

use milepost_core::id::Tenant;
use milepost_core::plan::{PlanCommand, next_plan_status};
use milepost_core::task::{By, PlanStatus, TaskStatus, ends_progress, lets_go};
use milepost_core::time::Timestamp;
use rusqlite::{OptionalExtension, params};

use crate::books::{BookChange, book_changes};
use crate::error::StoreError;
use crate::model::{Commit, Committed, Holder, LeaseChange, LogChunk, Note, Position, TaskRef, Wake};

use super::board::{Lease, Place, Queue};
use super::codec::{task_status, tenant, time};
use crate::codec::{Body, encode_events};
use crate::row::RowImage;
use crate::snapshot::Snapshot;

use super::writer::{Performed, Writer};

pub(super) const INSERT_EVENT: &str =
    "INSERT INTO events (pos, task, seq, prev, crc, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/// A stage after the first: nothing that an index looks at changes.
pub(super) const ADVANCE: &str = "UPDATE task_runtimes SET version = ?2, last_event = ?3, done = ?4, stage = ?5, \
    attempt = ?6, due_at = ?7, flags = ?8, reason = ?9, updated_at = ?10, total = ?11, \
    progress = CASE WHEN done = ?4 AND attempt = ?6 THEN progress END WHERE no = ?1";

const TRANSITION: &str = "UPDATE task_runtimes SET version = ?2, last_event = ?3, done = ?4, stage = ?5, attempt = ?6, \
    due_at = ?7, flags = ?8, reason = ?9, updated_at = ?10, progress = CASE WHEN ?18 THEN NULL ELSE progress END, status = ?11, queue = ?12, \
    lease = ?13, wake_at = ?14, started_at = ?15, ended_at = ?16, total = ?17 WHERE no = ?1";

/// A commit with its events in the form the table holds; encoded by the caller, so that the writer only writes.
#[derive(Debug)]
pub(super) struct EncodedCommit {
    key: TaskRef,
    holder: Holder,
    expected: u64,
    body: Option<Body>,
    /// Only of a task with a long log, and rarely.
    snapshot: Option<Snapshot>,
    row: RowImage,
    clears_progress: bool,
    /// A person set it going by itself.
    lets_go: bool,
    lease: LeaseChange,
    plan: Option<PlanCommand>,
    output: Vec<LogChunk>,
    for_books: BookChange,
}

impl From<Commit> for EncodedCommit {
    fn from(commit: Commit) -> Self {
        Self {
            for_books: book_changes(&commit.task, &commit.events),
            key: commit.key,
            holder: commit.holder,
            expected: commit.expected,
            body: (!commit.events.is_empty()).then(|| encode_events(&commit.events)),
            snapshot: Snapshot::due(&commit.task, commit.expected, &commit.events),
            row: RowImage::of(&commit.task),
            clears_progress: ends_progress(commit.task.status(), &commit.events),
            lets_go: commit.holder == Holder::Operator && lets_go(&commit.events),
            lease: commit.lease,
            plan: commit.plan,
            output: commit.output,
        }
    }
}

/// Where a task's row goes: in which queue, under which lease, until when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    pub(super) lease: u64,
    pub(super) wake_at: Option<Timestamp>,
    /// It is to be rolled back, and nobody has begun.
    pub(super) asked: bool,
}

impl Writer {
    pub(super) fn commit(&mut self, commit: EncodedCommit) -> Performed<Committed> {
        let no = commit.key.no;
        let lease = match self.lease_for(&commit)? {
            Ok(lease) => lease,
            Err(error) => return Ok(Err(error)),
        };
        let opened = self.board.open_plan(&self.connection, lease.plan);
        if let Err(error) = opened {
            return Ok(Err(error));
        }
        // Before anything is written: a plan that refuses its part refuses the whole commit.
        let plan_status = match commit.plan.map(|command| self.plan_after(lease.plan, command)).transpose() {
            Ok(status) => status,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(kept) = self.kept(&commit.for_books)? {
            return Ok(Err(kept));
        }
        self.write_books(&commit.for_books)?;
        let position = self.append(no, lease.version, lease.last_event, commit.body.as_ref())?;
        if let Some(snapshot) = &commit.snapshot {
            self.keep_snapshot(no, position, snapshot)?;
        }
        let status = commit.row.status;
        let keeps =
            matches!(commit.lease, LeaseChange::Keep) && status.is_active() && commit.holder != Holder::Operator;
        if keeps && status == lease.status {
            self.advance(no, position, &commit.row)?;
            let held = self.board.leases.get_mut(&no).expect("a lease that is kept is held");
            (held.version, held.last_event) = (commit.row.version, position);
        } else {
            if commit.lets_go {
                self.let_go(no, lease.plan, plan_status)?;
            }
            let standing = standing_after(&commit, &lease, keeps);
            self.transition(no, position, &commit.row, standing, commit.clears_progress)?;
            self.settle_lease(&lease, no, position, &commit.row, standing)?;
        }
        self.append_output(&commit.key, &commit.output)?;
        let now = Timestamp::from_millis(commit.row.updated_at);
        let ended = status.is_ended() && status != lease.status;
        let plan = self.settle_plan(lease.plan, plan_status, ended, now)?;
        Ok(Ok(Committed { position: Position(position), plan }))
    }

    /// The lease that the commit is made under, if it is still good; for an operator, a look at the row instead.
    fn lease_for(&self, commit: &EncodedCommit) -> Performed<Lease> {
        let key = &commit.key;
        let fenced = |expected, found| StoreError::Fenced { task: key.id.clone(), expected, found };
        let conflict = |found| StoreError::Conflict { task: key.id.clone(), expected: commit.expected, found };
        match (self.board.leases.get(&key.no), commit.holder) {
            (Some(lease), Holder::Operator) => Ok(Err(fenced(0, lease.number))),
            (Some(lease), Holder::Lease(ours)) if ours != lease.number => Ok(Err(fenced(ours, lease.number))),
            (Some(lease), Holder::Lease(_)) if lease.version != commit.expected => Ok(Err(conflict(lease.version))),
            (Some(lease), Holder::Lease(_)) => Ok(Ok(lease.clone())),
            (None, holder) => Ok(match (self.unheld(key.no)?, holder) {
                (None, _) => Err(StoreError::NotFound { what: "task", id: key.id.to_string() }),
                // The holder's own commit may have arrived before and given the lease back.
                (Some(row), _) if row.number == 0 && row.version != commit.expected => Err(conflict(row.version)),
                (Some(row), Holder::Lease(ours)) => Err(fenced(ours, row.number)),
                (Some(row), Holder::Operator) if row.version != commit.expected => Err(conflict(row.version)),
                (Some(row), Holder::Operator) => Ok(row),
            }),
        }
    }

    fn unheld(&self, no: i64) -> rusqlite::Result<Option<Lease>> {
        let sql = "SELECT r.version, r.last_event, r.status, r.plan, r.rank, c.tenant, r.wake_at, r.lease \
                   FROM task_runtimes r JOIN task_configs c ON c.no = r.no WHERE r.no = ?1";
        self.connection
            .prepare_cached(sql)?
            .query_row([no], |row| {
                Ok(Lease {
                    number: row.get::<_, i64>(7)?.unsigned_abs(),
                    version: row.get::<_, i64>(0)?.unsigned_abs(),
                    last_event: row.get(1)?,
                    status: task_status(row, 2)?,
                    plan: row.get(3)?,
                    rank: row.get(4)?,
                    wake_at: time(row, 6)?,
                    tenant: if row.get_ref(5)? == rusqlite::types::ValueRef::Null {
                        None
                    } else {
                        Some(tenant(row, 5)?)
                    },
                })
            })
            .optional()
    }

    /// The new row's position; the old one's when there is nothing to append.
    pub(super) fn append(&mut self, no: i64, version: u64, last: i64, body: Option<&Body>) -> rusqlite::Result<i64> {
        let Some(body) = body else { return Ok(last) };
        let position = self.board.next_event;
        self.connection.prepare_cached(INSERT_EVENT)?.execute(params![
            position,
            no,
            version as i64 + 1,
            last,
            body.crc,
            body.text
        ])?;
        self.board.next_event += 1;
        Ok(position)
    }

    fn advance(&self, no: i64, position: i64, row: &RowImage) -> rusqlite::Result<()> {
        self.connection.prepare_cached(ADVANCE)?.execute(params![
            no,
            row.version as i64,
            position,
            row.done,
            row.stage,
            row.attempt,
            row.due_at,
            row.flags,
            row.reason,
            row.updated_at,
            row.total,
        ])?;
        Ok(())
    }

    pub(super) fn transition(
        &self,
        no: i64,
        position: i64,
        row: &RowImage,
        standing: Standing,
        clears_progress: bool,
    ) -> rusqlite::Result<()> {
        self.connection.prepare_cached(TRANSITION)?.execute(params![
            no,
            row.version as i64,
            position,
            row.done,
            row.stage,
            row.attempt,
            row.due_at,
            row.flags,
            row.reason,
            row.updated_at,
            row.status.code(),
            if standing.asked { Some(Queue::Undo.code()) } else { Queue::of(row).map(Queue::code) },
            standing.lease as i64,
            standing.wake_at.map(Timestamp::as_millis),
            row.started_at,
            row.ended_at,
            row.total,
            clears_progress,
        ])?;
        Ok(())
    }

    /// The parts of a row that follow from the task's definition, after that was changed.
    pub(super) fn reshow(&self, no: i64, row: &RowImage) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached(
                "UPDATE task_runtimes SET done = ?2, total = ?3, stage = ?4, attempt = ?5, due_at = ?6, flags = ?7, \
                 queue = CASE WHEN queue IN (0, 6) THEN ?8 ELSE queue END WHERE no = ?1",
            )?
            .execute(params![
                no,
                row.done,
                row.total,
                row.stage,
                row.attempt,
                row.due_at,
                row.flags,
                Queue::of(row).map(Queue::code),
            ])?;
        Ok(())
    }

    /// Brings memory in line with a row whose status or lease has changed.
    fn settle_lease(
        &mut self,
        before: &Lease,
        no: i64,
        position: i64,
        row: &RowImage,
        standing: Standing,
    ) -> rusqlite::Result<()> {
        let (was_asked, keeps) = (self.board.is_slotless(before.plan, no), standing.lease != 0);
        self.board.adopt(before.plan, no);
        // An operator may have reached a parked task; its old time no longer counts.
        if let Some(at) = before.wake_at {
            self.board.parked.remove(&(at, no, before.plan, before.status));
        }
        if keeps {
            let lease = Lease {
                version: row.version,
                last_event: position,
                status: row.status,
                wake_at: None,
                ..before.clone()
            };
            self.board.leases.insert(no, lease);
        } else {
            self.board.leases.remove(&no);
            if standing.asked {
                self.board.leave_slot(before.plan, no);
            }
            match (row.status.is_active(), standing.wake_at) {
                (true, Some(at)) => {
                    self.board.parked.insert((at, no, before.plan, row.status));
                }
                (true, None) => self.board.orphan(before.plan, no, row.status),
                (false, _) => {}
            }
        }
        // A task that has waited for its message is PENDING before and after.
        if row.status != before.status || was_asked || row.status == TaskStatus::Pending {
            self.board.moved(before.plan, Some(before.status), Some(row.status));
        }
        match &before.tenant {
            Some(tenant) if row.status.is_ended() => self.free_tenant(tenant, (before.plan, before.rank, no)),
            Some(tenant) if before.status == TaskStatus::Pending && row.status != before.status => {
                self.leave_line(tenant, (before.plan, before.rank, no))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Gives the tenant's lock back, if it is this task's, and lets those waiting for it try again.
    pub(super) fn free_tenant(&mut self, tenant: &Tenant, place: Place) -> rusqlite::Result<()> {
        if self.board.held.get(tenant) == Some(&place.2) {
            self.board.held.remove(tenant);
            self.connection.prepare_cached("DELETE FROM locks WHERE tenant = ?1")?.execute([tenant.as_str()])?;
        }
        self.leave_line(tenant, place)
    }

    /// The task does not want the tenant any more. It may have been first in line for one that nobody holds, so the next
    /// have to be told.
    fn leave_line(&mut self, tenant: &Tenant, place: Place) -> rusqlite::Result<()> {
        if let Some(line) = self.board.waiting.get_mut(tenant) {
            line.remove(&place);
        }
        if self.board.held.contains_key(tenant) {
            return Ok(());
        }
        for (plan, _, waiter) in self.board.next_in_line(tenant) {
            self.connection
                .prepare_cached("UPDATE task_runtimes SET queue = 0 WHERE no = ?1 AND queue = 1")?
                .execute([waiter])?;
            if let Some(open) = self.board.plans.get_mut(&plan) {
                open.may_have_ready = true;
            }
            self.board.offer(plan);
        }
        Ok(())
    }

    pub(super) fn plan_after(&self, no: i64, command: PlanCommand) -> Result<PlanStatus, StoreError> {
        let plan = &self.board.plans[&no];
        Ok(next_plan_status(plan.shared.id().as_str(), plan.status, &plan.counts, command)?)
    }

    /// Writes the plan's new status, if the commit asked for one or the task's end makes one.
    pub(super) fn settle_plan(
        &mut self,
        no: i64,
        asked: Option<PlanStatus>,
        task_ended: bool,
        now: Timestamp,
    ) -> rusqlite::Result<Option<PlanStatus>> {
        let plan = &self.board.plans[&no];
        let mut status = asked.unwrap_or(plan.status);
        if task_ended {
            let settled = next_plan_status(plan.shared.id().as_str(), status, &plan.counts, PlanCommand::Settle);
            status = settled.expect("settling refuses nothing");
        }
        let over = plan.counts.open() == 0 && (task_ended || status != plan.status);
        // A plan is CANCELLED from the word on, and ends with its last task.
        let changed = status != plan.status || (over && status == PlanStatus::Cancelled && !plan.ended);
        if changed {
            self.write_plan(no, status, None, now)?;
        }
        if over && status.is_ended() {
            self.board.forget_plan(no);
        }
        Ok(changed.then_some(status))
    }

    /// A plan's status, with the times that go with it, and in the log. It has ended when nothing of it is open any more.
    pub(super) fn write_plan(
        &mut self,
        no: i64,
        status: PlanStatus,
        by: Option<&By>,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        let plan = self.board.plans.get_mut(&no).expect("a plan is opened before it is written");
        let over = status.is_ended() && plan.counts.open() == 0;
        plan.ended = over || (plan.ended && status == plan.status);
        plan.status = status;
        plan.version += 1;
        let ended = over.then_some(now.as_millis());
        let started = (status == PlanStatus::Running).then_some(now.as_millis());
        let text = by.map(|by| serde_json::to_string(by).expect("two strings are JSON"));
        self.connection
            .prepare_cached(
                "UPDATE plans SET status = ?2, version = ?3, started_at = coalesce(started_at, ?4), \
                 ended_at = CASE WHEN status = ?2 THEN coalesce(ended_at, ?5) ELSE ?5 END, \
                 changed_by = CASE WHEN status = ?2 THEN coalesce(?6, changed_by) ELSE ?6 END WHERE no = ?1",
            )?
            .execute(params![no, status.code(), plan.version as i64, started, ended, text])?;
        self.board.offer(no);
        self.board.recount(no);
        self.log_plan(no, by, now)
    }

    pub(super) fn note(&mut self, notes: Vec<Note>) -> Performed<()> {
        for note in notes {
            if let Some((done, total)) = note.progress {
                self.connection
                    .prepare_cached("UPDATE task_runtimes SET progress = ?2, progress_of = ?3 WHERE no = ?1")?
                    .execute(params![note.key.no, done as i64, total as i64])?;
            }
            self.append_output(&note.key, &note.output)?;
        }
        Ok(Ok(()))
    }

    pub(super) fn append_output(&self, key: &TaskRef, chunks: &[LogChunk]) -> rusqlite::Result<()> {
        for chunk in chunks {
            self.connection
                .prepare_cached("INSERT INTO logs (task, stage, attempt, at, bytes) VALUES (?1, ?2, ?3, ?4, ?5)")?
                .execute(params![key.no, chunk.stage.as_str(), chunk.attempt, chunk.at.as_millis(), chunk.bytes])?;
        }
        Ok(())
    }
}

fn standing_after(commit: &EncodedCommit, before: &Lease, keeps: bool) -> Standing {
    let status = commit.row.status;
    // An operator's rollback, as against one that a node was in the middle of.
    let asked = !keeps && status == TaskStatus::RollingBack && matches!(commit.lease, LeaseChange::Keep);
    let wake_at = match commit.lease {
        LeaseChange::Release(Wake::At(at)) if status.is_active() && !keeps => Some(at),
        LeaseChange::Keep if asked => Some(Timestamp::from_millis(commit.row.updated_at)),
        LeaseChange::Release(_) | LeaseChange::Keep => None,
    };
    Standing { lease: if keeps { before.number } else { 0 }, wake_at, asked }
}
