//! Everything the store holds, and the steps that all writes are made of. What may be claimed next is in `line`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use milepost_core::id::{PlanId, TaskId, Tenant};
use milepost_core::plan::{Plan, PlanCommand, Recovery, TaskCounts, next_plan_status};
use milepost_core::planted::planted;
use milepost_core::task::{By, PlanStatus, Record, Task, TaskStatus, ends_progress};
use milepost_core::time::Timestamp;
use tokio::time::Instant;

use crate::error::StoreError;
use crate::going::{self, Going};
use crate::model::{LogChunk, PlanRow, StoreStats, TaskRef, TokenRow, Wake};

use super::books::Books;
use super::changes::Logged;
use super::letters::Kept;
use super::line::{Line, Place, PlanLine};
use super::requests::Requests;
use super::sessions::{Era, Sessions};

#[derive(Debug, Default)]
pub(super) struct Data {
    pub(super) sessions: Sessions,
    pub(super) letters: BTreeMap<i64, Kept>,
    /// The last lease that was given out; each claim gets one of its own.
    pub(super) last_lease: u64,
    pub(super) last_position: i64,
    pub(super) log: BTreeMap<i64, Logged>,
    last_no: i64,
    pub(super) plans: BTreeMap<i64, PlanEntry>,
    pub(super) plan_nos: HashMap<PlanId, i64>,
    pub(super) tasks: BTreeMap<i64, TaskEntry>,
    pub(super) task_nos: HashMap<TaskId, i64>,
    /// All tasks that were set going by themselves, and some that were once.
    pub(super) let_go: BTreeSet<i64>,
    pub(super) tenants: HashMap<Tenant, BTreeSet<i64>>,
    pub(super) locks: BTreeMap<Tenant, Lock>,
    pub(super) line: Line,
    pub(super) requests: Requests,
    pub(super) books: Books,
    pub(super) tokens: BTreeMap<String, TokenRow>,
    stats: StoreStats,
}

#[derive(Debug)]
pub(super) struct PlanEntry {
    pub(super) plan: Arc<Plan>,
    pub(super) status: PlanStatus,
    pub(super) version: u64,
    pub(super) changed_by: Option<By>,
    pub(super) created_at: Timestamp,
    pub(super) started_at: Option<Timestamp>,
    pub(super) ended_at: Option<Timestamp>,
    /// Which eras it is set going for, as `going` says.
    pub(super) go: u8,
    /// Task numbers in the order of the file.
    pub(super) order: Vec<i64>,
    pub(super) statuses: BTreeMap<TaskStatus, u64>,
    /// How many of its tasks have a slot.
    pub(super) slots: u32,
    pub(super) line: PlanLine,
}

#[derive(Debug)]
pub(super) struct TaskEntry {
    pub(super) key: TaskRef,
    pub(super) plan: i64,
    /// Its place in the file.
    pub(super) at: usize,
    pub(super) task: Task,
    pub(super) events: Vec<Record>,
    pub(super) hold: Hold,
    /// Taken by a claim, given back by an end or a pause; a rollback that an operator asked for has none yet.
    pub(super) slot: bool,
    pub(super) place: Place,
    /// Likewise, for the task alone.
    pub(super) go: u8,
    pub(super) progress: Option<(u64, u64)>,
    pub(super) output: Vec<LogChunk>,
}

/// Who has a task, or when somebody may; of no account unless it is RUNNING or ROLLING_BACK.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Hold {
    By { owner: u64, lease: u64 },
    Nobody(Wake),
}

#[derive(Debug)]
pub(super) struct Lock {
    pub(super) task: i64,
    pub(super) since: Timestamp,
    pub(super) fence: u64,
    /// When it opens by itself; never, for an owner that has the store to itself.
    pub(super) expires_at: Option<Instant>,
}

/// Who has a task at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    Nobody,
    Live {
        lease: u64,
    },
    /// By an owner that is gone.
    Orphaned {
        lease: u64,
    },
}

impl Data {
    /// With a clock that says `at` now.
    pub(super) fn beginning_at(at: Timestamp) -> Self {
        Self { sessions: Sessions::beginning_at(at), ..Self::default() }
    }

    /// Another owner has the store to itself from now on.
    pub(super) fn change_owner(&mut self) -> u64 {
        let before = self.sessions.sole();
        let owner = self.sessions.change_sole();
        self.stats = StoreStats::default();
        self.orphan(before);
        owner
    }

    /// The session has ended: what it holds can be taken over.
    pub(super) fn orphan(&mut self, session: u64) {
        if planted("orphans are forgotten") {
            return;
        }
        let of_session = |entry: &&TaskEntry| matches!(entry.hold, Hold::By { owner, .. } if owner == session);
        let held: Vec<i64> = self.tasks.values().filter(of_session).map(|entry| entry.key.no).collect();
        for no in held {
            self.place(no);
        }
    }

    pub(super) fn stats(&self) -> StoreStats {
        self.stats
    }

    /// Counts the operation if it changes something.
    pub(super) fn counted<T>(
        &mut self,
        operation: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let done = operation(self)?;
        self.stats.batches += 1;
        self.stats.operations += 1;
        Ok(done)
    }

    pub(super) fn count_commit(&mut self) {
        self.stats.commits += 1;
    }

    pub(super) fn next_no(&mut self) -> i64 {
        self.last_no += 1;
        self.last_no
    }

    pub(super) fn entry(&self, no: i64) -> &TaskEntry {
        &self.tasks[&no]
    }

    pub(super) fn entry_mut(&mut self, no: i64) -> &mut TaskEntry {
        self.tasks.get_mut(&no).expect("task numbers inside the store are good")
    }

    pub(super) fn plan_entry(&self, no: i64) -> &PlanEntry {
        &self.plans[&no]
    }

    pub(super) fn plan_entry_mut(&mut self, no: i64) -> &mut PlanEntry {
        self.plans.get_mut(&no).expect("plan numbers inside the store are good")
    }

    pub(super) fn find_plan(&self, id: &PlanId) -> Result<i64, StoreError> {
        let missing = || StoreError::NotFound { what: "plan", id: id.to_string() };
        self.plan_nos.get(id).copied().ok_or_else(missing)
    }

    pub(super) fn find_task(&self, id: &TaskId) -> Result<i64, StoreError> {
        let missing = || StoreError::NotFound { what: "task", id: id.to_string() };
        self.task_nos.get(id).copied().ok_or_else(missing)
    }

    pub(super) fn held(&self, no: i64) -> Held {
        match self.entry(no).hold {
            Hold::Nobody(_) => Held::Nobody,
            Hold::By { owner, lease } if self.sessions.is_live(owner) => Held::Live { lease },
            Hold::By { lease, .. } => Held::Orphaned { lease },
        }
    }

    /// What a task has become, with all that follows: slot, lock and place in the line.
    pub(super) fn store(&mut self, no: i64, task: Task, events: &[Record], hold: Hold) {
        let entry = self.entry_mut(no);
        let (before, after) = (entry.task.status(), task.status());
        if ends_progress(after, events) {
            entry.progress = None;
        }
        entry.task = task;
        let sequence = entry.events.len() + 1;
        entry.events.extend_from_slice(events);
        entry.hold = if after.is_active() { hold } else { Hold::Nobody(Wake::Recovery) };
        let plan = entry.plan;
        let plan = self.plan_entry_mut(plan);
        plan.count(before, -1);
        plan.count(after, 1);
        if !after.is_active() {
            self.give_back_slot(no);
        }
        if after.is_ended() {
            self.unlock(no);
        }
        self.place(no);
        if !events.is_empty() {
            self.log(Logged::Task { no, sequence, count: events.len() });
        }
    }

    pub(super) fn give_back_slot(&mut self, no: i64) {
        let entry = self.entry_mut(no);
        if std::mem::take(&mut entry.slot) && !planted("a slot is leaked") && !planted("a slot is not counted") {
            let plan = entry.plan;
            self.plan_entry_mut(plan).slots -= 1;
            self.look_at_plan(plan);
        }
    }

    pub(super) fn unlock(&mut self, no: i64) {
        let Some(tenant) = self.entry(no).task.spec().tenant.clone() else { return };
        if self.locks.get(&tenant).is_some_and(|lock| lock.task == no) && !planted("a tenant stays locked") {
            self.locks.remove(&tenant);
            self.look_at_tenant(&tenant);
        }
    }

    /// The other task that has this one's tenant.
    pub(super) fn tenant_holder(&self, no: i64) -> Option<i64> {
        let tenant = self.entry(no).task.spec().tenant.as_ref()?;
        self.locks.get(tenant).map(|lock| lock.task).filter(|holder| *holder != no)
    }

    /// Ends the plan if nothing is left to run. Answers its status if that changed it; the caller tells the log.
    pub(super) fn settle(&mut self, plan: i64, at: Timestamp) -> Option<PlanStatus> {
        let entry = self.plan_entry(plan);
        let id = entry.plan.definition.id.as_str();
        let status = next_plan_status(id, entry.status, &entry.counts(), PlanCommand::Settle)
            .expect("settling is never refused");
        let completed = entry.counts().completed > 0;
        let status = match status {
            PlanStatus::Running if completed && planted("a plan ends with its first task") => PlanStatus::Completed,
            PlanStatus::Completed | PlanStatus::Failed if planted("a plan never ends") => entry.status,
            status => status,
        };
        let changed = self.set_status(plan, status, None, at);
        let entry = self.plan_entry_mut(plan);
        // A plan is CANCELLED from the word on, and ends with its last task.
        if entry.status.is_ended() && entry.counts().open() == 0 && entry.ended_at.is_none() {
            entry.ended_at = Some(at);
            entry.version += 1;
            return Some(entry.status);
        }
        changed
    }

    pub(super) fn set_status(
        &mut self,
        plan: i64,
        status: PlanStatus,
        by: Option<By>,
        at: Timestamp,
    ) -> Option<PlanStatus> {
        let entry = self.plan_entry_mut(plan);
        if entry.status == status {
            return None;
        }
        entry.status = status;
        entry.version += 1;
        entry.changed_by = by;
        if status == PlanStatus::Running {
            entry.started_at.get_or_insert(at);
        }
        entry.ended_at = (status.is_ended() && entry.counts().open() == 0).then_some(at);
        self.place_idle(plan);
        self.look_at_plan(plan);
        Some(status)
    }

    /// A person wants the plan to run; answers whether that is news.
    pub(super) fn set_going(&mut self, from: Option<u64>, plan: i64) -> bool {
        let was_held = self.plan_row(plan).waits_for_person;
        let settled = self.sessions.is_settled(from);
        let entry = self.plan_entry_mut(plan);
        entry.go = going::go(entry.recovery(), settled);
        was_held
    }

    /// A person wants this task to run. `asked`: what its plan becomes by the same word.
    pub(super) fn let_go(&mut self, from: Option<u64>, no: i64, asked: Option<PlanStatus>) {
        let plan = self.entry(no).plan;
        let entry = self.plan_entry(plan);
        let word = going::go(entry.recovery(), self.sessions.is_settled(from));
        if asked == Some(PlanStatus::Running) && entry.status != PlanStatus::Running {
            self.plan_entry_mut(plan).go = word;
        } else if entry.going().lacks(word) {
            self.entry_mut(no).go = word;
            self.let_go.insert(no);
        }
    }

    pub(super) fn plan_row(&self, plan: i64) -> PlanRow {
        let entry = self.plan_entry(plan);
        let held = entry.going().is_held(going::HELD, self.sessions.has_begun());
        PlanRow { waits_for_person: entry.status == PlanStatus::Running && held, ..entry.row() }
    }

    /// Whether a person's word is all that it waits for.
    pub(super) fn waits_for_person(&self, no: i64) -> bool {
        let entry = self.entry(no);
        let plan = self.plan_entry(entry.plan);
        !matches!(self.held(no), Held::Live { .. })
            && plan.going().holds(&entry.task, entry.go, plan.status, self.sessions.has_begun())
    }

    /// A node that claims for the first time finds out which era it is in, or begins one. False: it cannot tell yet,
    /// because another node may be there or gone. Whoever runs one plan only speaks for no other.
    pub(super) fn settle_era(&mut self, session: u64, default: Recovery, only: Option<i64>) -> bool {
        if let Some(plan) = only {
            let entry = self.plan_entry_mut(plan);
            entry.go = going::once_seen(entry.go);
            self.change_let_go(Some(plan), going::once_seen);
            return true;
        }
        match self.sessions.era_of(session) {
            Era::Known => return true,
            Era::Unknown => {
                self.sessions.wants_to_know(session);
                return false;
            }
            Era::GoesOn => self.keep_to_this_era(),
            Era::Begins => {
                for plan in self.plans.values_mut().filter(|plan| plan.ended_at.is_none()) {
                    plan.go = going::in_new_era(plan.recovery(), default, plan.go);
                }
                self.change_let_go(None, |go| go.saturating_sub(1));
            }
        }
        self.sessions.settle(session);
        true
    }

    /// A node of this era is there.
    pub(super) fn keep_to_this_era(&mut self) {
        self.plans.values_mut().for_each(|plan| plan.go = going::once_seen(plan.go));
        self.change_let_go(None, going::once_seen);
    }

    /// What becomes of the numbers of tasks, of one plan or of all: most tasks have none.
    fn change_let_go(&mut self, of: Option<i64>, change: impl Fn(u8) -> u8) {
        let tasks = &mut self.tasks;
        self.let_go.retain(|no| {
            let Some(task) = tasks.get_mut(no) else { return false };
            if of.is_none_or(|plan| plan == task.plan) {
                task.go = change(task.go);
            }
            task.go > going::HELD
        });
    }
}

impl PlanEntry {
    pub(super) fn counts(&self) -> TaskCounts {
        let mut counts = TaskCounts::default();
        for (status, count) in &self.statuses {
            counts.add(*status, *count);
        }
        counts
    }

    pub(super) fn count(&mut self, status: TaskStatus, change: i64) {
        let count = self.statuses.entry(status).or_default();
        *count = count.checked_add_signed(change).expect("a task is counted once");
    }

    pub(super) fn has_free_slot(&self) -> bool {
        self.slots < self.plan.definition.settings.max_concurrency
    }

    fn recovery(&self) -> Option<Recovery> {
        self.plan.definition.settings.recovery
    }

    pub(super) fn going(&self) -> Going {
        Going::of(self.recovery(), self.go, self.ended_at.is_some())
    }

    fn row(&self) -> PlanRow {
        PlanRow {
            id: self.plan.definition.id.clone(),
            status: self.status,
            max_concurrency: self.plan.definition.settings.max_concurrency,
            counts: self.counts(),
            version: self.version,
            waits_for_person: false,
            changed_by: self.changed_by.clone(),
            created_at: self.created_at,
            started_at: self.started_at,
            ended_at: self.ended_at,
        }
    }
}

impl TaskEntry {
    /// 0 when nobody has it.
    pub(super) fn lease(&self) -> u64 {
        match self.hold {
            Hold::By { lease, .. } => lease,
            Hold::Nobody(_) => 0,
        }
    }
}
