//! What a tenant's newest task is at, and who holds the tenant.

use axum::Json;
use axum::extract::State;
use milepost_core::api::{CheckpointView, LockView, Scope};
use milepost_core::id::Tenant;
use milepost_core::task::TaskView;
use milepost_store::{StoredTask, TaskQuery, TasksOf};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::names::TenantPath;
use super::responses::ReadProblems;
use super::tasks::checkpoint_of;
use crate::app::App;
use crate::auth::Caller;
use crate::extract::{NoParameters, Path, Query};
use crate::problem::{Answer, Problem};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(tenant_task)).routes(routes!(tenant_checkpoint)).routes(routes!(tenant_lock))
}

/// The tenant's newest task.
#[utoipa::path(get, path = "/tenants/{tenant}/task", tag = "tenants", params(TenantPath),
    responses((status = 200, description = "The task", body = TaskView), ReadProblems))]
async fn tenant_task(
    State(app): State<App>,
    caller: Caller,
    Path(TenantPath { tenant }): Path<TenantPath>,
    Query(NoParameters): Query<NoParameters>,
) -> Answer<Json<TaskView>> {
    let stored = newest(&app, &caller, &tenant).await?;
    Ok(Json(app.task_view(&stored)))
}

/// The checkpoint of the tenant's newest task.
#[utoipa::path(get, path = "/tenants/{tenant}/checkpoint", tag = "tenants", params(TenantPath),
    responses((status = 200, description = "The checkpoint, or that there is none", body = CheckpointView), ReadProblems))]
async fn tenant_checkpoint(
    State(app): State<App>,
    caller: Caller,
    Path(TenantPath { tenant }): Path<TenantPath>,
    Query(NoParameters): Query<NoParameters>,
) -> Answer<Json<CheckpointView>> {
    let stored = newest(&app, &caller, &tenant).await?;
    Ok(Json(checkpoint_of(&stored)))
}

/// Who holds the tenant.
#[utoipa::path(get, path = "/tenants/{tenant}/lock", tag = "tenants", params(TenantPath),
    responses((status = 200, description = "The lock", body = LockView), ReadProblems))]
async fn tenant_lock(
    State(app): State<App>,
    caller: Caller,
    Path(TenantPath { tenant }): Path<TenantPath>,
    Query(NoParameters): Query<NoParameters>,
) -> Answer<Json<LockView>> {
    caller.may(Scope::Read)?;
    caller.may_touch(Some(&tenant))?;
    let locks = app.store().locks().await?;
    let lock = locks.iter().find(|lock| lock.tenant == tenant);
    let lock = lock.ok_or_else(|| Problem::not_found("lock on tenant", tenant.as_str()))?;
    Ok(Json(LockView::from(lock)))
}

async fn newest(app: &App, caller: &Caller, tenant: &Tenant) -> Answer<StoredTask> {
    caller.may(Scope::Read)?;
    caller.may_touch(Some(tenant))?;
    let of = TasksOf::Tenant(tenant.clone());
    let newest = app.store().tasks(TaskQuery { of, statuses: Vec::new(), after: None, limit: 1 }).await?;
    let missing = || Problem::not_found("task of tenant", tenant.as_str());
    let row = newest.items.into_iter().next().ok_or_else(missing)?;
    app.store().task(&row.key.id).await?.ok_or_else(missing)
}
