//! Why something failed, and whether trying again can help.

use serde::{Deserialize, Serialize};

use crate::time::Millis;

/// What kind of failure it was; the outside reads these names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ErrorType {
    Validation,
    Conflict,
    Network,
    Timeout,
    Unavailable,
    Business,
    /// A result that cannot be serialised, or is too large to keep.
    Persistence,
    Determinism,
    Expired,
    CrashLoop,
    Unknown,
}

impl ErrorType {
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorType::Validation => "VALIDATION",
            ErrorType::Conflict => "CONFLICT",
            ErrorType::Network => "NETWORK",
            ErrorType::Timeout => "TIMEOUT",
            ErrorType::Unavailable => "UNAVAILABLE",
            ErrorType::Business => "BUSINESS",
            ErrorType::Persistence => "PERSISTENCE",
            ErrorType::Determinism => "DETERMINISM",
            ErrorType::Expired => "EXPIRED",
            ErrorType::CrashLoop => "CRASH_LOOP",
            ErrorType::Unknown => "UNKNOWN",
        }
    }
}

/// One failure of one attempt, as the stage reported it or as the engine saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub error_type: ErrorType,
    /// Never empty: a failure without words is named after its type.
    pub reason: String,
    pub retryable: bool,
    /// The other side asked for at least this much time (`Retry-After`).
    pub retry_after: Option<Millis>,
    /// How many attempts a stage made before it gave up; none for a failure that ended it before its attempts did.
    pub attempts: Option<u32>,
}

/// A stage was tried as often as its policy allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("gave up after {attempts} attempts: {last_reason}")]
pub struct MaxRetriesExceeded {
    pub attempts: u32,
    pub last_reason: String,
}

impl Failure {
    pub fn retryable(error_type: ErrorType, reason: impl Into<String>) -> Self {
        Self::new(error_type, reason, true)
    }

    pub fn fatal(error_type: ErrorType, reason: impl Into<String>) -> Self {
        Self::new(error_type, reason, false)
    }

    fn new(error_type: ErrorType, reason: impl Into<String>, retryable: bool) -> Self {
        let mut reason = reason.into();
        if reason.trim().is_empty() {
            reason = error_type.as_str().to_owned();
        }
        Self { error_type, reason, retryable, retry_after: None, attempts: None }
    }

    pub fn after(mut self, wait: Millis) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Set when a stage ran out of attempts, rather than failing for good.
    pub fn max_retries_exceeded(&self) -> Option<MaxRetriesExceeded> {
        self.attempts.map(|attempts| MaxRetriesExceeded { attempts, last_reason: self.reason.clone() })
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.error_type.as_str(), self.reason)
    }
}

/// Any error of a program is worth another try, until it says otherwise. `Failure` itself is no `Error`, so that this
/// can be said of all of them.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut reason = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            reason = format!("{reason}: {cause}");
            source = cause.source();
        }
        Failure::retryable(ErrorType::Unknown, reason)
    }
}
