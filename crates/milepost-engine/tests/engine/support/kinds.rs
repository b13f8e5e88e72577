//! Stage kinds that wait, count, write down and fail as told.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use milepost_core::failure::{ErrorType, Failure};
use milepost_engine::stage::{Outcome, StageCall, StageKind};
use tokio::sync::watch;

struct Kind<F>(F);

#[async_trait]
impl<F, Work> StageKind for Kind<F>
where
    F: Fn(StageCall) -> Work + Send + Sync,
    Work: Future<Output = Outcome> + Send,
{
    async fn run(&self, call: StageCall) -> Outcome {
        (self.0)(call).await
    }
}

/// A kind out of a closure.
pub(crate) fn kind<F, Work>(run: F) -> Arc<dyn StageKind>
where
    F: Fn(StageCall) -> Work + Send + Sync + 'static,
    Work: Future<Output = Outcome> + Send + 'static,
{
    Arc::new(Kind(run))
}

/// `task/stage/attempt`, and `/undo` behind it for a rollback.
pub(crate) fn name(call: &StageCall) -> String {
    let undo = if call.rollback { "/undo" } else { "" };
    format!("{}/{}/{}{undo}", call.task, call.stage, call.attempt)
}

/// Writes down every call, and succeeds.
#[derive(Clone, Default)]
pub(crate) struct Journal {
    calls: Arc<Mutex<Vec<String>>>,
}

impl Journal {
    pub(crate) fn note(&self, call: &StageCall) {
        self.calls.lock().unwrap().push(name(call));
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, call: &str) -> usize {
        self.calls().iter().filter(|seen| *seen == call).count()
    }

    pub(crate) fn kind(&self) -> Arc<dyn StageKind> {
        let journal = self.clone();
        kind(move |call| {
            journal.note(&call);
            async { Outcome::success() }
        })
    }
}

/// Fails the first so many attempts of each stage, retryably, and writes down all of them.
#[derive(Clone, Default)]
pub(crate) struct Flaky {
    pub(crate) journal: Journal,
    failing: Arc<Mutex<HashMap<String, u32>>>,
}

impl Flaky {
    /// Calls of this stage fail this often from now on.
    pub(crate) fn fail(&self, stage: &str, times: u32) {
        self.failing.lock().unwrap().insert(stage.to_owned(), times);
    }

    pub(crate) fn kind(&self) -> Arc<dyn StageKind> {
        let flaky = self.clone();
        kind(move |call| {
            flaky.journal.note(&call);
            let stage = if call.rollback { format!("{}/undo", call.stage) } else { call.stage.to_string() };
            let mut failing = flaky.failing.lock().unwrap();
            let left = failing.get_mut(&stage).filter(|left| **left > 0);
            let fails = left.is_some();
            if let Some(left) = left {
                *left -= 1;
            }
            async move {
                if fails {
                    Outcome::Failure(Failure::retryable(ErrorType::Network, "no route"))
                } else {
                    Outcome::success()
                }
            }
        })
    }
}

/// Stages that come in and stay until they are let go or cancelled.
#[derive(Clone)]
pub(crate) struct Gate {
    state: Arc<watch::Sender<Inside>>,
}

#[derive(Clone, Default)]
struct Inside {
    came: Vec<String>,
    /// Inside right now.
    inside: Vec<String>,
    cancelled: Vec<String>,
    peak: usize,
    /// How many more may leave; `usize::MAX`: the gate stands open.
    may_leave: usize,
}

impl Gate {
    pub(crate) fn shut() -> Self {
        Self { state: Arc::new(watch::Sender::new(Inside::default())) }
    }

    pub(crate) fn kind(&self) -> Arc<dyn StageKind> {
        let gate = self.clone();
        kind(move |call| gate.clone().pass(call))
    }

    async fn pass(self, call: StageCall) -> Outcome {
        let name = name(&call);
        self.state.send_modify(|state| {
            state.came.push(name.clone());
            state.inside.push(name.clone());
            state.peak = state.peak.max(state.inside.len());
        });
        let leaves = |state: &mut Inside| {
            let free = state.may_leave > 0;
            if free {
                state.may_leave -= usize::from(state.may_leave != usize::MAX);
                state.inside.retain(|inside| *inside != name);
            }
            free
        };
        let mut changes = self.state.subscribe();
        loop {
            if self.state.send_if_modified(leaves) {
                return Outcome::success();
            }
            tokio::select! {
                changed = changes.changed() => changed.expect("the gate stays"),
                () = call.cancel.cancelled() => {
                    self.state.send_modify(|state| {
                        state.inside.retain(|inside| *inside != name);
                        state.cancelled.push(name.clone());
                    });
                    return Outcome::success();
                }
            }
        }
    }

    /// Waits until so many are inside at once.
    pub(crate) async fn inside(&self, count: usize) -> Vec<String> {
        let mut changes = self.state.subscribe();
        let full = changes.wait_for(|state| state.inside.len() >= count);
        super::bounded(&format!("{count} inside the gate"), full).await.expect("the gate stays").inside.clone()
    }

    /// Waits until so many have come in, all in all.
    pub(crate) async fn came(&self, count: usize) -> Vec<String> {
        let mut changes = self.state.subscribe();
        let come = changes.wait_for(|state| state.came.len() >= count);
        super::bounded(&format!("{count} came to the gate"), come).await.expect("the gate stays").came.clone()
    }

    pub(crate) fn now_inside(&self) -> Vec<String> {
        self.state.borrow().inside.clone()
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.state.borrow().came.clone()
    }

    pub(crate) fn cancelled(&self) -> Vec<String> {
        self.state.borrow().cancelled.clone()
    }

    pub(crate) fn peak(&self) -> usize {
        self.state.borrow().peak
    }

    pub(crate) fn let_go(&self, count: usize) {
        self.state.send_modify(|state| state.may_leave += count);
    }

    pub(crate) fn open(&self) {
        self.state.send_modify(|state| state.may_leave = usize::MAX);
    }
}
