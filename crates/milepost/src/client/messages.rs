//! Messages, what became of those that gave up, and the intake of the node that answers.

use milepost_core::api::{
    ConsumerStatus, DeadLetterView, List, PublishAnswer, PublishRequest, RedriveAnswer, VerbRequest,
};
use milepost_core::id::TaskId;

use super::connection::{Client, Paging, Query};
use super::error::ClientError;

impl Client {
    /// Sends a task of a plan with `trigger: message` the message that it waits for.
    pub async fn publish(&self, task: &TaskId, request: &PublishRequest) -> Result<PublishAnswer, ClientError> {
        self.post(&["tasks", task.as_str(), "publish"], request).await
    }

    /// Oldest first.
    pub async fn dead_letters(&self, paging: &Paging) -> Result<List<DeadLetterView>, ClientError> {
        self.get(&["dead-letters"], paging.query()).await
    }

    pub async fn dead_letter(&self, id: &str) -> Result<DeadLetterView, ClientError> {
        self.get(&["dead-letters", id], Query::default()).await
    }

    /// Puts a dead letter back. A server takes so many a second, and refuses more as `429`.
    pub async fn redrive(&self, id: &str, request: &VerbRequest) -> Result<RedriveAnswer, ClientError> {
        self.post(&["dead-letters", id, "redrive"], request).await
    }

    pub async fn consumer(&self) -> Result<ConsumerStatus, ClientError> {
        self.get(&["consumer"], Query::default()).await
    }

    /// Has the node take no more messages in; what runs goes on.
    pub async fn pause_consumer(&self) -> Result<ConsumerStatus, ClientError> {
        self.post(&["consumer", "pause"], &VerbRequest::default()).await
    }

    pub async fn resume_consumer(&self) -> Result<ConsumerStatus, ClientError> {
        self.post(&["consumer", "resume"], &VerbRequest::default()).await
    }
}
