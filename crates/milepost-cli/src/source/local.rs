//! Answers from a store, whoever owns it or shares it. Verbs go to the owner of a file, or are done here.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use milepost::WatchEvent;
use milepost_core::api::{
    CheckpointView, DeadLetterView, Explanation, List, PlanReport, PlanView, PublishAnswer, RedriveAnswer, VerbAnswer,
};
use milepost_core::id::{PlanId, TaskId, Tenant};
use milepost_core::plan::Recovery;
use milepost_core::task::{By, Checkpoint, EventView, TaskView};
use milepost_engine::{Clock, Target, owner, task_of_tenant};
use milepost_store::{Book, EntryQuery, EventQuery, LogChunk, LogQuery, PlanQuery, Store, StoreError, StoredTask};

use tokio::sync::OnceCell;

use super::follow;
use super::seam::{EventsAsked, Found, Operated, Order, Publication, Signal, Source};
use crate::exit::{Exit, Failure};
use crate::socket::{
    Answer, Done, MessageAnswer, MessageOrder, MessageVerb, Name, Request, SignalOrder, VerbName, ask,
};
use crate::store_url::StoreUrl;
use crate::views;

/// Events read at a time.
const PAGE: usize = 1000;

pub(crate) struct Local {
    url: StoreUrl,
    /// What nodes here do with plans that do not say.
    recovery: Recovery,
    /// Opened by the first question; a verb asks none.
    store: OnceCell<Arc<dyn Store>>,
}

impl Local {
    pub(crate) fn new(url: StoreUrl, recovery: Recovery) -> Self {
        Self { url, recovery, store: OnceCell::new() }
    }

    async fn store(&self) -> Result<&Arc<dyn Store>, Failure> {
        self.store.get_or_try_init(|| self.url.visit()).await
    }

    async fn order(&self, verb: MessageVerb, by: By) -> Result<MessageAnswer, Failure> {
        self.url.must_exist()?;
        Ok(ask(&self.url, &MessageOrder::new(verb, by)).await?.0)
    }

    async fn stored(&self, task: &TaskId) -> Result<StoredTask, Failure> {
        let stored = self.store().await?.task(task).await?;
        Ok(stored.ok_or_else(|| StoreError::NotFound { what: "task", id: task.to_string() })?)
    }
}

#[async_trait]
impl Source for Local {
    async fn plans(&self, limit: u16, cursor: Option<&str>) -> Result<List<PlanView>, Failure> {
        let store = self.store().await?;
        let after = cursor.map(place).transpose()?;
        let page = store.plans(PlanQuery { open_only: false, after, limit: limit.into() }).await?;
        let items = page.items.iter().map(PlanView::from).collect();
        Ok(List { items, next_cursor: page.next.map(|next| next.to_string()) })
    }

    async fn find(&self, id: &str) -> Result<Option<Found>, Failure> {
        Ok(match owner::find(&**self.store().await?, id).await? {
            Some(Target::Plan(plan)) => Some(Found::Plan(plan)),
            Some(Target::Task(task)) => Some(Found::Task(Box::new(TaskView::from(&self.stored(&task).await?)))),
            Some(Target::Tenant(_)) | None => None,
        })
    }

    async fn plan_report(&self, plan: &PlanId) -> Result<PlanReport, Failure> {
        let store = self.store().await?;
        let row = store.plan(plan).await?;
        let row = row.ok_or_else(|| StoreError::NotFound { what: "plan", id: plan.to_string() })?;
        let progress = views::plan_progress(&**store, &row, Clock::of(&**store).now(), |task| task).await?;
        Ok(views::plan_report(&**store, &row, &progress).await?)
    }

    async fn task(&self, id: &str) -> Result<Option<TaskView>, Failure> {
        let store = self.store().await?;
        let Ok(id) = TaskId::parse(id) else { return Ok(None) };
        Ok(store.task(&id).await?.as_ref().map(TaskView::from))
    }

    async fn task_of(&self, tenant: &str) -> Result<Option<TaskView>, Failure> {
        let store = self.store().await?;
        let Ok(tenant) = Tenant::parse(tenant) else { return Ok(None) };
        match task_of_tenant(&**store, &tenant).await? {
            Some(row) => self.task(row.key.id.as_str()).await,
            None => Ok(None),
        }
    }

    async fn events(&self, asked: EventsAsked) -> Result<List<EventView>, Failure> {
        let store = self.store().await?;
        let mut after = asked.after;
        let mut items: Vec<EventView> = Vec::new();
        loop {
            let found = store.events(EventQuery { task: asked.task.clone(), after, limit: PAGE }).await?;
            let last = found.len() < PAGE;
            for event in found {
                if items.len() == asked.limit {
                    let next_cursor = items.last().map(|event| event.sequence.to_string());
                    return Ok(List { items, next_cursor });
                }
                after = event.sequence;
                let view = EventView::new(&asked.plan, &asked.task, event.sequence, &event.record);
                if asked.attempt.is_none() || view.attempt_number == asked.attempt {
                    items.push(view);
                }
            }
            if last {
                return Ok(List { items, next_cursor: None });
            }
        }
    }

    async fn logs(&self, asked: LogQuery) -> Result<Vec<LogChunk>, Failure> {
        Ok(self.store().await?.logs(asked).await?)
    }

    async fn checkpoint(&self, task: &TaskId) -> Result<CheckpointView, Failure> {
        let checkpoint = Checkpoint::of(&self.stored(task).await?.task);
        Ok(CheckpointView { has_checkpoint: checkpoint.is_some(), checkpoint })
    }

    async fn explain(&self, task: &TaskId) -> Result<Option<Explanation>, Failure> {
        let store = self.store().await?;
        Ok(milepost_engine::explain(&**store, task, Clock::of(&**store).now(), self.recovery).await?)
    }

    async fn operate(&self, order: Order) -> Result<Operated, Failure> {
        self.url.must_exist()?;
        let (Name::Id(target) | Name::Task(target) | Name::Tenant(target)) = order.target.clone();
        let verb = VerbName::from(order.verb);
        let (answer, goes_on) = ask(&self.url, &Request::new(order.target, order.verb, order.by)).await?;
        operated(target, verb.as_str(), answer, goes_on)
    }

    async fn signal(&self, signal: Signal) -> Result<Operated, Failure> {
        self.url.must_exist()?;
        let target = signal.task.to_string();
        let order = SignalOrder::new(signal.task, signal.name, signal.payload, signal.by, signal.key);
        let (answer, goes_on) = ask(&self.url, &order).await?;
        operated(target, "signal", answer, goes_on)
    }

    async fn publish(&self, publication: Publication) -> Result<Vec<PublishAnswer>, Failure> {
        let Publication { tasks, within, by } = publication;
        match self.order(MessageVerb::Publish { tasks, within }, by).await? {
            MessageAnswer::Published { messages } => Ok(messages),
            other => Err(refusal(other)),
        }
    }

    async fn dead_letters(&self, limit: u16, cursor: Option<&str>) -> Result<List<DeadLetterView>, Failure> {
        let after = cursor.map(place).transpose()?;
        let store = self.store().await?;
        let now = Clock::of(&**store).now();
        let query = EntryQuery { book: Book::DeadLetters, after, limit: limit.into(), now };
        let page = store.entries(query).await?;
        let items = page.items.iter().map(DeadLetterView::try_from).collect::<Result<_, StoreError>>()?;
        Ok(List { items, next_cursor: page.next.map(|next| next.to_string()) })
    }

    async fn dead_letter(&self, id: &str) -> Result<Option<DeadLetterView>, Failure> {
        let store = self.store().await?;
        let entry = store.entry(Book::DeadLetters, id, Clock::of(&**store).now()).await?;
        Ok(entry.as_ref().map(DeadLetterView::try_from).transpose()?)
    }

    async fn redrive(&self, id: &str, by: By) -> Result<RedriveAnswer, Failure> {
        match self.order(MessageVerb::Redrive { id: id.to_owned() }, by).await? {
            MessageAnswer::Redriven(answer) => Ok(answer),
            other => Err(refusal(other)),
        }
    }

    async fn watch(&self, plan: &PlanId) -> Result<BoxStream<'static, Result<WatchEvent, Failure>>, Failure> {
        Ok(follow::follow(self.store().await?.clone(), plan.clone()))
    }
}

fn operated(target: String, verb: &str, answer: Answer, goes_on: bool) -> Result<Operated, Failure> {
    match answer {
        Answer::Done(done) => {
            let Done { tasks, plan, task, left } = done;
            Ok(Operated { answer: VerbAnswer { target, verb: verb.to_owned(), tasks, plan, task, left }, goes_on })
        }
        Answer::Refused { message } => Err(Failure::new(Exit::Refused, message)),
        Answer::NotFound { message } => Err(Failure::new(Exit::NotFound, message)),
        Answer::Failed { message } => Err(Failure::new(Exit::OutOfReach, message)),
    }
}

fn refusal(answer: MessageAnswer) -> Failure {
    match answer {
        MessageAnswer::Refused { message } => Failure::new(Exit::Refused, message),
        MessageAnswer::NotFound { message } => Failure::new(Exit::NotFound, message),
        MessageAnswer::Failed { message } => Failure::new(Exit::OutOfReach, message),
        MessageAnswer::Published { .. } | MessageAnswer::Redriven(_) => {
            Failure::new(Exit::OutOfReach, "the process that owns the store answered something else than was asked")
        }
    }
}

/// Where a page of a list begins.
fn place(cursor: &str) -> Result<i64, Failure> {
    let bad = || Failure::new(Exit::Usage, format!("`{cursor}` is no cursor; expected the nextCursor of a list"));
    cursor.parse().map_err(|_| bad())
}
