//! What a workflow's function has in hand: stages, waits, and a clock and dice that a replay repeats.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::failure::Failure;
use milepost_core::id::{TaskId, Tenant};
use milepost_core::retry::draw;
use milepost_core::time::{Millis, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::stage::Progress;

use super::answer::to_value;
use super::desk::{Desk, WantedKind};
use super::function::TypedWorkflow;
use super::stage::Stage;
use super::wait::{Signal, wait};

/// A workflow's access to the world. None of its futures borrow it, so they can be joined and raced.
#[derive(Debug)]
pub struct Context {
    desk: Arc<Desk>,
    /// The branch that it belongs to; empty for the function itself.
    scope: Arc<str>,
}

impl Context {
    pub(crate) fn new(desk: Arc<Desk>) -> Self {
        Self { desk, scope: "".into() }
    }

    pub fn task(&self) -> &TaskId {
        &self.desk.task
    }

    /// What no two runs hold at once, when this one holds something.
    pub fn tenant(&self) -> Option<&Tenant> {
        self.desk.tenant.as_ref()
    }

    /// A stage under this name; the second time it is called `name.2`.
    pub fn stage(&self, name: impl Into<String>) -> Stage {
        Stage::new(self.desk.clone(), self.scope.clone(), name.into())
    }

    /// Sleeps through restarts; a long sleep takes up nothing.
    pub fn sleep(&self, name: &str, length: Duration) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        wait(self.desk.clone(), &self.scope, name, Ok(WantedKind::Sleep(millis(length))))
    }

    /// A message from outside. One that came before it was asked for is kept.
    pub fn signal<T: DeserializeOwned>(&self, name: impl Into<String>) -> Signal<T> {
        Signal::new(self.desk.clone(), self.scope.clone(), name.into())
    }

    /// Runs another workflow and waits for its result.
    pub fn child<W: TypedWorkflow, F: FnOnce() -> W>(
        &self,
        name: &str,
        workflow: F,
        input: W::Input,
    ) -> impl Future<Output = Result<W::Output, Failure>> + Send + use<W, F> {
        let kind = to_value(&input).map(|input| WantedKind::Child { workflow: workflow().reference(), input });
        wait(self.desk.clone(), &self.scope, name, kind)
    }

    /// A context for a sequence that runs beside others: its stages are counted by themselves and called `name.stage`.
    pub fn branch(&self, name: &str) -> Context {
        let scope = self.desk.branch(&self.scope, name);
        Context { desk: self.desk.clone(), scope }
    }

    /// The time, the same in every replay.
    pub fn now(&self) -> Timestamp {
        let value = self.desk.value(&self.scope, "now", |_, now| json!(now.as_millis()));
        Timestamp::from_millis(value.as_i64().unwrap_or_default())
    }

    /// A random number, the same in every replay, and for the same task anywhere.
    pub fn random<T: Draw>(&self) -> T {
        T::from_bits(self.bits("random"))
    }

    /// A random UUID, the same in every replay.
    pub fn uuid(&self) -> uuid::Uuid {
        let value = self.desk.value(&self.scope, "uuid", |key, _| {
            let (high, low) = (self.draw(key, 0), self.draw(key, 1));
            let bytes = ((u128::from(high) << 64) | u128::from(low)).to_be_bytes();
            json!(uuid::Builder::from_random_bytes(bytes).into_uuid().to_string())
        });
        value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    fn bits(&self, name: &str) -> u64 {
        let value = self.desk.value(&self.scope, name, |key, _| json!(self.draw(key, 0)));
        value.as_u64().unwrap_or_default()
    }

    fn draw(&self, key: &str, ordinal: u64) -> u64 {
        draw(self.desk.seed, key, (u64::from(self.desk.generation) << 8) | ordinal)
    }

    /// Whether to run code that was changed under this name as it is now: true for runs that had not come here before
    /// the change, and for ever the same for one run.
    pub fn patched(&self, id: &str) -> bool {
        self.desk.patched(&self.scope, id)
    }

    /// The function is going over what it has done before: a line that it prints now, it has printed already.
    pub fn is_replaying(&self) -> bool {
        self.desk.is_replaying(&self.scope)
    }

    /// How far the workflow is, for people to see.
    pub fn progress(&self, done: u64, total: u64) {
        self.desk.progress(Progress { done, total });
    }

    /// Ends this run of the function and begins another with this input and an empty history: for loops without end.
    /// `return ctx.continue_as_new(next);`
    pub fn continue_as_new<T>(&self, input: impl Serialize) -> Result<T, Failure> {
        self.desk.continue_as_new(to_value(&input)?);
        Err(Failure::fatal(milepost_core::failure::ErrorType::Unknown, "the workflow continues as new"))
    }
}

/// What random bits can be made into.
pub trait Draw: Serialize {
    fn from_bits(bits: u64) -> Self;
}

impl Draw for u64 {
    fn from_bits(bits: u64) -> Self {
        bits
    }
}

impl Draw for u32 {
    fn from_bits(bits: u64) -> Self {
        (bits >> 32) as u32
    }
}

impl Draw for bool {
    fn from_bits(bits: u64) -> Self {
        bits >> 63 == 1
    }
}

/// From 0 up to, and not including, 1.
impl Draw for f64 {
    fn from_bits(bits: u64) -> Self {
        (bits >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Rounded up: never shorter than asked for, up to what can be written down.
pub(crate) fn millis(length: Duration) -> Millis {
    const LONGEST: u64 = i64::MAX.unsigned_abs();
    let whole = u64::try_from(length.as_millis()).unwrap_or(LONGEST);
    let rest = u64::from(!length.subsec_nanos().is_multiple_of(1_000_000));
    Millis::new(whole.saturating_add(rest).min(LONGEST))
}
