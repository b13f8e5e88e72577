//! Workflows as tests write them: a name and a closure.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use milepost_core::failure::Failure;
use milepost_core::plan::WorkflowRef;
use milepost_engine::Registry;
use milepost_engine::workflow::{Context, Run, TypedWorkflow, Workflow};
use milepost_store::{Resubmit, Start};
use serde_json::Value;

use super::{Node, bounded, task_id};

type Body = Arc<dyn Fn(Context, Value) -> BoxFuture<'static, Result<Value, Failure>> + Send + Sync>;

/// A function under a name.
#[derive(Clone)]
pub(crate) struct Flow {
    name: &'static str,
    body: Body,
}

/// A workflow that takes and gives JSON.
pub(crate) fn flow<F, Fut>(name: &'static str, body: F) -> Flow
where
    F: Fn(Context, Value) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Value, Failure>> + Send + 'static,
{
    Flow { name, body: Arc::new(move |context, input| Box::pin(body(context, input))) }
}

impl Workflow for Flow {
    fn reference(&self) -> WorkflowRef {
        WorkflowRef { name: self.name.into(), version: 1 }
    }

    fn run(&self, context: Context, input: Arc<Value>) -> BoxFuture<'static, Result<Value, Failure>> {
        (self.body)(context, Value::clone(&input))
    }
}

impl TypedWorkflow for Flow {
    type Input = Value;
    type Output = Value;
}

impl Flow {
    pub(crate) fn registry(&self) -> Registry {
        Registry::new().with_workflow(Arc::new(self.clone()))
    }
}

/// What stages did, in order; shared by all who run them.
#[derive(Clone, Default)]
pub(crate) struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    pub(crate) fn note(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    /// The same, as the work of a stage.
    pub(crate) fn noted(&self, line: impl Into<String>) -> Result<(), Failure> {
        self.note(line);
        Ok(())
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Notes a line; how often it has been noted.
    pub(crate) fn count(&self, line: &str) -> usize {
        self.note(line);
        self.lines().iter().filter(|noted| *noted == line).count()
    }
}

impl Node {
    pub(crate) async fn begin(&self, flow: &Flow, id: &str, input: Value) {
        let plan = Run::new(flow.reference(), task_id(id), input).plan();
        self.engine.submit(Arc::new(plan), Start::AtOnce, Resubmit::Same).await.expect("an accepted run");
    }

    /// Runs a workflow to its end; what it returned.
    pub(crate) async fn flow(&self, flow: &Flow, id: &str, input: Value) -> Result<Value, String> {
        self.begin(flow, id, input).await;
        self.outcome(id).await
    }

    pub(crate) async fn outcome(&self, id: &str) -> Result<Value, String> {
        bounded("the workflow's end", self.ended(id)).await;
        let task = self.task(id).await;
        let outcome = milepost_engine::workflow::outcome(&task).expect("an ended workflow");
        outcome.map_err(|cause| cause.reason)
    }

    pub(crate) async fn signal(&self, id: &str, name: &str, payload: Value) {
        let by = milepost_core::task::By::new("tester");
        let name = milepost_core::id::StageName::parse(name).unwrap();
        bounded("an answer", self.engine.signal(&task_id(id), name, payload, by)).await.expect("a signal");
    }

    /// The log without what tells one process from another.
    pub(crate) async fn history(&self, id: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for line in self.log(id).await {
            let repeats = line.starts_with("STAGE_STARTED") && lines.contains(&line);
            if line != "TASK_INTERRUPTED" && !repeats && !(line == "TASK_STARTED" && lines.contains(&line)) {
                lines.push(line);
            }
        }
        lines
    }
}
