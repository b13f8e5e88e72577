//! Operations that only wait: for a time, for a signal, for another workflow.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use milepost_core::failure::{ErrorType, Failure};
use milepost_core::id::StageName;
use milepost_core::retry::RetryPolicy;
use serde::de::DeserializeOwned;

use super::answer::read;
use super::context::millis;
use super::desk::{Desk, Told, Wanted, WantedKind};
use super::operation::Operation;

/// Waits for the answer to something that nobody here has to run.
pub(crate) fn wait<T: DeserializeOwned>(
    desk: Arc<Desk>,
    scope: &Arc<str>,
    name: &str,
    kind: Result<WantedKind, Failure>,
) -> impl Future<Output = Result<T, Failure>> + use<T> {
    let retry = RetryPolicy { max_attempts: 1, ..RetryPolicy::default() };
    let made = kind.and_then(|kind| desk.make(scope, name, Wanted { kind, digest: None, retry, timeout: None }, None));
    let operation = made.map(|stage| Operation::new(desk, stage));
    async move {
        let operation = operation?;
        loop {
            if let Told::Answer(answer) = operation.told().await {
                return read(operation.name(), answer);
            }
        }
    }
}

/// A message from outside that is waited for; `deadline` bounds the wait.
#[must_use = "a signal is not waited for until it is awaited"]
pub struct Signal<T> {
    desk: Arc<Desk>,
    scope: Arc<str>,
    name: String,
    within: Option<Duration>,
    payload: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Signal<T> {
    pub(crate) fn new(desk: Arc<Desk>, scope: Arc<str>, name: String) -> Self {
        Self { desk, scope, name, within: None, payload: PhantomData }
    }

    /// No longer than this, counted from when it is first waited for; then it fails with TIMEOUT.
    pub fn deadline(mut self, within: Duration) -> Self {
        self.within = Some(within);
        self
    }

    /// The wait itself, for those who want to join it with others.
    pub fn wait(self) -> impl Future<Output = Result<T, Failure>> + use<T> {
        let name = StageName::parse(&self.name);
        let kind = name.map(|name| WantedKind::Signal { name, within: self.within.map(millis) });
        let kind = kind.map_err(|error| Failure::fatal(ErrorType::Validation, error.to_string()));
        wait(self.desk, &self.scope, &self.name, kind)
    }
}

impl<T: DeserializeOwned + Send + 'static> IntoFuture for Signal<T> {
    type Output = Result<T, Failure>;
    type IntoFuture = BoxFuture<'static, Result<T, Failure>>;

    fn into_future(self) -> Self::IntoFuture {
        self.wait().boxed()
    }
}

impl<T> std::fmt::Debug for Signal<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signal").field("name", &self.name).field("within", &self.within).finish_non_exhaustive()
    }
}
