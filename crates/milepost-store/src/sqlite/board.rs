//! What the owner keeps in memory beside the file: open plans and their slots, leases, tenant locks, who waits for what.
//!
//! Rebuilt from the file when it is opened, and again after a transaction that failed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use milepost_core::id::{PlanId, Tenant};
use milepost_core::plan::TaskCounts;
use milepost_core::task::{PlanStatus, TaskStatus};
use milepost_core::time::Timestamp;
use rusqlite::Connection;
use rusqlite::types::ValueRef;

use crate::codec::SharedPlan;
use crate::error::StoreError;
use crate::going::{self, Going};
use crate::row::{FLAG_AWAITS_MESSAGE, RowImage};

use super::codec::{decode_definition, plan_status, task_status, tenant, time, unavailable};
use super::counts::{Counted, LARGE};

/// Where a task stands in its plan's queue; the numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    Ready = 0,
    WaitsForTenant = 1,
    Active = 2,
    Paused = 3,
    /// Its log or definition cannot be trusted; a person must look.
    Damaged = 4,
    /// ROLLING_BACK because a person asked; has neither slot nor tenant yet.
    Undo = 5,
    /// PENDING, and not to be claimed before its message is here.
    AwaitsMessage = 6,
}

impl Queue {
    /// None for a task that has ended.
    pub(super) fn of(row: &RowImage) -> Option<Queue> {
        match row.status {
            TaskStatus::Pending if row.flags & FLAG_AWAITS_MESSAGE != 0 => Some(Queue::AwaitsMessage),
            TaskStatus::Pending => Some(Queue::Ready),
            TaskStatus::Running | TaskStatus::RollingBack => Some(Queue::Active),
            TaskStatus::Paused => Some(Queue::Paused),
            TaskStatus::Completed
            | TaskStatus::Failed
            | TaskStatus::Cancelled
            | TaskStatus::RolledBack
            | TaskStatus::RollbackFailed => None,
        }
    }

    pub(super) fn code(self) -> i64 {
        self as i64
    }
}

#[derive(Debug)]
pub(super) struct OpenPlan {
    pub(super) shared: SharedPlan,
    pub(super) status: PlanStatus,
    pub(super) version: u64,
    /// Which eras it is set going for.
    pub(super) go: u8,
    pub(super) counts: TaskCounts,
    /// Nothing of it is left to run, or nothing was when it ended.
    pub(super) ended: bool,
    /// False once a search found no ready task, until something makes one.
    pub(super) may_have_ready: bool,
}

/// The epoch of the last owner that has claimed.
pub(super) const SETTLED: &str = "SELECT value FROM meta WHERE key = 'settled'";

/// When, which task, of which plan, in which state.
pub(super) type Parked = (Timestamp, i64, i64, TaskStatus);

/// Leases of one owner lie between its epoch and the next, so that a look at one tells whose it is.
pub(super) const LEASES_PER_EPOCH: u64 = 1 << 40;

/// A task that a node of this owner works on.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    /// Its number; 0 for a look at a task that nobody holds.
    pub(super) number: u64,
    pub(super) version: u64,
    pub(super) last_event: i64,
    pub(super) status: TaskStatus,
    pub(super) plan: i64,
    pub(super) rank: i64,
    /// When it was to be claimed again, for one that was given back until then.
    pub(super) wake_at: Option<Timestamp>,
    pub(super) tenant: Option<Tenant>,
}

/// For which eras a task is set going by itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct LetGo {
    pub(super) plan: i64,
    pub(super) go: u8,
}

/// A place in line for a tenant: plan, rank, task.
pub(super) type Place = (i64, i64, i64);

#[derive(Debug, Default)]
pub(super) struct Board {
    pub(super) epoch: u64,
    /// This owner has claimed, so its era has begun.
    pub(super) settled: bool,
    pub(super) plans: BTreeMap<i64, OpenPlan>,
    pub(super) plan_numbers: HashMap<PlanId, i64>,
    /// Running plans that may have a ready task.
    pub(super) candidates: BTreeSet<i64>,
    pub(super) leases: HashMap<i64, Lease>,
    /// Which task holds a tenant.
    pub(super) held: HashMap<Tenant, i64>,
    pub(super) waiting: HashMap<Tenant, BTreeSet<Place>>,
    /// Given back until an instant.
    pub(super) parked: BTreeSet<Parked>,
    /// Active tasks that have neither slot nor tenant, by plan: parked rollbacks that a person asked for, and damaged ones.
    pub(super) slotless: BTreeMap<i64, BTreeSet<i64>>,
    /// RUNNING and held by nobody alive, by plan.
    pub(super) orphans: BTreeMap<i64, BTreeSet<i64>>,
    /// The same for ROLLING_BACK, which does not wait for its plan to run.
    pub(super) undoing: BTreeMap<i64, BTreeSet<i64>>,
    /// Tasks that a person set going by themselves, where that of their plan was not enough: few, if any.
    pub(super) let_go: BTreeMap<i64, LetGo>,
    /// The lease given last; every claim gets a new one.
    pub(super) last_lease: u64,
    pub(super) next_task: i64,
    pub(super) next_plan: i64,
    pub(super) next_event: i64,
    /// Large plans whose counts or versions are not what readers were told last.
    pub(super) recounted: HashMap<i64, Counted>,
}

impl Board {
    pub(super) fn load(connection: &Connection) -> Result<Self, StoreError> {
        let mut board = Board::default();
        board.load_numbers(connection).map_err(unavailable("read the store's counters"))?;
        for no in open_plans(connection).map_err(unavailable("read open plans"))? {
            board.open_plan(connection, no)?;
        }
        board.load_locks(connection).map_err(unavailable("read tenant locks"))?;
        board.load_queue(connection).map_err(unavailable("read the queue"))?;
        board.load_let_go(connection).map_err(unavailable("read what was set going"))?;
        Ok(board)
    }

    /// What the file says now; leases and positions given and taken back in the meantime are not given again.
    pub(super) fn reload(&self, connection: &Connection) -> Result<Self, StoreError> {
        let board = Board::load(connection)?;
        let next_event = board.next_event.max(self.next_event);
        Ok(Board { last_lease: self.last_lease, next_event, ..board })
    }

    /// Brings a plan into memory, whatever its status.
    pub(super) fn open_plan(&mut self, connection: &Connection, no: i64) -> Result<(), StoreError> {
        if self.plans.contains_key(&no) {
            return Ok(());
        }
        let row = plan_columns(connection, no).map_err(unavailable("read a plan"))?;
        let (definition, digest, status, version, first, last, ended, go) = row;
        let definition = decode_definition(no, &definition, &digest)?;
        let counts = count_tasks(connection, no, first, last).map_err(unavailable("count a plan's tasks"))?;
        self.plan_numbers.insert(definition.id.clone(), no);
        let shared = SharedPlan::new(definition);
        self.plans.insert(no, OpenPlan { shared, status, version, go, counts, ended, may_have_ready: true });
        self.offer(no);
        self.recount(no);
        Ok(())
    }

    /// Something of the plan's row or counts has changed.
    pub(super) fn recount(&mut self, no: i64) {
        if let Some(plan) = self.plans.get(&no)
            && plan.counts.total >= LARGE
        {
            self.recounted.insert(no, Counted { version: plan.version, counts: plan.counts });
        }
    }

    fn load_numbers(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let number = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        self.epoch = number("SELECT value FROM meta WHERE key = 'epoch'")?.unsigned_abs();
        self.settled = number(SETTLED)?.unsigned_abs() == self.epoch;
        self.last_lease = self.epoch * LEASES_PER_EPOCH;
        self.next_task = number("SELECT coalesce(max(no), 0) + 1 FROM task_configs")?;
        self.next_plan = number("SELECT coalesce(max(no), 0) + 1 FROM plans")?;
        // A position is the next lock's fence as well, and locks that were moved in may be ahead of the log.
        let newest =
            "SELECT max((SELECT coalesce(max(pos), 0) FROM events), (SELECT coalesce(max(fence), 0) FROM locks))";
        self.next_event = number(newest)?.saturating_add(1);
        Ok(())
    }

    fn load_locks(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let mut statement = connection.prepare("SELECT tenant, task FROM locks")?;
        let locks = statement.query_map([], |row| Ok((tenant(row, 0)?, row.get(1)?)))?;
        for lock in locks {
            let (tenant, task) = lock?;
            self.held.insert(tenant, task);
        }
        Ok(())
    }

    /// Waiting tasks line up again; active ones are parked, ours, or, if an earlier owner had them, orphaned.
    fn load_queue(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let mut statement = connection.prepare(
            "SELECT r.no, r.plan, r.rank, r.queue, r.lease, r.wake_at, c.tenant, r.status, r.version, r.last_event
             FROM task_runtimes r JOIN task_configs c ON c.no = r.no
             WHERE r.queue IN (1, 2, 4, 5)",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (no, plan, rank): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            if row.get::<_, i64>(3)? == Queue::WaitsForTenant.code() {
                self.waiting.entry(tenant(row, 6)?).or_default().insert((plan, rank, no));
                continue;
            }
            let status = task_status(row, 7)?;
            if row.get::<_, i64>(3)? == Queue::Damaged.code() {
                if status.is_active() {
                    self.leave_slot(plan, no);
                }
                continue;
            }
            if row.get::<_, i64>(3)? == Queue::Undo.code() {
                self.leave_slot(plan, no);
            }
            match (row.get::<_, i64>(4)?.unsigned_abs(), time(row, 5)?) {
                (0, Some(wake_at)) => {
                    self.parked.insert((wake_at, no, plan, status));
                }
                (number, _) if number / LEASES_PER_EPOCH == self.epoch => {
                    let tenant = if row.get_ref(6)? == ValueRef::Null { None } else { Some(tenant(row, 6)?) };
                    let (version, last_event) = (row.get::<_, i64>(8)?.unsigned_abs(), row.get(9)?);
                    self.leases
                        .insert(no, Lease { number, version, last_event, status, plan, rank, wake_at: None, tenant });
                }
                _ => self.orphan(plan, no, status),
            }
        }
        Ok(())
    }

    fn load_let_go(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let mut statement = connection.prepare("SELECT no, plan, go FROM task_runtimes WHERE go > 0")?;
        let tasks = statement.query_map([], |row| Ok((row.get(0)?, LetGo { plan: row.get(1)?, go: row.get(2)? })))?;
        self.let_go = tasks.collect::<rusqlite::Result<_>>()?;
        Ok(())
    }

    /// An active task that nobody holds: it goes on when its plan's recovery allows, or when a person asks.
    pub(super) fn orphan(&mut self, plan: i64, no: i64, status: TaskStatus) {
        let orphans = if status == TaskStatus::RollingBack { &mut self.undoing } else { &mut self.orphans };
        orphans.entry(plan).or_default().insert(no);
    }

    /// A rollback that waits for its tenant and a slot of its plan, or a damaged task: until it goes on it takes up neither.
    pub(super) fn leave_slot(&mut self, plan: i64, no: i64) {
        self.slotless.entry(plan).or_default().insert(no);
    }

    pub(super) fn is_slotless(&self, plan: i64, no: i64) -> bool {
        self.slotless.get(&plan).is_some_and(|tasks| tasks.contains(&no))
    }

    /// What the plan is to claims; one that is not in memory has nothing to start.
    pub(super) fn going(&self, plan: i64) -> Going {
        match self.plans.get(&plan) {
            Some(open) => Going::of(open.shared.settings.recovery, open.go, open.ended),
            None => Going::of(None, going::HELD, true),
        }
    }

    /// What a person's word for this plan is worth.
    pub(super) fn word(&self, plan: i64) -> u8 {
        going::go(self.plans.get(&plan).and_then(|open| open.shared.settings.recovery), self.settled)
    }

    pub(super) fn free_slots(&self, plan: i64) -> u64 {
        self.plans.get(&plan).map_or(0, |open| self.free_slots_of(plan, open))
    }

    fn free_slots_of(&self, plan: i64, open: &OpenPlan) -> u64 {
        let waiting = self.slotless.get(&plan).map_or(0, |tasks| tasks.len() as u64);
        let taken = open.counts.running + open.counts.rolling_back - waiting;
        u64::from(open.shared.settings.max_concurrency).saturating_sub(taken)
    }

    pub(super) fn new_lease(&mut self) -> u64 {
        self.last_lease += 1;
        self.last_lease
    }

    /// The task is held again, or no longer active.
    pub(super) fn adopt(&mut self, plan: i64, no: i64) {
        for orphans in [&mut self.orphans, &mut self.undoing, &mut self.slotless] {
            if let Some(of_plan) = orphans.get_mut(&plan) {
                of_plan.remove(&no);
                if of_plan.is_empty() {
                    orphans.remove(&plan);
                }
            }
        }
    }

    /// Puts a plan where claims look for it, if it may have something to claim.
    pub(super) fn offer(&mut self, no: i64) {
        let Some(plan) = self.plans.get(&no) else { return };
        if plan.status == PlanStatus::Running && plan.may_have_ready && self.free_slots_of(no, plan) > 0 {
            self.candidates.insert(no);
        } else {
            self.candidates.remove(&no);
        }
    }

    pub(super) fn forget_plan(&mut self, no: i64) {
        if let Some(plan) = self.plans.remove(&no) {
            self.plan_numbers.remove(plan.shared.id());
        }
        self.candidates.remove(&no);
    }

    /// A task of the plan went from one state to another.
    pub(super) fn moved(&mut self, plan: i64, from: Option<TaskStatus>, to: Option<TaskStatus>) {
        if let Some(open) = self.plans.get_mut(&plan) {
            if let Some(from) = from {
                open.counts.remove(from);
            }
            if let Some(to) = to {
                open.counts.add(to, 1);
                open.may_have_ready |= to == TaskStatus::Pending;
            }
            self.offer(plan);
            self.recount(plan);
        }
    }

    /// The first in line of each plan, for a tenant that has just become free: a plan that is paused must not keep
    /// another plan's task waiting, and waking everybody would cost as much as there are waiters.
    pub(super) fn next_in_line(&mut self, tenant: &Tenant) -> Vec<Place> {
        let Some(line) = self.waiting.get_mut(tenant) else { return Vec::new() };
        let mut first = Vec::new();
        let mut from = i64::MIN;
        while let Some(place) = line.range((from, i64::MIN, i64::MIN)..).next().copied() {
            first.push(place);
            let Some(next) = place.0.checked_add(1) else { break };
            from = next;
        }
        for place in &first {
            line.remove(place);
        }
        if line.is_empty() {
            self.waiting.remove(tenant);
        }
        first
    }
}

pub(super) fn open_plans(connection: &Connection) -> rusqlite::Result<Vec<i64>> {
    // Not ended, or ended and being rolled back.
    let sql = "SELECT no FROM plans WHERE ended_at IS NULL UNION SELECT plan FROM task_runtimes WHERE queue IN (2, 5)";
    connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
}

type PlanColumns = (String, Vec<u8>, PlanStatus, u64, i64, i64, bool, u8);

fn plan_columns(connection: &Connection, no: i64) -> rusqlite::Result<PlanColumns> {
    let sql = "SELECT definition, digest, status, version, first_task, last_task, ended_at IS NOT NULL, go FROM plans WHERE no = ?1";
    connection.prepare_cached(sql)?.query_row([no], |row| {
        Ok((
            row.get(0)?,
            row.get(1)?,
            plan_status(row, 2)?,
            row.get::<_, i64>(3)?.unsigned_abs(),
            row.get(4)?,
            row.get(5)?,
            row.get(6)?,
            row.get(7)?,
        ))
    })
}

/// One pass and no sorting: plans are large, and people look at them often.
pub(super) fn count_tasks(connection: &Connection, plan: i64, first: i64, last: i64) -> rusqlite::Result<TaskCounts> {
    let mut statement = connection.prepare_cached(
        "SELECT total(status = 0), total(status = 1), total(status = 2), total(status = 3), total(status = 4), \
         total(status = 5), total(status = 6), total(status = 7), total(status = 8) \
         FROM task_runtimes WHERE no BETWEEN ?2 AND ?3 AND plan = ?1",
    )?;
    statement.query_row([plan, first, last], |row| {
        let mut counts = TaskCounts::default();
        for (index, status) in TaskStatus::ALL.iter().enumerate() {
            counts.add(*status, row.get::<_, f64>(index)? as u64);
        }
        Ok(counts)
    })
}
