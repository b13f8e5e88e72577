//! What can go wrong for whoever runs workflows.

use milepost_core::failure::ErrorType;
use milepost_core::id::{InvalidName, TaskId};
use milepost_core::task::{Cause, TaskStatus};
use milepost_engine::{EngineError, VerbError};
use milepost_store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its function returned an error, or gave up.
    #[error("workflow {id} failed ({status}): {reason}")]
    Failed { id: TaskId, status: TaskStatus, error_type: ErrorType, reason: String },
    #[error("workflow {id} was cancelled")]
    Cancelled { id: TaskId },
    #[error("there is no workflow run `{id}`")]
    NotFound { id: String },
    /// Another run has this id; a run that is repeated has the same input.
    #[error("workflow {id} was not accepted")]
    Refused { id: TaskId, source: EngineError },
    #[error("`{url}` is not a store; expected sqlite:PATH or memory:")]
    Url { url: String },
    #[error(transparent)]
    Name(#[from] InvalidName),
    #[error("it does not fit its type")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Verb(#[from] VerbError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl Error {
    pub(crate) fn failed(id: TaskId, status: TaskStatus, cause: Cause) -> Self {
        if status == TaskStatus::Cancelled {
            return Error::Cancelled { id };
        }
        Error::Failed { id, status, error_type: cause.error_type, reason: cause.reason }
    }
}
