//! The world outside: what stages do there is counted, and looked at the moment it is done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use milepost_core::failure::{ErrorType, Failure};
use milepost_core::id::TaskId;
use milepost_engine::stage::{Outcome, Progress, StageCall, StageKind};
use serde_json::{Map, Value, json};

use crate::shared::Shared;
use crate::watch::Start;

/// What a stage says that panics on purpose.
pub(crate) const TOLD_TO: &str = "the stage was told to";

/// The longest that a stage hangs which nothing ends.
const HANGS_FOR: Duration = Duration::from_secs(30);
/// Longer than a cancelled attempt is given to end.
const DEAF_FOR: Duration = Duration::from_secs(12);

/// The world outside, as one process reaches it.
pub(crate) struct Outside {
    pub(crate) shared: Arc<Shared>,
    pub(crate) process: usize,
    /// How much faster everything goes than it is written here.
    pace: u32,
    /// How often each stage was executed, by whomever.
    executed: Arc<Mutex<BTreeMap<(TaskId, String), u64>>>,
}

impl Outside {
    pub(crate) fn new(shared: Arc<Shared>, pace: u32) -> Self {
        Self { shared, process: 0, pace, executed: Arc::default() }
    }

    /// The same world, reached by another process.
    pub(crate) fn from(&self, process: usize) -> Arc<Self> {
        let (shared, executed) = (self.shared.clone(), self.executed.clone());
        Arc::new(Self { shared, process, pace: self.pace, executed })
    }

    fn execution(&self, task: &TaskId, stage: &str) -> u64 {
        let mut executed = self.executed();
        let count = executed.entry((task.clone(), stage.to_owned())).or_default();
        *count += 1;
        *count
    }

    fn executed(&self) -> MutexGuard<'_, BTreeMap<(TaskId, String), u64>> {
        self.executed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn undone(&self, task: &TaskId, stage: &str) {
        self.shared.say(&format!("#{}", self.process), || format!("undoes {task} {stage} outside"));
    }

    pub(crate) async fn stage_of_flow(
        self: &Arc<Self>,
        task: &TaskId,
        stage: &str,
        with: &Value,
    ) -> Result<Value, Failure> {
        let execution = self.execution(task, stage);
        self.shared.say(&format!("#{}", self.process), || format!("begins {task} {stage} outside"));
        let wait = Duration::from_millis(with["ms"].as_u64().unwrap_or_default());
        let fails = execution <= with["times"].as_u64().unwrap_or_default();
        match with["how"].as_str() {
            Some("fails") if fails => {
                pass(wait).await;
                Err(Failure::retryable(ErrorType::Network, "it failed"))
            }
            Some("fatal") => Err(Failure::fatal(ErrorType::Business, "it failed for good")),
            Some("hangs") if fails => {
                tokio::time::sleep(HANGS_FOR / self.pace).await;
                Ok(json!(execution))
            }
            _ => {
                pass(wait).await;
                Ok(json!(execution))
            }
        }
    }
}

async fn pass(wait: Duration) {
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
}

/// `uses: work`: does what its parameters say.
pub(crate) struct Work(pub(crate) Arc<Outside>);

#[async_trait]
impl StageKind for Work {
    async fn run(&self, call: StageCall) -> Outcome {
        let outside = &self.0;
        let execution = outside.execution(&call.task, call.stage.as_str());
        let start = Start {
            process: outside.process,
            task: call.task.clone(),
            stage: call.stage.clone(),
            attempt: call.attempt,
            rollback: call.rollback,
            fence: call.fence,
            key: call.idempotency_key(),
        };
        let running = Running { outside: outside.clone(), start };
        outside.shared.attempt_starts(&running.start).await;
        call.reporter.progress(Progress { done: 1, total: 2 });
        let wait = Duration::from_millis(call.with["ms"].as_u64().unwrap_or_default());
        let fails = u64::from(call.attempt) <= call.with["times"].as_u64().unwrap_or_default();
        match call.with["how"].as_str() {
            Some("fails") if fails => {
                pass(wait).await;
                Outcome::Failure(Failure::retryable(ErrorType::Network, "it failed"))
            }
            Some("fatal") => Outcome::Failure(Failure::fatal(ErrorType::Business, "it failed for good")),
            Some("skips") => Outcome::Skip { reason: "nothing to do".to_owned() },
            Some("panics") if fails => std::panic::panic_any(TOLD_TO),
            Some("hangs") if fails => {
                tokio::select! {
                    biased;
                    () = call.cancel.cancelled() => {}
                    () = tokio::time::sleep(HANGS_FOR / outside.pace) => {}
                }
                done(execution)
            }
            Some("deaf") => {
                tokio::time::sleep(DEAF_FOR / outside.pace).await;
                done(execution)
            }
            Some("slow") => {
                pass(wait * 4).await;
                done(execution)
            }
            _ => {
                pass(wait).await;
                done(execution)
            }
        }
    }

    fn interruptible(&self, with: &Value) -> bool {
        with["how"] == "hangs"
    }
}

fn done(execution: u64) -> Outcome {
    let mut outputs = Map::new();
    outputs.insert("execution".to_owned(), json!(execution));
    Outcome::Success { outputs }
}

/// Ends with the attempt, however that ends.
struct Running {
    outside: Arc<Outside>,
    start: Start,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.outside.shared.attempt_ends(&self.start);
    }
}
