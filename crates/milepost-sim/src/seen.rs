//! What is known of one task, and what its log may not say: each record is checked against those before it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use milepost_core::id::{StageName, TaskId};
use milepost_core::task::{By, Event, Record, StageStatus, Task, TaskSpec};
use milepost_core::time::Timestamp;
use milepost_store::StoredTask;

use crate::watch::Start;

#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) task: Task,
    /// Stages that were completed or skipped, and not undone or reset since; in that order.
    done: Vec<StageName>,
    /// Which retry may start when, by the times in the log.
    due: BTreeMap<(StageName, bool), (u32, Timestamp)>,
    /// It was claimed, and has not ended or paused since.
    pub(crate) taken: bool,
    pub(crate) messages: u64,
    /// All of its log but its creation.
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
    pub(crate) people: BTreeSet<String>,
}

impl Seen {
    pub(crate) fn new(spec: Arc<TaskSpec>) -> Self {
        Self {
            task: Task::created(spec),
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
        }
    }

    pub(crate) fn take_in(&mut self, sequence: u64, record: &Record) -> Result<(), String> {
        let (id, before) = (self.task.id().clone(), self.task.updated_at());
        if sequence != self.task.version() + 1 {
            return Err(format!("{id}: event {sequence} follows event {} (5: dense sequence)", self.task.version()));
        }
        if record.at() < before {
            return Err(format!("{id}: {} at {} follows an event at {before}", record.event().kind(), record.at()));
        }
        self.check(&id, record)?;
        let folded = self.task.clone().apply(record);
        self.task = folded.map_err(|error| format!("{id}: the log cannot be replayed: {error} (6)"))?;
        self.check_undo(&id, record)?;
        self.records.push(record.clone());
        Ok(())
    }

    /// Whether an attempt may begin outside, at this instant at the latest. Unless it `stands_still` the task may have
    /// moved on since the attempt began, and is only asked whether it has heard of it.
    pub(crate) fn may_start(
        &mut self,
        start: &Start,
        stored: &StoredTask,
        latest_ms: i64,
        stands_still: bool,
    ) -> Result<(), String> {
        let Start { task: id, stage, attempt, rollback, key, .. } = start;
        if !rollback {
            let known = self.keys.entry(stage.clone()).or_insert_with(|| key.clone());
            if known != key || self.spent_keys.contains(key) {
                return Err(format!("{id}: {stage} is done under the key {key}, after {known} (keys)"));
            }
        }
        if !rollback && self.done.contains(stage) {
            return Err(format!("{id}: stage {stage} runs again though its completion is recorded (1)"));
        }
        if let Some((due_attempt, due)) = self.due.get(&(stage.clone(), *rollback))
            && attempt >= due_attempt
            && latest_ms < due.as_millis()
        {
            let early = due.as_millis() - latest_ms;
            return Err(format!("{id}: {stage} {attempt} starts {early} ms before it is due at {due} (7)"));
        }
        if !stands_still {
            return match self.is_announced(start) {
                true => Ok(()),
                false => Err(format!("{id}: {stage} {attempt} starts though the store knows nothing of it")),
            };
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
        Ok(())
    }

    /// Its log says that this attempt starts, or when it may.
    fn is_announced(&self, start: &Start) -> bool {
        self.records.iter().rev().any(|record| match record.event() {
            Event::StageStarted { stage, attempt, rollback, .. }
            | Event::RetryScheduled { stage, attempt, rollback, .. } => {
                (stage, *attempt, *rollback) == (&start.stage, start.attempt, start.rollback)
            }
            _ => false,
        })
    }

    /// An update may have changed what was asked for; the log is then read again with that in mind.
    pub(crate) fn follow(&mut self, stored: &StoredTask) -> Result<(), String> {
        if stored.task.spec() == self.task.spec() {
            return Ok(());
        }
        let fresh = Task::created(stored.task.spec().clone());
        let folded = self.records.iter().try_fold(fresh, |task, record| task.apply(record));
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
                if let Some((_, due)) = self.due.remove(&(stage.clone(), *rollback))
                    && at < due
                {
                    return Err(format!("{id}: {stage} is started at {at}, before it is due at {due} (7)"));
                }
                if !rollback {
                    self.check_start(id, stage, *attempt)?;
                }
            }
            Event::RetryScheduled { stage, attempt, delay, rollback, .. } => {
                self.due.insert((stage.clone(), *rollback), (*attempt, at + *delay));
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
