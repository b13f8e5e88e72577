//! Dead letters put back: a task goes on from its checkpoint, a message that was none goes where it came from, and what
//! could not be published goes to the outbox.

use std::sync::Arc;

use milepost_core::id::TaskId;
use milepost_core::message::Arrival;
use milepost_core::plan::{PlanCommand, Trigger};
use milepost_core::task::{By, Command, Task, TaskStatus};
use milepost_core::time::{Millis, Timestamp};
use milepost_store::{
    Addressee, Book, BookChange, Parcel, PoisonOrigin, StoreError, StoredTask, Unpublished, WrittenAs, dead_letter_key,
};
use serde_json::Value;

use crate::engine::Engine;
use crate::publishing::{START_WITHIN, outbox};
use crate::verbs::{Asked, VerbError};

/// How long the id of a message that a person made is known; nobody else sends it.
const REMEMBERED_FOR: Millis = Millis::from_secs(24 * 3600);

/// What was put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redriven {
    /// None for a task that no message set off.
    pub message_id: Option<String>,
    /// The task that goes on, and its status; none when a message was published again.
    pub task: Option<(TaskId, TaskStatus)>,
}

impl Engine {
    /// Puts a dead letter back. Durable with the answer, and the letter is gone with it.
    pub async fn redrive(&self, id: &str, by: By) -> Result<Redriven, VerbError> {
        let engine = self.clone();
        let id = id.to_owned();
        self.see_through(async move {
            let missing = || VerbError::NotFound { what: "dead letter", id: id.clone() };
            let letter = engine.store().entry(Book::DeadLetters, &id, engine.clock().now()).await?;
            let letter = letter.ok_or_else(missing)?;
            let letter: Value = serde_json::from_str(&letter.body).map_err(|error| damaged(&id, &error))?;
            if let Some(unpublished) = Unpublished::of(&letter) {
                return engine.redrive_unpublished(&id, &unpublished).await;
            }
            match engine.task_of(&id, &letter).await? {
                Some(stored) => engine.redrive_task(stored, by).await,
                None => engine.redrive_message(&id, &letter).await,
            }
        })
        .await
    }

    /// The task that was given up with this very letter.
    async fn task_of(&self, id: &str, letter: &Value) -> Result<Option<StoredTask>, VerbError> {
        let Some(task) = letter["taskId"].as_str().and_then(|task| TaskId::parse(task).ok()) else { return Ok(None) };
        let gave_up = |task: &Task| task.dead_letter().is_some_and(|sequence| dead_letter_key(task, sequence) == id);
        Ok(self.store().task(&task).await?.filter(|stored| gave_up(&stored.task)))
    }

    async fn redrive_task(&self, stored: StoredTask, by: By) -> Result<Redriven, VerbError> {
        let task = stored.task.id().clone();
        let (command, message_id) = match stored.task.spec().settings.trigger {
            Trigger::Message => {
                let message = self.message(&task, None);
                let arrival = Arrival {
                    id: message.message_id.as_str().into(),
                    deadline: message.deadline,
                    remembered_until: self.clock().now() + REMEMBERED_FOR,
                    text: serde_json::to_string(&message).expect("a message is made of JSON").into(),
                    origin: None,
                };
                (Command::Redrive { by, message: Arc::new(arrival) }, Some(message.message_id))
            }
            Trigger::Start => (Command::Retry { by, from_checkpoint: true }, None),
        };
        let asked = Asked { command, plan: Some(PlanCommand::Retry), expected: None };
        let status = self.inner().command(&task, asked, Some(stored)).await?;
        self.inner().wake();
        Ok(Redriven { message_id, task: Some((task, status)) })
    }

    /// Into the outbox again, as it was: whoever hears of it should know it by the same name.
    async fn redrive_unpublished(&self, id: &str, unpublished: &Unpublished) -> Result<Redriven, VerbError> {
        self.store().change_books(unpublished.put_back(id, self.clock().now())).await?;
        Ok(Redriven { message_id: None, task: None })
    }

    async fn redrive_message(&self, id: &str, letter: &Value) -> Result<Redriven, VerbError> {
        let origin: PoisonOrigin = serde_json::from_value(letter.clone()).map_err(|_| {
            VerbError::Refused(format!("dead letter {id} cannot be put back: its task is no longer stored"))
        })?;
        let now = self.clock().now();
        let PoisonOrigin { original_topic: name, original_key, original_message, written_as } = origin;
        let (text, message_id) = match written_as {
            WrittenAs::Text => renewed(original_message, now, self.inner().new_id()),
            WrittenAs::Base64 => (original_message, None),
        };
        let parcel = Parcel {
            to: Addressee::Topic { name, written_as },
            key: original_key.unwrap_or_default(),
            headers: Vec::new(),
            body: Value::String(text),
        };
        let key = message_id.clone().unwrap_or_else(|| self.inner().new_id());
        let (keep, strike) = (vec![outbox(key, &parcel, now)], vec![(Book::DeadLetters, id.to_owned())]);
        self.store().change_books(BookChange { keep, strike }).await?;
        Ok(Redriven { message_id, task: None })
    }
}

/// What can be read as a message gets another id, or it would be known, and as much time again.
fn renewed(text: String, now: Timestamp, id: String) -> (String, Option<String>) {
    let Ok(Value::Object(mut message)) = serde_json::from_str(&text) else { return (text, None) };
    message.insert("messageId".to_owned(), Value::String(id.clone()));
    if message.contains_key("deadline") {
        message.insert("deadline".to_owned(), Value::String((now + START_WITHIN).to_string()));
    }
    (Value::Object(message).to_string(), Some(id))
}

fn damaged(id: &str, error: &serde_json::Error) -> VerbError {
    let (what, detail) = (format!("dead letter {id}"), error.to_string());
    VerbError::Store(StoreError::Damaged { what, detail })
}
