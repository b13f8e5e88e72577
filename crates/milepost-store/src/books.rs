//! Books: what is kept beside tasks, by key and in the order in which it came. Who was heard, what is still to be
//! said, and what was given up.

use milepost_core::message::Origin;
use milepost_core::task::{Cause, Event, Record, Task, TaskStatus};
use milepost_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::StoreError;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Book {
    /// Ids of messages that have arrived.
    Messages,
    /// What is to be published, in this order, until it has been.
    Outbox,
    /// What was given up, until somebody puts it back.
    DeadLetters,
    /// Whose turn it is to do what only one node may do at a time.
    Turns,
    /// What the store says of itself: its id.
    Store,
}

impl Book {
    pub const ALL: [Book; 5] = [Book::Messages, Book::Outbox, Book::DeadLetters, Book::Turns, Book::Store];

    /// As it is stored.
    pub fn code(self) -> i64 {
        match self {
            Book::Messages => 1,
            Book::Outbox => 2,
            Book::DeadLetters => 3,
            Book::Turns => 4,
            Book::Store => 5,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Book::Messages => "messages",
            Book::Outbox => "outbox",
            Book::DeadLetters => "dead-letters",
            Book::Turns => "turns",
            Book::Store => "store",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub book: Book,
    pub key: String,
    pub at: Timestamp,
    /// From then on it counts as gone, and goes with some later write to its book.
    pub until: Option<Timestamp>,
    /// JSON.
    pub body: String,
}

impl Entry {
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

/// What is written to the books and what is struck out, all of it or nothing. First is struck out, then written, so
/// that one change can put an entry in the place of another.
///
/// It is refused as `Kept` when an entry's key is in its book already, and not over by the new entry's `at`. What is to
/// be struck out need not be there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BookChange {
    pub keep: Vec<Entry>,
    pub strike: Vec<(Book, String)>,
}

impl BookChange {
    pub fn is_empty(&self) -> bool {
        self.keep.is_empty() && self.strike.is_empty()
    }

    /// Why it is refused, if it is. `is_there` says whether a book has an entry with this one's key that is not over by
    /// its time.
    pub(crate) fn kept<E>(&self, mut is_there: impl FnMut(&Entry) -> Result<bool, E>) -> Result<Option<StoreError>, E> {
        for (index, entry) in self.keep.iter().enumerate() {
            let is_same = |book: Book, key: &str| book == entry.book && key == entry.key;
            let earlier = self.keep[..index].iter().rev().find(|other| is_same(other.book, &other.key));
            let taken = match earlier {
                Some(earlier) => !earlier.is_over(entry.at),
                None => !self.strike.iter().any(|(book, key)| is_same(*book, key)) && is_there(entry)?,
            };
            if taken {
                return Ok(Some(StoreError::Kept { book: entry.book, key: entry.key.clone() }));
            }
        }
        Ok(None)
    }
}

/// Oldest first.
#[derive(Debug, Clone)]
pub struct EntryQuery {
    pub book: Book,
    pub after: Option<i64>,
    pub limit: usize,
    /// Entries that were over by then are left out.
    pub now: Timestamp,
}

/// What is to be published: to which topic, under which key, and what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Parcel {
    pub to: Addressee,
    pub key: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

/// Which of the topics; their names are the relay's to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Addressee {
    /// Those who run tasks.
    Tasks,
    Completed,
    Failed,
    DeadLetters,
    /// Where a message came from that is to go back; the parcel's body is a string.
    Topic {
        name: String,
        written_as: WrittenAs,
    },
}

/// What a string stands for that is to be published as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WrittenAs {
    Text,
    /// What was no text.
    Base64,
}

/// What a commit's events mean for the books. A store writes it in the same commit.
///
/// `task` is the task after them.
pub fn book_changes(task: &Task, events: &[Record]) -> BookChange {
    let mut change = BookChange::default();
    let first = task.version() + 1 - events.len() as u64;
    for (sequence, record) in (first..).zip(events) {
        match record.event() {
            Event::MessageReceived { message } => {
                let body = json!({ "taskId": task.id() }).to_string();
                let (key, until) = (message.id.to_string(), Some(message.remembered_until));
                change.keep.push(Entry { book: Book::Messages, key, at: record.at(), until, body });
            }
            Event::TaskCompleted { .. } if task.message().is_some() => {
                change.keep.push(parcel(task, sequence, record.at(), Addressee::Completed, completed(task, record)));
            }
            Event::TaskFailed { .. } if task.message().is_some() => {
                change.keep.push(parcel(task, sequence, record.at(), Addressee::Failed, failed(task, record)));
            }
            Event::DeadLettered { reason } => {
                let letter = dead_letter(task, sequence, reason, record.at());
                let key = dead_letter_key(task, sequence);
                // A task of the same name that an update has removed may have left one.
                change.strike.push((Book::DeadLetters, key.clone()));
                change.keep.push(Entry {
                    book: Book::DeadLetters,
                    key,
                    at: record.at(),
                    until: None,
                    body: letter.to_string(),
                });
                if task.message().is_some() {
                    change.keep.push(parcel(task, sequence, record.at(), Addressee::DeadLetters, letter));
                }
            }
            Event::TaskRetried { .. } => {
                if let Some(sequence) = task.dead_letter() {
                    change.strike.push((Book::DeadLetters, dead_letter_key(task, sequence)));
                }
            }
            _ => {}
        }
    }
    change
}

/// Also the name by which a person puts it back.
pub fn dead_letter_key(task: &Task, sequence: u64) -> String {
    format!("{}.{sequence}", task.id())
}

fn parcel(task: &Task, sequence: u64, at: Timestamp, to: Addressee, body: Value) -> Entry {
    let headers = match to {
        Addressee::DeadLetters => dead_letter_headers(task),
        Addressee::Tasks | Addressee::Completed | Addressee::Failed | Addressee::Topic { .. } => Vec::new(),
    };
    let parcel = Parcel { to, key: task.id().to_string(), headers, body };
    let body = serde_json::to_string(&parcel).expect("a parcel is made of JSON");
    // With its time, so that it is not taken for that of a task of the same name that an update has removed.
    let key = format!("{}.{sequence}.{}", task.id(), at.as_millis());
    Entry { book: Book::Outbox, key, at, until: None, body }
}

fn completed(task: &Task, record: &Record) -> Value {
    let outputs: serde_json::Map<String, Value> = task
        .stages()
        .filter_map(|(stage, state)| Some((stage.name.to_string(), json!(state.outputs.as_deref()?))))
        .collect();
    json!({
        "taskId": task.id(),
        "planId": task.spec().plan,
        "messageId": task.message().map(|message| &message.id),
        "status": TaskStatus::Completed,
        "file": task.spec().file,
        "outputs": outputs,
        "completedAt": record.at(),
        "nodeId": task.node(),
    })
}

fn failed(task: &Task, record: &Record) -> Value {
    let failure = task.failure();
    json!({
        "taskId": task.id(),
        "planId": task.spec().plan,
        "messageId": task.message().map(|message| &message.id),
        "status": TaskStatus::Failed,
        "finalStatus": TaskStatus::Failed,
        "reason": failure.map(|failure| &failure.cause.reason),
        "errorType": failure.map(|failure| failure.cause.error_type),
        "failedStage": failure.and_then(|failure| failure.stage.as_ref()),
        "lastCallbackIndex": failed_index(task),
        "failedAt": record.at(),
        "nodeId": task.node(),
    })
}

fn failed_index(task: &Task) -> Option<usize> {
    task.failure().and_then(|failure| failure.stage.as_ref()).and_then(|stage| task.stage_index(stage))
}

fn dead_letter(task: &Task, sequence: u64, reason: &str, at: Timestamp) -> Value {
    let failure = task.failure();
    let stage = failure.and_then(|failure| failure.stage.as_ref());
    let message = task.message();
    json!({
        "id": dead_letter_key(task, sequence),
        "taskId": task.id(),
        "planId": task.spec().plan,
        "originalMessageId": message.map(|message| &message.id),
        "originalMessage": message.map(|message| &message.text),
        "failureReason": reason,
        "errorType": failure.map(|failure| failure.cause.error_type),
        "failedStage": stage,
        "failedCallback": stage,
        "failedStageIndex": failed_index(task),
        "attempts": failure.and_then(|failure| failure.attempts),
        "failedAt": at,
        "nodeId": task.node(),
        "failedNodeId": task.node(),
        "executedBy": task.node(),
    })
}

fn dead_letter_headers(task: &Task) -> Vec<(String, String)> {
    let Some(message) = task.message() else { return Vec::new() };
    headers(message.origin.as_ref(), task.failure().map(|failure| &failure.cause))
}

/// The names that Spring Kafka gives them.
pub(crate) fn headers(origin: Option<&Origin>, cause: Option<&Cause>) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    let mut put = |name: &str, value: String| headers.push((format!("kafka_dlt-{name}"), value));
    if let Some(origin) = origin {
        put("original-topic", origin.topic.to_string());
        put("original-partition", origin.partition.to_string());
        put("original-offset", origin.offset.to_string());
        put("original-timestamp", origin.timestamp.to_string());
        put("original-consumer-group", origin.group.to_string());
    }
    if let Some(cause) = cause {
        put("exception-fqcn", cause.error_type.as_str().to_owned());
        put("exception-message", cause.reason.clone());
    }
    headers
}
