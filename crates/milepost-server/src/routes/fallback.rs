//! Requests that no route takes.

use axum::http::{Method, StatusCode, Uri};

use crate::problem::Problem;

pub(super) async fn unknown_route(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(200).collect();
    let detail = format!("there is nothing at `{path}`; /api/v1/docs lists what there is");
    Problem::new(StatusCode::NOT_FOUND, "unknown-route", detail)
}

/// The header `Allow`, which the router adds, says which methods there are.
pub(super) async fn unknown_method(method: Method) -> Problem {
    let detail = format!("this route does not take {method}; the header `Allow` says what it takes");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", detail)
}
