//! What was given up: listed, looked at, and put back, not too many at a time.

use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use milepost_core::api::{DeadLetterView, List, RedriveAnswer, Scope, TaskState};
use milepost_core::id::TaskId;
use milepost_store::{Book, EntryQuery, StoreError};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::names::LetterPath;
use super::responses::{ListProblems, ReadProblems, VerbProblems};
use crate::app::App;
use crate::auth::Caller;
use crate::body::VerbBody;
use crate::cursor;
use crate::extract::{NoParameters, Parameters, Path, Query, Refused, number, once};
use crate::limits::CallerKey;
use crate::problem::{Answer, Problem};

const DEFAULT_PAGE: usize = 50;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(dead_letters)).routes(routes!(dead_letter)).routes(routes!(redrive))
}

#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
struct LetterList {
    /// Dead letters to a page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<usize>,
    /// Where the page begins: `nextCursor` of the one before.
    #[param(pattern = "^[0-7][0-9a-f]{15}$", value_type = Option<String>)]
    cursor: Option<i64>,
}

impl Parameters for LetterList {
    const NAMES: &'static [&'static str] = &["limit", "cursor"];

    fn take(&mut self, name: &str, value: &str) -> Result<(), Refused> {
        match name {
            "limit" => once(&mut self.limit, number(value, 1..=500)? as usize),
            "cursor" => once(&mut self.cursor, cursor::read(value)?),
            _ => Err(Refused::Unknown),
        }
    }
}

/// What was given up and not put back, oldest first.
#[utoipa::path(get, path = "/dead-letters", tag = "dead letters", params(LetterList),
    responses((status = 200, description = "A page of dead letters", body = List<DeadLetterView>), ListProblems))]
async fn dead_letters(
    State(app): State<App>,
    caller: Caller,
    Query(asked): Query<LetterList>,
) -> Answer<Json<List<DeadLetterView>>> {
    caller.may(Scope::Read)?;
    caller.may_touch_all()?;
    let query = EntryQuery {
        book: Book::DeadLetters,
        after: asked.cursor,
        limit: asked.limit.unwrap_or(DEFAULT_PAGE),
        now: app.engine().clock().now(),
    };
    let page = app.store().entries(query).await?;
    let items = page.items.iter().map(DeadLetterView::try_from).collect::<Result<_, StoreError>>()?;
    Ok(Json(List { items, next_cursor: page.next.map(cursor::write) }))
}

/// One dead letter.
#[utoipa::path(get, path = "/dead-letters/{id}", tag = "dead letters", params(LetterPath),
    responses((status = 200, description = "The dead letter", body = DeadLetterView), ReadProblems))]
async fn dead_letter(
    State(app): State<App>,
    caller: Caller,
    Path(LetterPath { id }): Path<LetterPath>,
    Query(NoParameters): Query<NoParameters>,
) -> Answer<Json<DeadLetterView>> {
    caller.may(Scope::Read)?;
    Ok(Json(found(&app, &caller, &id).await?))
}

/// Puts a dead letter back, and strikes it.
///
/// A task goes on from its checkpoint under a new message id; a message that no task could use is published again.
#[utoipa::path(post, path = "/dead-letters/{id}/redrive", tag = "dead letters", params(LetterPath),
    responses((status = 200, description = "Put back, and durable", body = RedriveAnswer), VerbProblems))]
async fn redrive(
    State(app): State<App>,
    caller: Caller,
    Path(LetterPath { id }): Path<LetterPath>,
    Query(NoParameters): Query<NoParameters>,
    VerbBody(request): VerbBody,
) -> Answer<Json<RedriveAnswer>> {
    caller.may(Scope::Operate)?;
    found(&app, &caller, &id).await?;
    not_too_many(&app)?;
    let redriven = app.engine().redrive(&id, caller.by(request.reason)).await?;
    let task = redriven.task.map(|(id, status)| TaskState { id, status, pause_requested: false });
    Ok(Json(RedriveAnswer { id, message_id: redriven.message_id, task }))
}

/// A letter that the caller may see: one of their tenants' tasks, or any.
async fn found(app: &App, caller: &Caller, id: &str) -> Answer<DeadLetterView> {
    let missing = || Problem::not_found("dead letter", id);
    let entry = app.store().entry(Book::DeadLetters, id, app.engine().clock().now()).await?;
    let letter = DeadLetterView::try_from(&entry.ok_or_else(missing)?)?;
    if caller.may_touch_all().is_err() {
        let task = letter.task_id.as_deref().and_then(|task| TaskId::parse(task).ok());
        let stored = match task {
            Some(task) => app.store().task(&task).await?,
            None => None,
        };
        caller.may_touch(stored.as_ref().and_then(|stored| stored.task.spec().tenant.as_ref()))?;
    }
    Ok(letter)
}

fn not_too_many(app: &App) -> Answer<()> {
    let Some(limit) = app.redrives() else { return Ok(()) };
    limit.take(CallerKey::Crowd, Instant::now()).map_err(|wait| {
        let seconds = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX).saturating_add(1);
        let detail = "too many dead letters are being put back; what failed for a reason would fail together";
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-many-requests", detail).retry_after(seconds)
    })
}
