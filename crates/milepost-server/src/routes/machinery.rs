//! What the work runs on: nodes, and the locks they hold for their tasks.

use axum::Json;
use axum::extract::State;
use milepost_core::api::{List, LockView, NodeView, Scope};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::responses::ListProblems;
use crate::app::App;
use crate::auth::Caller;
use crate::extract::{NoParameters, Query};
use crate::problem::Answer;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(nodes)).routes(routes!(locks))
}

/// The nodes that run tasks: all that were seen of late, where several share the store.
#[utoipa::path(get, path = "/nodes", tag = "machinery",
    responses((status = 200, description = "All nodes", body = List<NodeView>), ListProblems))]
async fn nodes(
    State(app): State<App>,
    caller: Caller,
    Query(NoParameters): Query<NoParameters>,
) -> Answer<Json<List<NodeView>>> {
    caller.may(Scope::Read)?;
    caller.may_touch_all()?;
    let engine = app.engine();
    if app.store().is_shared() {
        let items = app.store().nodes().await?.iter().map(NodeView::from).collect();
        return Ok(Json(List { items, next_cursor: None }));
    }
    let this = NodeView {
        node_id: engine.node().to_owned(),
        boot_id: engine.boot_id().to_owned(),
        started_at: engine.started_at(),
        // It is seen by answering.
        seen_at: engine.clock().now(),
        live: true,
        in_hand: engine.in_hand() as u64,
        capacity: engine.capacity() as u64,
    };
    Ok(Json(List { items: vec![this], next_cursor: None }))
}

/// Tenants that are held, and by which task.
#[utoipa::path(get, path = "/locks", tag = "machinery",
    responses((status = 200, description = "All locks", body = List<LockView>), ListProblems))]
async fn locks(
    State(app): State<App>,
    caller: Caller,
    Query(NoParameters): Query<NoParameters>,
) -> Answer<Json<List<LockView>>> {
    caller.may(Scope::Read)?;
    caller.may_touch_all()?;
    let items = app.store().locks().await?.iter().map(LockView::from).collect();
    Ok(Json(List { items, next_cursor: None }))
}
