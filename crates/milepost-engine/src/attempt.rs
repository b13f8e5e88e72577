//! One attempt at one stage: parameters rendered, time limited, cancellable, and a panic no worse than a failure.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use milepost_core::failure::{ErrorType, Failure};
use milepost_core::plan::Action;
use milepost_core::task::{StageResult, Task};
use milepost_core::template;
use milepost_core::time::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::files::TaskFile;
use crate::registry::Registry;
use crate::report::AttemptReport;
use crate::stage::{Outcome, Reporter, StageCall, StageKind};

/// How long a cancelled attempt may take to end by itself; then it is dropped where it stands.
pub(crate) const CANCEL_GRACE: Duration = Duration::from_secs(10);
/// The largest result a stage may leave behind.
pub(crate) const MAX_RESULT_BYTES: usize = 1024 * 1024;

/// What a runner needs to know of an attempt that it started.
pub(crate) struct Attempt {
    pub(crate) stage: usize,
    pub(crate) number: u32,
    pub(crate) cancel: CancellationToken,
    pub(crate) report: Arc<AttemptReport>,
    /// A pause or a stop need not wait for it.
    pub(crate) interruptible: bool,
}

/// An attempt that has ended.
pub(crate) struct Ended {
    pub(crate) stage: usize,
    pub(crate) number: u32,
    pub(crate) result: StageResult,
    /// What earlier stages held back has appeared, or could not.
    pub(crate) published: bool,
}

/// Everything an attempt runs with; borrowed from nobody, so that it outlives the decision that started it.
pub(crate) struct Prepared {
    stage: usize,
    number: u32,
    timeout: Option<Duration>,
    cancel: CancellationToken,
    work: Result<Work, Failure>,
}

/// A kind, and what it is called with.
pub(crate) type Work = (Arc<dyn StageKind>, StageCall);

/// What an attempt takes from its node.
pub(crate) struct Means<'a> {
    pub(crate) registry: &'a Registry,
    /// Of the task, among all of its name.
    pub(crate) origin: &'a Arc<str>,
    /// The version at which this node took the task on.
    pub(crate) fence: u64,
    pub(crate) file: Option<&'a TaskFile>,
    pub(crate) now: Timestamp,
}

pub(crate) fn prepare(means: &Means<'_>, task: &Task, attempt: &Attempt, rollback: bool) -> Prepared {
    let (definition, _) = task.stage(attempt.stage);
    let action = match &definition.rollback {
        Some(undo) if rollback => undo,
        Some(_) | None => &definition.action,
    };
    let work = call(means, task, attempt, action, rollback);
    let timeout = definition.timeout.map(|timeout| timeout.as_duration());
    Prepared { stage: attempt.stage, number: attempt.number, timeout, cancel: attempt.cancel.clone(), work }
}

pub(crate) fn call(
    means: &Means<'_>,
    task: &Task,
    attempt: &Attempt,
    action: &Action,
    rollback: bool,
) -> Result<Work, Failure> {
    let spec = task.spec();
    let (definition, _) = task.stage(attempt.stage);
    let unknown = || Failure::fatal(ErrorType::Validation, format!("there is no stage kind `{}`", action.uses));
    let kind = means.registry.get(&action.uses).ok_or_else(unknown)?;
    let with = if template::holds_template(&action.with) {
        template::render_value(&action.with, &task.scope())
            .map_err(|error| Failure::fatal(ErrorType::Validation, error.to_string()))?
    } else {
        action.with.clone()
    };
    let left = task.deadline().map(|deadline| deadline.since(means.now));
    let call = StageCall {
        plan: spec.plan.clone(),
        task: spec.id.clone(),
        tenant: spec.tenant.clone(),
        stage: definition.name.clone(),
        attempt: attempt.number,
        origin: means.origin.clone(),
        run: task.run(),
        fence: means.fence,
        rollback,
        input: spec.input.clone(),
        file: means.file.map(|file| file.until(attempt.cancel.clone())),
        script: action.script.as_deref().map(Into::into),
        with,
        retry: definition.retry.clone(),
        timeout: definition.timeout.into_iter().chain(left).min(),
        cancel: attempt.cancel.clone(),
        reporter: Reporter::new(attempt.report.clone()),
    };
    Ok((kind.clone(), call))
}

impl Prepared {
    /// What undoes a stage is always seen through.
    pub(crate) fn is_interruptible(&self) -> bool {
        self.work.as_ref().is_ok_and(|(kind, call)| !call.rollback && kind.interruptible(&call.with))
    }

    pub(crate) async fn run(self) -> Ended {
        let outcome = match self.work {
            Err(failure) => Outcome::Failure(failure),
            Ok((kind, call)) => {
                // Called inside, so that a kind that panics before it has made its future is caught as well.
                let work = AssertUnwindSafe(async { kind.run(call).await }).catch_unwind();
                let work = work.map(|outcome| outcome.unwrap_or_else(|panic| Outcome::Failure(panicked(&*panic))));
                limit(work, self.timeout, &self.cancel).await
            }
        };
        Ended { stage: self.stage, number: self.number, result: result(outcome), published: false }
    }
}

/// Lets the work run until its time is up; then it is told to end, and dropped if it does not.
pub(crate) async fn limit(
    work: impl Future<Output = Outcome>,
    timeout: Option<Duration>,
    cancel: &CancellationToken,
) -> Outcome {
    let mut work = std::pin::pin!(work);
    // Polled before any timer is made: most stages of a test or a benchmark end at once.
    if let Some(outcome) = work.as_mut().now_or_never() {
        return outcome;
    }
    let time_is_up = async {
        match timeout {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    let failure = tokio::select! {
        biased;
        outcome = &mut work => return outcome,
        () = time_is_up => {
            let limit = milepost_core::time::Millis::new(timeout.unwrap_or_default().as_millis() as u64);
            Failure::retryable(ErrorType::Timeout, format!("did not end within its timeout of {limit}"))
        }
        () = cancel.cancelled() => Failure::fatal(ErrorType::Unknown, "cancelled"),
    };
    cancel.cancel();
    // Its result no longer counts, but what it started must be gone before anything else starts.
    let _ = tokio::time::timeout(CANCEL_GRACE, work).await;
    Outcome::Failure(failure)
}

pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let words = panic.downcast_ref::<&str>().copied();
    let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    Failure::retryable(ErrorType::Unknown, format!("the stage panicked: {words}"))
}

fn result(outcome: Outcome) -> StageResult {
    match outcome {
        Outcome::Success { outputs } => within_limit(outputs),
        Outcome::Skip { reason } => StageResult::Skip(reason),
        Outcome::Failure(failure) => StageResult::Failure(failure),
    }
}

/// A success, unless there is too much of it to keep.
pub(crate) fn within_limit(outputs: serde_json::Map<String, serde_json::Value>) -> StageResult {
    let bytes = size_of_all(&outputs);
    if bytes > MAX_RESULT_BYTES {
        let reason = format!("its result has {bytes} bytes, more than 1 MiB; store it elsewhere and pass a reference");
        return StageResult::Failure(Failure::fatal(ErrorType::Persistence, reason));
    }
    StageResult::Success(outputs)
}

/// As JSON, near enough for a limit, and without writing it out.
pub(crate) fn size(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::Null | serde_json::Value::Bool(_) => 5,
        serde_json::Value::Number(_) => 8,
        serde_json::Value::String(text) => text.len() + 2,
        serde_json::Value::Array(items) => items.iter().map(|item| size(item) + 1).sum::<usize>() + 2,
        serde_json::Value::Object(map) => size_of_all(map) + 2,
    }
}

fn size_of_all(map: &serde_json::Map<String, serde_json::Value>) -> usize {
    map.iter().map(|(key, item)| key.len() + size(item) + 4).sum()
}
