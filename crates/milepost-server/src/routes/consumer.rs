//! Whoever takes messages in on this node: how that goes, and pausing it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use milepost_core::api::{ConsumerStatus, Scope};
use milepost_engine::Consumer;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::responses::{ReadProblems, VerbProblems};
use crate::app::App;
use crate::auth::Caller;
use crate::body::VerbBody;
use crate::extract::{NoParameters, Query};
use crate::problem::{Answer, Problem};

const NONE_HERE: &str = "this node takes no messages in; `milepost serve --kafka HOST:PORT` does";

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(consumer)).routes(routes!(pause_consumer)).routes(routes!(resume_consumer))
}

/// How this node takes messages in.
#[utoipa::path(get, path = "/consumer", tag = "machinery",
    responses((status = 200, description = "How it goes", body = ConsumerStatus), ReadProblems))]
async fn consumer(
    State(app): State<App>,
    caller: Caller,
    Query(NoParameters): Query<NoParameters>,
) -> Answer<Json<ConsumerStatus>> {
    caller.may(Scope::Read)?;
    caller.may_touch_all()?;
    let consumer = app.consumer().ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, "no-consumer", NONE_HERE))?;
    Ok(Json(consumer.status()))
}

/// Has this node take no more messages in. What runs goes on.
#[utoipa::path(post, path = "/consumer/pause", tag = "machinery",
    responses((status = 200, description = "Paused", body = ConsumerStatus), VerbProblems))]
async fn pause_consumer(
    State(app): State<App>,
    caller: Caller,
    Query(NoParameters): Query<NoParameters>,
    VerbBody(_): VerbBody,
) -> Answer<Json<ConsumerStatus>> {
    let consumer = operated(&app, &caller)?;
    consumer.pause();
    Ok(Json(consumer.status()))
}

/// Lets this node take messages in again.
#[utoipa::path(post, path = "/consumer/resume", tag = "machinery",
    responses((status = 200, description = "Goes on", body = ConsumerStatus), VerbProblems))]
async fn resume_consumer(
    State(app): State<App>,
    caller: Caller,
    Query(NoParameters): Query<NoParameters>,
    VerbBody(_): VerbBody,
) -> Answer<Json<ConsumerStatus>> {
    let consumer = operated(&app, &caller)?;
    consumer.resume();
    Ok(Json(consumer.status()))
}

fn operated<'a>(app: &'a App, caller: &Caller) -> Answer<&'a Arc<dyn Consumer>> {
    caller.may(Scope::Operate)?;
    caller.may_touch_all()?;
    app.consumer().ok_or_else(|| Problem::new(StatusCode::CONFLICT, "no-consumer", NONE_HERE))
}
