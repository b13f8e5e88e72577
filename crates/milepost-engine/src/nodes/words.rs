//! What nodes write to each other, and how it reads back.

use milepost_core::id::{IdempotencyKey, StageName, TaskId};
use milepost_core::task::{By, Cause, Command, Rejection, TaskStatus};
use milepost_store::StoreError;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::verbs::VerbError;

/// Goes up with every change that an older reader would misunderstand.
const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Question {
    v: u32,
    asked: AskedOf,
    /// Refused if the task is at another version.
    expected: Option<u64>,
}

/// The commands that somebody else than a task's own runner can give.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum AskedOf {
    Pause { by: By },
    Resume { by: By },
    Cancel { by: By },
    Retry { by: By, from_checkpoint: bool },
    Rollback { by: By },
    Repair { by: By },
    Signal { name: StageName, payload: Value, by: By, id: Option<IdempotencyKey> },
    ChildEnded { child: TaskId, result: Result<Value, Cause> },
}

impl Question {
    /// None for what only a task's own runner says.
    pub(super) fn new(command: &Command, expected: Option<u64>) -> Option<Self> {
        let asked = match command.clone() {
            Command::Pause(by) => AskedOf::Pause { by },
            Command::Resume(by) => AskedOf::Resume { by },
            Command::Cancel(by) => AskedOf::Cancel { by },
            Command::Retry { by, from_checkpoint } => AskedOf::Retry { by, from_checkpoint },
            Command::Rollback(by) => AskedOf::Rollback { by },
            Command::Repair(by) => AskedOf::Repair { by },
            Command::Signal { name, payload, by, id } => AskedOf::Signal { name, payload, by, id },
            Command::ChildEnded { child, result } => AskedOf::ChildEnded { child, result },
            Command::LetGo(_)
            | Command::Receive(_)
            | Command::Redrive { .. }
            | Command::Claim(_)
            | Command::StageEnded(_)
            | Command::Wake
            | Command::TimeOut
            | Command::Interrupt { .. }
            | Command::Begin(_)
            | Command::Remember(_)
            | Command::Return(_)
            | Command::Continue(_)
            | Command::Diverged { .. }
            | Command::StoreLost => return None,
        };
        Some(Self { v: VERSION, asked, expected })
    }

    pub(super) fn read(text: &str) -> Result<(Command, Option<u64>), VerbError> {
        let question: Self = serde_json::from_str(text).map_err(|error| not_understood(&error.to_string()))?;
        if question.v != VERSION {
            return Err(not_understood(&format!("it is of version {}, and this node speaks {VERSION}", question.v)));
        }
        let command = match question.asked {
            AskedOf::Pause { by } => Command::Pause(by),
            AskedOf::Resume { by } => Command::Resume(by),
            AskedOf::Cancel { by } => Command::Cancel(by),
            AskedOf::Retry { by, from_checkpoint } => Command::Retry { by, from_checkpoint },
            AskedOf::Rollback { by } => Command::Rollback(by),
            AskedOf::Repair { by } => Command::Repair(by),
            AskedOf::Signal { name, payload, by, id } => Command::Signal { name, payload, by, id },
            AskedOf::ChildEnded { child, result } => Command::ChildEnded { child, result },
        };
        Ok((command, question.expected))
    }
}

fn not_understood(why: &str) -> VerbError {
    VerbError::Refused(format!("the node that holds the task did not understand what was asked: {why}"))
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reply {
    Done(TaskStatus),
    /// The task's status forbids it.
    Status {
        verb: String,
        task: String,
        status: TaskStatus,
        hint: String,
    },
    Stale {
        task: String,
        stage: String,
        attempt: u32,
    },
    NothingToRollBack {
        task: String,
    },
    InvalidCheckpoint {
        task: String,
        reason: String,
    },
    NotAWorkflow {
        task: String,
    },
    KeyReused {
        task: String,
        key: String,
    },
    Damaged {
        task: String,
        reason: String,
    },
    PartlyLost {
        verb: String,
        task: String,
        reason: String,
        hint: String,
    },
    Version {
        what: String,
        expected: u64,
        found: u64,
    },
    /// It is no longer here.
    Moved,
    /// It was lost in the middle of it.
    InDoubt,
    Refused(String),
    Failed(String),
}

impl From<Result<TaskStatus, VerbError>> for Reply {
    fn from(answer: Result<TaskStatus, VerbError>) -> Self {
        match answer {
            Ok(status) => Reply::Done(status),
            Err(VerbError::Rejected(Rejection::Status { verb, task, status, hint })) => {
                Reply::Status { verb: verb.to_owned(), task, status, hint }
            }
            Err(VerbError::Rejected(Rejection::Stale { task, stage, attempt })) => {
                Reply::Stale { task, stage, attempt }
            }
            Err(VerbError::Rejected(Rejection::NothingToRollBack { task })) => Reply::NothingToRollBack { task },
            Err(VerbError::Rejected(Rejection::InvalidCheckpoint { task, reason })) => {
                Reply::InvalidCheckpoint { task, reason }
            }
            Err(VerbError::Rejected(Rejection::NotAWorkflow { task })) => Reply::NotAWorkflow { task },
            Err(VerbError::Rejected(Rejection::KeyReused { task, key })) => Reply::KeyReused { task, key },
            Err(VerbError::Rejected(Rejection::Damaged { task, reason })) => Reply::Damaged { task, reason },
            Err(VerbError::Rejected(Rejection::PartlyLost { verb, task, reason, hint })) => {
                Reply::PartlyLost { verb: verb.to_owned(), task, reason, hint }
            }
            Err(VerbError::Version { what, expected, found }) => Reply::Version { what, expected, found },
            Err(VerbError::Moved | VerbError::NotFound { .. }) => Reply::Moved,
            Err(VerbError::InDoubt(_)) => Reply::InDoubt,
            Err(VerbError::Refused(words)) => Reply::Refused(words),
            Err(VerbError::Plan(rejection)) => Reply::Refused(rejection.to_string()),
            Err(error @ VerbError::Store(_)) => Reply::Failed(crate::runner::chain(&error)),
        }
    }
}

impl From<Reply> for Result<TaskStatus, VerbError> {
    fn from(reply: Reply) -> Self {
        Err(match reply {
            Reply::Done(status) => return Ok(status),
            Reply::Status { verb, task, status, hint } => {
                Rejection::Status { verb: known(&verb), task, status, hint }.into()
            }
            Reply::Stale { task, stage, attempt } => Rejection::Stale { task, stage, attempt }.into(),
            Reply::NothingToRollBack { task } => Rejection::NothingToRollBack { task }.into(),
            Reply::InvalidCheckpoint { task, reason } => Rejection::InvalidCheckpoint { task, reason }.into(),
            Reply::NotAWorkflow { task } => Rejection::NotAWorkflow { task }.into(),
            Reply::KeyReused { task, key } => Rejection::KeyReused { task, key }.into(),
            Reply::Damaged { task, reason } => Rejection::Damaged { task, reason }.into(),
            Reply::PartlyLost { verb, task, reason, hint } => {
                Rejection::PartlyLost { verb: known(&verb), task, reason, hint }.into()
            }
            Reply::Version { what, expected, found } => VerbError::Version { what, expected, found },
            Reply::Moved => VerbError::Moved,
            Reply::InDoubt => VerbError::InDoubt(None),
            Reply::Refused(words) => VerbError::Refused(words),
            Reply::Failed(words) => VerbError::Store(StoreError::Unavailable {
                backend: "the node that holds the task",
                operation: "do what was asked",
                source: words.into(),
            }),
        })
    }
}

/// The verbs that a task can refuse.
fn known(verb: &str) -> &'static str {
    let verbs =
        ["pause", "resume", "cancel", "retry", "roll back", "repair", "signal", "run", "tell the end of a child to"];
    verbs.into_iter().find(|known| *known == verb).unwrap_or("change")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by() -> By {
        By { who: "a@b".into(), why: Some("because".into()) }
    }

    #[test]
    fn a_question_reads_back_as_it_was_asked() {
        let child = TaskId::parse("child").unwrap();
        let cause = Cause { error_type: milepost_core::failure::ErrorType::Business, reason: "no".into() };
        let name = StageName::parse("approved").unwrap();
        let commands = [
            Command::Pause(by()),
            Command::Resume(by()),
            Command::Cancel(by()),
            Command::Retry { by: by(), from_checkpoint: false },
            Command::Rollback(by()),
            Command::Repair(by()),
            Command::Signal {
                name,
                payload: serde_json::json!({"n": 1}),
                by: by(),
                id: IdempotencyKey::parse("k").ok(),
            },
            Command::ChildEnded { child: child.clone(), result: Ok(serde_json::json!([1])) },
            Command::ChildEnded { child, result: Err(cause) },
        ];
        for command in commands {
            let text = serde_json::to_string(&Question::new(&command, Some(7)).unwrap()).unwrap();
            assert_eq!(Question::read(&text).unwrap(), (command, Some(7)));
        }
        assert!(Question::new(&Command::Wake, None).is_none());
    }

    #[test]
    fn an_answer_from_elsewhere_says_what_the_task_itself_said() {
        let task = || "t".to_owned();
        let status = |verb| Rejection::Status { verb, task: task(), status: TaskStatus::Completed, hint: "!".into() };
        let rejections = [
            status("pause"),
            status("roll back"),
            Rejection::Stale { task: task(), stage: "s".into(), attempt: 2 },
            Rejection::NothingToRollBack { task: task() },
            Rejection::InvalidCheckpoint { task: task(), reason: "r".into() },
            Rejection::NotAWorkflow { task: task() },
            Rejection::KeyReused { task: task(), key: "k".into() },
            Rejection::Damaged { task: task(), reason: "r".into() },
            Rejection::PartlyLost { verb: "retry", task: task(), reason: "r".into(), hint: "!".into() },
        ];
        for rejection in rejections {
            let text = serde_json::to_string(&Reply::from(Err(rejection.clone().into()))).unwrap();
            let read = Result::from(serde_json::from_str::<Reply>(&text).unwrap());
            assert!(matches!(&read, Err(VerbError::Rejected(found)) if *found == rejection), "{read:?}");
        }
        assert!(matches!(Result::from(Reply::from(Ok(TaskStatus::Paused))), Ok(TaskStatus::Paused)));
        assert!(matches!(Result::from(Reply::from(Err(VerbError::Moved))), Err(VerbError::Moved)));
    }
}
