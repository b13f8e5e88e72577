//! The message that a task waits for, sent by way of the outbox.

use axum::Json;
use axum::extract::State;
use milepost_core::api::{PublishAnswer, PublishRequest, Scope};
use milepost_core::time::Millis;
use milepost_engine::Target;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::names::TaskPath;
use super::responses::VerbProblems;
use super::verbs::allowed;
use crate::app::App;
use crate::auth::Caller;
use crate::body::{self, MaybeObject};
use crate::extract::{NoParameters, Path, Query};
use crate::problem::{Answer, Problem};

/// Longer than any topic keeps its messages.
const LONGEST_DEADLINE: Millis = Millis::from_secs(365 * 24 * 3600);

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(publish))
}

/// Sends a task the message that it waits for.
///
/// For a task of a plan with `trigger: message`. The message is durable with the answer, and published from the outbox
/// by a node with `serve --kafka`.
#[utoipa::path(post, path = "/tasks/{id}/publish", tag = "tasks", params(TaskPath),
    request_body(content = Option<PublishRequest>, description = "May be left out"),
    responses((status = 200, description = "In the outbox, and durable", body = PublishAnswer), VerbProblems))]
async fn publish(
    State(app): State<App>,
    caller: Caller,
    Path(TaskPath { id }): Path<TaskPath>,
    Query(NoParameters): Query<NoParameters>,
    MaybeObject(request): MaybeObject<PublishRequest>,
) -> Answer<Json<PublishAnswer>> {
    caller.may(Scope::Operate)?;
    allowed(&app, &caller, &Target::Task(id.clone())).await?;
    let within = request.deadline.as_deref().map(deadline).transpose()?;
    let ids = app.engine().publish(std::slice::from_ref(&id), within).await?;
    let message_id = ids.into_iter().next().ok_or_else(|| Problem::not_found("task", id.as_str()))?;
    Ok(Json(PublishAnswer { task_id: id, message_id }))
}

fn deadline(text: &str) -> Answer<Millis> {
    let within: Millis = text.parse().map_err(|error| body::invalid(format!("`deadline`: {error}")))?;
    if within == Millis::ZERO || within > LONGEST_DEADLINE {
        return Err(body::invalid(format!("`deadline` is {within}; expected more than 0s and at most a year")));
    }
    Ok(within)
}
