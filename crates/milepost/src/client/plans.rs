//! Plans: handing them in, and how they get on.

use bytes::Bytes;
use milepost_core::api::{Accepted, List, PlanDetail, PlanProgress, PlanReport, PlanView};
use milepost_core::id::{IdempotencyKey, PlanId};
use milepost_core::task::{TaskStatus, TaskView};
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;

use super::connection::{Client, IDEMPOTENCY_KEY, Paging, Query, new_key, quoted};
use super::error::ClientError;

/// A plan file to be handed in, as it is.
#[derive(Debug, Clone)]
pub struct PlanUpload {
    pub text: Bytes,
    pub format: PlanFormat,
    /// Run it at once; else it is READY until somebody starts it.
    pub start: bool,
    /// If the plan is there with other tasks: add the new ones, and remove those that are gone.
    pub update: bool,
    /// Of a plan with `trigger: message`: also send each of its tasks the message that it waits for.
    pub publish: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanFormat {
    Yaml,
    Json,
}

impl PlanFormat {
    fn content_type(self) -> &'static str {
        match self {
            PlanFormat::Yaml => "application/yaml",
            PlanFormat::Json => "application/json",
        }
    }
}

/// Which tasks of a plan.
#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    pub status: Option<TaskStatus>,
    pub paging: Paging,
}

impl Client {
    /// Hands in a plan. Sent again under the same key while the server is away, it is taken once all the same.
    pub async fn submit(&self, plan: PlanUpload) -> Result<Accepted, ClientError> {
        let key = new_key();
        self.insist(|| self.send_plan(&plan, &key)).await
    }

    async fn send_plan(&self, plan: &PlanUpload, key: &IdempotencyKey) -> Result<Accepted, ClientError> {
        let query = Query::default().with("start", Some(plan.start)).with("update", plan.update.then_some(true));
        let query = query.with("publish", plan.publish.then_some(true));
        let request = self
            .request(Method::POST, &["plans"], &query)
            .header(IDEMPOTENCY_KEY, quoted(key))
            .header(CONTENT_TYPE, plan.format.content_type())
            .body(plan.text.clone());
        self.answer(request).await
    }

    /// All plans, newest first.
    pub async fn plans(&self, paging: &Paging) -> Result<List<PlanView>, ClientError> {
        self.get(&["plans"], paging.query()).await
    }

    pub async fn plan(&self, plan: &PlanId) -> Result<PlanDetail, ClientError> {
        self.get(&["plans", plan.as_str()], Query::default()).await
    }

    /// What runs, what waits and what failed of it.
    pub async fn plan_report(&self, plan: &PlanId) -> Result<PlanReport, ClientError> {
        self.get(&["plans", plan.as_str(), "report"], Query::default()).await
    }

    pub async fn plan_progress(&self, plan: &PlanId) -> Result<PlanProgress, ClientError> {
        self.get(&["plans", plan.as_str(), "progress"], Query::default()).await
    }

    pub async fn plan_tasks(&self, plan: &PlanId, filter: &TaskFilter) -> Result<List<TaskView>, ClientError> {
        let query = filter.paging.query().with("status", filter.status);
        self.get(&["plans", plan.as_str(), "tasks"], query).await
    }
}
