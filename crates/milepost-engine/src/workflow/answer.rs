//! Results on their way into the log and out of it again.

use milepost_core::failure::{ErrorType, Failure};
use milepost_core::task::{Answer, StageResult, outputs_of};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::attempt::within_limit;

/// What the function gets: the same whether the stage has just ended or ended in another process.
pub(crate) fn read<T: DeserializeOwned>(stage: &str, answer: Answer) -> Result<T, Failure> {
    match answer {
        Answer::Failure(failure) => Err(failure),
        Answer::Value(value) => serde_json::from_value(value).map_err(|error| {
            let reason = format!("the recorded result of `{stage}` cannot be read: {error}");
            Failure::fatal(ErrorType::Determinism, reason)
        }),
    }
}

pub(crate) fn record<T: Serialize>(result: Result<T, Failure>) -> StageResult {
    match result.and_then(|value| to_value(&value)) {
        Ok(value) => within_limit(outputs_of(value)),
        Err(failure) => StageResult::Failure(failure),
    }
}

pub(crate) fn to_value<T: Serialize>(value: &T) -> Result<Value, Failure> {
    let unfit = |error: serde_json::Error| {
        Failure::fatal(ErrorType::Persistence, format!("it cannot be written as JSON: {error}"))
    };
    serde_json::to_value(value).map_err(unfit)
}

/// Tells one input from another; the same on any machine, as long as it is written the same.
pub(crate) fn digest(value: &Value) -> u64 {
    milepost_core::retry::seed_of(&value.to_string())
}
