//! Messages that are of no use to any task: what is kept of them, and what is published.

use milepost_core::message::Origin;
use milepost_core::task::Cause;
use milepost_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::books::{Addressee, Book, Entry, Parcel, WrittenAs, headers};

/// A message that is none, or that is for nobody.
#[derive(Debug, Clone)]
pub struct Poison {
    /// The same for the same message, however often it is read: a person puts it back by this name.
    pub id: String,
    /// What could be read of it.
    pub task_id: Option<String>,
    pub message_id: Option<String>,
    pub text: String,
    pub written_as: WrittenAs,
    pub key: Option<String>,
    pub origin: Origin,
    pub cause: Cause,
    pub at: Timestamp,
    pub node: String,
}

/// What putting one back takes, as its letter has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoisonOrigin {
    pub original_topic: String,
    #[serde(default)]
    pub original_key: Option<String>,
    pub original_message: String,
    pub written_as: WrittenAs,
}

impl Poison {
    /// The dead letter, and the parcel that tells of it.
    pub fn entries(&self) -> [Entry; 2] {
        let letter = json!({
            "id": self.id,
            "taskId": self.task_id,
            "planId": null,
            "originalMessageId": self.message_id,
            "originalMessage": self.text,
            "writtenAs": self.written_as,
            "originalTopic": self.origin.topic,
            "originalKey": self.key,
            "failureReason": self.cause.reason,
            "errorType": self.cause.error_type,
            "failedStage": null,
            "failedCallback": null,
            "failedStageIndex": null,
            "attempts": null,
            "failedAt": self.at,
            "nodeId": self.node,
            "failedNodeId": self.node,
            "executedBy": self.node,
        });
        let parcel = Parcel {
            to: Addressee::DeadLetters,
            key: self.key.clone().unwrap_or_default(),
            headers: headers(Some(&self.origin), Some(&self.cause)),
            body: letter.clone(),
        };
        let parcel = serde_json::to_string(&parcel).expect("a parcel is made of JSON");
        let entry = |book, body| Entry { book, key: self.id.clone(), at: self.at, until: None, body };
        [entry(Book::DeadLetters, letter.to_string()), entry(Book::Outbox, parcel)]
    }
}
