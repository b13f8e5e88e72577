//! Live progress of a plan or a task, as server-sent events.

use axum::extract::State;
use axum::http::HeaderMap;
use milepost_core::api::{EndMessage, ProblemView, ProgressMessage, Scope, Snapshot, StateMessage};
use milepost_core::id::{PlanId, TaskId};
use milepost_store::Position;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::names::{PlanPath, TaskPath};
use super::responses::ReadProblems;
use crate::app::App;
use crate::auth::Caller;
use crate::extract::{Parameters, Path, Query, Refused, number, once};
use crate::problem::{Answer, Problem};
use crate::sse::{Resume, Stream, Watched};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(plan_stream)).routes(routes!(task_stream))
}

#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
struct From {
    /// What `Last-Event-ID` says, for clients that cannot set it. The header wins.
    #[param(minimum = 0, maximum = 9_223_372_036_854_775_807_i64)]
    after: Option<i64>,
}

impl Parameters for From {
    const NAMES: &'static [&'static str] = &["after"];

    fn take(&mut self, name: &str, value: &str) -> Result<(), Refused> {
        match name {
            "after" => once(&mut self.after, i64::try_from(number(value, 0..=i64::MAX as u64)?).unwrap_or(i64::MAX)),
            _ => Err(Refused::Unknown),
        }
    }
}

/// The data of an event, by the event's name.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes the stream; what is sent is written out piece by piece")]
enum StreamData {
    Snapshot(Snapshot),
    Progress(ProgressMessage),
    State(StateMessage),
    Error(ProblemView),
    End(EndMessage),
}

/// Live progress of a plan.
///
/// First a `snapshot`; then `state` for everything that happens, none left out; `progress` for how far tasks and the
/// plan are, at most four a second of each, the newest counts; `error` if the store is out of reach for a while or the
/// stream cannot go on; and `end` when the plan has ended, after which the server closes. A comment comes every 15
/// seconds.
///
/// The `id` of an event is a place in the store's order. Sent back as `Last-Event-ID`, after a lost connection, a restart
/// or on another node, it brings all that happened since as `state` events, without a gap and without a snapshot, and
/// then goes on live.
#[utoipa::path(
    get,
    path = "/plans/{id}/progress/stream",
    tag = "progress",
    params(
        PlanPath,
        From,
        ("Last-Event-ID" = Option<String>, Header, description = "the `id` of the last event that was seen"),
    ),
    responses(
        (status = 200, description = "events", content_type = "text/event-stream", body = StreamData),
        ReadProblems
    )
)]
async fn plan_stream(
    State(app): State<App>,
    caller: Caller,
    Path(PlanPath { id }): Path<PlanPath>,
    Query(from): Query<From>,
    headers: HeaderMap,
) -> Answer<Stream> {
    caller.may(Scope::Read)?;
    let resume = resume(&from, &headers)?;
    let watched = find_plan(&app, &caller, id.as_str()).await?;
    let watched = watched.ok_or_else(|| Problem::not_found("plan", id.as_str()))?;
    Stream::open(&app, watched, resume).await
}

/// Live progress of a task, or of a plan.
///
/// As for a plan, with what concerns this task alone. If there is a plan of this id, it is that plan's stream.
#[utoipa::path(
    get,
    path = "/tasks/{id}/progress/stream",
    tag = "progress",
    params(
        TaskPath,
        From,
        ("Last-Event-ID" = Option<String>, Header, description = "the `id` of the last event that was seen"),
    ),
    responses(
        (status = 200, description = "events", content_type = "text/event-stream", body = StreamData),
        ReadProblems
    )
)]
async fn task_stream(
    State(app): State<App>,
    caller: Caller,
    Path(TaskPath { id }): Path<TaskPath>,
    Query(from): Query<From>,
    headers: HeaderMap,
) -> Answer<Stream> {
    caller.may(Scope::Read)?;
    let resume = resume(&from, &headers)?;
    let watched = match find_plan(&app, &caller, id.as_str()).await? {
        Some(plan) => Some(plan),
        None => find_task(&app, &caller, id.clone()).await?,
    };
    let watched = watched.ok_or_else(|| Problem::not_found("task or plan", id.as_str()))?;
    Stream::open(&app, watched, resume).await
}

async fn find_plan(app: &App, caller: &Caller, id: &str) -> Answer<Option<Watched>> {
    let Ok(plan) = PlanId::parse(id) else { return Ok(None) };
    if app.store().plan(&plan).await?.is_none() {
        return Ok(None);
    }
    caller.may_touch_all()?;
    Ok(Some(Watched { plan, task: None }))
}

async fn find_task(app: &App, caller: &Caller, task: TaskId) -> Answer<Option<Watched>> {
    let Some(stored) = app.store().task(&task).await? else { return Ok(None) };
    let spec = stored.task.spec();
    caller.may_touch(spec.tenant.as_ref())?;
    Ok(Some(Watched { plan: spec.plan.clone(), task: Some(task) }))
}

fn resume(from: &From, headers: &HeaderMap) -> Answer<Resume> {
    let header = headers.get("last-event-id").map(|value| value.to_str().unwrap_or("?"));
    // Some clients send it empty before they have seen any.
    let Some(given) = header.filter(|text| !text.is_empty()) else {
        return Ok(from.after.map_or(Resume::Fresh, |position| Resume::After(Position(position))));
    };
    match given.parse() {
        Ok(position @ 0..) => Ok(Resume::After(Position(position))),
        Ok(_) | Err(_) => {
            let detail = format!("`{given}` is no position; expected the `id` of an event of this stream");
            Err(Problem::bad_request(detail))
        }
    }
}
