//! A stage kind, `uses: step`, that writes down every call, waits where it is told to, and fails where it is told to.

use std::collections::HashSet;
use std::sync::Arc;

use milepost_core::failure::{ErrorType, Failure};
use milepost_engine::stage::{Outcome, StageCall, StageKind};
use serde_json::{Map, json};
use tokio::sync::watch;

use super::bounded;

/// Stages are named `task/stage`.
#[derive(Debug, Clone)]
pub(crate) struct Steps {
    state: Arc<watch::Sender<State>>,
}

#[derive(Debug, Clone, Default)]
struct State {
    calls: Vec<String>,
    waits: HashSet<String>,
    fails: HashSet<String>,
    stumbles: HashSet<String>,
}

impl Default for Steps {
    fn default() -> Self {
        Self { state: Arc::new(watch::Sender::new(State::default())) }
    }
}

struct Kind(Steps);

#[async_trait::async_trait]
impl StageKind for Kind {
    async fn run(&self, call: StageCall) -> Outcome {
        self.0.clone().take(call).await
    }
}

impl Steps {
    pub(crate) fn kind(&self) -> Arc<dyn StageKind> {
        Arc::new(Kind(self.clone()))
    }

    async fn take(self, call: StageCall) -> Outcome {
        let name = format!("{}/{}", call.task, call.stage);
        call.reporter.output(format!("hello from {}\n", call.stage).as_bytes());
        self.state.send_modify(|state| state.calls.push(name.clone()));
        let mut changes = self.state.subscribe();
        let free = changes.wait_for(|state| !state.waits.contains(&name));
        tokio::select! {
            free = free => drop(free.expect("the steps stay")),
            () = call.cancel.cancelled() => {}
        }
        if self.state.borrow().fails.contains(&name) {
            return Outcome::Failure(Failure::fatal(ErrorType::Business, "told to fail"));
        }
        if self.state.borrow().stumbles.contains(&name) {
            return Outcome::Failure(Failure::retryable(ErrorType::Network, "told to stumble"));
        }
        Outcome::Success { outputs: Map::from_iter([("by".to_owned(), json!(call.stage))]) }
    }

    /// Calls of this stage stay until they are let go.
    pub(crate) fn hold(&self, stage: &str) {
        self.state.send_modify(|state| {
            state.waits.insert(stage.to_owned());
        });
    }

    pub(crate) fn let_go(&self, stage: &str) {
        self.state.send_modify(|state| {
            state.waits.remove(stage);
        });
    }

    pub(crate) fn fail(&self, stage: &str) {
        self.state.send_modify(|state| {
            state.fails.insert(stage.to_owned());
        });
    }

    /// Fails in a way that the stage's retries are for.
    pub(crate) fn stumble(&self, stage: &str) {
        self.state.send_modify(|state| {
            state.stumbles.insert(stage.to_owned());
        });
    }

    pub(crate) fn heal(&self, stage: &str) {
        self.state.send_modify(|state| {
            state.fails.remove(stage);
        });
    }

    pub(crate) fn count(&self, stage: &str) -> usize {
        self.state.borrow().calls.iter().filter(|call| *call == stage).count()
    }

    /// Waits until the stage was called.
    pub(crate) async fn called(&self, stage: &str) {
        let mut changes = self.state.subscribe();
        let called = changes.wait_for(|state| state.calls.iter().any(|call| call == stage));
        drop(bounded(&format!("a call of {stage}"), called).await.expect("the steps stay"));
    }
}
