//! Whether the process lives, whether it can do its work, and how it has been doing.

use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use milepost_core::api::{ProblemView, Scope};
use milepost_store::{Book, EntryQuery, PlanQuery, StoreError};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::auth::Caller;
use crate::metrics::{self, Books};
use crate::problem::{Answer, Problem};

/// A store that takes longer than this for the smallest question is away.
const STORE_ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// So many are counted; a scrape is not to read a whole store.
const MOST_DEAD_LETTERS: usize = 1000;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz)).routes(routes!(metrics))
}

/// The process lives. Says nothing of the store: restarting the process would not bring that back.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, description = "alive", body = str)))]
async fn healthz() -> &'static str {
    "ok"
}

/// The server can do its work: its store answers, and it is not about to leave.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "health",
    responses(
        (status = 200, description = "ready", body = str),
        (status = 503, description = "not now", body = ProblemView, content_type = "application/problem+json"),
    )
)]
async fn readyz(State(app): State<App>) -> Answer<&'static str> {
    let unready = |code, detail| Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, detail).retry_after(1);
    if app.is_draining() {
        return Err(unready("draining", "the server is about to leave"));
    }
    // What it last had for its store was not taken; that it can still be read is not enough.
    if app.engine().store_is_away() {
        return Err(unready("store-out-of-reach", "the store does not take what this node has done"));
    }
    let question = app.store().plans(PlanQuery { open_only: true, after: None, limit: 1 });
    match tokio::time::timeout(STORE_ANSWERS_WITHIN, question).await {
        Ok(Ok(_)) => Ok("ok"),
        Ok(Err(error)) => {
            tracing::warn!(error = ?error, "the store is out of reach");
            Err(unready("store-out-of-reach", "the store does not answer"))
        }
        Err(_) => Err(unready("store-out-of-reach", "the store does not answer in time")),
    }
}

/// Everything that is measured, as Prometheus reads it.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "health",
    responses(
        (status = 200, description = "OpenMetrics text", body = str, content_type = "application/openmetrics-text"),
        (status = 401, description = "no token", body = ProblemView, content_type = "application/problem+json"),
    )
)]
async fn metrics(State(app): State<App>, caller: Caller) -> Answer<Response> {
    // How much there is to do, and what fails, is nobody's business who may not look at it otherwise.
    caller.may(Scope::Read)?;
    caller.may_touch_all()?;
    // With the store away the others are still worth telling.
    if let Ok(Ok(books)) = tokio::time::timeout(STORE_ANSWERS_WITHIN, look_up(&app)).await {
        app.metrics().looked_up(books);
    }
    let text = app.metrics().text().map_err(|_| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the metrics could not be written down")
    })?;
    Ok(([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}

async fn look_up(app: &App) -> Result<Books, StoreError> {
    let now = app.engine().clock().now();
    let query = |book, limit| EntryQuery { book, after: None, limit, now };
    let dead_letters = app.store().entries(query(Book::DeadLetters, MOST_DEAD_LETTERS)).await?.items.len();
    let oldest = app.store().entries(query(Book::Outbox, 1)).await?.items.into_iter().next();
    let outbox_oldest = oldest.map_or(Duration::ZERO, |entry| now.since(entry.at).as_duration());
    Ok(Books { dead_letters, outbox_oldest })
}
