//! One thing that a function waits for, from its own side.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;

use futures::FutureExt;
use milepost_core::failure::{ErrorType, Failure};
use milepost_core::id::StageName;
use milepost_core::time::Millis;
use serde::Serialize;
use serde_json::Value;

use crate::attempt::panicked;

use super::answer::record;
use super::desk::{Desk, Ended, Told};
use super::stand_in::Call;

/// Its place at the desk; given up when dropped.
pub(crate) struct Operation {
    desk: Arc<Desk>,
    stage: StageName,
}

impl Operation {
    pub(crate) fn new(desk: Arc<Desk>, stage: StageName) -> Self {
        Self { desk, stage }
    }

    pub(crate) fn name(&self) -> &str {
        self.stage.as_str()
    }

    /// Waits for what the runner has to say.
    pub(crate) async fn told(&self) -> Told {
        poll_fn(|poll| match self.desk.listen(&self.stage, poll) {
            Some(told) => Poll::Ready(told),
            None => Poll::Pending,
        })
        .await
    }

    /// The same for somebody who stands in for its work.
    pub(crate) fn call(&self, attempt: u32, input: Value) -> Call {
        Call { task: self.desk.task.clone(), stage: self.stage.clone(), attempt, input }
    }

    /// Runs one attempt and says how it ended.
    pub(crate) async fn attempt<T: Serialize>(
        &self,
        attempt: u32,
        timeout: Option<Millis>,
        work: impl Future<Output = Result<T, Failure>>,
    ) {
        let result = record(limited(work, timeout).await);
        self.desk.ended(Ended { stage: self.stage.clone(), attempt, result });
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.desk.abandon(&self.stage);
    }
}

/// Work that is not done in time is dropped where it stands, which is how Rust cancels; a panic is no worse than a failure.
pub(crate) async fn limited<T>(
    work: impl Future<Output = Result<T, Failure>>,
    timeout: Option<Millis>,
) -> Result<T, Failure> {
    let work = AssertUnwindSafe(work).catch_unwind();
    let caught = match timeout {
        None => work.await,
        Some(limit) => match tokio::time::timeout(limit.as_duration(), work).await {
            Ok(caught) => caught,
            Err(_) => {
                let reason = format!("did not end within its timeout of {limit}");
                return Err(Failure::retryable(ErrorType::Timeout, reason));
            }
        },
    };
    caught.unwrap_or_else(|panic| Err(panicked(&*panic)))
}
