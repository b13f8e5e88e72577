//! A run of a workflow that is being described.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use milepost_core::id::{TaskId, Tenant};
use milepost_core::time::Millis;
use milepost_engine::Engine;
use milepost_engine::workflow::{Run as Submitted, TypedWorkflow};
use milepost_store::{Resubmit, Start};

use crate::error::Error;
use crate::handle::Handle;

/// Awaited, it is submitted and gives the result; `spawn` does not wait.
#[must_use = "a run does nothing until it is awaited or spawned"]
pub struct Run<W: TypedWorkflow> {
    engine: Engine,
    workflow: W,
    input: W::Input,
    id: Option<String>,
    tenant: Option<String>,
    timeout: Option<Duration>,
}

impl<W: TypedWorkflow> Run<W> {
    pub(crate) fn new(engine: Engine, workflow: W, input: W::Input) -> Self {
        Self { engine, workflow, input, id: None, tenant: None, timeout: None }
    }

    /// The same id again is the same run, and gives the same result. Left out: a new one.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// What no two runs may hold at once.
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// How long the whole of it may take; then it fails, and what was done is undone.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Submits the run; once this returns it will come to its end, whatever happens to this process.
    pub async fn spawn(self) -> Result<Handle<W::Output>, Error> {
        let workflow = self.workflow.reference();
        let id = self.id.unwrap_or_else(|| format!("{}-{}", workflow.name, uuid::Uuid::now_v7()));
        let id = TaskId::parse(id)?;
        let tenant = self.tenant.map(Tenant::parse).transpose()?;
        let mut run = Submitted::new(workflow, id.clone(), serde_json::to_value(self.input)?);
        let limit = self.timeout.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        run.settings.task_timeout = limit.map(Millis::new);
        let mut plan = run.plan();
        for task in &mut plan.tasks {
            task.tenant = tenant.clone();
        }
        let submitted = self.engine.submit(Arc::new(plan), Start::AtOnce, Resubmit::Same).await;
        submitted.map_err(|source| Error::Refused { id: id.clone(), source })?;
        Ok(Handle::new(self.engine, id))
    }
}

impl<W> IntoFuture for Run<W>
where
    W: TypedWorkflow + 'static,
{
    type Output = Result<W::Output, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move { self.spawn().await?.result().await }.boxed()
    }
}

impl<W: TypedWorkflow> std::fmt::Debug for Run<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run")
            .field("workflow", &self.workflow.reference())
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
