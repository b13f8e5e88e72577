//! Errors as RFC 9457 has them: what was wrong, where, and what to do.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use milepost_core::api::{ProblemPart, ProblemView};
use milepost_core::task::Rejection;
use milepost_engine::{EngineError, VerbError};
use milepost_store::StoreError;

/// An answer that is an error. `code` names its kind for programs, and never changes.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
    parts: Vec<ProblemPart>,
    /// When it may be worth trying again.
    retry_after: Option<u32>,
}

pub(crate) type Answer<T> = Result<T, Problem>;

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), parts: Vec::new(), retry_after: None }
    }

    #[cfg(test)]
    pub(crate) fn code(&self) -> &'static str {
        self.code
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", detail)
    }

    pub(crate) fn not_found(what: &str, id: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", format!("there is no {what} `{id}`"))
    }

    pub(crate) fn with_parts(mut self, parts: Vec<ProblemPart>) -> Self {
        self.parts = parts;
        self
    }

    /// What is said of it.
    pub(crate) fn view(&self) -> ProblemView {
        ProblemView {
            kind: format!("urn:milepost:problem:{}", self.code),
            title: self.status.canonical_reason().unwrap_or("Error").to_owned(),
            status: self.status.as_u16(),
            detail: self.detail.clone(),
            code: self.code.to_owned(),
            errors: self.parts.clone(),
        }
    }

    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.view())).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if let Some(challenge) = challenge(self.status, self.code) {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response
    }
}

/// What a 401 owes its reader (RFC 6750): how to ask, and whether what was shown was no good.
fn challenge(status: StatusCode, code: &str) -> Option<&'static str> {
    match (status, code) {
        (StatusCode::UNAUTHORIZED, "token-missing") => Some(r#"Bearer realm="milepost""#),
        (StatusCode::UNAUTHORIZED, _) => Some(r#"Bearer realm="milepost", error="invalid_token""#),
        (StatusCode::FORBIDDEN, "forbidden") => Some(r#"Bearer realm="milepost", error="insufficient_scope""#),
        _ => None,
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let detail = error.to_string();
        match error {
            StoreError::NotFound { .. } => Self::new(StatusCode::NOT_FOUND, "not-found", detail),
            StoreError::Conflict { .. } | StoreError::PlanConflict { .. } => {
                Self::new(StatusCode::CONFLICT, "version-conflict", detail)
            }
            StoreError::KeyReused { .. } => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "key-reused", detail),
            StoreError::Clash(_) | StoreError::Kept { .. } => Self::new(StatusCode::CONFLICT, "clash", detail),
            StoreError::Plan(_) | StoreError::Task(_) => Self::new(StatusCode::CONFLICT, "refused", detail),
            StoreError::Fenced { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "moved", "the task is changing hands; try again")
                    .retry_after(1)
            }
            StoreError::Damaged { .. } | StoreError::Format { .. } => {
                tracing::error!(%detail, "what is stored cannot be read");
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "damaged", detail)
            }
            StoreError::Owned { .. } | StoreError::Unavailable { .. } => {
                tracing::warn!(error = ?error, "the store is out of reach");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "store-out-of-reach", detail).retry_after(1)
            }
        }
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Store(error) => error.into(),
            EngineError::Plan(detail) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-plan", detail),
        }
    }
}

impl From<VerbError> for Problem {
    fn from(error: VerbError) -> Self {
        match error {
            VerbError::Store(error) => error.into(),
            VerbError::NotFound { what, id } => Self::not_found(what, &id),
            VerbError::Rejected(Rejection::KeyReused { .. }) => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "key-reused", error.to_string())
            }
            VerbError::Rejected(_) | VerbError::Plan(_) | VerbError::Refused(_) => {
                Self::new(StatusCode::CONFLICT, "refused", error.to_string())
            }
            VerbError::Version { .. } => Self::new(StatusCode::CONFLICT, "version-conflict", error.to_string()),
            VerbError::Moved | VerbError::InDoubt(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "moved", error.to_string()).retry_after(1)
            }
        }
    }
}
