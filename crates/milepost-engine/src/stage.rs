//! The seam to the work itself: a stage kind gets one call per attempt and answers with one outcome.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use milepost_core::failure::Failure;
use milepost_core::id::{PlanId, StageName, TaskId, Tenant};
use milepost_core::retry::RetryPolicy;
use milepost_core::time::Millis;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::files::TaskFile;

/// Something a stage can be: `run`, `http`, `noop`, or what a program registers under a name of its own.
///
/// All stages of one task are polled by that task's own future: a kind that computes for long moves that to
/// `spawn_blocking`, and a kind that starts something outside ends it when `call.cancel` fires.
#[async_trait]
pub trait StageKind: Send + Sync {
    /// Says what is wrong with `with` before a plan is accepted. Templates in it are not rendered yet.
    fn check(&self, with: &Value) -> Result<(), String> {
        let _ = with;
        Ok(())
    }

    async fn run(&self, call: StageCall) -> Outcome;

    /// Whether an attempt with these parameters, rendered, may be ended in the middle when its task is paused or its node
    /// stops, instead of being waited for; it is made again from its start then, under the same number. `call.cancel`
    /// says so. An attempt that ends well all the same has done its work, and is not repeated.
    fn interruptible(&self, with: &Value) -> bool {
        let _ = with;
        false
    }

    /// Whether a stage with these parameters keeps what it makes out of sight until its task completes.
    fn holds_back(&self, with: &Value) -> bool {
        let _ = with;
        false
    }

    /// Lets what a completed stage held back appear: its task is about to complete, and does if this succeeds. A failure
    /// is one of the stage that would have ended the task. Done again after a crash, it must come to the same.
    async fn publish(&self, call: StageCall) -> Result<(), Failure> {
        let _ = call;
        Ok(())
    }

    /// Throws away what a completed stage held back: its task has ended otherwise. The task may be retried all the same;
    /// then `publish` has to make anew what is gone.
    async fn withdraw(&self, call: StageCall) {
        let _ = call;
    }
}

/// One attempt at one stage.
#[derive(Debug, Clone)]
pub struct StageCall {
    pub plan: PlanId,
    pub task: TaskId,
    pub tenant: Option<Tenant>,
    pub stage: StageName,
    /// From 1.
    pub attempt: u32,
    /// Tells the task from any other of its name, here or in another store. The same for all of its stages and runs.
    pub origin: Arc<str>,
    /// From 1. What is done anew after a rollback or from the start is another run.
    pub run: u32,
    /// Grows whenever another node takes the task on: whoever is sent a smaller number than before hears from a node that
    /// has lost the task. Of one task only; numbers of different tasks say nothing about each other.
    pub fence: u64,
    /// True when this call undoes the stage.
    pub rollback: bool,
    pub input: Arc<Value>,
    /// What the task works on, if it has a file; fetched when a stage first asks for its path.
    pub file: Option<TaskFile>,
    /// The shell text of `run:`, verbatim.
    pub script: Option<Arc<str>>,
    /// Parameters, templates rendered.
    pub with: Value,
    pub retry: RetryPolicy,
    /// The attempt's time limit, which the engine enforces; here for kinds that can pass it on. Never more than is left
    /// of the task's own time.
    pub timeout: Option<Millis>,
    /// Fires when the attempt is to end now: timeout, cancel, or the node is going down at once; for a kind that is
    /// interruptible also a pause, and a node that stops in good order.
    pub cancel: CancellationToken,
    pub reporter: Reporter,
}

impl StageCall {
    /// The same for every attempt of one run and no other, so that the other side can tell a repetition from a new
    /// request. What undoes a stage belongs to the run that it undoes.
    pub fn idempotency_key(&self) -> String {
        format!("{}/{}/{}.{}{}", self.task, self.stage, self.origin, self.run, self.suffix())
    }

    /// The same for every attempt of every run: for what a run leaves outside and a later one has to find.
    pub fn name(&self) -> String {
        format!("{}/{}/{}{}", self.task, self.stage, self.origin, self.suffix())
    }

    fn suffix(&self) -> &'static str {
        if self.rollback { "/rollback" } else { "" }
    }

    /// Where the task's file is on this machine, once it is; none if the task has no file.
    pub async fn file_path(&self) -> Result<Option<Arc<Path>>, Failure> {
        match &self.file {
            Some(file) => file.path().await.map(Some),
            None => Ok(None),
        }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Success { outputs: Map<String, Value> },
    Skip { reason: String },
    Failure(Failure),
}

impl Outcome {
    pub fn success() -> Self {
        Outcome::Success { outputs: Map::new() }
    }
}

/// Where an attempt tells how far it is and what it printed, for people to see while it runs.
#[derive(Clone)]
pub struct Reporter {
    sink: Arc<dyn ReportSink>,
}

impl Reporter {
    pub fn new(sink: Arc<dyn ReportSink>) -> Self {
        Self { sink }
    }

    pub fn progress(&self, progress: Progress) {
        self.sink.progress(progress);
    }

    /// Output as it came, in pieces of any size; the sink bounds what it keeps.
    pub fn output(&self, bytes: &[u8]) {
        self.sink.output(bytes);
    }
}

impl std::fmt::Debug for Reporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reporter")
    }
}

/// `done` of `total`; a total of 0 is not known yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    pub done: u64,
    pub total: u64,
}

pub trait ReportSink: Send + Sync {
    fn progress(&self, progress: Progress);
    fn output(&self, bytes: &[u8]);
}
