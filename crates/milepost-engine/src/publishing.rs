//! Messages of our own: written to the outbox in the same commit as what they are about, and published from there.

use std::sync::Arc;

use milepost_core::id::TaskId;
use milepost_core::message::Message;
use milepost_core::plan::{Plan, Trigger};
use milepost_core::time::{Millis, Timestamp};
use milepost_store::{Addressee, Book, BookChange, Entry, Parcel, RequestKey, Resubmit, Start, Submitted};
use serde_json::{Value, json};

use crate::engine::{Engine, EngineError};
use crate::verbs::VerbError;

/// By when a task has to start at the latest, unless somebody says otherwise.
pub(crate) const START_WITHIN: Millis = Millis::from_secs(3600);

impl Engine {
    /// Sends each of these tasks the message that it waits for, by way of the topic. Their ids; durable with the answer.
    pub async fn publish(&self, tasks: &[TaskId], within: Option<Millis>) -> Result<Vec<String>, VerbError> {
        for id in tasks {
            let stored = self.store().task(id).await?;
            let task = stored.ok_or_else(|| VerbError::NotFound { what: "task", id: id.to_string() })?.task;
            if !task.takes_message() {
                let why = match task.spec().settings.trigger {
                    Trigger::Start => "its plan does not have `trigger: message`".to_owned(),
                    Trigger::Message => format!("it is {} and has had its message", task.status()),
                };
                return Err(VerbError::Refused(format!("task {id} does not wait for a message: {why}")));
            }
        }
        let messages: Vec<Message> = tasks.iter().map(|task| self.message(task, within)).collect();
        let keep = messages.iter().map(|message| parcel(message, self.clock().now())).collect();
        let (store, change) = (self.store().clone(), BookChange { keep, strike: Vec::new() });
        self.see_through(async move { store.change_books(change).await }).await?;
        Ok(messages.into_iter().map(|message| message.message_id).collect())
    }

    /// Stores a plan with `trigger: message`, and in the same commit the messages that set its tasks off. When it is
    /// there already, only those of its tasks that are new get one: sent again, a submission publishes nothing twice.
    pub async fn submit_and_publish(
        &self,
        plan: Arc<Plan>,
        resubmit: Resubmit,
        request: Option<RequestKey>,
        within: Option<Millis>,
    ) -> Result<Submitted, EngineError> {
        if plan.definition.settings.trigger != Trigger::Message {
            let words = "only a plan with `trigger: message` can be published; this one is started";
            return Err(EngineError::Plan(words.to_owned()));
        }
        let known = self.store().plan(&plan.definition.id).await?.is_some();
        let (now, mut entries) = (self.clock().now(), Vec::new());
        for task in &plan.tasks {
            if !known || self.store().task(&task.id).await?.is_none() {
                entries.push(parcel(&self.message(&task.id, within), now));
            }
        }
        self.submit_with(plan, Start::AtOnce, resubmit, request, entries).await
    }

    pub(crate) fn message(&self, task: &TaskId, within: Option<Millis>) -> Message {
        let now = self.clock().now();
        Message {
            message_id: self.inner().new_id(),
            task_id: task.clone(),
            published_at: Some(now),
            deadline: Some(now + within.unwrap_or(START_WITHIN)),
            source_node: Some(self.node().to_owned()),
            chain: None,
            file: None,
            input: Value::Null,
        }
    }
}

fn parcel(message: &Message, now: Timestamp) -> Entry {
    let key = message.task_id.to_string();
    let parcel = Parcel { to: Addressee::Tasks, key, headers: Vec::new(), body: json!(message) };
    outbox(message.message_id.clone(), &parcel, now)
}

pub(crate) fn outbox(key: String, parcel: &Parcel, at: Timestamp) -> Entry {
    let body = serde_json::to_string(parcel).expect("a parcel is made of JSON");
    Entry { book: Book::Outbox, key, at, until: None, body }
}
