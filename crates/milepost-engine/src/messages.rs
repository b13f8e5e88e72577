//! Tasks that messages set off: a message is taken in once, durably, before whoever sent it is told so.

use std::sync::Arc;

use milepost_core::id::TaskId;
use milepost_core::message::Arrival;
use milepost_core::plan::Plan;
use milepost_core::planted::planted;
use milepost_core::task::{Command, Rejection, TaskStatus};
use milepost_store::{Book, Clash, Entry, Resubmit, Start, StoreError, Submission};
use serde_json::json;

use crate::engine::Engine;
use crate::verbs::{Asked, VerbError};

/// What came of a message. All but `Unknown` are durable: the message need not be kept any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Its task may be claimed from now on.
    Started,
    /// It came too late; its task has failed.
    Expired,
    /// The same message was here before.
    Seen,
    /// Its task did not wait for a message: it has had another one.
    NotWaiting(TaskStatus),
    /// There is no such task, or not yet.
    Unknown,
}

impl Engine {
    /// Hands a message to the task that waits for it.
    pub async fn receive(&self, task: &TaskId, message: Arc<Arrival>) -> Result<Received, VerbError> {
        let (inner, task) = (self.inner().clone(), task.clone());
        self.see_through(async move {
            let Some(stored) = inner.store.task(&task).await? else { return Ok(Received::Unknown) };
            let known = stored.task.message().is_some_and(|known| known.id == message.id);
            if known && !planted("a message is taken in twice") {
                return Ok(Received::Seen);
            }
            if !stored.task.takes_message() {
                return Ok(Received::NotWaiting(stored.task.status()));
            }
            inner.chains.expect(&task);
            if planted("a message is acknowledged too early") {
                let (inner, task) = (inner.clone(), task.clone());
                let taking = async move { inner.command(&task, Asked::simply(Command::Receive(message)), None).await };
                drop(tokio::spawn(taking));
                return Ok(Received::Started);
            }
            let received = inner.command(&task, Asked::simply(Command::Receive(message)), Some(stored)).await;
            if !matches!(received, Ok(TaskStatus::Pending)) {
                inner.chains.is_here(&task);
            }
            inner.wake();
            inner.call_others_if_full();
            match received {
                Ok(TaskStatus::Failed) => Ok(Received::Expired),
                Ok(_) => Ok(Received::Started),
                Err(VerbError::Store(StoreError::Kept { .. })) => Ok(Received::Seen),
                Err(VerbError::Rejected(Rejection::Status { status, .. })) => Ok(Received::NotWaiting(status)),
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// Stores the plan that a message makes, in one commit with the message's own id. Its task has `message` in its
    /// definition.
    pub async fn receive_new(&self, plan: Arc<Plan>, message: &Arrival) -> Result<Received, VerbError> {
        let now = self.clock().now();
        let entry = Entry {
            book: Book::Messages,
            key: message.id.to_string(),
            at: now,
            until: Some(message.remembered_until),
            body: json!({ "taskId": plan.tasks.first().map(|task| &task.id) }).to_string(),
        };
        let tasks: Vec<TaskId> = plan.tasks.iter().map(|task| task.id.clone()).collect();
        let (start, resubmit) = (Start::AtOnce, Resubmit::Same);
        let submission = Submission { plan, start, resubmit, request: None, entries: vec![entry], now };
        let inner = self.inner().clone();
        self.see_through(async move {
            tasks.iter().for_each(|task| inner.chains.expect(task));
            let submitted = inner.store.submit(submission).await;
            if !matches!(&submitted, Ok(submitted) if submitted.created) {
                tasks.iter().for_each(|task| inner.chains.is_here(task));
            }
            match submitted {
                Ok(submitted) => {
                    inner.wake();
                    inner.call_others_if_full();
                    Ok(if submitted.created { Received::Started } else { Received::Seen })
                }
                Err(StoreError::Kept { .. }) => Ok(Received::Seen),
                // Another message has made it meanwhile; or a plan has its name, and then it is for nobody.
                Err(StoreError::Clash(clash @ (Clash::OtherContent { .. } | Clash::TaskId { .. }))) => {
                    for task in &tasks {
                        if let Some(stored) = inner.store.task(task).await? {
                            return Ok(Received::NotWaiting(stored.task.status()));
                        }
                    }
                    Err(StoreError::Clash(clash).into())
                }
                Err(error) => Err(error.into()),
            }
        })
        .await
    }
}
