//! Plans: their lists, what they are at, and what of them runs.

use axum::Json;
use axum::extract::State;
use futures::StreamExt;
use milepost_core::api::{List, PlanDetail, PlanProgress, PlanReport, PlanView, Scope};
use milepost_core::id::PlanId;
use milepost_core::task::{TaskStatus, TaskView};
use milepost_store::{PlanQuery, PlanRow, TaskQuery, TasksOf, report};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::names::PlanPath;
use super::responses::{ListProblems, ReadProblems};
use crate::app::{self, App};
use crate::auth::Caller;
use crate::cursor;
use crate::extract::{NoParameters, Parameters, Path, Query, Refused, flag, number, once};
use crate::problem::{Answer, Problem};

/// Ids that a plan's own answer has; the list of its tasks has them all.
const MOST_TASK_IDS: usize = 1000;
const DEFAULT_PAGE: usize = 50;
/// Tasks of a page that are read at once.
const READ_AT_ONCE: usize = 16;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_plans))
        .routes(routes!(plan))
        .routes(routes!(plan_tasks))
        .routes(routes!(plan_report))
        .routes(routes!(plan_progress))
}

#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
struct PlanList {
    /// Plans to a page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<usize>,
    /// Where the page begins: `nextCursor` of the one before.
    #[param(pattern = "^[0-7][0-9a-f]{15}$", value_type = Option<String>)]
    cursor: Option<i64>,
    /// Leave out what has ended.
    #[param(default = false)]
    open: Option<bool>,
}

impl Parameters for PlanList {
    const NAMES: &'static [&'static str] = &["limit", "cursor", "open"];

    fn take(&mut self, name: &str, value: &str) -> Result<(), Refused> {
        match name {
            "limit" => once(&mut self.limit, number(value, 1..=500)? as usize),
            "cursor" => once(&mut self.cursor, cursor::read(value)?),
            "open" => once(&mut self.open, flag(value)?),
            _ => Err(Refused::Unknown),
        }
    }
}

/// All plans, newest first.
#[utoipa::path(get, path = "/plans", tag = "plans", params(PlanList),
    responses((status = 200, description = "A page of plans", body = List<PlanView>), ListProblems))]
async fn list_plans(
    State(app): State<App>,
    caller: Caller,
    Query(asked): Query<PlanList>,
) -> Answer<Json<List<PlanView>>> {
    caller.may(Scope::Read)?;
    caller.may_touch_all()?;
    let query = PlanQuery {
        open_only: asked.open.unwrap_or(false),
        after: asked.cursor,
        limit: asked.limit.unwrap_or(DEFAULT_PAGE),
    };
    Ok(Json(cursor::list(app.store().plans(query).await?, |row| PlanView::from(row))))
}

/// One plan, with the ids of its tasks.
///
/// The first thousand ids; `GET /plans/{id}/tasks` has them all.
#[utoipa::path(get, path = "/plans/{id}", tag = "plans", params(PlanPath),
    responses((status = 200, description = "The plan", body = PlanDetail), ReadProblems))]
async fn plan(
    State(app): State<App>,
    caller: Caller,
    Path(PlanPath { id }): Path<PlanPath>,
    Query(NoParameters): Query<NoParameters>,
) -> Answer<Json<PlanDetail>> {
    caller.may(Scope::Read)?;
    caller.may_touch_all()?;
    let row = found(&app, &id).await?;
    let of = TasksOf::Plan(id);
    let limit = usize::try_from(row.counts.total).unwrap_or(usize::MAX).min(MOST_TASK_IDS);
    let query = TaskQuery { of, statuses: Vec::new(), after: None, limit };
    let tasks = app.store().tasks(query).await?.items;
    let task_ids = tasks.into_iter().map(|task| task.key.id).collect();
    Ok(Json(PlanDetail { plan: PlanView::from(&row), task_ids }))
}

#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
struct TaskList {
    /// Only tasks in one of these states, in capitals or small letters; repeated, or with commas in between.
    #[param(style = Form, explode, value_type = Option<Vec<TaskStatus>>)]
    status: Vec<TaskStatus>,
    /// Tasks to a page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<usize>,
    /// Where the page begins: `nextCursor` of the one before.
    #[param(pattern = "^[0-7][0-9a-f]{15}$", value_type = Option<String>)]
    cursor: Option<i64>,
}

impl Parameters for TaskList {
    const NAMES: &'static [&'static str] = &["status", "limit", "cursor"];

    fn take(&mut self, name: &str, value: &str) -> Result<(), Refused> {
        match name {
            "status" => {
                for status in value.split(',') {
                    self.status.push(task_status(status)?);
                }
                Ok(())
            }
            "limit" => once(&mut self.limit, number(value, 1..=500)? as usize),
            "cursor" => once(&mut self.cursor, cursor::read(value)?),
            _ => Err(Refused::Unknown),
        }
    }
}

fn task_status(text: &str) -> Result<TaskStatus, Refused> {
    let known = TaskStatus::ALL.iter().copied().find(|status| status.as_str().eq_ignore_ascii_case(text));
    known.ok_or_else(|| {
        let all: Vec<&str> = TaskStatus::ALL.iter().map(|status| status.as_str()).collect();
        Refused::Expected(format!("one of {}", all.join(", ")))
    })
}

/// The tasks of a plan, each in full, in the order of the plan.
#[utoipa::path(get, path = "/plans/{id}/tasks", tag = "plans", params(PlanPath, TaskList),
    responses((status = 200, description = "A page of tasks", body = List<TaskView>), ReadProblems))]
async fn plan_tasks(
    State(app): State<App>,
    caller: Caller,
    Path(PlanPath { id }): Path<PlanPath>,
    Query(asked): Query<TaskList>,
) -> Answer<Json<List<TaskView>>> {
    caller.may(Scope::Read)?;
    caller.may_touch_all()?;
    found(&app, &id).await?;
    let limit = asked.limit.unwrap_or(DEFAULT_PAGE);
    let query = TaskQuery { of: TasksOf::Plan(id), statuses: asked.status, after: asked.cursor, limit };
    let page = app.store().tasks(query).await?;
    let ids = page.items.into_iter().map(|row| row.key.id);
    let read = ids.map(|id| {
        let app = &app;
        async move { app.store().task(&id).await }
    });
    let mut stored = futures::stream::iter(read).buffered(READ_AT_ONCE);
    let mut items = Vec::new();
    while let Some(task) = stored.next().await {
        // It may have been removed between the two questions.
        items.extend(task?.as_ref().map(|stored| app.task_view(stored)));
    }
    Ok(Json(List { items, next_cursor: page.next.map(cursor::write) }))
}

/// What of a plan runs, what waits, and what failed.
///
/// Up to twenty tasks of each; the same as `milepost status PLAN --json`.
#[utoipa::path(get, path = "/plans/{id}/report", tag = "plans", params(PlanPath),
    responses((status = 200, description = "The plan and its tasks of interest", body = PlanReport), ReadProblems))]
async fn plan_report(
    State(app): State<App>,
    caller: Caller,
    Path(PlanPath { id }): Path<PlanPath>,
    Query(NoParameters): Query<NoParameters>,
) -> Answer<Json<PlanReport>> {
    caller.may(Scope::Read)?;
    caller.may_touch_all()?;
    let row = found(&app, &id).await?;
    let progress = app::plan_progress(app.engine(), &row).await?;
    let mut report = report::plan_report(app.store(), &row, &progress).await?;
    report.running = report.running.into_iter().map(|task| app.engine().live_view(task)).collect();
    Ok(Json(report))
}

/// How far a plan is: one reading.
///
/// Rates are those of the last few seconds. They come from the node that runs a task; another one learns them by looking
/// again, and leaves them out the first time.
/// The plan's `etaSeconds` takes what is left of the tasks that run, and for each that waits as long as its completed
/// tasks took on average, shared among as many as run at once; it is left out while nothing can be said.
#[utoipa::path(get, path = "/plans/{id}/progress", tag = "plans", params(PlanPath),
    responses((status = 200, description = "How far it is", body = PlanProgress), ReadProblems))]
async fn plan_progress(
    State(app): State<App>,
    caller: Caller,
    Path(PlanPath { id }): Path<PlanPath>,
    Query(NoParameters): Query<NoParameters>,
) -> Answer<Json<PlanProgress>> {
    caller.may(Scope::Read)?;
    caller.may_touch_all()?;
    let row = found(&app, &id).await?;
    Ok(Json(app::plan_progress(app.engine(), &row).await?))
}

async fn found(app: &App, id: &PlanId) -> Answer<PlanRow> {
    app.store().plan(id).await?.ok_or_else(|| Problem::not_found("plan", id.as_str()))
}
