//! What happens next: a task and a command in, events out. No clock, no dice, no I/O.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::failure::{ErrorType, Failure};
use crate::id::{IdempotencyKey, StageName, TaskId};
use crate::message::Arrival;
use crate::plan::{OnFailure, OnInvalidCheckpoint, Trigger};
use crate::planted::planted;
use crate::template;
use crate::time::{Millis, Timestamp};

mod flow;

use super::checkpoint::Checkpoint;
use super::event::{By, Cause, Event, Record};
use super::flow::Step;
use super::state::{StageState, Task, Undo};
use super::status::{StageStatus, TaskStatus};

/// Take-overs in a row on one stage after which a task is given up: its stage seems to kill its node.
pub const MAX_TAKEOVERS: u32 = 10;

/// Why a task failed whose node does not wait for a store that is away.
pub(super) const STORE_LOST: &str = "the store was away, and this node has on_store_loss: fail";

/// Something that a person, a node or a stage asks of a task.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// A node takes the task on.
    Claim(Claim),
    /// An attempt ended.
    StageEnded(StageEnded),
    /// The clock has moved: start whatever was waiting for it.
    Wake,
    /// The task's own time limit has passed.
    TimeOut,
    /// The node is stopping in good order; no stage is running any more.
    Interrupt {
        reason: String,
    },
    Pause(By),
    Resume(By),
    /// A person wants a PENDING task to run that `recovery: manual` holds back.
    LetGo(By),
    Cancel(By),
    Retry {
        by: By,
        from_checkpoint: bool,
    },
    Rollback(By),
    /// Gives a damaged task up.
    Repair(By),
    /// The message that the task waits for is here.
    Receive(Arc<Arrival>),
    /// A person has it tried again from its checkpoint, as if by a new message.
    Redrive {
        by: By,
        message: Arc<Arrival>,
    },
    /// A workflow's function asks for things it has not asked for before.
    Begin(Vec<(StageName, Step)>),
    /// It was given values that it has to be given again.
    Remember(Vec<(String, Value)>),
    /// Somebody sends a workflow a message.
    Signal {
        name: StageName,
        payload: Value,
        by: By,
        /// Sent again under the same id, by whomever, it is not received again.
        id: Option<IdempotencyKey>,
    },
    /// A workflow that another one waits for has ended.
    ChildEnded {
        child: TaskId,
        result: Result<Value, Cause>,
    },
    /// The function returned.
    Return(Result<Value, Failure>),
    /// The function wants to begin anew with another input.
    Continue(Value),
    /// The function asks for something else than its log has.
    Diverged {
        stage: Option<StageName>,
        reason: String,
    },
    /// The store was away for longer than the task's node is to wait: it stops where it is.
    StoreLost,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    pub node: Arc<str>,
    /// The node that had it is gone, and did not say so.
    pub lost_by: Option<Arc<str>>,
    /// Nobody asked for the take-over; these are counted, so that crash loops end.
    pub automatic: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct StageEnded {
    pub stage: usize,
    pub attempt: u32,
    pub result: StageResult,
    /// The node is stopping: record this, start nothing new.
    pub stopping: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum StageResult {
    Success(Map<String, Value>),
    Skip(String),
    Failure(Failure),
    /// It was not tried, because it would have failed.
    Refused(Failure),
}

/// What a decision comes to: the events, and the task they make.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub events: Vec<Record>,
    pub task: Task,
}

/// Why a command changes nothing. The words are for the person who gave it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error("cannot {verb} task {task}: it is {status}{hint}")]
    Status { verb: &'static str, task: String, status: TaskStatus, hint: String },
    /// The attempt is not the one that runs: its result comes too late.
    #[error("task {task} no longer waits for attempt {attempt} of stage {stage}")]
    Stale { task: String, stage: String, attempt: u32 },
    #[error("cannot roll back task {task}: no stage of it that has anything to undo has a rollback handler")]
    NothingToRollBack { task: String },
    #[error(
        "cannot retry task {task} from its checkpoint: {reason}; retry it with --from-start, or set on_invalid_checkpoint: restart"
    )]
    InvalidCheckpoint { task: String, reason: String },
    #[error("task {task} runs a plan's stages: only a workflow can be sent a signal")]
    NotAWorkflow { task: String },
    #[error("task {task} was sent another signal under the key `{key}`; a new signal needs a key of its own")]
    KeyReused { task: String, key: String },
    /// Nothing can be decided on it.
    #[error("task {task} is damaged: {reason}; `milepost store repair --task {task}` ends it as FAILED")]
    Damaged { task: String, reason: String },
    /// What it had done when it was given up is not known.
    #[error("cannot {verb} task {task}: part of its log was lost ({reason}){hint}")]
    PartlyLost { verb: &'static str, task: String, reason: String, hint: String },
}

/// Same task, command and instant: same events, on any machine, on any day. An instant before the task's last event counts
/// as that event's.
pub fn decide(task: &Task, command: Command, now: Timestamp) -> Result<Decision, Rejection> {
    let mut task = task.clone();
    let events = decide_on(&mut task, command, now)?;
    Ok(Decision { events, task })
}

/// The same in place, for whoever has the task in hand: what has many stages is not copied for each decision. What is
/// refused leaves the task as it is.
pub fn decide_on(task: &mut Task, command: Command, now: Timestamp) -> Result<Vec<Record>, Rejection> {
    let mut draft = Draft::new(task, now);
    let performed = draft.perform(command);
    debug_assert!(performed.is_ok() || draft.events.is_empty(), "what is refused changes nothing");
    performed.map(|()| draft.events)
}

/// A task while a decision about it is being made: every event is applied at once, so that the next one sees it.
struct Draft<'a> {
    task: &'a mut Task,
    events: Vec<Record>,
    now: Timestamp,
    /// The node only just takes it on: attempts that are recorded as running were cut off.
    claiming: bool,
}

impl<'a> Draft<'a> {
    /// A clock that is behind that of whoever decided last, or was read before waiting for a turn, does not make a log's
    /// times go back.
    fn new(task: &'a mut Task, now: Timestamp) -> Self {
        let now = if planted("times go back") { now } else { now.max(task.updated_at) };
        Self { task, events: Vec::with_capacity(2), now, claiming: false }
    }

    fn perform(&mut self, command: Command) -> Result<(), Rejection> {
        if let Some(reason) = self.task.damage()
            && !matches!(command, Command::Repair(_))
        {
            return Err(Rejection::Damaged { task: self.task.spec.id.to_string(), reason: reason.to_owned() });
        }
        match command {
            Command::Claim(claim) => self.claim(claim)?,
            Command::StageEnded(ended) if self.task.status == TaskStatus::RollingBack => self.undo_ended(ended)?,
            Command::StageEnded(ended) => self.stage_ended(ended)?,
            Command::Wake => self.wake(),
            Command::TimeOut => self.time_out(),
            Command::Interrupt { reason } => self.interrupt(reason),
            Command::Pause(by) => self.pause(by)?,
            Command::Resume(by) => self.resume(by)?,
            Command::LetGo(by) => self.let_go(by)?,
            Command::Cancel(by) => self.cancel(by)?,
            Command::Retry { by, from_checkpoint } => self.retry(by, from_checkpoint)?,
            Command::Rollback(by) => self.rollback(by)?,
            Command::Repair(by) => self.repair(by)?,
            Command::Receive(message) => self.receive(message)?,
            Command::Redrive { by, message } => {
                self.retry(by, true)?;
                self.push(Event::MessageReceived { message });
            }
            Command::Begin(steps) => self.begin(steps)?,
            Command::Remember(values) => self.remember(values)?,
            Command::Signal { name, payload, by, id } => self.signal(name, payload, by, id)?,
            Command::ChildEnded { child, result } => self.child_ended(&child, result)?,
            Command::Return(result) => self.returned(result)?,
            Command::Continue(input) => self.continue_as_new(input)?,
            Command::Diverged { stage, reason } => self.diverged(stage, reason)?,
            Command::StoreLost => self.store_lost(),
        }
        Ok(())
    }

    fn push(&mut self, event: Event) {
        let record = Record::new(self.now, event);
        self.task.apply_in_place(&record).expect("a decision only makes events that its own status allows");
        self.events.push(record);
    }

    // --- the life of a run ---

    fn claim(&mut self, claim: Claim) -> Result<(), Rejection> {
        self.claiming = true;
        match self.task.status {
            TaskStatus::Pending => {
                if self.task.awaits_message() {
                    return Err(self.refuse("run", ", and waits for its message".to_owned()));
                }
                if self.expire() {
                    return Ok(());
                }
                self.push(Event::TaskStarted { node: claim.node });
            }
            TaskStatus::Running | TaskStatus::RollingBack => {
                if let Some(node) = claim.lost_by {
                    let reason = "its node went away".to_owned();
                    let taken_by = Some(claim.node);
                    self.push(Event::TaskInterrupted { node, reason, taken_by, automatic: claim.automatic });
                } else if self.task.interrupted || self.task.node.as_ref() != Some(&claim.node) {
                    self.push(Event::TaskStarted { node: claim.node });
                }
                if self.task.takeovers >= MAX_TAKEOVERS {
                    self.give_up();
                    return Ok(());
                }
            }
            TaskStatus::Paused
            | TaskStatus::Completed
            | TaskStatus::Failed
            | TaskStatus::Cancelled
            | TaskStatus::RolledBack
            | TaskStatus::RollbackFailed => return Err(self.refuse("run", String::new())),
        }
        self.check_fit_of_checkpoint();
        self.go_on(false);
        Ok(())
    }

    /// Stages were renamed or removed under the task: what is recorded as done no longer fits.
    fn check_fit_of_checkpoint(&mut self) {
        // A workflow's stages are those that it asked for: there are no others that they could fail to fit.
        if self.task.status == TaskStatus::Running
            && self.task.flow.is_none()
            && let Some(checkpoint) = Checkpoint::of(self.task)
            && let Err(invalid) = checkpoint.fits(&self.task.spec.stages)
        {
            let reason = invalid.to_string();
            match self.task.spec.settings.on_invalid_checkpoint {
                OnInvalidCheckpoint::Restart => self.push(Event::CheckpointDiscarded { reason }),
                // A person decides: nothing runs, and nothing is undone, until they retry it from the start.
                OnInvalidCheckpoint::Block => {
                    let cause = Cause {
                        error_type: ErrorType::Validation,
                        reason: format!("its checkpoint is invalid: {reason}"),
                    };
                    self.fail(None, None, cause);
                }
            }
        }
    }

    fn give_up(&mut self) {
        let reason = format!("its node went away {MAX_TAKEOVERS} times in a row while this stage ran");
        if self.task.status == TaskStatus::RollingBack {
            // Not FAILED: half of it is undone, so a retry must not take up its checkpoint.
            self.push(Event::RollbackFailed { reason: reason.clone() });
            return self.push(Event::DeadLettered { reason });
        }
        let stage = self.task.current_stage().map(|index| self.name(index));
        let cause = Cause { error_type: ErrorType::CrashLoop, reason: reason.clone() };
        self.push(Event::TaskFailed { stage, attempts: None, cause });
        self.push(Event::DeadLettered { reason });
        self.undo_if_asked(false);
    }

    /// For good. What came by a message goes where the messages that gave up are.
    fn fail(&mut self, stage: Option<StageName>, attempts: Option<u32>, cause: Cause) {
        let reason = cause.reason.clone();
        self.push(Event::TaskFailed { stage, attempts, cause });
        if self.task.spec.settings.trigger == Trigger::Message {
            self.push(Event::DeadLettered { reason });
        }
    }

    fn receive(&mut self, message: Arc<Arrival>) -> Result<(), Rejection> {
        if !self.task.takes_message() {
            return Err(self.refuse("start", ", and does not wait for a message".to_owned()));
        }
        self.push(Event::MessageReceived { message });
        // A paused task fails for it when somebody lets it go on.
        if self.task.status == TaskStatus::Pending {
            self.expire();
        }
        Ok(())
    }

    /// A message says by when its task has to start at the latest. True when that is over.
    fn expire(&mut self) -> bool {
        let started = self.task.started_at.is_some();
        let deadline = self.task.message.as_ref().and_then(|message| message.deadline);
        let Some(deadline) =
            deadline.filter(|deadline| !started && *deadline < self.now && !planted("a message never expires"))
        else {
            return false;
        };
        let reason = format!("its message said to start by {deadline}, and it is {}", self.now);
        self.fail(None, None, Cause { error_type: ErrorType::Expired, reason });
        true
    }

    fn stage_ended(&mut self, ended: StageEnded) -> Result<(), Rejection> {
        let StageEnded { stage: index, attempt, result, stopping } = ended;
        let runs = self.task.status == TaskStatus::Running && !self.task.interrupted;
        let fits = |state: &StageState| state.status == StageStatus::Running && state.attempt == attempt;
        if !(runs && self.task.stages.get(index).is_some_and(fits)) {
            return Err(self.stale(index, attempt));
        }
        let stage = self.name(index);
        match result {
            StageResult::Success(outputs) => {
                self.push(Event::StageCompleted { stage, attempt, outputs: Arc::new(outputs) });
            }
            StageResult::Skip(reason) => self.push(Event::StageSkipped { stage, reason }),
            StageResult::Failure(failure) => {
                let policy = &self.task.definitions()[index].retry;
                let hopeless = self.task.flow.is_none() && self.task.any(StageStatus::Failed);
                // With another stage failed for good there is no point in waiting for this one.
                let most = policy.max_attempts + u32::from(planted("there is one attempt too many"));
                let again = failure.retryable && attempt < most && !hopeless;
                let cause = Cause::from(&failure);
                if again {
                    let delay = policy.delay(self.task.spec.seed, &stage, attempt);
                    let delay = delay.max(failure.retry_after.unwrap_or(Millis::ZERO));
                    let delay =
                        if planted("delays are drawn anew") { delay.saturating_add(Millis::new(1)) } else { delay };
                    self.push(Event::RetryScheduled { stage, attempt: attempt + 1, delay, cause, rollback: false });
                } else {
                    self.push(Event::StageFailed { stage, attempt, cause, rollback: false });
                }
            }
            // Attempts are executions, and this was none: it comes again under its own number, like one cut off by a
            // crash. Otherwise a stage could run out of attempts without ever having been tried.
            StageResult::Refused(failure) => {
                let policy = &self.task.definitions()[index].retry;
                let delay = policy.delay(self.task.spec.seed, &stage, attempt);
                let delay = delay.max(failure.retry_after.unwrap_or(Millis::ZERO));
                let cause = Cause::from(&failure);
                self.push(Event::RetryScheduled { stage, attempt, delay, cause, rollback: false });
            }
        }
        self.go_on(stopping);
        Ok(())
    }

    fn wake(&mut self) {
        // Whoever goes on with an interrupted task claims it first.
        if !self.task.interrupted {
            self.go_on(false);
        }
    }

    /// Everything that follows by itself from where the task is now.
    fn go_on(&mut self, stopping: bool) {
        if self.task.status == TaskStatus::RollingBack {
            return self.undo_on(stopping);
        }
        if self.task.status != TaskStatus::Running {
            return;
        }
        if self.task.flow.is_some() {
            return self.flow_on(stopping);
        }
        // A stage of an interrupted task is recorded as running, but nobody runs it.
        let busy = self.task.any(StageStatus::Running) && !self.task.interrupted && !self.claiming;
        if self.task.any(StageStatus::Failed) {
            // Stages that still run may end well: their results are kept for a retry.
            if !busy {
                self.fail_for_stage(stopping);
            }
            return;
        }
        if self.task.stages.iter().all(|stage| stage.status.is_done()) {
            return self.push(Event::TaskCompleted { result: None });
        }
        if let Some(by) = self.task.pause_requested.clone() {
            if !busy {
                self.push(Event::TaskPaused { by: Some(by) });
            }
            return;
        }
        if stopping {
            if !busy {
                self.interrupt("the node was stopped".to_owned());
            }
            return;
        }
        if std::mem::take(&mut self.claiming) {
            self.repeat_cut_off_attempts();
        }
        self.start_what_is_due();
        if self.start_ready() {
            // A skipped or failed stage may have been the last thing others waited for.
            self.go_on(false);
        }
    }

    /// An attempt that a crash cut off is repeated under its own number and uses none up.
    fn repeat_cut_off_attempts(&mut self) {
        for index in 0..self.task.stages.len() {
            if self.task.stages[index].status == StageStatus::Running {
                let (stage, attempt) = (self.name(index), self.task.stages[index].attempt);
                let attempt = attempt + u32::from(planted("a cut-off attempt counts"));
                self.push(Event::StageStarted { stage, attempt, rollback: false, step: None });
            }
        }
    }

    fn start_what_is_due(&mut self) {
        for index in 0..self.task.stages.len() {
            let state = &self.task.stages[index];
            let early = Millis::new(if planted("a retry starts early") { 500 } else { 0 });
            if state.due().is_some_and(|due| due <= self.now + early) {
                let (stage, attempt) = (self.name(index), state.attempt);
                self.push(Event::StageStarted { stage, attempt, rollback: false, step: None });
            }
        }
    }

    /// True when a stage ended without running, so that there may be more to do.
    fn start_ready(&mut self) -> bool {
        let mut ended = false;
        for index in 0..self.task.stages.len() {
            let definition = &self.task.spec.stages[index];
            let ready = self.task.stages[index].status == StageStatus::Pending
                && definition
                    .needs
                    .iter()
                    .all(|need| self.task.stages[*need].status.is_done() || planted("a stage waits for nothing"));
            if !ready {
                continue;
            }
            let stage = definition.name.clone();
            let holds = match &definition.condition {
                None => Ok(true),
                Some(condition) => template::holds(condition, &self.task.scope()),
            };
            match holds {
                Ok(true) => self.push(Event::StageStarted { stage, attempt: 1, rollback: false, step: None }),
                Ok(false) => {
                    ended = true;
                    self.push(Event::StageSkipped { stage, reason: "its `if` is false".to_owned() });
                }
                Err(error) => {
                    let cause =
                        Cause { error_type: ErrorType::Validation, reason: format!("its `if` failed: {error}") };
                    self.push(Event::StageFailed { stage, attempt: 1, cause, rollback: false });
                    // Nothing new starts beside a stage that failed for good.
                    return true;
                }
            }
        }
        ended
    }

    fn fail_for_stage(&mut self, stopping: bool) {
        let failed = self.task.stages.iter().position(|stage| stage.status == StageStatus::Failed);
        let index = failed.expect("only called when a stage has failed");
        let state = &self.task.stages[index];
        let cause = state.cause.clone().expect("a failed stage has a cause");
        let (stage, attempts) = (Some(self.name(index)), Some(state.attempt));
        self.fail(stage, attempts, cause);
        self.undo_if_asked(stopping);
    }

    /// `on_failure: rollback`; a workflow always asks for it, by having something to undo.
    fn undo_if_asked(&mut self, stopping: bool) {
        let asked = self.task.flow.is_some() || self.task.spec.settings.on_failure == OnFailure::Rollback;
        if asked && !self.task.undo_order().is_empty() {
            self.push(Event::RollbackStarted { by: None });
            self.undo_on(stopping);
        }
    }

    fn time_out(&mut self) {
        if self.task.status == TaskStatus::Running && self.task.deadline().is_some_and(|deadline| deadline <= self.now)
        {
            let limit = self.task.spec.settings.task_timeout.unwrap_or(Millis::ZERO);
            let reason = format!("the task did not end within its task_timeout of {limit}");
            let stage = self.task.current_stage().map(|index| self.name(index));
            let cause = Cause { error_type: ErrorType::Timeout, reason };
            self.fail(stage, None, cause);
            self.undo_if_asked(false);
        }
    }

    /// Nothing is undone: what is recorded is good, and a person who retries it goes on from there.
    fn store_lost(&mut self) {
        let reason = STORE_LOST.to_owned();
        match self.task.status {
            TaskStatus::Running => {
                let stage = self.task.current_stage().map(|index| self.name(index));
                let cause = Cause { error_type: ErrorType::Persistence, reason };
                self.fail(stage, None, cause);
            }
            TaskStatus::RollingBack => self.push(Event::RollbackFailed { reason }),
            TaskStatus::Pending
            | TaskStatus::Paused
            | TaskStatus::Completed
            | TaskStatus::Failed
            | TaskStatus::Cancelled
            | TaskStatus::RolledBack
            | TaskStatus::RollbackFailed => {}
        }
    }

    fn interrupt(&mut self, reason: String) {
        if self.task.status.is_active() && !self.task.interrupted {
            let node = self.task.node.clone().unwrap_or_else(|| "unknown".into());
            self.push(Event::TaskInterrupted { node, reason, taken_by: None, automatic: false });
        }
    }

    // --- rolling back ---

    fn undo_ended(&mut self, ended: StageEnded) -> Result<(), Rejection> {
        let StageEnded { stage: index, attempt, result, stopping } = ended;
        let fits = |undo: &Undo| undo.running && undo.queue.first() == Some(&index) && undo.attempt == attempt;
        if self.task.interrupted || !self.task.undo.as_ref().is_some_and(fits) {
            return Err(self.stale(index, attempt));
        }
        let stage = self.name(index);
        match result {
            StageResult::Success(_) | StageResult::Skip(_) => self.push(Event::StageRolledBack { stage }),
            StageResult::Failure(failure) | StageResult::Refused(failure) => {
                let policy = &self.task.definitions()[index].retry;
                let cause = Cause::from(&failure);
                if failure.retryable && attempt < policy.max_attempts {
                    let delay = policy.delay(self.task.spec.seed, &stage, attempt);
                    let delay = delay.max(failure.retry_after.unwrap_or(Millis::ZERO));
                    self.push(Event::RetryScheduled { stage, attempt: attempt + 1, delay, cause, rollback: true });
                } else {
                    // The others are undone all the same: each one undone is one less to repair by hand.
                    self.push(Event::StageFailed { stage, attempt, cause, rollback: true });
                }
            }
        }
        self.undo_on(stopping);
        Ok(())
    }

    fn undo_on(&mut self, stopping: bool) {
        let Some(undo) = self.task.undo.clone() else { return };
        match undo.queue.first() {
            None if undo.failed.is_empty() => self.push(Event::TaskRolledBack {}),
            None => {
                let names: Vec<&str> = undo.failed.iter().map(StageName::as_str).collect();
                self.push(Event::RollbackFailed { reason: format!("could not undo {}", names.join(", ")) });
            }
            Some(_) if undo.running && !self.claiming => {}
            Some(_) if stopping => self.interrupt("the node was stopped".to_owned()),
            Some(_) if undo.due.is_some_and(|due| due > self.now) => {}
            Some(index) => {
                let (stage, attempt) = (self.name(*index), undo.attempt.max(1));
                self.push(Event::StageStarted { stage, attempt, rollback: true, step: None });
            }
        }
    }

    // --- the operator's verbs ---

    fn pause(&mut self, by: By) -> Result<(), Rejection> {
        match self.task.status {
            TaskStatus::Pending => self.push(Event::TaskPaused { by: Some(by) }),
            TaskStatus::Running => {
                let asked_before = self.task.pause_requested.is_some();
                if !asked_before {
                    self.push(Event::PauseRequested { by });
                }
                // What was cut off has nothing any more whose end the pause would have to wait for.
                if !asked_before || self.task.interrupted {
                    self.go_on(false);
                }
            }
            TaskStatus::Paused => {}
            TaskStatus::Completed
            | TaskStatus::Failed
            | TaskStatus::Cancelled
            | TaskStatus::RollingBack
            | TaskStatus::RolledBack
            | TaskStatus::RollbackFailed => return Err(self.refuse("pause", String::new())),
        }
        Ok(())
    }

    fn resume(&mut self, by: By) -> Result<(), Rejection> {
        match self.task.status {
            TaskStatus::Paused => self.push(Event::TaskResumed { by }),
            TaskStatus::Running if self.task.pause_requested.is_some() || self.task.interrupted => {
                self.push(Event::TaskResumed { by });
                // Stages that became ready while the pause was pending start now.
                self.go_on(false);
            }
            TaskStatus::Failed => {
                let hint = format!("; use `milepost retry {}`", self.task.spec.id);
                return Err(self.refuse("resume", hint));
            }
            TaskStatus::Running
            | TaskStatus::Pending
            | TaskStatus::Completed
            | TaskStatus::Cancelled
            | TaskStatus::RollingBack
            | TaskStatus::RolledBack
            | TaskStatus::RollbackFailed => return Err(self.refuse("resume", String::new())),
        }
        Ok(())
    }

    fn let_go(&mut self, by: By) -> Result<(), Rejection> {
        if self.task.status != TaskStatus::Pending {
            return Err(self.refuse("resume", String::new()));
        }
        self.push(Event::TaskResumed { by });
        Ok(())
    }

    fn cancel(&mut self, by: By) -> Result<(), Rejection> {
        match self.task.status {
            TaskStatus::Pending | TaskStatus::Running | TaskStatus::Paused => self.push(Event::TaskCancelled { by }),
            TaskStatus::Cancelled => {}
            TaskStatus::Completed
            | TaskStatus::Failed
            | TaskStatus::RollingBack
            | TaskStatus::RolledBack
            | TaskStatus::RollbackFailed => return Err(self.refuse("cancel", String::new())),
        }
        Ok(())
    }

    fn retry(&mut self, by: By, from_checkpoint: bool) -> Result<(), Rejection> {
        self.refuse_if_partly_lost("retry", !from_checkpoint)?;
        match self.task.status {
            TaskStatus::Failed => {
                let from_checkpoint = from_checkpoint && self.keep_valid_checkpoint()?;
                self.push(Event::TaskRetried { by, from_checkpoint });
            }
            TaskStatus::RolledBack => self.push(Event::TaskRetried { by, from_checkpoint: false }),
            TaskStatus::Running if self.task.interrupted => self.push(Event::TaskRetried { by, from_checkpoint }),
            TaskStatus::Paused => {
                let hint = format!("; use `milepost resume {}`", self.task.spec.id);
                return Err(self.refuse("retry", hint));
            }
            TaskStatus::RollbackFailed => {
                let hint = format!("; use `milepost rollback {}` to undo the rest", self.task.spec.id);
                return Err(self.refuse("retry", hint));
            }
            TaskStatus::Cancelled => {
                return Err(self.refuse("retry", ", which is final; submit the work as a new task".to_owned()));
            }
            TaskStatus::Pending if self.task.started_at().is_some() && !from_checkpoint => {
                let hint = format!(
                    ", which goes on from its checkpoint; `milepost resume {}` lets it, and it can be retried from the \
                     start when it has failed",
                    self.task.spec.id
                );
                return Err(self.refuse("retry", hint));
            }
            TaskStatus::Pending | TaskStatus::Running | TaskStatus::Completed | TaskStatus::RollingBack => {
                return Err(self.refuse("retry", String::new()));
            }
        }
        Ok(())
    }

    /// A task that cannot be read ends as FAILED, unless it has ended for good: then nothing waits for it.
    fn repair(&mut self, by: By) -> Result<(), Rejection> {
        let Some(reason) = self.task.damage().map(str::to_owned) else {
            return Err(self.refuse("repair", ", and nothing of it is damaged".to_owned()));
        };
        match self.task.status {
            TaskStatus::Completed | TaskStatus::Cancelled | TaskStatus::RolledBack => {
                Err(self.refuse("repair", ", and nothing waits for it".to_owned()))
            }
            TaskStatus::Pending
            | TaskStatus::Running
            | TaskStatus::Paused
            | TaskStatus::RollingBack
            | TaskStatus::Failed
            | TaskStatus::RollbackFailed => {
                let cause = Cause {
                    error_type: ErrorType::Persistence,
                    reason: format!("it was damaged, and a person gave it up: {reason}"),
                };
                self.push(Event::TaskRepaired { by, reason });
                self.fail(None, None, cause);
                Ok(())
            }
        }
    }

    /// Its checkpoint is what could be read of it, and may be anything.
    fn refuse_if_partly_lost(&self, verb: &'static str, from_start: bool) -> Result<(), Rejection> {
        let Some(damage) = self.task.damage.as_ref() else { return Ok(()) };
        let id = &self.task.spec.id;
        let hint = match &self.task.spec.damage {
            Some(_) => "; its definition cannot be read, so submit the work as a new task".to_owned(),
            None if from_start => return Ok(()),
            None => format!("; `milepost retry {id} --from-start` runs it from its start"),
        };
        Err(Rejection::PartlyLost { verb, task: id.to_string(), reason: damage.reason.clone(), hint })
    }

    /// False when it was just discarded. A task that has none yet loses nothing by going on: what its attempts left is
    /// still to be undone, or to be recognized by whoever was sent their idempotency keys.
    fn keep_valid_checkpoint(&mut self) -> Result<bool, Rejection> {
        let Some(checkpoint) = Checkpoint::of(self.task) else { return Ok(true) };
        let stages = if self.task.flow.is_some() { None } else { Some(&self.task.spec.stages) };
        let fits = stages.map_or(Ok(()), |stages| checkpoint.fits(stages)).and_then(|()| checkpoint.is_fresh(self.now));
        match (fits, self.task.spec.settings.on_invalid_checkpoint) {
            (Ok(()), _) => Ok(true),
            (Err(invalid), OnInvalidCheckpoint::Restart) => {
                self.push(Event::CheckpointDiscarded { reason: invalid.to_string() });
                Ok(false)
            }
            (Err(invalid), OnInvalidCheckpoint::Block) => {
                Err(Rejection::InvalidCheckpoint { task: self.task.spec.id.to_string(), reason: invalid.to_string() })
            }
        }
    }

    fn rollback(&mut self, by: By) -> Result<(), Rejection> {
        self.refuse_if_partly_lost("roll back", false)?;
        match self.task.status {
            TaskStatus::RollingBack if self.task.interrupted => {
                self.push(Event::RollbackStarted { by: Some(by) });
                Ok(())
            }
            TaskStatus::Failed | TaskStatus::Paused | TaskStatus::RollbackFailed => {
                if self.task.undo_order().is_empty() {
                    return Err(Rejection::NothingToRollBack { task: self.task.spec.id.to_string() });
                }
                self.push(Event::RollbackStarted { by: Some(by) });
                Ok(())
            }
            TaskStatus::Running => {
                let hint = format!("; `milepost pause {}` first", self.task.spec.id);
                Err(self.refuse("roll back", hint))
            }
            TaskStatus::Pending
            | TaskStatus::Completed
            | TaskStatus::Cancelled
            | TaskStatus::RollingBack
            | TaskStatus::RolledBack => Err(self.refuse("roll back", String::new())),
        }
    }

    fn stale(&self, index: usize, attempt: u32) -> Rejection {
        let stage = self
            .task
            .definitions()
            .get(index)
            .map_or_else(|| format!("number {index}"), |stage| stage.name.to_string());
        Rejection::Stale { task: self.task.spec.id.to_string(), stage, attempt }
    }

    fn refuse(&self, verb: &'static str, hint: String) -> Rejection {
        Rejection::Status { verb, task: self.task.spec.id.to_string(), status: self.task.status, hint }
    }

    fn name(&self, index: usize) -> StageName {
        self.task.definitions()[index].name.clone()
    }
}
