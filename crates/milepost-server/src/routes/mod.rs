//! The routes, and the document that describes them.

mod consumer;
mod dead_letters;
mod document;
mod fallback;
mod health;
mod machinery;
mod names;
mod plans;
mod publish;
mod responses;
mod stream;
mod submit;
mod tasks;
mod tenants;
mod tokens;
mod verbs;

use axum::Router;
use utoipa_axum::router::OpenApiRouter;

use crate::app::App;

/// Everything under one roof, with the document served beside it.
pub(crate) fn router(app: App) -> Router {
    let document = document::Document::default();
    let v1 = OpenApiRouter::new()
        .merge(submit::routes())
        .merge(plans::routes())
        .merge(tasks::routes())
        .merge(tenants::routes())
        .merge(stream::routes())
        .merge(verbs::routes())
        .merge(publish::routes())
        .merge(dead_letters::routes())
        .merge(consumer::routes())
        .merge(machinery::routes())
        .merge(tokens::routes())
        .merge(document::routes(&document));
    let all = OpenApiRouter::with_openapi(document::blank()).merge(health::routes()).nest("/api/v1", v1);
    let (router, api) = all.split_for_parts();
    document.finish(&api, app.settings());
    router.fallback(fallback::unknown_route).method_not_allowed_fallback(fallback::unknown_method).with_state(app)
}
