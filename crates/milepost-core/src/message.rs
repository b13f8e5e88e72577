//! Messages that set tasks off: what a producer writes, and what a task's log keeps of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::TaskId;
use crate::plan::FileRef;
use crate::time::Timestamp;

/// Longest id of a message; it is a key in the store.
pub const MAX_MESSAGE_ID: usize = 256;

/// One message as it is written to the topic: one task may start now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// Sent again under the same id, it changes nothing.
    pub message_id: String,
    /// Also the key of its partition.
    pub task_id: TaskId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_at: Option<Timestamp>,
    /// The latest start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_node: Option<String>,
    /// With these it also makes the task: a named list of stages, the file they work on, and their input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileRef>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub input: Value,
}

/// Why a message is of no use, however often it is read.
#[derive(Debug, thiserror::Error)]
pub enum BadMessage {
    #[error("it is not a message: {0}")]
    Json(#[from] serde_json::Error),
    #[error("its messageId has {found} characters, and 1 to {MAX_MESSAGE_ID} are allowed")]
    Id { found: usize },
    #[error("its file: {0}")]
    File(String),
}

impl Message {
    pub fn parse(text: &[u8]) -> Result<Self, BadMessage> {
        let message: Self = serde_json::from_slice(text)?;
        if let Some(file) = &message.file {
            file.check().map_err(BadMessage::File)?;
        }
        match message.message_id.chars().count() {
            1..=MAX_MESSAGE_ID => Ok(message),
            found => Err(BadMessage::Id { found }),
        }
    }
}

/// A message that has arrived, as the task that it set off remembers it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Arrival {
    pub id: Arc<str>,
    /// The latest start.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::time::as_millis")]
    pub deadline: Option<Timestamp>,
    /// Until then the same message is known again.
    pub remembered_until: Timestamp,
    /// As it came.
    pub text: Arc<str>,
    /// Where it was read; none when a person put it in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// Where in Kafka a message was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub topic: Arc<str>,
    pub partition: i32,
    pub offset: i64,
    /// The broker's, in milliseconds.
    pub timestamp: i64,
    pub group: Arc<str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_can_never_be_used_is_told_from_one_that_can() {
        let message = |more: &str| format!(r#"{{"messageId": "m", "taskId": "t"{more}}}"#);
        for good in ["", r#", "file": {"uri": "s3://b/k", "size": 7}"#] {
            assert!(Message::parse(message(good).as_bytes()).is_ok(), "{good}");
        }
        for bad in [r#", "file": {"uri": "/etc/passwd"}"#, r#", "file": {"uri": "s3://b/k", "sha256": "x"}"#] {
            let error = Message::parse(message(bad).as_bytes()).unwrap_err();
            assert!(matches!(error, BadMessage::File(_)), "{bad}: {error}");
        }
        assert!(matches!(Message::parse(b"no"), Err(BadMessage::Json(_))));
        let nameless = Message::parse(br#"{"messageId": "", "taskId": "t"}"#);
        assert!(matches!(nameless, Err(BadMessage::Id { found: 0 })));
    }
}
