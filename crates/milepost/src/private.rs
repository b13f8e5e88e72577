//! What the code that `#[milepost::workflow]` writes calls; not for people.

use milepost_core::failure::{ErrorType, Failure};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use futures::future::BoxFuture;
pub use serde_json::Value;

pub fn input<T: DeserializeOwned>(input: &Value) -> Result<T, Failure> {
    T::deserialize(input)
        .map_err(|error| Failure::fatal(ErrorType::Validation, format!("the workflow cannot read its input: {error}")))
}

pub fn output<T: Serialize, E: Into<Failure>>(result: Result<T, E>) -> Result<Value, Failure> {
    serde_json::to_value(result.map_err(Into::into)?).map_err(|error| {
        Failure::fatal(ErrorType::Persistence, format!("the workflow's result cannot be written as JSON: {error}"))
    })
}
