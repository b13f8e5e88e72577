//! The stage that benchmarks run: no work of its own, a 64-byte result, and failures on request.

use std::sync::Arc;

use async_trait::async_trait;
use milepost_core::failure::{ErrorType, Failure};
use milepost_engine::Registry;
use milepost_engine::stage::{Outcome, StageCall, StageKind};
use serde_json::{Map, Value, json};

/// Fails as often as `with.failures` says, then succeeds.
#[derive(Debug)]
struct BenchStage {
    outputs: Map<String, Value>,
}

#[async_trait]
impl StageKind for BenchStage {
    async fn run(&self, call: StageCall) -> Outcome {
        let failures = call.with.get("failures").and_then(Value::as_u64).unwrap_or(0);
        if u64::from(call.attempt) <= failures {
            return Outcome::Failure(Failure::retryable(ErrorType::Unavailable, "asked to fail"));
        }
        Outcome::Success { outputs: self.outputs.clone() }
    }
}

pub(super) fn registry() -> Registry {
    // 64 bytes as JSON.
    let result = json!({ "result": "0123456789abcdef0123456789abcdef01234567890123456789" });
    let outputs = result.as_object().cloned().unwrap_or_default();
    Registry::new().with("bench", Arc::new(BenchStage { outputs }))
}
