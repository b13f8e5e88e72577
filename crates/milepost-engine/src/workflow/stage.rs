//! A stage of a workflow: work that is done once, however often the function is run.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::failure::Failure;
use milepost_core::retry::RetryPolicy;
use milepost_core::time::Millis;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::answer::{digest, read, to_value};
use super::context::millis;
use super::desk::{Desk, Told, Wanted, WantedKind};
use super::operation::Operation;
use super::undo::{Handler, handler};

/// One attempt may take this long, unless the stage says otherwise: as in plan files.
const DEFAULT_TIMEOUT: Millis = Millis::from_secs(300);

/// A stage that is being described; `run` says what it does.
#[must_use = "a stage does nothing until it is run and awaited"]
pub struct Stage {
    desk: Arc<Desk>,
    scope: Arc<str>,
    name: String,
    wanted: Wanted,
    handler: Option<Handler>,
    /// What stands in for it may answer by this.
    input: Value,
    /// Something that it was described with cannot be written down.
    unfit: Option<Failure>,
}

impl Stage {
    pub(crate) fn new(desk: Arc<Desk>, scope: Arc<str>, name: String) -> Self {
        let wanted = Wanted {
            kind: WantedKind::Stage,
            digest: None,
            retry: RetryPolicy::default(),
            timeout: Some(DEFAULT_TIMEOUT),
        };
        Self { desk, scope, name, wanted, handler: None, input: Value::Null, unfit: None }
    }

    /// Left out: four attempts, after one, two and four seconds, and a little more by chance.
    pub fn retry(mut self, retry: impl Into<RetryPolicy>) -> Self {
        self.wanted.retry = retry.into();
        self
    }

    /// How long one attempt may take. Left out: five minutes.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.wanted.timeout = Some(millis(limit));
        self
    }

    pub fn no_timeout(mut self) -> Self {
        self.wanted.timeout = None;
        self
    }

    /// What the stage depends on: a replay that comes to it with something else is stopped.
    pub fn input(mut self, input: &impl Serialize) -> Self {
        match to_value(input) {
            Ok(input) => {
                self.wanted.digest = Some(digest(&input));
                self.input = input;
            }
            Err(failure) => self.unfit = Some(failure),
        }
        self
    }

    /// How to undo the stage, should the workflow fail after it. It outlives the function, and so owns what it needs.
    pub fn rollback<E, F, Fut>(self, undo: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Failure> + 'static,
    {
        self.rollback_of(move |_: Option<Value>| undo())
    }

    /// The same, given the stage's result; none when it never completed, though it may have done something.
    pub fn rollback_of<T, E, F, Fut>(mut self, undo: F) -> Self
    where
        F: Fn(Option<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        T: DeserializeOwned + 'static,
        E: Into<Failure> + 'static,
    {
        self.handler = Some(handler(undo));
        self
    }

    /// What the stage does; called once for each attempt. Its result is recorded before the function goes on.
    pub fn run<T, E, F, Fut>(mut self, mut work: F) -> impl Future<Output = Result<T, Failure>>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
        E: Into<Failure>,
    {
        if let Some(guard) = &mut self.wanted.retry.guard {
            // By the name in the code: a stage that is run again and again is the same stage each time.
            guard.key.get_or_insert_with(|| format!("{}/{}", self.desk.workflow, self.name));
        }
        let stand_in = self.desk.stand_ins.work_of(&self.name);
        let handler = self.handler.map(|handler| self.desk.stand_ins.rollback_of(&self.name).unwrap_or(handler));
        let made = match self.unfit {
            Some(failure) => Err(failure),
            None => self.desk.make(&self.scope, &self.name, self.wanted, handler),
        };
        let operation = made.map(|stage| Operation::new(self.desk, stage));
        let input = self.input;
        async move {
            let operation = operation?;
            loop {
                match operation.told().await {
                    Told::Run { attempt, timeout } => match &stand_in {
                        Some(stand_in) => {
                            let call = operation.call(attempt, input.clone());
                            let work = async { stand_in(call).await };
                            operation.attempt(attempt, timeout, work).await;
                        }
                        None => {
                            let work = async { work().await.map_err(Into::into) };
                            operation.attempt(attempt, timeout, work).await;
                        }
                    },
                    Told::Answer(answer) => return read(operation.name(), answer),
                }
            }
        }
    }
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("name", &self.name).finish_non_exhaustive()
    }
}
