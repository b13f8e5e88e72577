//! A recorded log, decided again: what made each event is read off the log, and today's rules must come to the same.

use std::sync::Arc;

use crate::failure::{ErrorType, Failure};
use crate::id::StageName;

use super::decide::{Claim, Command, STORE_LOST, StageEnded, StageResult, decide};
use super::event::{By, Cause, Event, Record};
use super::state::{Task, TaskSpec};

/// The one kind of stage that cannot ask for a longer wait than its policy has.
const COMMAND: &str = "run";

/// Where a log and the rules part.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Of the first event that differs.
    pub sequence: u64,
    /// What the log has there; none when it ends before it.
    pub recorded: Option<Record>,
    pub decided: Decided,
}

/// What the rules have in the place of an event.
#[derive(Debug, Clone, PartialEq)]
pub enum Decided {
    Event(Record),
    /// Nothing that the log says was asked for leads there.
    Nothing,
    /// What was asked for is refused, with these words.
    Refused(String),
}

/// Decides every event of a plan's task again, with the command and the instant that the log has for it. The number of
/// events that came out the same, or the first that did not.
pub fn replay(spec: Arc<TaskSpec>, log: &[Record]) -> Result<u64, Box<Difference>> {
    let mut task = Task::created(spec);
    if !matches!(log.first().map(Record::event), Some(Event::TaskCreated {})) {
        let decided = Decided::Event(Record::new(task.spec.created_at, Event::TaskCreated {}));
        return Err(Box::new(Difference { sequence: 1, recorded: log.first().cloned(), decided }));
    }
    let mut place = 1;
    while let Some(record) = log.get(place) {
        let rest = &log[place..];
        let mut best: Option<Attempt> = None;
        for command in commands(&task, rest) {
            let attempt = Attempt::of(&task, command, record, rest);
            if best.as_ref().is_none_or(|best| attempt.is_better_than(best)) {
                best = Some(attempt);
            }
        }
        match best {
            Some(Attempt { after: Some(after), same, .. }) => {
                task = after;
                place += same;
            }
            Some(Attempt { after: None, same, decided }) => {
                let sequence = (place + same + 1) as u64;
                return Err(Box::new(Difference { sequence, recorded: log.get(place + same).cloned(), decided }));
            }
            None => {
                let sequence = place as u64 + 1;
                return Err(Box::new(Difference {
                    sequence,
                    recorded: Some(record.clone()),
                    decided: Decided::Nothing,
                }));
            }
        }
    }
    Ok(place as u64)
}

/// What one command comes to, beside what the log has.
struct Attempt {
    /// How many events are the same, from the first on.
    same: usize,
    /// The task after it, when all of its events are in the log.
    after: Option<Task>,
    /// Its first event that is not.
    decided: Decided,
}

impl Attempt {
    fn of(task: &Task, command: Command, record: &Record, rest: &[Record]) -> Self {
        let decision = match decide(task, command, record.at()) {
            Ok(decision) => decision,
            Err(rejection) => return Self { same: 0, after: None, decided: Decided::Refused(rejection.to_string()) },
        };
        let same = decision.events.iter().zip(rest).take_while(|(decided, recorded)| decided == recorded).count();
        match decision.events.get(same) {
            Some(other) => Self { same, after: None, decided: Decided::Event(other.clone()) },
            None if same == 0 => Self { same, after: None, decided: Decided::Nothing },
            None => Self { same, after: Some(decision.task), decided: Decided::Nothing },
        }
    }

    /// All of it in the log is best; then more of it; then an event rather than nothing, and anything rather than a refusal.
    fn is_better_than(&self, other: &Self) -> bool {
        let rank = |attempt: &Self| {
            let says = match attempt.decided {
                Decided::Event(_) => 2,
                Decided::Nothing => 1,
                Decided::Refused(_) => 0,
            };
            (attempt.after.is_some(), attempt.same, says)
        };
        rank(self) > rank(other)
    }
}

/// What can have been asked of the task so that this came of it.
fn commands(task: &Task, rest: &[Record]) -> Vec<Command> {
    let Some(event) = rest.first().map(Record::event) else { return Vec::new() };
    let mut commands = match event {
        Event::TaskStarted { node } => vec![claim(node, None, false)],
        Event::TaskInterrupted { node, taken_by: Some(taker), automatic, .. } => {
            vec![claim(taker, Some(node), *automatic)]
        }
        Event::TaskInterrupted { reason, taken_by: None, .. } => vec![Command::Interrupt { reason: reason.clone() }],
        Event::StageCompleted { stage, attempt, outputs } => {
            ended(task, stage, *attempt, &[StageResult::Success((**outputs).clone())])
        }
        Event::StageSkipped { stage, reason } => {
            ended(task, stage, attempt_of(task, stage), &[StageResult::Skip(reason.clone())])
        }
        Event::StageFailed { stage, attempt, cause, .. } => ended(task, stage, *attempt, &failures(cause)),
        Event::RetryScheduled { stage, attempt, delay, cause, .. } => {
            let again = failure(cause, true);
            let mut results = vec![StageResult::Failure(again.clone())];
            let index = task.stage_index(stage);
            if index.is_some_and(|index| task.definitions()[index].action.uses != COMMAND) {
                results.push(StageResult::Failure(Failure { retry_after: Some(*delay), ..again }));
            }
            ended(task, stage, attempt.saturating_sub(1), &results)
        }
        Event::StageRolledBack { stage } => {
            ended(task, stage, attempt_of(task, stage), &[StageResult::Success(serde_json::Map::new())])
        }
        Event::PauseRequested { by } | Event::TaskPaused { by: Some(by) } => vec![Command::Pause(by.clone())],
        Event::TaskResumed { by } => vec![Command::Resume(by.clone()), Command::LetGo(by.clone())],
        Event::TaskCancelled { by } => vec![Command::Cancel(by.clone())],
        Event::TaskRetried { by, from_checkpoint } => {
            let retries =
                [*from_checkpoint, true].map(|from_checkpoint| Command::Retry { by: by.clone(), from_checkpoint });
            retries.into_iter().chain(redrive(by, rest.get(1))).collect()
        }
        Event::CheckpointDiscarded { .. } => match rest.get(1).map(Record::event) {
            Some(Event::TaskRetried { by, .. }) => {
                let retry = Command::Retry { by: by.clone(), from_checkpoint: true };
                [retry].into_iter().chain(redrive(by, rest.get(2))).collect()
            }
            _ => Vec::new(),
        },
        Event::RollbackStarted { by: Some(by) } => vec![Command::Rollback(by.clone())],
        Event::TaskFailed { cause, .. } if cause.reason == STORE_LOST => vec![Command::StoreLost],
        // Whoever claimed it too late left no name.
        Event::TaskFailed { cause, .. } if cause.error_type == ErrorType::Expired => {
            vec![claim(&"".into(), None, false)]
        }
        Event::TaskFailed { .. } => vec![Command::TimeOut],
        Event::RollbackFailed { reason } if reason == STORE_LOST => vec![Command::StoreLost],
        Event::MessageReceived { message } => vec![Command::Receive(message.clone())],
        Event::TaskRepaired { by, .. } => vec![Command::Repair(by.clone())],
        Event::StageStarted { .. }
        | Event::TaskCompleted { .. }
        | Event::TaskRolledBack {}
        | Event::RollbackFailed { .. }
        | Event::TaskPaused { by: None }
        | Event::RollbackStarted { by: None }
        | Event::TaskCreated {}
        | Event::DeadLettered { .. }
        | Event::SignalReceived { .. }
        | Event::ValueRecorded { .. }
        | Event::TaskContinued { .. }
        | Event::EventLost { .. } => Vec::new(),
    };
    // The clock moved, or the node that has it took it on again: neither leaves an event of its own.
    commands.push(Command::Wake);
    commands.extend(task.node.as_ref().map(|node| claim(node, None, false)));
    // Nor does a second pause of a task that nobody has: it comes to rest at once, and that may be a failure.
    commands.extend(task.pause_requested.clone().filter(|_| task.interrupted).map(Command::Pause));
    commands
}

/// A retry with a message right behind it.
fn redrive(by: &By, next: Option<&Record>) -> Option<Command> {
    match next.map(Record::event) {
        Some(Event::MessageReceived { message }) => Some(Command::Redrive { by: by.clone(), message: message.clone() }),
        _ => None,
    }
}

fn claim(node: &Arc<str>, lost_by: Option<&Arc<str>>, automatic: bool) -> Command {
    Command::Claim(Claim { node: node.clone(), lost_by: lost_by.cloned(), automatic })
}

/// An attempt that ended so, on a node that goes on or on one that stops.
fn ended(task: &Task, stage: &StageName, attempt: u32, results: &[StageResult]) -> Vec<Command> {
    let Some(stage) = task.stage_index(stage) else { return Vec::new() };
    let of = |result: &StageResult| {
        [false, true]
            .map(|stopping| Command::StageEnded(StageEnded { stage, attempt, result: result.clone(), stopping }))
    };
    results.iter().flat_map(of).collect()
}

/// The attempt that runs, of a stage or of its undoing.
fn attempt_of(task: &Task, stage: &StageName) -> u32 {
    let running = task.stage_index(stage).map_or(0, |index| task.stages[index].attempt);
    task.undo.as_ref().map_or(running, |undo| undo.attempt)
}

/// The log does not keep whether more attempts could have helped; with none left it makes no difference.
fn failures(cause: &Cause) -> [StageResult; 2] {
    [true, false].map(|retryable| StageResult::Failure(failure(cause, retryable)))
}

fn failure(cause: &Cause, retryable: bool) -> Failure {
    let (kind, reason) = (cause.error_type, cause.reason.clone());
    if retryable { Failure::retryable(kind, reason) } else { Failure::fatal(kind, reason) }
}
