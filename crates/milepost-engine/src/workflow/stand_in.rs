//! What a test puts in the place of a stage's work, or of its rollback. The log cannot tell them from the real thing.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use milepost_core::failure::Failure;
use milepost_core::id::{StageName, TaskId};
use serde_json::Value;

use super::undo::Handler;

/// One attempt that a stand-in is asked to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub task: TaskId,
    /// The stage as the log calls it: with its branch, and with its number if there are more of its name.
    pub stage: StageName,
    /// Counted from 1. An attempt that a crash cut off is made again under the same number.
    pub attempt: u32,
    /// What the stage was given by `.input(&…)`; null when it was given nothing.
    pub input: Value,
}

type Work = Arc<dyn Fn(Call) -> BoxFuture<'static, Result<Value, Failure>> + Send + Sync>;

/// Stand-ins by the name that the code gives a stage, in whatever branch and however often it does.
#[derive(Clone, Default)]
pub struct StandIns {
    work: HashMap<String, Work>,
    rollbacks: HashMap<String, Handler>,
}

impl StandIns {
    pub fn work<F, Fut>(&mut self, stage: impl Into<String>, work: F)
    where
        F: Fn(Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Value, Failure>> + Send + 'static,
    {
        self.work.insert(stage.into(), Arc::new(move |call| Box::pin(work(call))));
    }

    /// Stands in for the rollback of a stage that has one.
    pub fn rollback<F, Fut>(&mut self, stage: impl Into<String>, undo: F)
    where
        F: Fn(Option<Value>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.rollbacks.insert(stage.into(), Arc::new(move |value| Box::pin(undo(value))));
    }

    pub(super) fn work_of(&self, stage: &str) -> Option<Work> {
        self.work.get(stage).cloned()
    }

    pub(super) fn rollback_of(&self, stage: &str) -> Option<Handler> {
        self.rollbacks.get(stage).cloned()
    }
}

impl std::fmt::Debug for StandIns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (work, rollbacks) = (self.work.keys(), self.rollbacks.keys());
        f.debug_struct("StandIns")
            .field("work", &work.collect::<Vec<_>>())
            .field("rollbacks", &rollbacks.collect::<Vec<_>>())
            .finish()
    }
}
