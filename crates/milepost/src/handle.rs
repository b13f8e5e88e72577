//! A run under way, or over.

use std::marker::PhantomData;

use milepost_core::id::{IdempotencyKey, PlanId, StageName, TaskId};
use milepost_core::task::{By, Task, TaskStatus, TaskView};
use milepost_engine::workflow::outcome;
use milepost_engine::{Engine, Target, Verb};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;

/// One run of a workflow, by its id.
#[derive(Debug)]
pub struct Handle<T> {
    engine: Engine,
    id: TaskId,
    result: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Handle<T> {
    pub(crate) fn new(engine: Engine, id: TaskId) -> Self {
        Self { engine, id, result: PhantomData }
    }

    pub fn id(&self) -> &TaskId {
        &self.id
    }

    /// Waits for its end; the function's result, or why there is none.
    pub async fn result(&self) -> Result<T, Error> {
        let plan = PlanId::parse(self.id.as_str())?;
        self.engine.wait_for_plan(&plan, |row| row.ended_at.is_some()).await?;
        let task = self.task().await?;
        match outcome(&task) {
            Some(Ok(value)) => Ok(serde_json::from_value(value)?),
            Some(Err(cause)) => Err(Error::failed(self.id.clone(), task.status(), cause)),
            None => Err(Error::NotFound { id: self.id.to_string() }),
        }
    }

    /// Sends it a message, which it may be waiting for or ask for later.
    pub async fn signal(&self, name: &str, payload: impl Serialize) -> Result<(), Error> {
        let (name, payload) = (StageName::parse(name)?, serde_json::to_value(payload)?);
        self.engine.signal(&self.id, name, payload, by()).await?;
        Ok(())
    }

    /// The same under a key of the caller's own: sent again, by this process or the next, it is not received again.
    pub async fn signal_under(&self, key: &str, name: &str, payload: impl Serialize) -> Result<(), Error> {
        let (key, name) = (IdempotencyKey::parse(key)?, StageName::parse(name)?);
        self.engine.signal_under(key, &self.id, name, serde_json::to_value(payload)?, by()).await?;
        Ok(())
    }

    /// Ends it where it is; nothing is undone.
    pub async fn cancel(&self) -> Result<(), Error> {
        self.operate(Verb::Cancel).await
    }

    pub async fn pause(&self) -> Result<(), Error> {
        self.operate(Verb::Pause).await
    }

    pub async fn resume(&self) -> Result<(), Error> {
        self.operate(Verb::Resume).await
    }

    /// Runs a failed one again; stages that have completed are not run again.
    pub async fn retry(&self) -> Result<(), Error> {
        self.operate(Verb::Retry { from_checkpoint: true }).await
    }

    pub async fn status(&self) -> Result<TaskStatus, Error> {
        Ok(self.task().await?.status())
    }

    /// Everything there is to see of it.
    pub async fn view(&self) -> Result<TaskView, Error> {
        let stored = self.engine.store().task(&self.id).await?;
        stored.map(|stored| TaskView::from(&stored)).ok_or_else(|| Error::NotFound { id: self.id.to_string() })
    }

    async fn task(&self) -> Result<Task, Error> {
        let stored = self.engine.store().task(&self.id).await?;
        stored.map(|stored| stored.task).ok_or_else(|| Error::NotFound { id: self.id.to_string() })
    }

    async fn operate(&self, verb: Verb) -> Result<(), Error> {
        self.engine.operate(Target::Task(self.id.clone()), verb, by()).await?;
        Ok(())
    }
}

fn by() -> By {
    By::new("milepost::Handle")
}
