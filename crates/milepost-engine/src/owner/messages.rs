//! Messages sent and dead letters put back, by way of whoever runs the store.

use milepost_core::api::{PublishAnswer, RedriveAnswer, TaskState};
use milepost_core::id::TaskId;
use milepost_core::task::By;
use milepost_core::time::Millis;
use serde::{Deserialize, Serialize};

use super::hear::VERSION;
use super::operation::{Answer, Order};
use crate::engine::Engine;
use crate::verbs::VerbError;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageOrder {
    v: u32,
    message: MessageVerb,
    by: By,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MessageVerb {
    /// Sends tasks the messages that they wait for.
    Publish { tasks: Vec<TaskId>, within: Option<Millis> },
    /// Puts a dead letter back.
    Redrive { id: String },
}

/// Once this is sent, it is durable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum MessageAnswer {
    Published { messages: Vec<PublishAnswer> },
    Redriven(RedriveAnswer),
    Refused { message: String },
    NotFound { message: String },
    Failed { message: String },
}

impl MessageOrder {
    pub fn new(message: MessageVerb, by: By) -> Self {
        Self { v: VERSION, message, by }
    }

    async fn try_perform(self, engine: &Engine) -> Result<MessageAnswer, VerbError> {
        match self.message {
            MessageVerb::Publish { tasks, within } => {
                let ids = engine.publish(&tasks, within).await?;
                let sent = tasks.into_iter().zip(ids);
                let messages = sent.map(|(task_id, message_id)| PublishAnswer { task_id, message_id }).collect();
                Ok(MessageAnswer::Published { messages })
            }
            MessageVerb::Redrive { id } => {
                let redriven = engine.redrive(&id, self.by).await?;
                let task = redriven.task.map(|(id, status)| TaskState { id, status, pause_requested: false });
                Ok(MessageAnswer::Redriven(RedriveAnswer { id, message_id: redriven.message_id, task }))
            }
        }
    }
}

impl Order for MessageOrder {
    type Answer = MessageAnswer;

    async fn perform(self, engine: &Engine) -> MessageAnswer {
        self.try_perform(engine).await.unwrap_or_else(|error| match Answer::from(error) {
            Answer::NotFound { message } => MessageAnswer::NotFound { message },
            Answer::Refused { message } => MessageAnswer::Refused { message },
            Answer::Failed { message } => MessageAnswer::Failed { message },
            Answer::Done(_) => unreachable!("an error is never an answer that something was done"),
        })
    }
}
