//! A workflow that waits for a signal and returns what came with it.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use milepost_core::failure::Failure;
use milepost_core::plan::WorkflowRef;
use milepost_engine::workflow::{Context, Workflow};
use serde_json::Value;

pub(crate) struct Waits;

impl Workflow for Waits {
    fn reference(&self) -> WorkflowRef {
        WorkflowRef { name: "waits".into(), version: 1 }
    }

    fn run(&self, context: Context, _input: Arc<Value>) -> BoxFuture<'static, Result<Value, Failure>> {
        async move { context.signal::<Value>("go").await }.boxed()
    }
}
