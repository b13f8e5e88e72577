//! Who may come in, and how often.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::accept::Peer;
use crate::app::App;
use crate::auth::{Caller, authenticate, guard};
use crate::limits::{CallerKey, RateLimit};
use crate::problem::{Answer, Problem};

/// Whoever watches over the process has no token, and learns nothing here but yes or no.
const OPEN_TO_ALL: [&str; 2] = ["/healthz", "/readyz"];

#[derive(Debug, Clone)]
pub(super) struct Gate {
    app: App,
    limit: Option<Arc<RateLimit>>,
}

impl Gate {
    pub(super) fn new(app: App) -> Self {
        let limit = app.settings().rate_limit.map(|per_second| Arc::new(RateLimit::new(per_second)));
        Self { app, limit }
    }

    async fn caller(&self, request: &Parts) -> Answer<Caller> {
        let settings = self.app.settings();
        // A page cannot know a token; where one is needed, that alone keeps pages out.
        if !settings.require_token {
            guard::check(settings, &request.method, &request.uri, &request.headers)?;
        }
        let caller = authenticate(&self.app, &request.headers).await;
        // After the token was looked at, so that each counts by itself; and also for those whose token is no good.
        self.count(caller.as_ref().ok(), request)?;
        caller
    }

    fn count(&self, caller: Option<&Caller>, request: &Parts) -> Answer<()> {
        let Some(limit) = &self.limit else { return Ok(()) };
        let key = match (caller.and_then(Caller::token), request.extensions.get::<Peer>()) {
            (Some(token), _) => CallerKey::Token(token.to_owned()),
            (None, Some(Peer(peer))) => CallerKey::address(peer.ip()),
            (None, None) => CallerKey::Crowd,
        };
        limit.take(key, Instant::now()).map_err(|wait| {
            let seconds = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX).saturating_add(1);
            let detail = "too many requests; slow down";
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-many-requests", detail).retry_after(seconds)
        })
    }
}

pub(super) async fn admit(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    if OPEN_TO_ALL.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    match gate.caller(&parts).await {
        Ok(caller) => {
            parts.extensions.insert(caller);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(problem) => problem.into_response(),
    }
}
