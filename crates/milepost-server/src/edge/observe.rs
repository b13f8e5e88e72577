//! A name for each request, a span for it, a count, and a line in the log. Never a body, a query or a token.

use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;

use super::trace;
use crate::app::App;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const LONGEST_ID: usize = 128;

pub(super) async fn observe(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let id = request_id(&request);
    request.headers_mut().insert(REQUEST_ID, id.clone());
    let method = request.method().clone();
    // The route as it is written, not as it is called: ids are no labels.
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("unmatched", MatchedPath::as_str);
    let span = trace::span(&method, route, &id, request.headers());
    let started = Instant::now();
    let mut response = next.run(request).instrument(span.clone()).await;
    let (status, took) = (response.status(), started.elapsed());
    span.record("http.response.status_code", status.as_u16());
    app.metrics().answered(name(&method), route, status.as_u16(), took);
    tell(&method, route, status, took, &id);
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

fn tell(method: &Method, route: &str, status: StatusCode, took: std::time::Duration, id: &HeaderValue) {
    let (status, took_ms) = (status.as_u16(), took.as_secs_f64() * 1000.0);
    let id = id.to_str().unwrap_or_default();
    // What goes well is for those who look closely; what does not, somebody may ask about later.
    match status {
        500.. => tracing::warn!(%method, route, status, took_ms, id, "answered"),
        400..500 => tracing::info!(%method, route, status, took_ms, id, "answered"),
        0..400 => tracing::debug!(%method, route, status, took_ms, id, "answered"),
    }
}

/// The caller's own, if it can go into a log as it is.
fn request_id(request: &Request) -> HeaderValue {
    let harmless = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':' | b'/' | b'=');
    let own = request.headers().get(REQUEST_ID);
    let own = own.filter(|id| !id.is_empty() && id.len() <= LONGEST_ID && id.as_bytes().iter().copied().all(harmless));
    own.cloned()
        .unwrap_or_else(|| HeaderValue::try_from(uuid::Uuid::now_v7().to_string()).expect("a UUID is a header's value"))
}

/// Anybody may make up methods; a label may not grow by them.
fn name(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "HEAD" => "HEAD",
        "OPTIONS" => "OPTIONS",
        _ => "OTHER",
    }
}
