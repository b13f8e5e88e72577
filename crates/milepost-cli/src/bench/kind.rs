//! The stages that benchmarks run: no work of their own, a 64-byte result, and failures on request.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use milepost_core::failure::{ErrorType, Failure};
use milepost_core::task::Outputs;
use milepost_engine::Registry;
use milepost_engine::stage::{Outcome, StageCall, StageKind};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// A result of 64 bytes as JSON.
pub(super) fn result() -> Outputs {
    let result = json!({ "result": "0123456789abcdef0123456789abcdef01234567890123456789" });
    Arc::new(result.as_object().cloned().unwrap_or_default())
}

/// Fails as often as `with.failures` says, then succeeds.
#[derive(Debug)]
struct BenchStage {
    outputs: Outputs,
}

#[async_trait]
impl StageKind for BenchStage {
    async fn run(&self, call: StageCall) -> Outcome {
        let failures = call.with.get("failures").and_then(Value::as_u64).unwrap_or(0);
        if u64::from(call.attempt) <= failures {
            return Outcome::Failure(Failure::retryable(ErrorType::Unavailable, "asked to fail"));
        }
        Outcome::Success { outputs: (*self.outputs).clone() }
    }
}

/// Notes when it started, and never ends.
#[derive(Debug, Default)]
pub(super) struct Endless {
    starts: Mutex<Vec<Instant>>,
    changed: Notify,
}

impl Endless {
    /// When each of the first `count` attempts started.
    pub(super) async fn wait_for(&self, count: usize) -> Vec<Instant> {
        loop {
            let changed = self.changed.notified();
            {
                let starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
                if starts.len() >= count {
                    return starts.clone();
                }
            }
            changed.await;
        }
    }
}

#[async_trait]
impl StageKind for Endless {
    async fn run(&self, call: StageCall) -> Outcome {
        self.starts.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        self.changed.notify_one();
        call.cancel.cancelled().await;
        Outcome::success()
    }
}

pub(super) fn registry() -> Registry {
    Registry::new().with("bench", Arc::new(BenchStage { outputs: result() }))
}
