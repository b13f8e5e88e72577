//! The invariants, checked after every write by what was committed, and at every start of a stage by what is done.
//!
//! It keeps a copy of every task of its own, folded from the log as it grows, and believes nothing else.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt;
use milepost_core::id::{PlanId, StageName, TaskId};
use milepost_core::task::{Event, PlanStatus, Record, Task, TaskStatus};
use milepost_core::time::Timestamp;
use milepost_engine::OnStoreLoss;
use milepost_store::{Change, ChangeQuery, Changed, Claimed, Holder, PlanRow, Position, Store, StoredTask};

use crate::seen::Seen;
use crate::shared::Shared;

/// More commits than any schedule has work for.
const MOST_WRITES: u64 = 5_000;

/// An attempt that begins or ends outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) process: usize,
    pub(crate) task: TaskId,
    pub(crate) stage: StageName,
    pub(crate) attempt: u32,
    pub(crate) rollback: bool,
    pub(crate) fence: u64,
    /// What the other side knows a repetition by.
    pub(crate) key: String,
}

#[derive(Debug, Default)]
pub(crate) struct Watch {
    upto: Position,
    tasks: BTreeMap<TaskId, Seen>,
    plans: BTreeMap<PlanId, PlanStatus>,
    /// The last lease of each task, and the process that got it.
    leases: BTreeMap<TaskId, (u64, usize)>,
    last_lease: u64,
    /// The fence that the last claim of each task gave its stages.
    fences: BTreeMap<TaskId, u64>,
    /// Who changed the status of a plan.
    people: BTreeSet<String>,
    /// Attempts that run outside.
    running: Vec<Start>,
    /// Processes that go on without the store when it is away.
    careless: BTreeSet<usize>,
    /// How far a node's clock may be off when it writes down a time, in milliseconds.
    pub(crate) clock_error_ms: u64,
    pub(crate) commits: u64,
    writes: u64,
}

impl Watch {
    pub(crate) fn joins(&mut self, process: usize, on_store_loss: OnStoreLoss) {
        if on_store_loss == OnStoreLoss::Continue {
            self.careless.insert(process);
        }
    }

    pub(crate) fn task(&self, id: &TaskId) -> Option<&Task> {
        self.tasks.get(id).map(|seen| &seen.task)
    }

    pub(crate) fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values().map(|seen| &seen.task)
    }

    /// Those that have a slot of their plan.
    pub(crate) fn taken(&self, plan: &PlanId) -> impl Iterator<Item = &Task> {
        self.tasks.values().filter(move |seen| seen.taken && seen.task.spec().plan == *plan).map(|seen| &seen.task)
    }

    /// Whether something was written down that this person asked for.
    pub(crate) fn wrote_for(&self, person: &str) -> bool {
        self.tasks.values().any(|seen| seen.people.contains(person)) || self.people.contains(person)
    }

    pub(crate) fn messages_taken(&self, id: &TaskId) -> u64 {
        self.tasks.get(id).map_or(0, |seen| seen.messages)
    }

    fn changed(&mut self, change: &Change, stored: Option<&StoredTask>) -> Result<(), String> {
        match &change.what {
            Changed::Task { task, sequence, records, .. } => {
                self.commits += 1;
                self.task_changed(task, *sequence, records, stored)
            }
            Changed::Plan { status, by, .. } => {
                self.people.extend(by.iter().map(|by| by.who.clone()));
                self.plans.insert(change.plan.clone(), *status);
                self.plan_changed(&change.plan, *status)
            }
        }
    }

    fn task_changed(
        &mut self,
        id: &TaskId,
        sequence: u64,
        records: &[Record],
        stored: Option<&StoredTask>,
    ) -> Result<(), String> {
        let mut sequence = sequence;
        for record in records {
            if let Event::TaskCreated {} = record.event() {
                let Some(stored) = stored else { return Ok(()) };
                let seen = Seen::new(stored.task.spec().clone());
                self.tasks.insert(id.clone(), seen);
                self.fences.remove(id);
                sequence += 1;
                continue;
            }
            // An update removed it; its log went with it.
            let Some(seen) = self.tasks.get_mut(id) else { return Ok(()) };
            seen.take_in(sequence, record)?;
            if let Event::TaskInterrupted { .. } = record.event() {
                // Whoever had it has lost it; what still runs there is what fences are for.
                self.running.retain(|running| running.task != *id);
            }
            sequence += 1;
        }
        let Some(seen) = self.tasks.get_mut(id) else { return Ok(()) };
        seen.taken &= seen.task.status().is_active();
        if let Some(stored) = stored {
            seen.follow(stored)?;
        }
        if let Some(stored) = stored
            && stored.task.version() == seen.task.version()
            && stored.task != seen.task
        {
            return Err(format!("{id}: the log makes another task than the one that is stored (6)"));
        }
        Ok(())
    }

    fn plan_changed(&self, plan: &PlanId, status: PlanStatus) -> Result<(), String> {
        let open = |task: &&Task| task.spec().plan == *plan && !task.status().is_ended();
        let others = |task: &&Task| task.spec().plan == *plan && task.status() != TaskStatus::Completed;
        match status {
            PlanStatus::Completed if self.tasks().any(|task| others(&task)) => {
                Err(format!("plan {plan} is COMPLETED and not all of its tasks are"))
            }
            PlanStatus::Failed if self.tasks().any(|task| open(&task)) => {
                Err(format!("plan {plan} is FAILED while some of its tasks go on"))
            }
            _ => Ok(()),
        }
    }

    fn claimed(&mut self, process: usize, stored: &StoredTask, plan: &PlanRow, locked: bool) -> Result<(), String> {
        let (id, spec) = (&stored.key.id, stored.task.spec());
        if !stored.task.status().is_active() {
            // It ended in being claimed, and was given back at once.
            return Ok(());
        }
        if stored.epoch <= self.last_lease {
            return Err(format!("{id}: lease {} comes after {} (3: fences grow)", stored.epoch, self.last_lease));
        }
        self.last_lease = stored.epoch;
        self.leases.insert(id.clone(), (stored.epoch, process));
        let fence = stored.task.version();
        let last = self.fences.insert(id.clone(), fence);
        if last.is_some_and(|last| last > fence) {
            return Err(format!("{id} is taken with the fence {fence}, after a larger one (3: fences grow)"));
        }
        if let Some(tenant) = &spec.tenant {
            let rival =
                |seen: &&Seen| seen.taken && seen.task.spec().tenant.as_ref() == Some(tenant) && seen.task.id() != id;
            if let Some(rival) = self.tasks.values().find(rival) {
                return Err(format!("{id} and {} of tenant {tenant} run at once (4)", rival.task.id()));
            }
            if !locked {
                return Err(format!("{id} was claimed without the lock of its tenant {tenant} (4)"));
            }
        }
        let Some(seen) = self.tasks.get_mut(id) else { return Ok(()) };
        let newly = !std::mem::replace(&mut seen.taken, true);
        let taken = self.taken(&spec.plan).count();
        let most = plan.max_concurrency;
        if newly && taken > most as usize {
            return Err(format!("plan {} runs {taken} tasks, of at most {most} (4)", spec.plan));
        }
        Ok(())
    }

    fn committed(&self, process: usize, id: &TaskId, holder: Holder) -> Result<(), String> {
        match (holder, self.leases.get(id)) {
            (Holder::Lease(lease), Some((last, owner))) if lease == *last && process == *owner => Ok(()),
            (Holder::Lease(lease), last) => {
                let last = last.map_or("none".to_owned(), |(last, owner)| format!("{last} of #{owner}"));
                Err(format!("{id}: #{process} wrote under lease {lease}; the last one is {last} (3: fenced)"))
            }
            (Holder::Operator, _) => Ok(()),
        }
    }

    /// Only what is done under a good lease is judged: what a node does that has lost its lease without knowing is
    /// what fences are for.
    fn starts(&mut self, start: &Start, stored: &StoredTask, now: Timestamp) -> Result<(), String> {
        let Start { process, task: id, stage, fence, .. } = start;
        let ours = !stored.orphaned && self.leases.get(id) == Some(&(stored.epoch, *process));
        if !ours || self.careless.contains(process) {
            return Ok(());
        }
        match self.fences.get(id) {
            // By a runner of the same process that has lost it.
            Some(last) if fence < last => return Ok(()),
            Some(last) if fence > last => {
                return Err(format!(
                    "{id}: {stage} is given the fence {fence}, of claims up to {last} (3: fences grow)"
                ));
            }
            Some(_) | None => {}
        }
        let Some(seen) = self.tasks.get_mut(id) else { return Ok(()) };
        seen.may_start(start, stored, now.as_millis() + self.clock_error_ms as i64)?;
        let tenant = stored.task.spec().tenant.clone();
        let holds = |other: &&Start| {
            let same = self.tasks.get(&other.task).is_some_and(|seen| seen.task.spec().tenant == tenant);
            let held = self.leases.get(&other.task).is_some_and(|(_, owner)| *owner == other.process);
            same && held && other.task != *id && !self.careless.contains(&other.process)
        };
        if tenant.is_some()
            && let Some(other) = self.running.iter().find(holds)
        {
            return Err(format!(
                "{id} starts {stage} while {} of the same tenant runs {} (4)",
                other.task, other.stage
            ));
        }
        Ok(())
    }
}

impl Shared {
    /// The memory store answers at once.
    fn stored(&self, id: &TaskId) -> Option<StoredTask> {
        self.truth.task(id).now_or_never().and_then(Result::ok).flatten()
    }

    /// The tasks that a live node holds.
    pub(crate) fn held(&self) -> BTreeSet<TaskId> {
        let ids: Vec<TaskId> = self.state().watch.tasks.keys().cloned().collect();
        let is_held = |stored: StoredTask| stored.epoch > 0 && !stored.orphaned;
        ids.into_iter().filter(|id| self.stored(id).is_some_and(is_held)).collect()
    }

    /// Tasks that an update removed are gone with their logs.
    pub(crate) fn forget_removed(&self, held: &BTreeSet<TaskId>) {
        let ids: Vec<TaskId> = self.state().watch.tasks.keys().cloned().collect();
        for id in ids {
            if self.stored(&id).is_none() {
                self.state().watch.tasks.remove(&id);
                if held.contains(&id) {
                    self.violated(format!("{id} was removed while it ran (2)"));
                }
            }
        }
    }

    /// Looks at everything that was committed since the last look.
    pub(crate) fn look(&self) {
        loop {
            let after = self.state().watch.upto;
            let query = ChangeQuery { after, plan: None, limit: 1000 };
            let Some(Ok(changes)) = self.truth.changes(query).now_or_never() else { return };
            for change in &changes.items {
                let stored = match &change.what {
                    Changed::Task { task, .. } => self.stored(task),
                    Changed::Plan { .. } => None,
                };
                let checked = self.state().watch.changed(change, stored.as_ref());
                if let Err(violation) = checked {
                    self.violated(violation);
                }
            }
            self.state().watch.upto = changes.upto;
            if !changes.more {
                return;
            }
        }
    }

    pub(crate) fn claimed(&self, process: usize, claimed: &Claimed) {
        self.look();
        let locks = self.truth.locks().now_or_never().and_then(Result::ok).unwrap_or_default();
        for stored in claimed.tasks.iter().chain(&claimed.ended) {
            let plan = self.truth.plan(&stored.task.spec().plan).now_or_never().and_then(Result::ok).flatten();
            let Some(plan) = plan else { continue };
            let locked = locks.iter().any(|lock| lock.task == stored.key.id);
            // A failure in this very claim may have paused it.
            let runs = plan.status == PlanStatus::Running || claimed.settled.contains(&plan.id);
            if !runs && stored.task.status() == TaskStatus::Running {
                self.violated(format!("{} was claimed though its plan is {} (2)", stored.key.id, plan.status));
            }
            let checked = self.state().watch.claimed(process, stored, &plan, locked);
            if let Err(violation) = checked {
                self.violated(violation);
            }
        }
    }

    /// Whether somebody is about to write for a lease that has run out.
    pub(crate) fn is_orphan(&self, id: &TaskId, holder: Holder) -> bool {
        matches!(holder, Holder::Lease(_)) && self.stored(id).is_some_and(|stored| stored.orphaned)
    }

    pub(crate) fn committed(&self, process: usize, id: &TaskId, holder: Holder, orphan: bool) {
        self.look();
        let commits = {
            let watch = &mut self.state().watch;
            watch.writes += 1;
            watch.writes
        };
        if commits > MOST_WRITES {
            self.violated(format!("{id} goes round and round: {commits} commits (2: liveness)"));
        }
        if orphan {
            self.violated(format!("{id}: #{process} wrote after its lease had run out (3: fenced)"));
        }
        let checked = self.state().watch.committed(process, id, holder);
        if let Err(violation) = checked {
            self.violated(violation);
        }
    }

    pub(crate) fn attempt_starts(&self, start: &Start) {
        let undo = if start.rollback { " (undo)" } else { "" };
        let what = || format!("begins {} {} {}{undo} outside", start.task, start.stage, start.attempt);
        self.say(&format!("#{}", start.process), what);
        if let Some(stored) = self.stored(&start.task) {
            let checked = self.state().watch.starts(start, &stored, self.now());
            if let Err(violation) = checked {
                self.violated(violation);
            }
        }
        self.state().watch.running.push(start.clone());
    }

    pub(crate) fn attempt_ends(&self, start: &Start) {
        let running = &mut self.state().watch.running;
        if let Some(index) = running.iter().position(|running| running == start) {
            running.swap_remove(index);
        }
    }
}
