//! Entries of the outbox that can never be published: a dead letter takes the place of each, until a person puts it back.

use milepost_core::failure::ErrorType;
use milepost_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::books::{Addressee, Book, BookChange, Entry, Parcel};

/// What was to be published, and why no broker takes it.
#[derive(Debug, Clone, PartialEq)]
pub struct SetAside {
    /// Its key in the outbox.
    pub entry: String,
    pub topic: String,
    pub parcel: Parcel,
    pub reason: String,
    pub at: Timestamp,
    pub node: String,
}

/// What putting it back takes, as its letter has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unpublished {
    pub entry: String,
    pub parcel: Parcel,
}

impl SetAside {
    /// The letter's. Neither a task's letter nor a message's is called so.
    pub fn id(&self) -> String {
        format!("outbox:{}", self.entry)
    }

    /// The letter in place of the entry, in one change.
    pub fn change(&self) -> BookChange {
        let id = self.id();
        let (to, body) = (&self.parcel.to, &self.parcel.body);
        let original = match to {
            Addressee::Topic { written_as, .. } => json!({ "text": body, "writtenAs": written_as }),
            Addressee::Tasks | Addressee::Completed | Addressee::Failed | Addressee::DeadLetters => Value::Null,
        };
        let letter = json!({
            "id": id,
            "taskId": body["taskId"],
            "planId": body["planId"],
            "originalMessageId": body["messageId"],
            "originalMessage": original["text"],
            "writtenAs": original["writtenAs"],
            "originalTopic": self.topic,
            "originalKey": self.parcel.key,
            "failureReason": format!("it cannot be published to {}: {}", self.topic, self.reason),
            "errorType": ErrorType::Validation,
            "failedAt": self.at,
            "nodeId": self.node,
            "failedNodeId": self.node,
            "executedBy": self.node,
            "unpublished": Unpublished { entry: self.entry.clone(), parcel: self.parcel.clone() },
        });
        let letter =
            Entry { book: Book::DeadLetters, key: id.clone(), at: self.at, until: None, body: letter.to_string() };
        BookChange { keep: vec![letter], strike: vec![(Book::Outbox, self.entry.clone()), (Book::DeadLetters, id)] }
    }
}

impl Unpublished {
    /// None of other dead letters.
    pub fn of(letter: &Value) -> Option<Self> {
        serde_json::from_value(letter.get("unpublished")?.clone()).ok()
    }

    /// The entry in place of its letter.
    pub fn put_back(&self, letter: &str, at: Timestamp) -> BookChange {
        let body = serde_json::to_string(&self.parcel).expect("a parcel is made of JSON");
        let entry = Entry { book: Book::Outbox, key: self.entry.clone(), at, until: None, body };
        BookChange { keep: vec![entry], strike: vec![(Book::DeadLetters, letter.to_owned())] }
    }
}
