//! What can go wrong between a client and a server, by what the caller does next.

use std::time::Duration;

use milepost_core::api::{ProblemPart, ProblemView};

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL or the token cannot be used: correct the settings.
    #[error("{0}")]
    Settings(String),
    /// Nobody answers there: check the address, or try again later. Whether a request arrived is not known.
    #[error("cannot reach {url}")]
    Unreachable { url: String, source: Box<dyn std::error::Error + Send + Sync> },
    /// The server says no. Its words are for a person, its status and code for programs.
    #[error("{detail}")]
    Problem {
        status: u16,
        code: String,
        detail: String,
        /// Each mistake of a plan by itself.
        errors: Vec<ProblemPart>,
        /// When it may be worth trying again.
        retry_after: Option<Duration>,
    },
    /// What answers is no Milepost server, or one of another version: look at the address.
    #[error("{url} does not answer as a Milepost server does: {detail}")]
    Protocol { url: String, detail: String },
}

impl ClientError {
    /// The server has no such plan, task or token.
    pub fn is_not_found(&self) -> bool {
        matches!(self, ClientError::Problem { status: 404, .. })
    }

    /// The same request may well succeed a little later.
    pub fn is_passing(&self) -> bool {
        match self {
            ClientError::Unreachable { .. } => true,
            ClientError::Problem { status, .. } => matches!(status, 429 | 503),
            ClientError::Settings(_) | ClientError::Protocol { .. } => false,
        }
    }

    pub(super) fn problem(problem: ProblemView, retry_after: Option<Duration>) -> Self {
        let ProblemView { status, detail, code, errors, .. } = problem;
        ClientError::Problem { status, code, detail, errors, retry_after }
    }
}
