//! How the program ends: the exit codes that scripts rely on, and the words that go with each failure.

use std::process::ExitCode;

use milepost::ClientError;
use milepost_engine::{EngineError, VerbError};
use milepost_store::StoreError;

use crate::output;

/// What the caller learns from the exit code alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    /// The plan ended otherwise than COMPLETED.
    TaskFailed = 1,
    /// Bad usage, a bad plan, or a plan that clashes with one that is stored.
    Usage = 2,
    /// The store is missing, owned by another process, or cannot be read; the server is not there, or lets nobody in.
    OutOfReach = 3,
    NotFound = 4,
    /// The plan or task is in a state that forbids it.
    Refused = 5,
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Why a command could not do its work, for the person who typed it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    /// What to do next, one line each.
    pub(crate) help: Vec<String>,
}

pub(crate) type Outcome = Result<Exit, Failure>;

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), help: Vec::new() }
    }

    pub(crate) fn help(mut self, line: impl Into<String>) -> Self {
        self.help.push(line.into());
        self
    }
}

/// Runs the program and turns what it comes to into an exit code.
pub(crate) fn with_code<A>(args: A, main: impl FnOnce(A) -> Outcome) -> ExitCode {
    match main(args) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output::error(&failure.message);
            failure.help.iter().for_each(|line| output::message(&format!("  {line}")));
            failure.exit.into()
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let exit = match &error {
            StoreError::NotFound { .. } => Exit::NotFound,
            StoreError::Clash(_) | StoreError::KeyReused { .. } | StoreError::Kept { .. } => Exit::Usage,
            StoreError::PlanConflict { .. } | StoreError::Plan(_) | StoreError::Task(_) => Exit::Refused,
            StoreError::Conflict { .. }
            | StoreError::Fenced { .. }
            | StoreError::Damaged { .. }
            | StoreError::Format { .. }
            | StoreError::Owned { .. }
            | StoreError::Unavailable { .. } => Exit::OutOfReach,
        };
        Failure::new(exit, chain(&error))
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Store(error) => error.into(),
            EngineError::Plan(why) => Failure::new(Exit::Usage, format!("the plan was refused: {why}")),
        }
    }
}

impl From<VerbError> for Failure {
    fn from(error: VerbError) -> Self {
        match error {
            VerbError::Store(error) => error.into(),
            VerbError::NotFound { .. } => Failure::new(Exit::NotFound, error.to_string()),
            VerbError::InDoubt(_) => {
                let help = "`milepost events` shows what was done";
                Failure::new(Exit::OutOfReach, error.to_string()).help(help)
            }
            VerbError::Rejected(_)
            | VerbError::Plan(_)
            | VerbError::Refused(_)
            | VerbError::Version { .. }
            | VerbError::Moved => Failure::new(Exit::Refused, error.to_string()),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let message = chain(&error);
        match error {
            ClientError::Settings(_) => Failure::new(Exit::Usage, message),
            ClientError::Unreachable { .. } => Failure::new(Exit::OutOfReach, message)
                .help("is it running? `milepost serve` starts one; --server or MILEPOST_SERVER names another"),
            ClientError::Protocol { .. } => Failure::new(Exit::OutOfReach, message)
                .help("look at the address in --server or MILEPOST_SERVER, and whether both are of the same version"),
            ClientError::Problem { status, code, .. } => refused_by_server(status, &code, message),
        }
    }
}

fn refused_by_server(status: u16, code: &str, message: String) -> Failure {
    match (status, code) {
        (401, _) => Failure::new(Exit::OutOfReach, message)
            .help("set MILEPOST_TOKEN to a token of this server, or name the file that has it by --token-file"),
        (403, "forbidden" | "other-tenant") => Failure::new(Exit::OutOfReach, message)
            .help("another token may do it: set MILEPOST_TOKEN, or name the file that has it by --token-file"),
        (403, _) => Failure::new(Exit::OutOfReach, message),
        (404, _) => Failure::new(Exit::NotFound, message),
        (409, "clash") => Failure::new(Exit::Usage, message),
        (409, _) | (422, "key-reused") => Failure::new(Exit::Refused, message),
        (400..500, _) if status != 429 => Failure::new(Exit::Usage, message),
        _ => Failure::new(Exit::OutOfReach, message).help("the server may be busy or stopping: try again"),
    }
}

/// An error with its causes, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some errors already say what their cause says.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
