//! What may be claimed next, in order, so that no claim has to look at tasks that cannot be taken.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use milepost_core::id::Tenant;
use milepost_core::plan::Recovery;
use milepost_core::planted::planted;
use milepost_core::task::{PlanStatus, TaskStatus};
use milepost_core::time::Timestamp;

use crate::model::Wake;

use super::data::{Data, Held, Hold};

/// Where a task stands in its plan's line: higher priority first, then the order of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    priority: Reverse<i32>,
    at: usize,
    pub(super) no: i64,
}

/// Where a task can be found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Place {
    Nowhere,
    Pending(Turn),
    /// RUNNING or ROLLING_BACK, and no live node has it; its plan does not let it go on.
    Idle,
    Due(Timestamp),
    Recovery {
        automatic: bool,
    },
}

/// Of all plans.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Plans with a free slot and a task to fill it.
    pub(super) plans: BTreeSet<i64>,
    pub(super) due: BTreeSet<(Timestamp, i64)>,
    /// Only what a node may take over without asking, as its own setting says.
    pub(super) recovery: BTreeSet<i64>,
    /// The plans in which tasks wait for a tenant.
    tenants: HashMap<Tenant, BTreeSet<i64>>,
}

/// Of one plan.
#[derive(Debug, Default)]
pub(super) struct PlanLine {
    /// PENDING tasks that can be taken: those without a tenant, and of each free tenant the first.
    pub(super) pending: BTreeSet<Turn>,
    pub(super) due: BTreeSet<(Timestamp, i64)>,
    pub(super) recovery: BTreeSet<i64>,
    /// All PENDING tasks that have a tenant.
    waiting: HashMap<Tenant, BTreeSet<Turn>>,
    /// The one of each tenant that is in `pending`.
    first: HashMap<Tenant, Turn>,
    idle: BTreeSet<i64>,
}

impl Data {
    /// Puts a task where its state belongs.
    pub(super) fn place(&mut self, no: i64) {
        self.unplace(no);
        let place = self.place_of(no);
        let entry = self.entry_mut(no);
        entry.place = place;
        let (plan, tenant) = (entry.plan, entry.task.spec().tenant.clone());
        let line = &mut self.plan_entry_mut(plan).line;
        match place {
            Place::Nowhere => {}
            Place::Pending(turn) => match tenant {
                None => {
                    line.pending.insert(turn);
                    self.look_at_plan(plan);
                }
                Some(tenant) => {
                    line.waiting.entry(tenant.clone()).or_default().insert(turn);
                    self.line.tenants.entry(tenant.clone()).or_default().insert(plan);
                    self.look_at_tenant(&tenant);
                }
            },
            Place::Idle => {
                line.idle.insert(no);
            }
            Place::Due(at) => {
                line.idle.insert(no);
                line.due.insert((at, no));
                self.line.due.insert((at, no));
            }
            Place::Recovery { automatic } => {
                line.idle.insert(no);
                line.recovery.insert(no);
                if automatic {
                    self.line.recovery.insert(no);
                }
            }
        }
    }

    pub(super) fn unplace(&mut self, no: i64) {
        let entry = self.entry_mut(no);
        let place = std::mem::replace(&mut entry.place, Place::Nowhere);
        let (plan, tenant) = (entry.plan, entry.task.spec().tenant.clone());
        let line = &mut self.plan_entry_mut(plan).line;
        match place {
            Place::Nowhere => {}
            Place::Pending(turn) => match tenant {
                None => {
                    line.pending.remove(&turn);
                    self.look_at_plan(plan);
                }
                Some(tenant) => self.stop_waiting(plan, &tenant, turn),
            },
            Place::Idle => {
                line.idle.remove(&no);
            }
            Place::Due(at) => {
                line.idle.remove(&no);
                line.due.remove(&(at, no));
                self.line.due.remove(&(at, no));
            }
            Place::Recovery { .. } => {
                line.idle.remove(&no);
                line.recovery.remove(&no);
                self.line.recovery.remove(&no);
            }
        }
    }

    /// The plan's status has changed, and with it what its interrupted and sleeping tasks may do.
    pub(super) fn place_idle(&mut self, plan: i64) {
        for no in self.plan_entry(plan).line.idle.clone() {
            self.place(no);
        }
    }

    /// Its status, its slots or its line have changed.
    pub(super) fn look_at_plan(&mut self, plan: i64) {
        let entry = self.plan_entry(plan);
        if entry.status == PlanStatus::Running && entry.has_free_slot() && !entry.line.pending.is_empty() {
            self.line.plans.insert(plan);
        } else {
            self.line.plans.remove(&plan);
        }
    }

    /// Its lock or its line have changed: each plan offers its first waiting task, or the holder if that is waiting.
    pub(super) fn look_at_tenant(&mut self, tenant: &Tenant) {
        let holder = self.locks.get(tenant).map(|lock| match self.entry(lock.task).place {
            Place::Pending(turn) => Some(turn),
            Place::Nowhere | Place::Idle | Place::Due(_) | Place::Recovery { .. } => None,
        });
        let Some(plans) = self.line.tenants.get(tenant).cloned() else { return };
        for plan in plans {
            let line = &mut self.plan_entry_mut(plan).line;
            let waiting = line.waiting.get(tenant);
            let first = waiting.and_then(|waiting| match holder {
                None => waiting.first().copied(),
                Some(turn) => turn.filter(|turn| waiting.contains(turn)),
            });
            let before = match first {
                Some(turn) => line.first.insert(tenant.clone(), turn),
                None => line.first.remove(tenant),
            };
            if let Some(turn) = before {
                line.pending.remove(&turn);
            }
            line.pending.extend(first);
            self.look_at_plan(plan);
        }
    }

    fn stop_waiting(&mut self, plan: i64, tenant: &Tenant, turn: Turn) {
        let line = &mut self.plan_entry_mut(plan).line;
        let waiting = line.waiting.get_mut(tenant).expect("a task that waits for a tenant is in its line");
        waiting.remove(&turn);
        let nobody_waits = waiting.is_empty();
        self.look_at_tenant(tenant);
        if nobody_waits {
            self.plan_entry_mut(plan).line.waiting.remove(tenant);
            let plans = self.line.tenants.get_mut(tenant).expect("a plan with waiting tasks is known by tenant");
            plans.remove(&plan);
            if plans.is_empty() {
                self.line.tenants.remove(tenant);
            }
        }
    }

    fn place_of(&self, no: i64) -> Place {
        let entry = self.entry(no);
        let plan = self.plan_entry(entry.plan);
        let automatic = plan.plan.definition.settings.recovery != Some(Recovery::Manual);
        let status = entry.task.status();
        match status {
            TaskStatus::Pending if entry.task.awaits_message() => Place::Nowhere,
            TaskStatus::Pending => {
                Place::Pending(Turn { priority: Reverse(entry.task.spec().priority), at: entry.at, no })
            }
            TaskStatus::Running | TaskStatus::RollingBack => match (self.held(no), entry.hold) {
                (Held::Live { .. }, _) => Place::Nowhere,
                // An undo was asked for by somebody, or belongs to a failure that has happened: no plan holds it up.
                _ if status == TaskStatus::Running
                    && plan.status != PlanStatus::Running
                    && !planted("a paused plan goes on") =>
                {
                    Place::Idle
                }
                (Held::Orphaned { .. }, _) | (Held::Nobody, Hold::Nobody(Wake::Recovery)) => {
                    Place::Recovery { automatic }
                }
                (Held::Nobody, Hold::Nobody(Wake::At(_))) if planted("a timer is lost") => Place::Idle,
                (Held::Nobody, Hold::Nobody(Wake::At(at))) => Place::Due(at),
                (Held::Nobody, Hold::By { .. }) => unreachable!("a task that somebody holds is live or orphaned"),
            },
            TaskStatus::Paused
            | TaskStatus::Completed
            | TaskStatus::Failed
            | TaskStatus::Cancelled
            | TaskStatus::RolledBack
            | TaskStatus::RollbackFailed => Place::Nowhere,
        }
    }
}
