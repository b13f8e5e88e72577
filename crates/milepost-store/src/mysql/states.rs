//! Plans, tasks and sessions as a transaction reads them.

use milepost_core::id::{PlanId, TaskId, Tenant};
use milepost_core::plan::{PlanCommand, PlanRejection, Recovery, TaskCounts, next_plan_status};
use milepost_core::task::{By, PlanStatus, TaskStatus};
use milepost_core::time::Timestamp;

use crate::going;
use crate::model::PlanRow;
use crate::row::{FLAG_AWAITS_MESSAGE, RowImage};

use super::codec::{Columns, Sql};
use super::eras::has_begun;

/// Where a task stands; the numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    Ready = 0,
    WaitsForTenant = 1,
    /// By a session that is there, or is not any more.
    Held = 2,
    Paused = 3,
    /// Its log or definition cannot be trusted; a person must look.
    Damaged = 4,
    /// ROLLING_BACK because a person asked; has neither slot nor tenant yet.
    Undo = 5,
    /// Given back until an instant.
    Asleep = 6,
    /// Active, and nobody's: it goes on when its plan's recovery allows, or when a person asks.
    Left = 7,
    /// PENDING, and not to be claimed before its message is here.
    AwaitsMessage = 8,
}

impl Queue {
    /// An active task that has no slot of its plan.
    pub(super) fn is_slotless(self, status: TaskStatus) -> bool {
        self == Queue::Undo || (self == Queue::Damaged && status.is_active())
    }

    pub(super) fn of_code(code: i64) -> Option<Queue> {
        use Queue::{Asleep, AwaitsMessage, Damaged, Held, Left, Paused, Ready, Undo, WaitsForTenant};
        [Ready, WaitsForTenant, Held, Paused, Damaged, Undo, Asleep, Left, AwaitsMessage]
            .into_iter()
            .find(|queue| *queue as i64 == code)
    }
}

/// The row that everybody who writes locks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counters {
    pub(super) position: i64,
    pub(super) sessions: u64,
    pub(super) fence: u64,
    pub(super) offered: i64,
    pub(super) plans: i64,
    pub(super) tasks: i64,
    pub(super) entries: i64,
}

/// A session as the store's clock sees it.
#[derive(Debug, Clone)]
pub(super) struct SessionState {
    pub(super) number: u64,
    pub(super) ended: bool,
    pub(super) expired: bool,
}

pub(super) const PLAN: &str = concat!(
    "p.id, p.name, p.status, p.version, p.max_concurrency, p.recovery, p.workflow, p.pending, \
    p.running, p.paused, p.completed, p.failed, p.cancelled, p.rolling_back, p.rolled_back, p.rollback_failed, p.slotless, \
    p.ready, p.created_at, p.started_at, p.ended_at, p.changed_by, p.digest, p.go, \
    IF(p.recovery = 'manual', ",
    has_begun!(),
    ", 1)"
);

#[derive(Debug, Clone)]
pub(super) struct PlanState {
    pub(super) no: i64,
    pub(super) id: PlanId,
    pub(super) status: PlanStatus,
    pub(super) version: u64,
    pub(super) max_concurrency: u32,
    /// None when it does not say.
    pub(super) recovery: Option<Recovery>,
    pub(super) workflow: Option<String>,
    pub(super) counts: TaskCounts,
    /// Active tasks that have no slot: rollbacks that were asked for and have not begun, and damaged ones.
    pub(super) slotless: u64,
    pub(super) ready: u64,
    pub(super) created_at: Timestamp,
    pub(super) started_at: Option<Timestamp>,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) changed_by: Option<String>,
    pub(super) digest: Vec<u8>,
    /// Which eras it is set going for.
    pub(super) go: u8,
    /// A node was there that belongs to an era; of no account unless recovery is manual.
    pub(super) begun: bool,
}

impl PlanState {
    pub(super) fn read(columns: &mut Columns) -> Sql<Self> {
        Ok(Self {
            no: columns.next()?,
            id: columns.plan_id()?,
            status: columns.plan_status()?,
            version: columns.natural()?,
            max_concurrency: columns.next()?,
            recovery: columns
                .maybe::<String>()?
                .map(|word| if word == "auto" { Recovery::Auto } else { Recovery::Manual }),
            workflow: columns.maybe()?,
            counts: {
                let mut counts = TaskCounts::default();
                for status in TaskStatus::ALL {
                    counts.add(*status, columns.natural()?);
                }
                counts
            },
            slotless: columns.natural()?,
            ready: columns.natural()?,
            created_at: columns.time()?,
            started_at: columns.maybe_time()?,
            ended_at: columns.maybe_time()?,
            changed_by: columns.maybe()?,
            digest: columns.next()?,
            go: columns.next()?,
            begun: columns.flag()?,
        })
    }

    pub(super) fn row(&self) -> PlanRow {
        PlanRow {
            id: self.id.clone(),
            status: self.status,
            max_concurrency: self.max_concurrency,
            counts: self.counts,
            version: self.version,
            waits_for_person: self.status == PlanStatus::Running && self.going().is_held(going::HELD, self.begun),
            changed_by: self.changed_by.as_deref().and_then(|by| serde_json::from_str(by).ok()),
            created_at: self.created_at,
            started_at: self.started_at,
            ended_at: self.ended_at,
        }
    }

    pub(super) fn free_slots(&self) -> u64 {
        let taken = (self.counts.running + self.counts.rolling_back).saturating_sub(self.slotless);
        u64::from(self.max_concurrency).saturating_sub(taken)
    }

    pub(super) fn offers(&self) -> bool {
        self.status == PlanStatus::Running && self.ready > 0 && self.free_slots() > 0
    }

    pub(super) fn after(&self, command: PlanCommand) -> Result<PlanStatus, PlanRejection> {
        next_plan_status(self.id.as_str(), self.status, &self.counts, command)
    }

    /// Answers whether that changed anything; the caller tells the log.
    pub(super) fn set_status(&mut self, status: PlanStatus, by: Option<&By>, at: Timestamp) -> bool {
        if self.status == status {
            return false;
        }
        self.status = status;
        self.version += 1;
        self.changed_by = by.map(|by| serde_json::to_string(by).expect("two strings are JSON"));
        if status == PlanStatus::Running {
            self.started_at.get_or_insert(at);
        }
        self.ended_at = (status.is_ended() && self.counts.open() == 0).then_some(at);
        true
    }

    /// Ends the plan if nothing is left to run.
    pub(super) fn settle(&mut self, at: Timestamp) -> bool {
        let status = self.after(PlanCommand::Settle).expect("settling is never refused");
        let changed = self.set_status(status, None, at);
        // A plan is CANCELLED from the word on, and ends with its last task.
        if self.status.is_ended() && self.counts.open() == 0 && self.ended_at.is_none() {
            self.ended_at = Some(at);
            self.version += 1;
            return true;
        }
        changed
    }
}

pub(super) const TASK: &str = "r.id, r.unit_name, r.task_id, r.tenant, r.turn, r.status, r.queue, r.version, r.lease, \
    r.wake_at, r.processed_records, r.total_records";

#[derive(Debug, Clone)]
pub(super) struct TaskState {
    pub(super) no: i64,
    pub(super) id: TaskId,
    pub(super) plan: i64,
    pub(super) tenant: Option<Tenant>,
    pub(super) turn: i64,
    pub(super) status: TaskStatus,
    pub(super) queue: Option<Queue>,
    pub(super) version: u64,
    pub(super) lease: u64,
    pub(super) wake_at: Option<Timestamp>,
    pub(super) progress: Option<(u64, u64)>,
    /// Version and lease in the table: it is written only if they still are.
    pub(super) stored: (u64, u64),
}

impl TaskState {
    pub(super) fn read(columns: &mut Columns) -> Sql<Self> {
        let (no, id, plan, tenant) = (columns.next()?, columns.task_id()?, columns.next()?, columns.maybe_tenant()?);
        let (turn, status, queue) = (columns.next()?, columns.task_status()?, columns.maybe::<i64>()?);
        let (version, lease, wake_at) = (columns.natural()?, columns.natural()?, columns.maybe_time()?);
        let (queue, stored) = (queue.and_then(Queue::of_code), (version, lease));
        let progress = columns.progress()?;
        Ok(Self { no, id, plan, tenant, turn, status, queue, version, lease, wake_at, progress, stored })
    }
}

/// Where a task's row goes: under which lease, until when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    pub(super) lease: u64,
    pub(super) wake_at: Option<Timestamp>,
    /// It is to be rolled back, and nobody has begun.
    pub(super) asked: bool,
}

impl Standing {
    /// None for a task that has ended.
    pub(super) fn queue(self, image: &RowImage) -> Option<Queue> {
        match image.status {
            TaskStatus::Pending if image.flags & FLAG_AWAITS_MESSAGE != 0 => Some(Queue::AwaitsMessage),
            TaskStatus::Pending => Some(Queue::Ready),
            TaskStatus::Running | TaskStatus::RollingBack if self.asked => Some(Queue::Undo),
            TaskStatus::Running | TaskStatus::RollingBack if self.lease != 0 => Some(Queue::Held),
            TaskStatus::Running | TaskStatus::RollingBack if self.wake_at.is_some() => Some(Queue::Asleep),
            TaskStatus::Running | TaskStatus::RollingBack => Some(Queue::Left),
            TaskStatus::Paused => Some(Queue::Paused),
            TaskStatus::Completed
            | TaskStatus::Failed
            | TaskStatus::Cancelled
            | TaskStatus::RolledBack
            | TaskStatus::RollbackFailed => None,
        }
    }
}
