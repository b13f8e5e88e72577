//! The layers, in their order.
//!
//! Nothing is compressed: answers are small, streams must not wait in a buffer, and compressed secrets leak.

use std::any::Any;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tower_http::catch_panic::CatchPanicLayer;

use super::admit::{Gate, admit};
use super::headers::headers;
use super::observe::observe;
use super::tidy::tidy;
use crate::app::App;
use crate::problem::Problem;

/// Puts everything around the routes that is the same for all of them. Here the innermost comes first.
pub(crate) fn around(router: Router, app: &App) -> Router {
    router
        .layer(from_fn_with_state(app.clone(), in_time))
        .layer(from_fn_with_state(Gate::new(app.clone()), admit))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn(tidy))
        .layer(from_fn(headers))
        .layer(from_fn_with_state(app.clone(), observe))
}

/// A stream has answered as soon as it begins, and may go on for as long as it likes.
async fn in_time(State(app): State<App>, request: Request, next: Next) -> Response {
    match tokio::time::timeout(app.settings().request_timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = "the request took too long; what it asked for may have been done all the same";
            Problem::new(StatusCode::GATEWAY_TIMEOUT, "timed-out", detail).into_response()
        }
    }
}

fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let words = panic.downcast_ref::<&str>().copied();
    let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    tracing::error!(panic = words, "a request made the server panic");
    // What it says is for the log: it may hold anything.
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "this is a mistake of Milepost's; its log says more")
        .into_response()
}
