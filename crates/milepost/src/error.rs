//! What can go wrong for whoever runs workflows.

use milepost_core::failure::ErrorType;
use milepost_core::id::{InvalidName, TaskId};
use milepost_core::task::{Cause, TaskStatus};
use milepost_engine::{EngineError, VerbError};
use milepost_store::{BadUrl, StoreError};

use crate::client::ClientError;

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
    #[error("{0}; expected sqlite:PATH, postgres://…, mysql://…, redis://… or memory:")]
    Url(#[from] BadUrl),
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
    /// The server that was asked for a result.
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("cannot listen on `{address}`; expected an address and a port, such as 127.0.0.1:8080")]
    Address { address: String },
    /// The API is not served there.
    #[error(transparent)]
    Serve(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    pub(crate) fn failed(id: TaskId, status: TaskStatus, cause: Cause) -> Self {
        if status == TaskStatus::Cancelled {
            return Error::Cancelled { id };
        }
        Error::Failed { id, status, error_type: cause.error_type, reason: cause.reason }
    }
}
