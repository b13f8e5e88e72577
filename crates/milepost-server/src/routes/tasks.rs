//! Tasks: their state, their log, their checkpoint, and what they printed.

use axum::Json;
use axum::extract::State;
use milepost_core::api::{CheckpointView, Explanation, List, LogView, Scope};
use milepost_core::id::{StageName, TaskId};
use milepost_core::task::{Checkpoint, EventView, TaskView};
use milepost_engine::explain;
use milepost_store::{EventQuery, LogChunk, LogQuery, StoredTask};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::names::TaskPath;
use super::responses::ReadProblems;
use crate::app::App;
use crate::auth::Caller;
use crate::extract::{NoParameters, Parameters, Path, Query, Refused, number, once};
use crate::problem::{Answer, Problem};

/// Events read at a time, and to a page.
const EVENTS: usize = 1000;
/// The largest whole number that every reader of JSON has exactly.
const LARGEST: u64 = (1 << 53) - 1;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(task))
        .routes(routes!(task_events))
        .routes(routes!(task_checkpoint))
        .routes(routes!(task_logs))
        .routes(routes!(task_explain))
}

/// One task.
#[utoipa::path(get, path = "/tasks/{id}", tag = "tasks", params(TaskPath),
    responses((status = 200, description = "The task", body = TaskView), ReadProblems))]
async fn task(
    State(app): State<App>,
    caller: Caller,
    Path(TaskPath { id }): Path<TaskPath>,
    Query(NoParameters): Query<NoParameters>,
) -> Answer<Json<TaskView>> {
    let stored = readable(&app, &caller, &id).await?;
    Ok(Json(app.task_view(&stored)))
}

#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
struct EventList {
    /// Only events of this attempt at a stage.
    #[param(minimum = 1, maximum = 4_294_967_295_i64)]
    attempt: Option<u32>,
    /// Only events with a larger sequence number; `nextCursor` is the one for the next page.
    #[param(minimum = 0, maximum = 9_007_199_254_740_991_i64, default = 0)]
    after: Option<u64>,
    /// Events to a page.
    #[param(minimum = 1, maximum = 1000, default = 1000)]
    limit: Option<usize>,
}

impl Parameters for EventList {
    const NAMES: &'static [&'static str] = &["attempt", "after", "limit"];

    fn take(&mut self, name: &str, value: &str) -> Result<(), Refused> {
        match name {
            "attempt" => once(&mut self.attempt, attempt(value)?),
            "after" => once(&mut self.after, number(value, 0..=LARGEST)?),
            "limit" => once(&mut self.limit, number(value, 1..=EVENTS as u64)? as usize),
            _ => Err(Refused::Unknown),
        }
    }
}

fn attempt(value: &str) -> Result<u32, Refused> {
    Ok(u32::try_from(number(value, 1..=u32::MAX.into())?).unwrap_or(u32::MAX))
}

/// A task's log, as it was written.
#[utoipa::path(get, path = "/tasks/{id}/events", tag = "tasks", params(TaskPath, EventList),
    responses((status = 200, description = "A page of events", body = List<EventView>), ReadProblems))]
async fn task_events(
    State(app): State<App>,
    caller: Caller,
    Path(TaskPath { id }): Path<TaskPath>,
    Query(asked): Query<EventList>,
) -> Answer<Json<List<EventView>>> {
    let stored = readable(&app, &caller, &id).await?;
    let spec = stored.task.spec();
    let limit = asked.limit.unwrap_or(EVENTS);
    let (mut items, mut after) = (Vec::<EventView>::new(), asked.after.unwrap_or(0));
    loop {
        let found = app.store().events(EventQuery { task: id.clone(), after, limit: EVENTS }).await?;
        let last = found.len() < EVENTS;
        for event in found {
            if items.len() == limit {
                let next_cursor = items.last().map(|event| event.sequence.to_string());
                return Ok(Json(List { items, next_cursor }));
            }
            after = event.sequence;
            let view = EventView::new(&spec.plan, &spec.id, event.sequence, &event.record);
            if asked.attempt.is_none() || view.attempt_number == asked.attempt {
                items.push(view);
            }
        }
        if last {
            return Ok(Json(List { items, next_cursor: None }));
        }
    }
}

/// How far a task has come, as the next attempt would find it.
#[utoipa::path(get, path = "/tasks/{id}/checkpoint", tag = "tasks", params(TaskPath),
    responses((status = 200, description = "The checkpoint, or that there is none", body = CheckpointView), ReadProblems))]
async fn task_checkpoint(
    State(app): State<App>,
    caller: Caller,
    Path(TaskPath { id }): Path<TaskPath>,
    Query(NoParameters): Query<NoParameters>,
) -> Answer<Json<CheckpointView>> {
    let stored = readable(&app, &caller, &id).await?;
    Ok(Json(checkpoint_of(&stored)))
}

/// Why a task is not running.
#[utoipa::path(get, path = "/tasks/{id}/explain", tag = "tasks", params(TaskPath),
    responses((status = 200, description = "The reason, in words and data", body = Explanation), ReadProblems))]
async fn task_explain(
    State(app): State<App>,
    caller: Caller,
    Path(TaskPath { id }): Path<TaskPath>,
    Query(NoParameters): Query<NoParameters>,
) -> Answer<Json<Explanation>> {
    readable(&app, &caller, &id).await?;
    let explanation = explain(app.store(), &id, app.engine().clock().now(), app.engine().recovery()).await?;
    explanation.map(Json).ok_or_else(|| Problem::not_found("task", id.as_str()))
}

pub(super) fn checkpoint_of(stored: &StoredTask) -> CheckpointView {
    let checkpoint = Checkpoint::of(&stored.task);
    CheckpointView { has_checkpoint: checkpoint.is_some(), checkpoint }
}

#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
struct LogFilter {
    /// Only this stage.
    stage: Option<StageName>,
    /// Only this attempt.
    #[param(minimum = 1, maximum = 4_294_967_295_i64)]
    attempt: Option<u32>,
}

impl Parameters for LogFilter {
    const NAMES: &'static [&'static str] = &["stage", "attempt"];

    fn take(&mut self, name: &str, value: &str) -> Result<(), Refused> {
        match name {
            "stage" => {
                let stage = StageName::parse(value).map_err(|error| Refused::Expected(format!("a stage: {error}")))?;
                once(&mut self.stage, stage)
            }
            "attempt" => once(&mut self.attempt, attempt(value)?),
            _ => Err(Refused::Unknown),
        }
    }
}

/// What a task's stages printed, attempt by attempt.
#[utoipa::path(get, path = "/tasks/{id}/logs", tag = "tasks", params(TaskPath, LogFilter),
    responses((status = 200, description = "What was printed", body = List<LogView>), ReadProblems))]
async fn task_logs(
    State(app): State<App>,
    caller: Caller,
    Path(TaskPath { id }): Path<TaskPath>,
    Query(asked): Query<LogFilter>,
) -> Answer<Json<List<LogView>>> {
    let stored = readable(&app, &caller, &id).await?;
    if let Some(stage) = &asked.stage
        && !stored.task.stages().any(|(definition, _)| definition.name == *stage)
    {
        return Err(Problem::not_found(&format!("stage of task {id}"), stage.as_str()));
    }
    let chunks = app.store().logs(LogQuery { task: id, stage: asked.stage, attempt: asked.attempt }).await?;
    let items = together(chunks).iter().map(LogView::from).collect();
    Ok(Json(List { items, next_cursor: None }))
}

/// Pieces of one attempt that follow each other are one.
fn together(chunks: Vec<LogChunk>) -> Vec<LogChunk> {
    let mut joined: Vec<LogChunk> = Vec::new();
    for chunk in chunks {
        match joined.last_mut() {
            Some(last) if last.stage == chunk.stage && last.attempt == chunk.attempt => last.bytes.extend(chunk.bytes),
            Some(_) | None => joined.push(chunk),
        }
    }
    joined
}

/// The task, if there is one and the caller may see it.
async fn readable(app: &App, caller: &Caller, id: &TaskId) -> Answer<StoredTask> {
    caller.may(Scope::Read)?;
    let stored = app.store().task(id).await?;
    let stored = stored.ok_or_else(|| Problem::not_found("task", id.as_str()))?;
    caller.may_touch(stored.task.spec().tenant.as_ref())?;
    Ok(stored)
}
