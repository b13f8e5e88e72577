//! Every error is a problem as RFC 9457 has it, also those that the router and the extractors make by themselves.

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::problem::Problem;

/// More words than the router or an extractor uses.
const MOST_WORDS: usize = 4096;

pub(super) async fn tidy(request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    let status = response.status();
    if !(status.is_client_error() || status.is_server_error()) || is_problem(response.headers()) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let words = to_bytes(body, MOST_WORDS).await.ok();
    let words = words.and_then(|words| String::from_utf8(words.to_vec()).ok()).filter(|words| !words.is_empty());
    let (code, detail) = match status {
        StatusCode::NOT_FOUND => ("no-such-route", format!("there is nothing at {path}")),
        StatusCode::METHOD_NOT_ALLOWED => ("method-not-allowed", format!("{path} does not know {method}")),
        StatusCode::PAYLOAD_TOO_LARGE => ("too-large", "the body is larger than this server reads".to_owned()),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ("unsupported-media-type", words.unwrap_or_default()),
        status if status.is_client_error() => ("bad-request", words.unwrap_or_default()),
        _ => ("internal", words.unwrap_or_default()),
    };
    let mut tidied = Problem::new(status, code, detail).into_response();
    if let Some(allow) = parts.headers.get(header::ALLOW) {
        tidied.headers_mut().insert(header::ALLOW, allow.clone());
    }
    tidied
}

fn is_problem(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/problem+json"))
}
