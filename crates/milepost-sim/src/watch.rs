//! The invariants, checked after every write by what was committed, and at every start of a stage by what is done.
//!
//! It keeps a copy of every task of its own, folded from the log as it grows, and believes nothing else.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt;
use milepost_core::id::{PlanId, StageName, TaskId};
use milepost_core::task::{By, Event, PlanStatus, Record, StageStatus, Task, TaskStatus};
use milepost_core::time::Timestamp;
use milepost_engine::OnStoreLoss;
use milepost_store::{Change, ChangeQuery, Changed, Claimed, Holder, PlanRow, Position, Store, StoredTask};

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

#[derive(Debug)]
struct Seen {
    task: Task,
    /// Stages that were completed or skipped, and not undone or reset since; in that order.
    done: Vec<StageName>,
    /// When a retry may start, by the times in the log.
    due: BTreeMap<(StageName, bool), Timestamp>,
    /// It was claimed, and has not ended or paused since.
    taken: bool,
    messages: u64,
    /// All of its log.
    records: Vec<Record>,
    /// Stages that were started since the run began anew or was undone: what they did may still be there.
    touched: BTreeSet<StageName>,
    /// Completed stages of the rollback under way that are still to be undone, the last one to complete at the end.
    undoes: Vec<StageName>,
    /// The keys under which its stages did something that has not been undone or begun anew since; and all before.
    keys: BTreeMap<StageName, String>,
    spent_keys: BTreeSet<String>,
    /// The signals that it has, by who sent them.
    signals: BTreeMap<String, u64>,
    /// Who asked for what happened to it.
    people: BTreeSet<String>,
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
                let seen = Seen {
                    task: Task::created(stored.task.spec().clone()),
                    done: Vec::new(),
                    due: BTreeMap::new(),
                    taken: false,
                    messages: 0,
                    records: Vec::new(),
                    touched: BTreeSet::new(),
                    undoes: Vec::new(),
                    keys: BTreeMap::new(),
                    spent_keys: BTreeSet::new(),
                    signals: BTreeMap::new(),
                    people: BTreeSet::new(),
                };
                self.tasks.insert(id.clone(), seen);
                self.fences.remove(id);
                sequence += 1;
                continue;
            }
            // An update removed it; its log went with it.
            let Some(seen) = self.tasks.get_mut(id) else { return Ok(()) };
            if sequence != seen.task.version() + 1 {
                return Err(format!(
                    "{id}: event {sequence} follows event {} (5: dense sequence)",
                    seen.task.version()
                ));
            }
            if record.at() < seen.task.updated_at() {
                let (before, at) = (seen.task.updated_at(), record.at());
                return Err(format!("{id}: {} at {at} follows an event at {before}", record.event().kind()));
            }
            seen.check(id, record)?;
            let folded = seen.task.clone().apply(record);
            seen.task = folded.map_err(|error| format!("{id}: the log cannot be replayed: {error} (6)"))?;
            seen.check_undo(id, record)?;
            sequence += 1;
        }
        let Some(seen) = self.tasks.get_mut(id) else { return Ok(()) };
        seen.records.extend_from_slice(records);
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
        let taken = self.tasks.values().filter(|seen| seen.taken && seen.task.spec().plan == spec.plan).count();
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
        let Start { process, task: id, stage, attempt, rollback, fence, key } = start;
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
        if !rollback {
            let known = seen.keys.entry(stage.clone()).or_insert_with(|| key.clone());
            if known != key || seen.spent_keys.contains(key) {
                return Err(format!("{id}: {stage} is done under the key {key}, after {known} (keys)"));
            }
        }
        if !rollback && seen.done.contains(stage) {
            return Err(format!("{id}: stage {stage} runs again though its completion is recorded (1)"));
        }
        if let Some(due) = seen.due.get(&(stage.clone(), *rollback))
            && now.as_millis() + (self.clock_error_ms as i64) < due.as_millis()
        {
            return Err(format!("{id}: {stage} {attempt} starts at {now}, before it is due at {due} (7)"));
        }
        if let Some(index) = stored.task.stage_index(stage)
            && !rollback
        {
            let state = stored.task.stage(index).1;
            let known = match state.status {
                StageStatus::Running | StageStatus::RetryWait => state.attempt == *attempt,
                StageStatus::Pending
                | StageStatus::Completed
                | StageStatus::Skipped
                | StageStatus::Failed
                | StageStatus::Cancelled
                | StageStatus::RolledBack => false,
            };
            if !known {
                let found = format!("{:?} {}", state.status, state.attempt);
                return Err(format!("{id}: {stage} {attempt} starts though the store has it as {found}"));
            }
        }
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

impl Seen {
    /// An update may have changed what was asked for; the log is then read again with that in mind.
    fn follow(&mut self, stored: &StoredTask) -> Result<(), String> {
        if stored.task.spec() == self.task.spec() {
            return Ok(());
        }
        let fresh = Task::created(stored.task.spec().clone());
        let folded = self.records.iter().skip(1).try_fold(fresh, |task, record| task.apply(record));
        self.task = folded.map_err(|error| format!("{}: after an update: {error} (6)", self.task.id()))?;
        Ok(())
    }

    /// What may not follow what is known already.
    fn check(&mut self, id: &TaskId, record: &Record) -> Result<(), String> {
        let at = record.at();
        self.people.extend(by(record.event()).map(|by| by.who.clone()));
        match record.event() {
            Event::TaskStarted { .. } => {
                let deadline = self.task.message().and_then(|message| message.deadline);
                if self.task.started_at().is_none() && deadline.is_some_and(|deadline| deadline < at) {
                    return Err(format!("{id} starts at {at}, after the deadline of its message (8)"));
                }
            }
            Event::StageStarted { stage, attempt, rollback, .. } => {
                if let Some(due) = self.due.remove(&(stage.clone(), *rollback))
                    && at < due
                {
                    return Err(format!("{id}: {stage} is started at {at}, before it is due at {due} (7)"));
                }
                if !rollback {
                    self.check_start(id, stage, *attempt)?;
                }
            }
            Event::RetryScheduled { stage, attempt, delay, rollback, .. } => {
                self.due.insert((stage.clone(), *rollback), at + *delay);
                if let Some(index) = self.task.stage_index(stage) {
                    let policy = &self.task.stage(index).0.retry;
                    let wanted = policy.delay(self.task.spec().seed, stage, attempt - 1);
                    if *delay != wanted {
                        return Err(format!("{id}: {stage} {attempt} waits {delay}, where a replay says {wanted} (6)"));
                    }
                }
            }
            Event::StageCompleted { stage, .. } | Event::StageSkipped { stage, .. } => {
                if self.done.contains(stage) {
                    return Err(format!("{id}: {stage} is completed twice (1)"));
                }
                self.done.push(stage.clone());
                if let Event::StageSkipped { .. } = record.event() {
                    self.touched.remove(stage);
                }
            }
            Event::StageRolledBack { stage } => {
                self.spent_keys.extend(self.keys.remove(stage));
                self.done.retain(|done| done != stage);
                self.touched.remove(stage);
            }
            Event::TaskRetried { from_checkpoint, .. } => {
                self.due.clear();
                if !from_checkpoint {
                    self.forget();
                }
            }
            Event::RollbackStarted { .. } => {
                self.due.clear();
                self.undoes = self.done.clone();
            }
            Event::CheckpointDiscarded { .. } | Event::TaskRolledBack {} | Event::TaskContinued { .. } => self.forget(),
            Event::EventLost { reason } | Event::TaskRepaired { reason, .. } => {
                return Err(format!("{id} is damaged, and nothing here damages tasks: {reason} (6)"));
            }
            Event::MessageReceived { .. } => self.messages += 1,
            Event::SignalReceived { by, .. } => {
                let count = self.signals.entry(by.who.clone()).or_default();
                *count += 1;
                if *count > 1 {
                    return Err(format!("{id}: the signal of {} is there twice", by.who));
                }
            }
            Event::TaskCreated {}
            | Event::StageFailed { .. }
            | Event::PauseRequested { .. }
            | Event::TaskPaused { .. }
            | Event::TaskResumed { .. }
            | Event::TaskCompleted { .. }
            | Event::TaskFailed { .. }
            | Event::TaskCancelled { .. }
            | Event::TaskInterrupted { .. }
            | Event::RollbackFailed { .. }
            | Event::DeadLettered { .. }
            | Event::ValueRecorded { .. } => {}
        }
        if self.task.status().is_ended() && ends(record.event()) {
            return Err(format!("{id}: {} after its end", record.event().kind()));
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.done.clear();
        self.due.clear();
        self.touched.clear();
        self.spent_keys.extend(std::mem::take(&mut self.keys).into_values());
    }

    fn check_start(&mut self, id: &TaskId, stage: &StageName, attempt: u32) -> Result<(), String> {
        if self.done.contains(stage) {
            return Err(format!("{id}: {stage} is started again though it is done (1)"));
        }
        self.touched.insert(stage.clone());
        let Some(index) = self.task.stage_index(stage) else { return Ok(()) };
        let (definition, state) = self.task.stage(index);
        let needs = definition.needs.iter().map(|need| &self.task.stage(*need).0.name);
        if let Some(need) = needs.clone().find(|need| !self.done.contains(need)) {
            return Err(format!("{id}: {stage} is started before {need}, which it needs (order)"));
        }
        let wanted = match state.status {
            // What was cut off is repeated under its number.
            StageStatus::Running | StageStatus::RetryWait => state.attempt,
            StageStatus::Pending
            | StageStatus::Completed
            | StageStatus::Skipped
            | StageStatus::Failed
            | StageStatus::Cancelled
            | StageStatus::RolledBack => 1,
        };
        if attempt != wanted || attempt > definition.retry.max_attempts {
            let most = definition.retry.max_attempts;
            return Err(format!("{id}: attempt {attempt} of {stage} begins where {wanted} of {most} should (6)"));
        }
        Ok(())
    }

    /// What a rollback undoes, and in which order.
    fn check_undo(&mut self, id: &TaskId, record: &Record) -> Result<(), String> {
        match record.event() {
            Event::RollbackStarted { .. } if self.task.flow().is_none() => {
                let queue = self.task.undo().map(|undo| undo.queue.as_slice()).unwrap_or_default();
                let left_out = self.touched.iter().find(|stage| {
                    let index = self.task.stage_index(stage);
                    index.is_some_and(|index| !queue.contains(&index) && self.task.stage(index).0.rollback.is_some())
                });
                match left_out {
                    Some(stage) => Err(format!("{id}: {stage} may have left something and is not undone (rollback)")),
                    None => Ok(()),
                }
            }
            Event::StageStarted { stage, attempt: 1, rollback: true, .. } => {
                match self.undoes.iter().position(|undone| undone == stage) {
                    Some(index) if self.undoes[index + 1..].iter().any(|later| self.is_undone_by_handler(later)) => {
                        Err(format!("{id}: {stage} is undone before what was completed after it (rollback)"))
                    }
                    Some(index) => {
                        self.undoes.truncate(index);
                        Ok(())
                    }
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn is_undone_by_handler(&self, stage: &StageName) -> bool {
        let index = self.task.stage_index(stage);
        index.is_some_and(|index| {
            self.task.stage(index).0.rollback.is_some() && self.task.stage(index).1.status != StageStatus::Skipped
        })
    }
}

/// Who asked for an event, when somebody did.
fn by(event: &Event) -> Option<&By> {
    match event {
        Event::PauseRequested { by }
        | Event::TaskPaused { by: Some(by) }
        | Event::TaskResumed { by }
        | Event::TaskCancelled { by }
        | Event::TaskRetried { by, .. }
        | Event::RollbackStarted { by: Some(by) }
        | Event::TaskRepaired { by, .. }
        | Event::SignalReceived { by, .. } => Some(by),
        Event::TaskCreated {}
        | Event::TaskStarted { .. }
        | Event::StageStarted { .. }
        | Event::StageCompleted { .. }
        | Event::StageSkipped { .. }
        | Event::StageFailed { .. }
        | Event::RetryScheduled { .. }
        | Event::TaskPaused { by: None }
        | Event::TaskCompleted { .. }
        | Event::TaskFailed { .. }
        | Event::TaskInterrupted { .. }
        | Event::RollbackStarted { by: None }
        | Event::StageRolledBack { .. }
        | Event::TaskRolledBack {}
        | Event::RollbackFailed { .. }
        | Event::CheckpointDiscarded { .. }
        | Event::DeadLettered { .. }
        | Event::MessageReceived { .. }
        | Event::ValueRecorded { .. }
        | Event::TaskContinued { .. }
        | Event::EventLost { .. } => None,
    }
}

/// Events that end a task.
fn ends(event: &Event) -> bool {
    matches!(event, Event::TaskCompleted { .. } | Event::TaskFailed { .. } | Event::TaskCancelled { .. })
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
