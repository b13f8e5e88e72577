//! The seam to the user's function.

use std::sync::Arc;

use futures::future::BoxFuture;
use milepost_core::failure::Failure;
use milepost_core::plan::WorkflowRef;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::context::Context;

/// A function that a node can run, by name and version. `#[milepost::workflow]` makes one of an async fn.
pub trait Workflow: Send + Sync {
    fn reference(&self) -> WorkflowRef;

    /// Called at the start, and again after every restart: everything it does to the outside is a stage.
    fn run(&self, context: Context, input: Arc<Value>) -> BoxFuture<'static, Result<Value, Failure>>;
}

/// The same with the types that people see.
pub trait TypedWorkflow: Workflow {
    type Input: Serialize + DeserializeOwned + Send;
    type Output: Serialize + DeserializeOwned + Send;
}
