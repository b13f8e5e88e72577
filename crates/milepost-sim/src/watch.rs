//! The invariants, checked after every write by what was committed, and at every start of a stage by what is done.
//!
//! It keeps a copy of every task of its own, folded from the log as it grows, and believes nothing else.
//!
//! A real server does not stand still while it is looked at, and nobody knows in which order its nodes heard of something:
//! there, what runs at once is judged by the order of the log, and leases by the versions at which they were given out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use milepost_core::id::{PlanId, StageName, TaskId};
use milepost_core::plan::Plan;
use milepost_core::task::{Event, PlanStatus, Record, Task, TaskStatus};
use milepost_core::time::Timestamp;
use milepost_engine::OnStoreLoss;
use milepost_store::{Change, ChangeQuery, Changed, Claimed, Holder, PlanRow, Position, StoreError, StoredTask};

use crate::seen::Seen;
use crate::shared::Shared;
use crate::trace::words;

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

/// A lease that a process was given.
#[derive(Debug, Clone, Copy)]
struct Given {
    lease: u64,
    process: usize,
    /// The version at which it was given.
    fence: u64,
}

/// What a process wrote under a lease, and the version that it wrote on.
#[derive(Debug)]
struct Written {
    task: TaskId,
    lease: u64,
    process: usize,
    on: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) upto: Position,
    /// Who has which task, and which plan runs, is judged by the log as well.
    by_log: bool,
    tasks: BTreeMap<TaskId, Seen>,
    plans: BTreeMap<PlanId, (PlanStatus, Timestamp)>,
    /// The most tasks that a plan may ever run at once.
    slots: BTreeMap<PlanId, u32>,
    /// All leases that nodes have heard of, and all that was written under one.
    given: BTreeMap<TaskId, Vec<Given>>,
    written: Vec<Written>,
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
    clock_error_ms: u64,
    pub(crate) commits: u64,
    writes: u64,
}

impl Watch {
    pub(crate) fn new(plans: &[Arc<Plan>], clock_error_ms: u64, by_log: bool) -> Self {
        let mut slots = BTreeMap::new();
        for definition in plans.iter().map(|plan| &plan.definition) {
            let most: &mut u32 = slots.entry(definition.id.clone()).or_default();
            *most = definition.settings.max_concurrency.max(*most);
        }
        Self { slots, clock_error_ms, by_log, ..Self::default() }
    }

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
            Changed::Plan { status, by, at } => {
                self.people.extend(by.iter().map(|by| by.who.clone()));
                self.plans.insert(change.plan.clone(), (*status, *at));
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
        let mut taken_at = None;
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
            match record.event() {
                Event::TaskInterrupted { taken_by, .. } => {
                    // Whoever had it has lost it; what still runs there is what fences are for.
                    self.running.retain(|running| running.task != *id);
                    taken_at = taken_by.as_ref().map(|_| record.at());
                }
                Event::TaskStarted { .. } => taken_at = Some(record.at()),
                // A rollback that was asked for says no more when it is taken on.
                Event::StageStarted { .. } if !seen.taken => taken_at = Some(record.at()),
                _ => {}
            }
            sequence += 1;
        }
        if let Some(at) = taken_at
            && self.by_log
        {
            self.taken_by_log(id, at)?;
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

    /// Whether a task may be taken on that its log says is taken.
    fn taken_by_log(&mut self, id: &TaskId, at: Timestamp) -> Result<(), String> {
        let Some(task) = self.task(id).filter(|task| task.status().is_active()) else { return Ok(()) };
        let (spec, status) = (task.spec().clone(), task.status());
        if let Some((plan, since)) = self.plans.get(&spec.plan)
            && *plan != PlanStatus::Running
            && status == TaskStatus::Running
            // A failure in this very claim may have paused it.
            && at > *since
        {
            return Err(format!("{id} was claimed though its plan is {plan} (2)"));
        }
        let most = self.slots.get(&spec.plan).copied();
        self.takes(id, most)
    }

    /// A task is taken on, of at most so many of its plan.
    fn takes(&mut self, id: &TaskId, most: Option<u32>) -> Result<(), String> {
        let Some(spec) = self.task(id).map(|task| task.spec().clone()) else { return Ok(()) };
        if let Some(tenant) = &spec.tenant {
            let rival =
                |seen: &&Seen| seen.taken && seen.task.spec().tenant.as_ref() == Some(tenant) && seen.task.id() != id;
            if let Some(rival) = self.tasks.values().find(rival) {
                return Err(format!("{id} and {} of tenant {tenant} run at once (4)", rival.task.id()));
            }
        }
        let Some(seen) = self.tasks.get_mut(id) else { return Ok(()) };
        let newly = !std::mem::replace(&mut seen.taken, true);
        let taken = self.taken(&spec.plan).count();
        match most {
            Some(most) if newly && taken > most as usize => {
                Err(format!("plan {} runs {taken} tasks, of at most {most} (4)", spec.plan))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Somebody heard that it was given a task. Nobody else may hear of that lease.
    fn given(&mut self, process: usize, stored: &StoredTask) -> Result<(), String> {
        let (id, lease) = (&stored.key.id, stored.epoch);
        if !stored.task.status().is_active() {
            return Ok(());
        }
        let given = self.given.entry(id.clone()).or_default();
        if let Some(other) = given.iter().find(|given| given.lease == lease && given.process != process) {
            return Err(format!("{id}: lease {lease} is given to #{process} and to #{} (3: fenced)", other.process));
        }
        let fence = stored.task.version();
        given.push(Given { lease, process, fence });
        let last = self.fences.entry(id.clone()).or_default();
        // Of an answer that was slow there may be a later one already.
        if fence >= *last {
            *last = fence;
            self.leases.insert(id.clone(), (lease, process));
        }
        Ok(())
    }

    /// Nobody wrote under a lease after another one had been given out.
    pub(crate) fn fenced(&self) -> Result<(), String> {
        for Written { task: id, lease, process, on } in &self.written {
            let Some(given) = self.given.get(id) else { continue };
            let Some(own) = given.iter().find(|given| given.lease == *lease) else { continue };
            if let Some(later) = given.iter().find(|later| own.fence < later.fence && later.fence <= *on) {
                let Given { lease: last, process: owner, fence } = later;
                return Err(format!(
                    "{id}: #{process} wrote on version {on} under lease {lease}; lease {last} was given to #{owner} \
                     at {fence} (3: fenced)"
                ));
            }
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
        self.takes(id, Some(plan.max_concurrency))?;
        match &spec.tenant {
            Some(tenant) if !locked => Err(format!("{id} was claimed without the lock of its tenant {tenant} (4)")),
            Some(_) | None => Ok(()),
        }
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
    ///
    /// Answers an attempt of another task of the tenant that runs as well, if there is one.
    fn starts(&mut self, start: &Start, stored: &StoredTask, now: Timestamp) -> Result<Option<Start>, String> {
        let Start { process, task: id, stage, fence, .. } = start;
        let ours = !stored.orphaned && self.leases.get(id) == Some(&(stored.epoch, *process));
        if !ours || self.careless.contains(process) {
            return Ok(None);
        }
        match self.fences.get(id) {
            // By a runner of the same process that has lost it.
            Some(last) if fence < last => return Ok(None),
            Some(last) if fence > last => {
                return Err(format!(
                    "{id}: {stage} is given the fence {fence}, of claims up to {last} (3: fences grow)"
                ));
            }
            Some(_) | None => {}
        }
        let Some(seen) = self.tasks.get_mut(id) else { return Ok(None) };
        seen.may_start(start, stored, now.as_millis() + self.clock_error_ms as i64, !self.by_log)?;
        let tenant = stored.task.spec().tenant.clone();
        let holds = |other: &&Start| {
            let same = self.tasks.get(&other.task).is_some_and(|seen| seen.task.spec().tenant == tenant);
            let held = self.leases.get(&other.task).is_some_and(|(_, owner)| *owner == other.process);
            same && held && other.task != *id && !self.careless.contains(&other.process)
        };
        let rival = tenant.as_ref().and_then(|_| self.running.iter().find(holds));
        Ok(rival.cloned())
    }
}

impl Shared {
    /// The memory store answers at once; a server may fail to, and then nothing is judged by it.
    async fn stored(&self, id: &TaskId) -> Option<StoredTask> {
        self.truth.task(id).await.ok().flatten()
    }

    /// The tasks that a live node holds. Only a store that stands still can say so.
    pub(crate) async fn held(&self) -> BTreeSet<TaskId> {
        if self.by_log {
            return BTreeSet::new();
        }
        let ids: Vec<TaskId> = self.state().watch.tasks.keys().cloned().collect();
        let mut held = BTreeSet::new();
        for id in ids {
            if self.stored(&id).await.is_some_and(|stored| stored.epoch > 0 && !stored.orphaned) {
                held.insert(id);
            }
        }
        held
    }

    /// Tasks that an update removed are gone with their logs.
    pub(crate) async fn forget_removed(&self, held: &BTreeSet<TaskId>) {
        let ids: Vec<TaskId> = self.state().watch.tasks.keys().cloned().collect();
        for id in ids {
            if let Ok(None) = self.truth.task(&id).await {
                self.state().watch.tasks.remove(&id);
                if held.contains(&id) {
                    self.violated(format!("{id} was removed while it ran (2)"));
                }
            }
        }
    }

    /// Looks at everything that was committed since the last look.
    pub(crate) async fn look(self: &Arc<Self>) {
        if self.by_log {
            // One at a time, and to the end, whatever becomes of whoever wants to know.
            let shared = self.clone();
            let looking = tokio::spawn(async move {
                let _alone = shared.looking.lock().await;
                shared.look_on().await;
            });
            let _ = looking.await;
        } else {
            self.look_on().await;
        }
    }

    async fn look_on(&self) {
        loop {
            let after = self.state().watch.upto;
            let query = ChangeQuery { after, plan: None, limit: 1000 };
            let Ok(changes) = self.truth.changes(query).await else { return };
            for change in &changes.items {
                // What a server fails to tell is asked for again.
                let Ok(()) = self.look_at(change).await else { return };
                self.state().watch.upto = change.position;
            }
            self.state().watch.upto = changes.upto;
            if !changes.more {
                return;
            }
        }
    }

    async fn look_at(&self, change: &Change) -> Result<(), StoreError> {
        let stored = match &change.what {
            Changed::Task { task, .. } => self.truth.task(task).await?,
            Changed::Plan { .. } => {
                if self.by_log {
                    self.forget_removed(&BTreeSet::new()).await;
                }
                None
            }
        };
        if self.by_log {
            self.say("log", || match &change.what {
                Changed::Task { task, sequence, records, .. } => format!("{task} {sequence}: {}", words(records)),
                Changed::Plan { status, .. } => format!("plan {} is {status}", change.plan),
            });
        }
        let checked = self.state().watch.changed(change, stored.as_ref());
        if let Err(violation) = checked {
            self.violated(violation);
        }
        Ok(())
    }

    /// What was written to the simulated store was looked at then; what was written to a server was not.
    pub(crate) async fn look_again(self: &Arc<Self>) {
        if self.by_log {
            self.look().await;
        }
    }

    pub(crate) async fn claimed(self: &Arc<Self>, process: usize, claimed: &Claimed) {
        if self.by_log {
            for stored in &claimed.tasks {
                let checked = self.state().watch.given(process, stored);
                if let Err(violation) = checked {
                    self.violated(violation);
                }
            }
            return;
        }
        self.look().await;
        let locks = self.truth.locks().await.unwrap_or_default();
        for stored in claimed.tasks.iter().chain(&claimed.ended) {
            let plan = self.truth.plan(&stored.task.spec().plan).await.ok().flatten();
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
    pub(crate) async fn is_orphan(&self, id: &TaskId, holder: Holder) -> bool {
        !self.by_log
            && matches!(holder, Holder::Lease(_))
            && self.stored(id).await.is_some_and(|stored| stored.orphaned)
    }

    /// `on` is the version that was written on, if anything was.
    pub(crate) async fn committed(
        self: &Arc<Self>,
        process: usize,
        id: &TaskId,
        holder: Holder,
        on: Option<u64>,
        orphan: bool,
    ) {
        let commits = {
            let watch = &mut self.state().watch;
            watch.writes += 1;
            watch.writes
        };
        if self.by_log {
            if let (Holder::Lease(lease), Some(on)) = (holder, on) {
                self.state().watch.written.push(Written { task: id.clone(), lease, process, on });
            }
        } else {
            self.look().await;
        }
        if commits > MOST_WRITES {
            self.violated(format!("{id} goes round and round: {commits} commits (2: liveness)"));
        }
        if orphan {
            self.violated(format!("{id}: #{process} wrote after its lease had run out (3: fenced)"));
        }
        if !self.by_log {
            let checked = self.state().watch.committed(process, id, holder);
            if let Err(violation) = checked {
                self.violated(violation);
            }
        }
    }

    pub(crate) async fn attempt_starts(self: &Arc<Self>, start: &Start) {
        let undo = if start.rollback { " (undo)" } else { "" };
        let what = || format!("begins {} {} {}{undo} outside", start.task, start.stage, start.attempt);
        self.say(&format!("#{}", start.process), what);
        let now = self.now();
        self.state().watch.running.push(start.clone());
        // Whoever still has the task after this look had it when the attempt began.
        self.look_again().await;
        let Some(stored) = self.stored(&start.task).await else { return };
        let checked = self.state().watch.starts(start, &stored, now);
        match checked {
            Ok(Some(rival)) if self.has_it(&rival).await => {
                let (id, stage) = (&start.task, &start.stage);
                self.violated(format!(
                    "{id} starts {stage} while {} of the same tenant runs {} (4)",
                    rival.task, rival.stage
                ));
            }
            Ok(_) => {}
            Err(violation) => self.violated(violation),
        }
    }

    /// Whether an attempt goes on, and its process still has the task.
    async fn has_it(&self, start: &Start) -> bool {
        if !self.by_log {
            return true;
        }
        let Some(stored) = self.stored(&start.task).await else { return false };
        let watch = &self.state().watch;
        let lease = watch.leases.get(&start.task);
        !stored.orphaned && lease == Some(&(stored.epoch, start.process)) && watch.running.contains(start)
    }

    pub(crate) fn attempt_ends(&self, start: &Start) {
        let running = &mut self.state().watch.running;
        if let Some(index) = running.iter().position(|running| running == start) {
            running.swap_remove(index);
        }
    }
}
