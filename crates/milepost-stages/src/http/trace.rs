//! The W3C `traceparent` header: all requests of a task share a trace, each attempt is a span of its own.

use milepost_core::retry::{draw, seed_of};
use milepost_engine::stage::StageCall;

/// Drawn from names, not from chance: whoever knows the task can find its trace, also after a crash.
pub(super) fn parent(call: &StageCall) -> String {
    let seed = seed_of(call.task.as_str());
    // The suffix of a rollback keeps it apart from the stage it undoes.
    let span = draw(seed, &call.idempotency_key(), u64::from(call.attempt));
    let (high, low) = (draw(seed, "trace", 0), draw(seed, "trace", 1));
    // All zeros would mean that there is none.
    format!("00-{high:016x}{:016x}-{:016x}-01", low.max(1), span.max(1))
}
