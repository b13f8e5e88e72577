//! The operator's verbs, on a plan, a task, or a tenant's newest task. Answered once they are durable.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use milepost_core::api::{PlanState, ResetAnswer, Scope, TaskState, VerbAnswer, VerbRequest};
use milepost_core::id::PlanId;
use milepost_engine::{Effect, Target, Verb};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::names::{PlanPath, SignalPath, TaskPath, TenantPath};
use super::responses::VerbProblems;
use crate::app::App;
use crate::auth::Caller;
use crate::body::{self, AnyJson, VerbBody};
use crate::extract::{NoParameters, Path, Query};
use crate::idempotency;
use crate::problem::{Answer, Problem};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().merge(on_plans()).merge(on_tasks()).merge(on_tenants())
}

fn on_plans() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(start_plan))
        .routes(routes!(pause_plan))
        .routes(routes!(resume_plan))
        .routes(routes!(cancel_plan))
        .routes(routes!(retry_plan))
        .routes(routes!(rollback_plan))
        .routes(routes!(reset_failed_of_plan))
}

fn on_tasks() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(pause_task))
        .routes(routes!(resume_task))
        .routes(routes!(cancel_task))
        .routes(routes!(retry_task))
        .routes(routes!(rollback_task))
        .routes(routes!(repair_task))
        .routes(routes!(reset_failed))
        .routes(routes!(signal))
}

fn on_tenants() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(pause_tenant))
        .routes(routes!(resume_tenant))
        .routes(routes!(cancel_tenant))
        .routes(routes!(retry_tenant))
        .routes(routes!(rollback_tenant))
}

/// What may go with any verb but `retry`, for the document.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "what is read is a `VerbRequest`, which has this and more")]
struct VerbWords {
    /// Why, for the log.
    #[schema(max_length = 2000)]
    reason: Option<String>,
    /// Refused if the plan or task is at another version by now.
    expected_version: Option<u64>,
}

/// One verb on one kind of thing.
macro_rules! verb {
    ($name:ident, RETRY, $($rest:tt)*) => {
        verb!(@ $name, RETRY, VerbRequest, $($rest)*);
    };
    ($name:ident, $verb:expr, $($rest:tt)*) => {
        verb!(@ $name, $verb, VerbWords, $($rest)*);
    };
    (@ $name:ident, $verb:expr, $body:ident, $names:ident, $tag:literal, $path:literal, $doc:literal $(,)?) => {
        #[doc = $doc]
        #[utoipa::path(post, path = $path, tag = $tag, params($names),
                    request_body(content = Option<$body>, description = "May be left out"),
                    responses((status = 200, description = "Done, and durable", body = VerbAnswer), VerbProblems))]
        async fn $name(
            State(app): State<App>,
            caller: Caller,
            Path(names): Path<$names>,
            Query(NoParameters): Query<NoParameters>,
            VerbBody(request): VerbBody,
        ) -> Answer<Json<VerbAnswer>> {
            perform(&app, &caller, names.into(), $verb, request).await.map(Json)
        }
    };
}

const RETRY: Verb = Verb::Retry { from_checkpoint: true };

verb!(start_plan, Verb::Start, PlanPath, "plans", "/plans/{id}/start", "Starts a plan.");
verb!(
    pause_plan,
    Verb::Pause,
    PlanPath,
    "plans",
    "/plans/{id}/pause",
    "Pauses a plan: its running tasks at their stage boundary."
);
verb!(resume_plan, Verb::Resume, PlanPath, "plans", "/plans/{id}/resume", "Lets a paused plan go on.");
verb!(
    cancel_plan,
    Verb::Cancel,
    PlanPath,
    "plans",
    "/plans/{id}/cancel",
    "Cancels a plan and whatever of it has not ended."
);
verb!(
    retry_plan,
    RETRY,
    PlanPath,
    "plans",
    "/plans/{id}/retry",
    "Runs the failed and interrupted tasks of a plan again, at once."
);
verb!(
    rollback_plan,
    Verb::Rollback,
    PlanPath,
    "plans",
    "/plans/{id}/rollback",
    "Rolls back the failed and paused tasks of a plan."
);
verb!(pause_task, Verb::Pause, TaskPath, "tasks", "/tasks/{id}/pause", "Pauses a task at its stage boundary.");
verb!(resume_task, Verb::Resume, TaskPath, "tasks", "/tasks/{id}/resume", "Lets a paused or interrupted task go on.");
verb!(cancel_task, Verb::Cancel, TaskPath, "tasks", "/tasks/{id}/cancel", "Cancels a task.");
verb!(
    retry_task,
    RETRY,
    TaskPath,
    "tasks",
    "/tasks/{id}/retry",
    "Runs a failed task again, from its checkpoint unless told otherwise."
);
verb!(
    rollback_task,
    Verb::Rollback,
    TaskPath,
    "tasks",
    "/tasks/{id}/rollback",
    "Undoes what a failed or paused task has done."
);
verb!(
    repair_task,
    Verb::Repair,
    TaskPath,
    "tasks",
    "/tasks/{id}/repair",
    "Ends a damaged task as FAILED, with what could be read of its log kept."
);
verb!(
    pause_tenant,
    Verb::Pause,
    TenantPath,
    "tenants",
    "/tenants/{tenant}/pause",
    "Pauses the tenant's task at its stage boundary."
);
verb!(resume_tenant, Verb::Resume, TenantPath, "tenants", "/tenants/{tenant}/resume", "Lets the tenant's task go on.");
verb!(cancel_tenant, Verb::Cancel, TenantPath, "tenants", "/tenants/{tenant}/cancel", "Cancels the tenant's task.");
verb!(
    retry_tenant,
    RETRY,
    TenantPath,
    "tenants",
    "/tenants/{tenant}/retry",
    "Runs the tenant's task again, from its checkpoint unless told otherwise."
);
verb!(
    rollback_tenant,
    Verb::Rollback,
    TenantPath,
    "tenants",
    "/tenants/{tenant}/rollback",
    "Undoes what the tenant's task has done."
);

/// Makes the failed tasks of a plan PENDING again.
#[utoipa::path(post, path = "/plans/{id}/reset-failed", tag = "plans", params(PlanPath),
    request_body(content = Option<VerbWords>, description = "May be left out"),
    responses((status = 200, description = "How many were reset", body = ResetAnswer), VerbProblems))]
async fn reset_failed_of_plan(
    State(app): State<App>,
    caller: Caller,
    Path(names): Path<PlanPath>,
    Query(NoParameters): Query<NoParameters>,
    VerbBody(request): VerbBody,
) -> Answer<Json<ResetAnswer>> {
    reset(&app, &caller, names.into(), request).await
}

/// Makes a failed task PENDING again, or those of a plan.
///
/// The id may be a plan's or a task's; a plan's wins.
#[utoipa::path(post, path = "/tasks/{id}/reset-failed", tag = "tasks", params(TaskPath),
    request_body(content = Option<VerbWords>, description = "May be left out"),
    responses((status = 200, description = "How many were reset", body = ResetAnswer), VerbProblems))]
async fn reset_failed(
    State(app): State<App>,
    caller: Caller,
    Path(TaskPath { id }): Path<TaskPath>,
    Query(NoParameters): Query<NoParameters>,
    VerbBody(request): VerbBody,
) -> Answer<Json<ResetAnswer>> {
    caller.may(Scope::Operate)?;
    // Ids of both kinds are made alike.
    let target = match PlanId::parse(id.as_str()) {
        Ok(plan) if app.store().plan(&plan).await?.is_some() => Target::Plan(plan),
        Ok(_) | Err(_) => Target::Task(id),
    };
    reset(&app, &caller, target, request).await
}

/// Sends a workflow a signal, which it may be waiting for or ask for later.
///
/// The body is the signal's payload: any JSON, and null when it is left out. A signal that is sent again under its
/// `Idempotency-Key` is not received again: a workflow remembers its last thousand signals.
#[utoipa::path(post, path = "/tasks/{id}/signals/{name}", tag = "tasks",
    params(SignalPath, ("Idempotency-Key" = Option<String>, Header, pattern = r#"^([!#-~]([ -~]{0,253}[!-~])?|"([ !#-\[\]-~]|\\["\\]){1,255}")$"#,
        description = "Names this signal: sent again, it is received once", example = "approval-17")),
    request_body(content = serde_json::Value, description = "The payload; may be left out"),
    responses((status = 200, description = "Received, and durable", body = VerbAnswer), VerbProblems))]
async fn signal(
    State(app): State<App>,
    caller: Caller,
    Path(SignalPath { id, name }): Path<SignalPath>,
    Query(NoParameters): Query<NoParameters>,
    headers: HeaderMap,
    AnyJson(payload): AnyJson,
) -> Answer<Json<VerbAnswer>> {
    caller.may(Scope::Operate)?;
    allowed(&app, &caller, &Target::Task(id.clone())).await?;
    let status = match idempotency::key(&headers)? {
        Some(key) => app.engine().signal_under(key, &id, name, payload, caller.by(None)).await?,
        None => app.engine().signal(&id, name, payload, caller.by(None)).await?,
    };
    let effect = Effect::on_task(id.clone(), status);
    describe(&app, id.to_string(), "signal", effect).await.map(Json)
}

async fn reset(app: &App, caller: &Caller, target: Target, request: VerbRequest) -> Answer<Json<ResetAnswer>> {
    let effect = operate(app, caller, target, Verb::ResetFailed, request).await?;
    Ok(Json(ResetAnswer { reset: effect.tasks, left: effect.left }))
}

async fn perform(app: &App, caller: &Caller, target: Target, verb: Verb, request: VerbRequest) -> Answer<VerbAnswer> {
    let shown = match &target {
        Target::Plan(id) => id.to_string(),
        Target::Task(id) => id.to_string(),
        Target::Tenant(tenant) => tenant.to_string(),
    };
    let effect = operate(app, caller, target, verb, request).await?;
    describe(app, shown, name(verb), effect).await
}

async fn operate(app: &App, caller: &Caller, target: Target, verb: Verb, request: VerbRequest) -> Answer<Effect> {
    caller.may(Scope::Operate)?;
    allowed(app, caller, &target).await?;
    let verb = told(verb, request.from_checkpoint)?;
    let by = caller.by(request.reason);
    Ok(app.engine().operate_expecting(target, verb, by, request.expected_version).await?)
}

pub(super) async fn allowed(app: &App, caller: &Caller, target: &Target) -> Answer<()> {
    let bound = caller.may_touch_all();
    match target {
        Target::Plan(_) => bound,
        Target::Tenant(tenant) => caller.may_touch(Some(tenant)),
        // Only one who is bound to tenants needs to have the task looked up.
        Target::Task(_) if bound.is_ok() => Ok(()),
        Target::Task(id) => {
            let stored = app.store().task(id).await?;
            let stored = stored.ok_or_else(|| Problem::not_found("task", id.as_str()))?;
            caller.may_touch(stored.task.spec().tenant.as_ref())
        }
    }
}

/// The verb with what the request says of it.
fn told(verb: Verb, from_checkpoint: Option<bool>) -> Answer<Verb> {
    match (verb, from_checkpoint) {
        (Verb::Retry { .. }, Some(from_checkpoint)) => Ok(Verb::Retry { from_checkpoint }),
        (verb, None) => Ok(verb),
        (
            Verb::Start | Verb::Pause | Verb::Resume | Verb::Cancel | Verb::Rollback | Verb::ResetFailed | Verb::Repair,
            Some(_),
        ) => Err(body::invalid(format!("`fromCheckpoint` is for `retry`, not for `{}`", name(verb)))),
    }
}

fn name(verb: Verb) -> &'static str {
    match verb {
        Verb::Start => "start",
        Verb::Pause => "pause",
        Verb::Resume => "resume",
        Verb::Cancel => "cancel",
        Verb::Retry { .. } => "retry",
        Verb::Rollback => "rollback",
        Verb::ResetFailed => "reset-failed",
        Verb::Repair => "repair",
    }
}

/// A verb on a task may have changed its plan as well.
async fn describe(app: &App, target: String, verb: &str, effect: Effect) -> Answer<VerbAnswer> {
    let Effect { tasks, plan, task, left } = effect;
    let plan = plan.map(|(id, status)| PlanState { id, status });
    let mut answer = VerbAnswer { target, verb: verb.to_owned(), tasks, plan, task: None, left };
    if let Some((id, status)) = task {
        let stored = app.store().task(&id).await?;
        let pause_requested = stored.as_ref().is_some_and(|stored| stored.task.pause_requested().is_some());
        if let Some(stored) = stored
            && let Some(plan) = app.store().plan(&stored.task.spec().plan).await?
        {
            answer.plan = Some(PlanState { id: plan.id, status: plan.status });
        }
        answer.task = Some(TaskState { id, status, pause_requested });
    }
    Ok(answer)
}
