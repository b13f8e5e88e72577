//! A request's span, for those who collect traces, as a child of the caller's own if they sent a `traceparent`.

use axum::http::{HeaderMap, HeaderValue, Method};
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Its target of its own keeps it from being made unless somebody collects traces.
pub(super) fn span(method: &Method, route: &str, id: &HeaderValue, headers: &HeaderMap) -> Span {
    let span = tracing::trace_span!(
        target: "milepost::trace",
        "request",
        otel.name = %format_args!("{method} {route}"),
        otel.kind = "server",
        http.request.method = %method,
        http.route = route,
        http.response.status_code = tracing::field::Empty,
        milepost.request_id = id.to_str().unwrap_or_default(),
    );
    if !span.is_disabled()
        && let Some(parent) = headers.get("traceparent").and_then(|value| parent(value.to_str().ok()?))
    {
        // Without a collector there is nobody to tell.
        let _ = span.set_parent(Context::new().with_remote_span_context(parent));
    }
    span
}

/// `00-<trace>-<span>-<flags>`; later versions may add to it.
fn parent(text: &str) -> Option<SpanContext> {
    let mut parts = text.trim().split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let good = hex(version, 2) && hex(trace, 32) && hex(span, 16) && hex(flags, 2);
    if !good || version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let context = SpanContext::new(
        TraceId::from_hex(trace).ok()?,
        SpanId::from_hex(span).ok()?,
        TraceFlags::new(u8::from_str_radix(flags, 16).ok()?),
        true,
        TraceState::default(),
    );
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sound_traceparent_makes_a_request_somebodys_child() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = parent(good).unwrap();
        assert!(context.is_sampled() && context.is_remote());
        for bad in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
        ] {
            assert!(parent(bad).is_none(), "{bad}");
        }
    }
}
