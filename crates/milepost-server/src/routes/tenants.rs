//! What the task of a tenant that matters most is at, and who holds the tenant.

use axum::Json;
use axum::extract::State;
use milepost_core::api::{CheckpointView, LockView, Scope};
use milepost_core::id::Tenant;
use milepost_core::task::TaskView;
use milepost_engine::task_of_tenant;
use milepost_store::StoredTask;
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

/// The tenant's task: the one at work, else one that waits for a person, then for its turn, else the one that ended last.
#[utoipa::path(get, path = "/tenants/{tenant}/task", tag = "tenants", params(TenantPath),
    responses((status = 200, description = "The task", body = TaskView), ReadProblems))]
async fn tenant_task(
    State(app): State<App>,
    caller: Caller,
    Path(TenantPath { tenant }): Path<TenantPath>,
    Query(NoParameters): Query<NoParameters>,
) -> Answer<Json<TaskView>> {
    let stored = task_of(&app, &caller, &tenant).await?;
    Ok(Json(app.task_view(&stored)))
}

/// The checkpoint of the same task.
#[utoipa::path(get, path = "/tenants/{tenant}/checkpoint", tag = "tenants", params(TenantPath),
    responses((status = 200, description = "The checkpoint, or that there is none", body = CheckpointView), ReadProblems))]
async fn tenant_checkpoint(
    State(app): State<App>,
    caller: Caller,
    Path(TenantPath { tenant }): Path<TenantPath>,
    Query(NoParameters): Query<NoParameters>,
) -> Answer<Json<CheckpointView>> {
    let stored = task_of(&app, &caller, &tenant).await?;
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

async fn task_of(app: &App, caller: &Caller, tenant: &Tenant) -> Answer<StoredTask> {
    caller.may(Scope::Read)?;
    caller.may_touch(Some(tenant))?;
    let missing = || Problem::not_found("task of tenant", tenant.as_str());
    let row = task_of_tenant(app.store(), tenant).await?.ok_or_else(missing)?;
    app.store().task(&row.key.id).await?.ok_or_else(missing)
}
