//! A message as it was read, and what is kept of one that is of no use.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use milepost_core::failure::ErrorType;
use milepost_core::message::{Message, Origin};
use milepost_core::task::Cause;
use milepost_core::time::Timestamp;
use milepost_store::{Book, BookChange, Entry, Poison, WrittenAs};
use serde_json::json;

#[derive(Debug, Clone)]
pub(crate) struct Incoming {
    pub(crate) origin: Origin,
    pub(crate) key: Option<String>,
    pub(crate) bytes: Vec<u8>,
}

/// Why a message is of no use, who found that, and when.
#[derive(Debug)]
pub(crate) struct Verdict<'a> {
    pub(crate) reason: String,
    pub(crate) node: &'a str,
    pub(crate) at: Timestamp,
    pub(crate) remembered_until: Timestamp,
}

impl Incoming {
    pub(crate) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }

    /// All that is written when it is given up, in one change. `message` is what could be read of it.
    pub(crate) fn given_up(&self, message: Option<&Message>, verdict: &Verdict<'_>) -> BookChange {
        let Origin { topic, partition, offset, .. } = &self.origin;
        let (text, written_as) = match self.text() {
            Some(text) => (text.to_owned(), WrittenAs::Text),
            None => (STANDARD.encode(&self.bytes), WrittenAs::Base64),
        };
        let poison = Poison {
            // No task's id holds a colon, so no letter of a task is called the same.
            id: format!("{topic}:{partition}:{offset}"),
            task_id: message.map(|message| message.task_id.to_string()),
            message_id: message.map(|message| message.message_id.clone()),
            text,
            written_as,
            key: self.key.clone(),
            origin: self.origin.clone(),
            cause: Cause { error_type: ErrorType::Validation, reason: verdict.reason.clone() },
            at: verdict.at,
            node: verdict.node.to_owned(),
        };
        let mut keep = poison.entries().to_vec();
        keep.extend(message.map(|message| Entry {
            book: Book::Messages,
            key: message.message_id.clone(),
            at: verdict.at,
            until: Some(verdict.remembered_until),
            body: json!({ "taskId": message.task_id }).to_string(),
        }));
        BookChange { keep, strike: Vec::new() }
    }
}
