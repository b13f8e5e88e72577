//! Answers from a running server.

use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use milepost::{Client, ClientError, EventFilter, LogFilter, Paging, WatchEvent};
use milepost_core::api::{
    CheckpointView, DeadLetterView, Explanation, List, LogView, PlanReport, PlanView, PublishAnswer, PublishRequest,
    RedriveAnswer, ResetAnswer, VerbAnswer, VerbRequest,
};
use milepost_core::id::{PlanId, TaskId, Tenant};
use milepost_core::task::{By, EventView, TaskView};
use milepost_engine::Verb;
use milepost_store::{LogChunk, LogQuery};

use super::seam::{EventsAsked, Found, Operated, Order, Publication, Signal, Source};
use crate::exit::{Exit, Failure};
use crate::socket::{Name, VerbName};

/// Events asked for at a time.
const PAGE: usize = 500;
/// How often a server that puts back as many dead letters as it may is asked again.
const REDRIVE_PATIENCE: u32 = 30;

pub(crate) struct Remote {
    client: Client,
}

impl Remote {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    async fn on_plan(&self, plan: &PlanId, verb: Verb, request: &VerbRequest) -> Result<VerbAnswer, Failure> {
        Ok(match asked(verb) {
            Some(verb) => self.client.operate_plan(plan, verb, request).await?,
            None => reset(self.client.reset_failed_plan(plan, request).await?),
        })
    }

    async fn on_task(&self, task: &TaskId, verb: Verb, request: &VerbRequest) -> Result<VerbAnswer, Failure> {
        if verb == Verb::Start {
            let message = format!("a task is started with its plan; `milepost retry {task}` runs a failed one again");
            return Err(Failure::new(Exit::Refused, message));
        }
        Ok(match asked(verb) {
            Some(verb) => self.client.operate_task(task, verb, request).await?,
            None => reset(self.client.reset_failed_task(task, request).await?),
        })
    }

    async fn on_tenant(&self, text: &str, verb: Verb, request: &VerbRequest) -> Result<VerbAnswer, Failure> {
        let missing = || Failure::new(Exit::NotFound, format!("there is no task of tenant `{text}`"));
        let tenant = Tenant::parse(text).map_err(|_| missing())?;
        match asked(verb) {
            Some(verb) if !matches!(verb, milepost::Verb::Start | milepost::Verb::Repair) => {
                found(self.client.operate_tenant(&tenant, verb, request).await)?.ok_or_else(missing)
            }
            // These are not among a tenant's own.
            Some(_) | None => {
                let task = found(self.client.tenant_task(&tenant).await)?.ok_or_else(missing)?;
                self.on_task(&task.task_id, verb, request).await
            }
        }
    }
}

#[async_trait]
impl Source for Remote {
    async fn plans(&self, limit: u16, cursor: Option<&str>) -> Result<List<PlanView>, Failure> {
        let paging = Paging { cursor: cursor.map(str::to_owned), limit: Some(limit.into()) };
        Ok(self.client.plans(&paging).await?)
    }

    async fn find(&self, id: &str) -> Result<Option<Found>, Failure> {
        let Ok(plan) = PlanId::parse(id) else { return Ok(None) };
        match found(self.client.plan(&plan).await) {
            Ok(Some(_)) => Ok(Some(Found::Plan(plan))),
            Ok(None) => Ok(self.task(id).await?.map(|task| Found::Task(Box::new(task)))),
            // Who may see only one tenant's tasks may not ask for plans, and may well have meant a task.
            Err(error @ ClientError::Problem { status: 403, .. }) => match self.task(id).await {
                Ok(Some(task)) => Ok(Some(Found::Task(Box::new(task)))),
                Ok(None) | Err(_) => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    async fn plan_report(&self, plan: &PlanId) -> Result<PlanReport, Failure> {
        Ok(self.client.plan_report(plan).await?)
    }

    async fn task(&self, id: &str) -> Result<Option<TaskView>, Failure> {
        let Ok(id) = TaskId::parse(id) else { return Ok(None) };
        Ok(found(self.client.task(&id).await)?)
    }

    async fn task_of(&self, tenant: &str) -> Result<Option<TaskView>, Failure> {
        let Ok(tenant) = Tenant::parse(tenant) else { return Ok(None) };
        Ok(found(self.client.tenant_task(&tenant).await)?)
    }

    async fn events(&self, asked: EventsAsked) -> Result<List<EventView>, Failure> {
        let mut all: List<EventView> = List { items: Vec::new(), next_cursor: Some(asked.after.to_string()) };
        while all.next_cursor.is_some() && all.items.len() < asked.limit {
            let limit = u32::try_from((asked.limit - all.items.len()).min(PAGE)).ok();
            let filter = EventFilter { after: all.next_cursor.take(), attempt: asked.attempt, limit };
            let page = self.client.events(&asked.task, &filter).await?;
            all.items.extend(page.items);
            all.next_cursor = page.next_cursor;
        }
        Ok(all)
    }

    async fn logs(&self, asked: LogQuery) -> Result<Vec<LogChunk>, Failure> {
        let mut filter = LogFilter { stage: asked.stage, attempt: asked.attempt, cursor: None };
        let mut chunks = Vec::new();
        loop {
            let page = self.client.logs(&asked.task, &filter).await?;
            chunks.extend(page.items.into_iter().map(chunk));
            if page.next_cursor.is_none() {
                return Ok(chunks);
            }
            filter.cursor = page.next_cursor;
        }
    }

    async fn checkpoint(&self, task: &TaskId) -> Result<CheckpointView, Failure> {
        Ok(self.client.checkpoint(task).await?)
    }

    async fn explain(&self, task: &TaskId) -> Result<Option<Explanation>, Failure> {
        Ok(found(self.client.explain(task).await)?)
    }

    async fn operate(&self, order: Order) -> Result<Operated, Failure> {
        let from_checkpoint = match order.verb {
            Verb::Retry { from_checkpoint } => Some(from_checkpoint),
            Verb::Start
            | Verb::Pause
            | Verb::Resume
            | Verb::Cancel
            | Verb::Rollback
            | Verb::ResetFailed
            | Verb::Repair => None,
        };
        let request = VerbRequest { reason: order.by.why, from_checkpoint, ..VerbRequest::default() };
        let (Name::Id(target) | Name::Task(target) | Name::Tenant(target)) = order.target.clone();
        let answer = match order.target {
            Name::Tenant(tenant) => self.on_tenant(&tenant, order.verb, &request).await?,
            Name::Task(id) => match TaskId::parse(&id) {
                Ok(task) => self.on_task(&task, order.verb, &request).await?,
                Err(_) => return Err(Failure::new(Exit::NotFound, format!("there is no task `{id}`"))),
            },
            Name::Id(id) => match self.find(&id).await? {
                Some(Found::Plan(plan)) => self.on_plan(&plan, order.verb, &request).await?,
                Some(Found::Task(task)) => self.on_task(&task.task_id, order.verb, &request).await?,
                None => return Err(Failure::new(Exit::NotFound, format!("there is no plan or task `{id}`"))),
            },
        };
        // As the person named it, and not as the server found it.
        let verb = VerbName::from(order.verb).as_str().to_owned();
        Ok(Operated { answer: VerbAnswer { target, verb, ..answer }, goes_on: true })
    }

    async fn signal(&self, signal: Signal) -> Result<Operated, Failure> {
        let answer = self.client.signal_under(&signal.key, &signal.task, &signal.name, &signal.payload).await?;
        Ok(Operated { answer, goes_on: true })
    }

    async fn publish(&self, publication: Publication) -> Result<Vec<PublishAnswer>, Failure> {
        let request = PublishRequest { deadline: publication.within.map(|within| within.to_string()) };
        let mut answers = Vec::new();
        for task in &publication.tasks {
            answers.push(self.client.publish(task, &request).await?);
        }
        Ok(answers)
    }

    async fn dead_letters(&self, limit: u16, cursor: Option<&str>) -> Result<List<DeadLetterView>, Failure> {
        let paging = Paging { cursor: cursor.map(str::to_owned), limit: Some(limit.into()) };
        Ok(self.client.dead_letters(&paging).await?)
    }

    async fn dead_letter(&self, id: &str) -> Result<Option<DeadLetterView>, Failure> {
        Ok(found(self.client.dead_letter(id).await)?)
    }

    async fn redrive(&self, id: &str, by: By) -> Result<RedriveAnswer, Failure> {
        let request = VerbRequest { reason: by.why, ..VerbRequest::default() };
        let mut patience = REDRIVE_PATIENCE;
        loop {
            match self.client.redrive(id, &request).await {
                // So many a second, and no more: its turn comes.
                Err(ClientError::Problem { status: 429, .. }) if patience > 0 => {
                    patience -= 1;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                answer => return Ok(answer?),
            }
        }
    }

    async fn watch(&self, plan: &PlanId) -> Result<BoxStream<'static, Result<WatchEvent, Failure>>, Failure> {
        Ok(self.client.watch(plan).map(|event| event.map_err(Failure::from)).boxed())
    }
}

/// What a route is called; `reset-failed` has one of its own.
fn asked(verb: Verb) -> Option<milepost::Verb> {
    match verb {
        Verb::Start => Some(milepost::Verb::Start),
        Verb::Pause => Some(milepost::Verb::Pause),
        Verb::Resume => Some(milepost::Verb::Resume),
        Verb::Cancel => Some(milepost::Verb::Cancel),
        Verb::Retry { .. } => Some(milepost::Verb::Retry),
        Verb::Rollback => Some(milepost::Verb::Rollback),
        Verb::Repair => Some(milepost::Verb::Repair),
        Verb::ResetFailed => None,
    }
}

fn reset(answer: ResetAnswer) -> VerbAnswer {
    let ResetAnswer { reset: tasks, left } = answer;
    VerbAnswer { target: String::new(), verb: String::new(), tasks, plan: None, task: None, left }
}

fn found<T>(answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

fn chunk(view: LogView) -> LogChunk {
    LogChunk { stage: view.stage, attempt: view.attempt, at: view.at, bytes: view.text.into_bytes() }
}
