//! What commands may ask, and the shapes of the answers: those of the HTTP API, wherever they come from.

use async_trait::async_trait;
use futures::stream::BoxStream;
use milepost::WatchEvent;
use milepost_core::api::{
    CheckpointView, DeadLetterView, Explanation, List, PlanReport, PlanView, PublishAnswer, RedriveAnswer, VerbAnswer,
};
use milepost_core::id::{IdempotencyKey, PlanId, StageName, TaskId};
use milepost_core::task::{By, EventView, TaskView};
use milepost_core::time::Millis;
use milepost_engine::Verb;
use milepost_store::{LogChunk, LogQuery};
use serde_json::Value;

use crate::exit::Failure;
use crate::socket::Name;

#[async_trait]
pub(crate) trait Source: Send + Sync {
    /// Newest first.
    async fn plans(&self, limit: u16, cursor: Option<&str>) -> Result<List<PlanView>, Failure>;

    /// What an id means: a plan, else a task.
    async fn find(&self, id: &str) -> Result<Option<Found>, Failure>;

    async fn plan_report(&self, plan: &PlanId) -> Result<PlanReport, Failure>;

    async fn task(&self, id: &str) -> Result<Option<TaskView>, Failure>;

    /// The task of the tenant that matters most.
    async fn task_of(&self, tenant: &str) -> Result<Option<TaskView>, Failure>;

    async fn events(&self, asked: EventsAsked) -> Result<List<EventView>, Failure>;

    async fn logs(&self, asked: LogQuery) -> Result<Vec<LogChunk>, Failure>;

    async fn checkpoint(&self, task: &TaskId) -> Result<CheckpointView, Failure>;

    async fn explain(&self, task: &TaskId) -> Result<Option<Explanation>, Failure>;

    /// Answered once it is durable.
    async fn operate(&self, order: Order) -> Result<Operated, Failure>;

    /// Answered once it is durable.
    async fn signal(&self, signal: Signal) -> Result<Operated, Failure>;

    /// Sends tasks the messages that they wait for; answered once they are in the outbox.
    async fn publish(&self, publication: Publication) -> Result<Vec<PublishAnswer>, Failure>;

    /// Oldest first.
    async fn dead_letters(&self, limit: u16, cursor: Option<&str>) -> Result<List<DeadLetterView>, Failure>;

    async fn dead_letter(&self, id: &str) -> Result<Option<DeadLetterView>, Failure>;

    /// Answered once it is durable.
    async fn redrive(&self, id: &str, by: By) -> Result<RedriveAnswer, Failure>;

    /// What happens to a plan, until it ends. An error is the last item.
    async fn watch(&self, plan: &PlanId) -> Result<BoxStream<'static, Result<WatchEvent, Failure>>, Failure>;
}

pub(crate) enum Found {
    Plan(PlanId),
    Task(Box<TaskView>),
}

#[derive(Debug, Clone)]
pub(crate) struct EventsAsked {
    pub(crate) plan: PlanId,
    pub(crate) task: TaskId,
    /// Only larger sequence numbers.
    pub(crate) after: u64,
    pub(crate) attempt: Option<u32>,
    pub(crate) limit: usize,
}

/// A verb and what it is for.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) target: Name,
    pub(crate) verb: Verb,
    pub(crate) by: By,
}

/// A message for a workflow.
#[derive(Debug, Clone)]
pub(crate) struct Signal {
    pub(crate) task: TaskId,
    pub(crate) name: StageName,
    pub(crate) payload: Value,
    /// Sent again under it, it is not received again.
    pub(crate) key: IdempotencyKey,
    pub(crate) by: By,
}

/// Messages for tasks.
#[derive(Debug, Clone)]
pub(crate) struct Publication {
    pub(crate) tasks: Vec<TaskId>,
    /// By when they have to start.
    pub(crate) within: Option<Millis>,
    pub(crate) by: By,
}

#[derive(Debug)]
pub(crate) struct Operated {
    pub(crate) answer: VerbAnswer,
    /// Somebody is there who goes on by himself with what was asked for.
    pub(crate) goes_on: bool,
}
