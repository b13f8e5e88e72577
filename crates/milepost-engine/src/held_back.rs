//! What stages hold back until their task completes: shown just before that is written, thrown away if it never is.
//!
//! A crash can come anywhere in this:
//! - Before anything has appeared: the stage that would have ended the task is still running in the log. It is run again
//!   here or elsewhere, and everything is published after it.
//! - When some or all has appeared, and the end of the task is not written: the same, so publishing is repeated. That is
//!   why kinds have to come to the same result when they publish again.
//! - When the end is written: nothing is left to do. What could be seen before was complete, and nothing can be seen of a
//!   task that did not get as far as its last stage's success.
//! - While things are thrown away, after the end of a task that failed was written: what is left stays out of sight.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::failure::Failure;
use milepost_core::task::{Command, StageEnded, StageResult, StageStatus, Task, TaskStatus, decide};
use tokio_util::sync::CancellationToken;

use crate::attempt::{Attempt, Ended, Means, Work, call, limit};
use crate::engine::Inner;
use crate::files::TaskFile;
use crate::report::AttemptReport;
use crate::runner::Runner;
use crate::stage::Outcome;

/// How long throwing things away may keep a task's place.
const WITHDRAW_WITHIN: Duration = Duration::from_secs(30);
/// The longest wait between two tries to publish for a task that has completed already.
const LATE_WITHIN: Duration = Duration::from_secs(60);

impl Runner {
    /// Gives an attempt back unless it would complete the task and something has to appear before that.
    pub(crate) fn publish_first(&mut self, ended: Ended) -> Option<Ended> {
        let good = matches!(ended.result, StageResult::Success(_) | StageResult::Skip(_));
        if !self.holds_back || !good || ended.published {
            return Some(ended);
        }
        let Some(completed) = self.completed_by(&ended) else { return Some(ended) };
        let Some(attempt) = self.attempts.iter_mut().find(|attempt| attempt.stage == ended.stage) else {
            return Some(ended);
        };
        // The stage itself is over, and what appears appears as a whole.
        attempt.interruptible = false;
        let cancel = attempt.cancel.clone();
        let work = held_back(&self.means(), &completed, &cancel);
        let timeout = self.task.stage(ended.stage).0.timeout.map(|timeout| timeout.as_duration());
        self.running.push(Box::pin(async move {
            let published = async {
                match publish(work).await {
                    Ok(()) => Outcome::success(),
                    Err(failure) => Outcome::Failure(failure),
                }
            };
            let result = match limit(published, timeout, &cancel).await {
                Outcome::Failure(failure) => StageResult::Failure(failure),
                Outcome::Success { .. } | Outcome::Skip { .. } => ended.result,
            };
            Ended { result, published: true, ..ended }
        }));
        None
    }

    /// The task as it would be with this result, if that completes it.
    fn completed_by(&self, ended: &Ended) -> Option<Task> {
        let command = Command::StageEnded(StageEnded {
            stage: ended.stage,
            attempt: ended.number,
            result: ended.result.clone(),
            stopping: false,
        });
        let decision = decide(&self.task, command, self.inner.clock.now()).ok()?;
        (decision.task.status() == TaskStatus::Completed).then_some(decision.task)
    }

    /// The task is no longer here. If it has ended and not completed, what it held back goes.
    pub(crate) async fn withdraw(&mut self) {
        let status = self.task.status();
        if !self.holds_back || !status.is_ended() || status == TaskStatus::Completed {
            return;
        }
        let work = held_back(&self.means(), &self.task, &CancellationToken::new());
        let withdrawn = async {
            for (kind, call) in work.into_iter().flatten() {
                kind.withdraw(call).await;
            }
        };
        if tokio::time::timeout(WITHDRAW_WITHIN, withdrawn).await.is_err() {
            tracing::warn!(task = %self.key.id, "what the task held back could not be removed in time");
        }
    }
}

impl Inner {
    /// A task that was completed by its claim: it had paused or stopped before stages that are all skipped, so there was no
    /// attempt to publish in. Its end is written by now; a crash before this is done leaves things hidden.
    pub(crate) fn publish_late(self: &Arc<Self>, task: &Task) {
        let spec = task.spec();
        if task.status() != TaskStatus::Completed || !self.registry.holds_back(&spec.stages) {
            return;
        }
        let (inner, task) = (self.clone(), task.clone());
        self.spawn(async move {
            let spec = task.spec();
            let file = spec.file.clone().map(|file| TaskFile::new(spec.id.clone(), file, inner.registry.files()));
            let (origin, mut wait) = (inner.origin_of(spec), Duration::from_secs(1));
            loop {
                let (registry, now) = (&inner.registry, inner.clock.now());
                let means = Means { registry, origin: &origin, fence: task.version(), file: file.as_ref(), now };
                match publish(held_back(&means, &task, &inner.stop)).await {
                    Ok(()) => break,
                    Err(failure) if failure.retryable && wait < LATE_WITHIN && !inner.is_stopping() => {
                        tokio::time::sleep(wait).await;
                        wait *= 2;
                    }
                    Err(failure) => {
                        tracing::error!(task = %spec.id, %failure, "what a completed task held back could not appear");
                        break;
                    }
                }
            }
            if let Some(file) = file {
                file.leave().await;
            }
        });
    }
}

fn held_back(means: &Means<'_>, task: &Task, cancel: &CancellationToken) -> Vec<Result<Work, Failure>> {
    let mut work = Vec::new();
    for (index, (definition, state)) in task.stages().enumerate() {
        if state.status == StageStatus::Completed && means.registry.stage_holds_back(definition) {
            // Its output was collected when it ended; nobody reads another.
            let report = AttemptReport::new(definition.name.clone(), state.attempt, Arc::default());
            let (number, cancel) = (state.attempt, cancel.clone());
            let attempt = Attempt { stage: index, number, cancel, report, interruptible: false };
            work.push(call(means, task, &attempt, &definition.action, false));
        }
    }
    work
}

/// One after another, in the order of the plan.
async fn publish(work: Vec<Result<Work, Failure>>) -> Result<(), Failure> {
    for prepared in work {
        let (kind, call) = prepared?;
        kind.publish(call).await?;
    }
    Ok(())
}
