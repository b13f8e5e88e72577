//! What each event leaves behind: `apply` folded over a log is the task.

use std::sync::Arc;

use crate::id::StageName;
use crate::planted::planted;
use crate::time::Timestamp;

use super::event::{Event, Record};
use super::flow::Step;
use super::state::{Damage, FAILURE_HISTORY, FailureInfo, StageState, Task, TaskFailure, Undo};
use super::status::{StageStatus, TaskStatus};

/// A log that no sequence of decisions can have written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {sequence} ({event}) cannot happen to a task that is {status}")]
pub struct CorruptLog {
    pub sequence: u64,
    pub event: &'static str,
    pub status: TaskStatus,
}

/// The transition table: what an event makes of a status. None: it cannot happen there.
pub fn next_status(status: TaskStatus, interrupted: bool, event: &Event) -> Option<TaskStatus> {
    use TaskStatus::{Cancelled, Completed, Failed, Paused, Pending, RollbackFailed, RolledBack, RollingBack, Running};
    match event {
        Event::TaskCreated {} => None,
        Event::TaskStarted { .. } => match status {
            Pending => Some(Running),
            // Another node takes it on, or the same one again after a stop.
            Running | RollingBack => Some(status),
            Paused | Completed | Failed | Cancelled | RolledBack | RollbackFailed => None,
        },
        Event::StageStarted { rollback: false, .. }
        | Event::StageCompleted { .. }
        | Event::StageSkipped { .. }
        | Event::StageFailed { rollback: false, .. }
        | Event::RetryScheduled { rollback: false, .. }
        | Event::PauseRequested { .. } => (status == Running).then_some(Running),
        Event::StageStarted { rollback: true, .. }
        | Event::StageFailed { rollback: true, .. }
        | Event::RetryScheduled { rollback: true, .. }
        | Event::StageRolledBack { .. } => (status == RollingBack).then_some(RollingBack),
        Event::TaskPaused { .. } => match status {
            Pending | Running => Some(Paused),
            Paused | Completed | Failed | Cancelled | RollingBack | RolledBack | RollbackFailed => None,
        },
        Event::TaskResumed { .. } => match status {
            Paused => Some(Pending),
            Running if interrupted => Some(Pending),
            // Takes back a pause that had not come into effect.
            Running => Some(Running),
            // It was held back by `recovery: manual`.
            Pending => Some(Pending),
            Completed | Failed | Cancelled | RollingBack | RolledBack | RollbackFailed => None,
        },
        Event::TaskCompleted { .. } => (status == Running).then_some(Completed),
        Event::TaskFailed { .. } => match status {
            Pending | Running => Some(Failed),
            Paused | Completed | Failed | Cancelled | RollingBack | RolledBack | RollbackFailed => None,
        },
        Event::TaskCancelled { .. } => match status {
            Pending | Running | Paused => Some(Cancelled),
            Completed | Failed | Cancelled | RollingBack | RolledBack | RollbackFailed => None,
        },
        Event::TaskInterrupted { .. } => match status {
            Running | RollingBack => Some(status),
            Pending | Paused | Completed | Failed | Cancelled | RolledBack | RollbackFailed => None,
        },
        Event::TaskRetried { .. } => match status {
            Failed | RolledBack => Some(Pending),
            Running => interrupted.then_some(Pending),
            Pending | Paused | Completed | Cancelled | RollingBack | RollbackFailed => None,
        },
        Event::RollbackStarted { .. } => match status {
            Failed | Paused | RollbackFailed => Some(RollingBack),
            RollingBack => interrupted.then_some(RollingBack),
            Pending | Running | Completed | Cancelled | RolledBack => None,
        },
        Event::TaskRolledBack {} => (status == RollingBack).then_some(RolledBack),
        Event::RollbackFailed { .. } => (status == RollingBack).then_some(RollbackFailed),
        Event::CheckpointDiscarded { .. } => match status {
            Pending | Running | Failed => Some(status),
            Paused | Completed | Cancelled | RollingBack | RolledBack | RollbackFailed => None,
        },
        Event::DeadLettered { .. } => match status {
            Failed | RollbackFailed => Some(status),
            Pending | Running | Paused | Completed | Cancelled | RollingBack | RolledBack => None,
        },
        Event::MessageReceived { .. } => match status {
            Pending | Paused => Some(status),
            Running | Completed | Failed | Cancelled | RollingBack | RolledBack | RollbackFailed => None,
        },
        Event::SignalReceived { .. } => match status {
            Pending | Running | Paused => Some(status),
            Completed | Failed | Cancelled | RollingBack | RolledBack | RollbackFailed => None,
        },
        Event::ValueRecorded { .. } | Event::TaskContinued { .. } => (status == Running).then_some(Running),
        // Nobody knows what the lost event was, nor what the task was after it.
        Event::EventLost { .. } => Some(status),
        // Its failure follows in the same commit.
        Event::TaskRepaired { .. } => Some(Pending),
    }
}

impl Task {
    /// The task after one more event.
    pub fn apply(mut self, record: &Record) -> Result<Task, CorruptLog> {
        self.apply_in_place(record)?;
        Ok(self)
    }

    /// The same for one that folds a long log: a task is too large to be handed on for every event. A log that is corrupt
    /// leaves the task as it was before the event.
    pub fn apply_in_place(&mut self, record: &Record) -> Result<(), CorruptLog> {
        let (at, event) = (record.at(), record.event());
        // What follows something unreadable may follow from it: it is counted, and means nothing until a repair.
        if self.damage().is_some() && !matches!(event, Event::TaskRepaired { .. }) {
            self.version += 1;
            self.updated_at = at;
            return Ok(());
        }
        let Some(next) = next_status(self.status, self.interrupted, event) else {
            return Err(CorruptLog { sequence: self.version + 1, event: event.kind(), status: self.status });
        };
        self.effect(at, event);
        self.status = next;
        self.version += 1;
        self.updated_at = at;
        if next.is_ended() {
            self.ended_at.get_or_insert(at);
        } else {
            self.ended_at = None;
        }
        Ok(())
    }

    /// Something of its log cannot be read; only the first of it matters.
    pub fn mark_damaged(&mut self, reason: &str) {
        if self.damage().is_none() {
            self.damage = Some(Damage { reason: reason.to_owned(), repaired: false });
        }
    }

    /// Brings a damaged task to where its row says that it is: its log cannot tell.
    pub fn place_damaged(&mut self, version: u64, status: TaskStatus) {
        debug_assert!(self.damage().is_some(), "a log that can be read says where its task is");
        (self.version, self.status) = (version, status);
    }

    fn effect(&mut self, at: Timestamp, event: &Event) {
        match event {
            Event::TaskCreated {} => {}
            Event::DeadLettered { .. } => self.dead_letter = Some(self.version + 1),
            Event::MessageReceived { message } => self.message = Some(message.clone()),
            Event::TaskCompleted { result } => {
                if let Some(flow) = &mut self.flow {
                    flow.result = result.clone();
                }
                self.settle();
            }
            Event::TaskStarted { node } => {
                self.node = Some(node.clone());
                self.interrupted = false;
                self.started_at.get_or_insert(at);
                self.run_started_at.get_or_insert(at);
            }
            Event::StageStarted { stage, attempt, rollback: true, .. } => {
                self.interrupted = false;
                let index = self.stage_index(stage);
                if let Some(undo) = &mut self.undo {
                    if let Some(index) = index {
                        undo.put_first(index);
                    }
                    (undo.attempt, undo.running, undo.due) = (*attempt, true, None);
                }
            }
            Event::StageStarted { stage, attempt, rollback: false, step } => {
                self.interrupted = false;
                self.begin_step(stage, step.as_deref());
                self.with_stage(stage, |state| {
                    (state.status, state.attempt, state.since) = (StageStatus::Running, *attempt, Some(at));
                    state.starts = state.starts.saturating_add(1);
                });
            }
            Event::StageCompleted { stage, attempt, outputs } => {
                self.with_stage(stage, |state| {
                    end_attempt(state, at, StageStatus::Completed);
                    state.attempt = *attempt;
                    state.outputs = Some(outputs.clone());
                    state.cause = None;
                });
                self.mark_done(stage, at);
            }
            Event::StageSkipped { stage, reason } => {
                self.with_stage(stage, |state| {
                    end_attempt(state, at, StageStatus::Skipped);
                    state.cause = None;
                    state.skipped = Some(reason.clone());
                });
                self.mark_done(stage, at);
            }
            Event::StageFailed { stage, rollback: true, .. } => {
                self.end_undo(stage);
                if let Some(undo) = &mut self.undo {
                    undo.failed.push(stage.clone());
                }
            }
            Event::StageFailed { stage, attempt, cause, rollback: false } => {
                self.with_stage(stage, |state| {
                    end_attempt(state, at, StageStatus::Failed);
                    state.cause = Some(cause.clone());
                });
                self.remember(FailureInfo {
                    stage: stage.clone(),
                    attempt: *attempt,
                    cause: cause.clone(),
                    timestamp: at,
                });
                self.takeovers = 0;
            }
            Event::RetryScheduled { attempt, delay, rollback: true, .. } => {
                self.takeovers = 0;
                if let Some(undo) = &mut self.undo {
                    (undo.attempt, undo.running, undo.due) = (*attempt, false, Some(at + *delay));
                }
            }
            Event::RetryScheduled { stage, attempt, delay, cause, rollback: false } => {
                // The one before, unless an attempt that was refused comes again under its own number.
                let mut failed = attempt.saturating_sub(1);
                self.with_stage(stage, |state| {
                    failed = state.attempt;
                    end_attempt(state, at, StageStatus::RetryWait);
                    (state.attempt, state.since, state.last_backoff) = (*attempt, Some(at + *delay), Some(*delay));
                    state.cause = Some(cause.clone());
                });
                self.remember(FailureInfo {
                    stage: stage.clone(),
                    attempt: failed,
                    cause: cause.clone(),
                    timestamp: at,
                });
                self.takeovers = 0;
            }
            Event::PauseRequested { by } => self.pause_requested = Some(by.clone()),
            Event::TaskPaused { .. } => {
                self.interrupted = false;
                self.paused_at = Some(at);
            }
            Event::TaskResumed { .. } => {
                // Its time limit stands still while it is paused.
                if let (Some(started), Some(paused)) = (&mut self.run_started_at, self.paused_at) {
                    *started = *started + at.since(paused);
                }
                self.settle();
            }
            Event::TaskFailed { stage, attempts, cause } => {
                self.failure =
                    Some(TaskFailure { stage: stage.clone(), attempts: *attempts, cause: cause.clone(), at });
                self.cancel_open_stages();
                self.settle();
            }
            Event::TaskCancelled { .. } => {
                self.cancel_open_stages();
                self.settle();
            }
            Event::TaskInterrupted { taken_by, automatic, .. } => {
                self.interrupted = taken_by.is_none();
                self.takeovers = match (*automatic, self.only_waits()) {
                    (true, false) => self.takeovers + 1,
                    // Nothing of it can have killed the node.
                    (true, true) => self.takeovers,
                    (false, _) => 0,
                };
                if taken_by.is_some() {
                    self.node = taken_by.clone();
                }
            }
            Event::TaskRetried { from_checkpoint, .. } => {
                // Whoever has it run again wants it to run, also after the deadline.
                if let Some(message) = &mut self.message {
                    Arc::make_mut(message).deadline = None;
                }
                if let Some(flow) = &mut self.flow {
                    flow.retries += 1;
                }
                self.reopen(!from_checkpoint || planted("a retry forgets the checkpoint"));
                self.settle();
                self.failure = None;
                self.damage = None;
                self.run_started_at = None;
            }
            Event::RollbackStarted { .. } => {
                self.cancel_open_stages();
                self.settle();
                self.undo =
                    Some(Undo { queue: self.undo_order(), attempt: 0, running: false, due: None, failed: Vec::new() });
            }
            Event::StageRolledBack { stage } => {
                self.with_stage(stage, |state| state.status = StageStatus::RolledBack);
                self.done.retain(|done| done != stage);
                self.end_undo(stage);
            }
            Event::TaskRolledBack {} => {
                self.undo = None;
                self.done.clear();
                self.done_at = None;
            }
            Event::RollbackFailed { .. } => self.undo = None,
            Event::CheckpointDiscarded { .. } => self.reopen(true),
            Event::EventLost { reason } => self.mark_damaged(reason),
            Event::TaskRepaired { reason, .. } => {
                self.damage = Some(Damage { reason: reason.clone(), repaired: true });
                self.undo = None;
                // Any of its events may have begun a run, so the next is behind all that there can have been.
                self.run = self.run.max(u32::try_from(self.version).unwrap_or(u32::MAX));
            }
            Event::SignalReceived { name, payload, id, .. } => {
                if let Some(flow) = &mut self.flow {
                    if let Some(id) = id {
                        flow.remember_signal(id, name, payload);
                    }
                    flow.inbox.entry(name.clone()).or_default().push_back(payload.clone());
                }
            }
            Event::ValueRecorded { name, value } => {
                if let Some(flow) = &mut self.flow {
                    flow.values.insert(name.clone(), value.clone());
                }
            }
            Event::TaskContinued { input } => {
                if let Some(flow) = &mut self.flow {
                    let generation = flow.generation + 1;
                    flow.restart(input.clone(), generation);
                }
                self.stages.clear();
                self.begin_run();
                self.takeovers = 0;
            }
        }
    }

    /// A stage that the definition no longer has keeps its place in `done`, where the checkpoint rules find it.
    fn with_stage(&mut self, name: &StageName, change: impl FnOnce(&mut StageState)) {
        if let Some(index) = self.stage_index(name) {
            change(&mut self.stages[index]);
            if let Some(flow) = &mut self.flow {
                flow.moved(index, self.stages[index].status, self.version + 1);
            }
        }
    }

    /// A workflow of which nothing runs: it waits for a time, a signal or a child.
    fn only_waits(&self) -> bool {
        let Some(flow) = &self.flow else { return false };
        let waits = |index: &usize| {
            flow.steps[*index].kind.only_waits() || self.stages[*index].status == StageStatus::RetryWait
        };
        self.status == TaskStatus::Running && !flow.open.is_empty() && flow.open.iter().all(waits)
    }

    /// A workflow finds its stages as it goes.
    fn begin_step(&mut self, name: &StageName, step: Option<&Step>) {
        let Some(flow) = &mut self.flow else { return };
        let Some(step) = step else { return };
        if flow.begin(name, step, self.version + 1) == self.stages.len() {
            self.stages.push(StageState::fresh());
        }
    }

    fn mark_done(&mut self, stage: &StageName, at: Timestamp) {
        self.done.push(stage.clone());
        self.done_at = Some(at);
        self.takeovers = 0;
    }

    fn remember(&mut self, failure: FailureInfo) {
        if self.failures.len() == FAILURE_HISTORY {
            self.failures.remove(0);
        }
        self.failures.push(failure);
    }

    fn cancel_open_stages(&mut self) {
        for stage in &mut self.stages {
            match stage.status {
                StageStatus::Pending | StageStatus::Running | StageStatus::RetryWait => {
                    stage.status = StageStatus::Cancelled;
                }
                StageStatus::Completed
                | StageStatus::Skipped
                | StageStatus::Failed
                | StageStatus::Cancelled
                | StageStatus::RolledBack => {}
            }
        }
        if let Some(flow) = &mut self.flow {
            flow.open.clear();
        }
    }

    /// The present run is over.
    fn settle(&mut self) {
        self.pause_requested = None;
        self.paused_at = None;
        self.interrupted = false;
        self.takeovers = 0;
    }

    /// Whatever is not done is to be done again; with `all`, everything is.
    fn reopen(&mut self, all: bool) {
        if let Some(flow) = &mut self.flow {
            match all {
                true => {
                    flow.restart(self.spec.input.clone(), 1);
                    self.stages.clear();
                }
                false => flow.reopen(&mut self.stages),
            }
        }
        if self.flow.is_none() {
            self.reopen_stages(all);
        }
        if all {
            self.begin_run();
        }
    }

    /// Nothing is done, and what is done from here on is not what was done before.
    fn begin_run(&mut self) {
        self.run = self.run.saturating_add(1);
        self.done.clear();
        self.done_at = None;
    }

    fn reopen_stages(&mut self, all: bool) {
        for stage in &mut self.stages {
            if all {
                *stage = stage.restarted();
            } else if !stage.status.is_done() {
                *stage = stage.reopened();
            }
        }
    }

    /// The stage that the event names, wherever it stands: the log may have been written when another order was the rule.
    fn end_undo(&mut self, stage: &StageName) {
        self.takeovers = 0;
        let ended = self.stage_index(stage);
        if let Some(undo) = &mut self.undo {
            undo.queue.retain(|index| Some(*index) != ended);
            (undo.attempt, undo.running, undo.due) = (0, false, None);
        }
    }

    /// The stages that were begun and are not done, then those that are, each from the last to the first; those that left
    /// nothing or have no handler are passed over.
    pub(super) fn undo_order(&self) -> Vec<usize> {
        let open = (0..self.stages.len()).rev().filter(|i| !self.stages[*i].status.is_done());
        let open = open.filter(|_| !planted("what failed is not undone"));
        let done = self.done.iter().rev().filter_map(|name| self.stage_index(name));
        let left_something =
            |i: &usize| self.stages[*i].status == StageStatus::Completed || self.stages[*i].may_have_left_something();
        let has_handler = |i: &usize| self.definitions()[*i].rollback.is_some();
        let mut order: Vec<usize> = open.chain(done).filter(left_something).filter(has_handler).collect();
        if planted("a rollback goes forwards") {
            order.reverse();
        }
        order
    }
}

fn end_attempt(state: &mut StageState, at: Timestamp, status: StageStatus) {
    if let (StageStatus::Running, Some(since)) = (state.status, state.since) {
        state.duration = state.duration.saturating_add(at.since(since));
    }
    state.status = status;
}
