//! The operator's verbs. An answer means that it is done and durable.

use milepost_core::api::{ResetAnswer, VerbAnswer, VerbRequest};
use milepost_core::id::{IdempotencyKey, PlanId, StageName, TaskId, Tenant};
use reqwest::Method;
use serde::Serialize;

use super::connection::{Client, IDEMPOTENCY_KEY, Query, new_key, quoted};
use super::error::ClientError;

/// What an operator asks for; of `retry`, the request says whether from the checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Of a plan only.
    Start,
    Pause,
    Resume,
    Cancel,
    Retry,
    Rollback,
    /// Of a damaged task only.
    Repair,
}

impl Verb {
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Start => "start",
            Verb::Pause => "pause",
            Verb::Resume => "resume",
            Verb::Cancel => "cancel",
            Verb::Retry => "retry",
            Verb::Rollback => "rollback",
            Verb::Repair => "repair",
        }
    }
}

impl Client {
    pub async fn operate_plan(
        &self,
        plan: &PlanId,
        verb: Verb,
        request: &VerbRequest,
    ) -> Result<VerbAnswer, ClientError> {
        self.post(&["plans", plan.as_str(), verb.as_str()], request).await
    }

    pub async fn operate_task(
        &self,
        task: &TaskId,
        verb: Verb,
        request: &VerbRequest,
    ) -> Result<VerbAnswer, ClientError> {
        self.post(&["tasks", task.as_str(), verb.as_str()], request).await
    }

    /// Sends a workflow a signal, which it may be waiting for or ask for later. Sent again while the server is away, it is
    /// received once all the same.
    pub async fn signal(
        &self,
        task: &TaskId,
        name: &StageName,
        payload: &impl Serialize,
    ) -> Result<VerbAnswer, ClientError> {
        self.signal_under(&new_key(), task, name, payload).await
    }

    /// The same under a key of the caller's own: sent again, it is not received again.
    pub async fn signal_under(
        &self,
        key: &IdempotencyKey,
        task: &TaskId,
        name: &StageName,
        payload: &impl Serialize,
    ) -> Result<VerbAnswer, ClientError> {
        let path = ["tasks", task.as_str(), "signals", name.as_str()];
        let send = || {
            let request = self.request(Method::POST, &path, &Query::default());
            self.answer(request.header(IDEMPOTENCY_KEY, quoted(key)).json(payload))
        };
        self.insist(send).await
    }

    /// On the task of the tenant that matters most.
    pub async fn operate_tenant(
        &self,
        tenant: &Tenant,
        verb: Verb,
        request: &VerbRequest,
    ) -> Result<VerbAnswer, ClientError> {
        self.post(&["tenants", tenant.as_str(), verb.as_str()], request).await
    }

    /// Makes the plan's failed tasks PENDING again, to run at its next start.
    pub async fn reset_failed_plan(&self, plan: &PlanId, request: &VerbRequest) -> Result<ResetAnswer, ClientError> {
        self.post(&["plans", plan.as_str(), "reset-failed"], request).await
    }

    pub async fn reset_failed_task(&self, task: &TaskId, request: &VerbRequest) -> Result<ResetAnswer, ClientError> {
        self.post(&["tasks", task.as_str(), "reset-failed"], request).await
    }
}
