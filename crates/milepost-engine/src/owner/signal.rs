//! A message for a workflow, by way of whoever runs it.

use milepost_core::id::{IdempotencyKey, StageName, TaskId};
use milepost_core::task::By;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::hear::VERSION;
use super::operation::{Answer, Done, Order, describe};
use crate::engine::Engine;
use crate::verbs::{Effect, VerbError};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalOrder {
    v: u32,
    signal: Message,
    by: By,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Message {
    task: TaskId,
    name: StageName,
    #[serde(default)]
    payload: Value,
    /// Without one, it is a signal of its own.
    #[serde(default)]
    key: Option<IdempotencyKey>,
}

impl SignalOrder {
    pub fn new(task: TaskId, name: StageName, payload: Value, by: By, key: IdempotencyKey) -> Self {
        Self { v: VERSION, signal: Message { task, name, payload, key: Some(key) }, by }
    }

    async fn try_perform(self, engine: &Engine) -> Result<Done, VerbError> {
        let Message { task, name, payload, key } = self.signal;
        let status = match key {
            Some(key) => engine.signal_under(key, &task, name, payload, self.by).await?,
            None => engine.signal(&task, name, payload, self.by).await?,
        };
        Ok(describe(engine, Effect::on_task(task, status)).await?)
    }
}

impl Order for SignalOrder {
    type Answer = Answer;

    async fn perform(self, engine: &Engine) -> Answer {
        self.try_perform(engine).await.map_or_else(Answer::from, Answer::Done)
    }
}
