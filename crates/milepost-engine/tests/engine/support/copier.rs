//! A kind that copies tables batch by batch, as far as the test lets each get, and can be cut off between two batches.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use milepost_core::failure::{ErrorType, Failure};
use milepost_engine::stage::{Outcome, Progress, StageCall, StageKind};
use serde_json::Value;
use tokio::sync::watch;

/// Rows of a table, and rows of a batch.
pub(crate) const ROWS: u64 = 10_000;
pub(crate) const BATCH: u64 = 1_000;

/// Each table is a task.
#[derive(Clone)]
pub(crate) struct Copier {
    state: Arc<watch::Sender<State>>,
    interruptible: bool,
}

#[derive(Default)]
struct State {
    /// How far each may get; who is not in here may get to the end.
    limits: HashMap<String, u64>,
    breaks: Vec<String>,
    /// The rows that each run of each came to.
    runs: HashMap<String, Vec<u64>>,
}

impl Copier {
    pub(crate) fn new() -> Self {
        Self { state: Arc::default(), interruptible: true }
    }

    /// One that has to be waited for, on the same tables.
    pub(crate) fn stubborn(&self) -> Self {
        Self { interruptible: false, ..self.clone() }
    }

    pub(crate) fn kind(&self) -> Arc<dyn StageKind> {
        Arc::new(self.clone())
    }

    /// The table gets as far as this many percent, and waits there.
    pub(crate) fn holds(&self, table: &str, percent: u64) {
        let limit = ROWS * percent / 100;
        self.state.send_modify(|state| {
            state.limits.insert(table.to_owned(), limit);
        });
    }

    /// Nothing is held any more.
    pub(crate) fn lets_go(&self) {
        self.state.send_modify(|state| state.limits.clear());
    }

    /// The network breaks in the middle of this table, as long as it is not mended.
    pub(crate) fn breaks(&self, table: &str) {
        self.state.send_modify(|state| state.breaks.push(table.to_owned()));
    }

    pub(crate) fn mends(&self) {
        self.state.send_modify(|state| state.breaks.clear());
    }

    /// How far each run of the table came, in percent.
    pub(crate) fn runs(&self, table: &str) -> Vec<u64> {
        self.state.borrow().runs.get(table).into_iter().flatten().map(|rows| rows * 100 / ROWS).collect()
    }

    /// Waits until the runs of the table have come as far as this.
    pub(crate) async fn until_runs(&self, table: &str, wanted: &[u64]) {
        let mut changes = self.state.subscribe();
        let waiting = async {
            while self.runs(table) != wanted {
                changes.changed().await.expect("the copier stays");
            }
        };
        super::bounded(&format!("the runs of {table} at {wanted:?}"), waiting).await;
    }

    async fn copy(&self, call: &StageCall, run: usize) -> Outcome {
        let table = call.task.as_str();
        let mut changes = self.state.subscribe();
        let mut done = 0;
        call.reporter.progress(Progress { done, total: ROWS });
        while done < ROWS {
            let may_go_on = |state: &State| state.limits.get(table).is_none_or(|limit| done < *limit);
            tokio::select! {
                biased;
                () = call.cancel.cancelled() => return Outcome::Failure(Failure::fatal(ErrorType::Unknown, "cut off")),
                changed = changes.wait_for(may_go_on) => drop(changed.expect("the copier stays")),
            }
            if self.state.borrow().breaks.iter().any(|broken| broken == table) && done >= ROWS / 2 {
                return Outcome::Failure(Failure::fatal(ErrorType::Network, "connection reset by peer"));
            }
            done += BATCH;
            self.state.send_modify(|state| state.runs.get_mut(table).expect("it has begun")[run] = done);
            call.reporter.progress(Progress { done, total: ROWS });
        }
        Outcome::success()
    }
}

#[async_trait]
impl StageKind for Copier {
    fn interruptible(&self, _: &Value) -> bool {
        self.interruptible
    }

    async fn run(&self, call: StageCall) -> Outcome {
        let mut run = 0;
        self.state.send_modify(|state| {
            let runs = state.runs.entry(call.task.to_string()).or_default();
            run = runs.len();
            runs.push(0);
        });
        self.copy(&call, run).await
    }
}
