//! Workflows from another process: begun by name, and their results waited for.

use std::time::Duration;

use futures::StreamExt;
use milepost_core::api::Accepted;
use milepost_core::failure::ErrorType;
use milepost_core::id::TaskId;
use milepost_core::plan::WorkflowRef;
use milepost_core::plan::spec::{PlanSpec, TaskSpec, WorkflowSpec, WorkflowVersionSpec};
use milepost_core::task::{Cause, TaskStatus, TaskView};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::connection::Client;
use super::error::ClientError;
use super::plans::{PlanFormat, PlanUpload};
use super::watch::WatchEvent;
use crate::error::Error;

/// How often to look after a task whose plan has nothing more to say.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

impl Client {
    /// Begins a run of a workflow: by its name, in its first version, or by name and version. The same id with the same
    /// input is the same run, whoever began it: this, or `engine.run` in the program that has the function.
    pub async fn start(
        &self,
        workflow: impl Into<WorkflowRef>,
        id: &TaskId,
        input: &impl Serialize,
    ) -> Result<Accepted, ClientError> {
        let unfit = |error| ClientError::Settings(format!("the input of {id} cannot be written as JSON: {error}"));
        let plan = run(workflow.into(), id, serde_json::to_value(input).map_err(unfit)?);
        let text = serde_json::to_string(&plan).map_err(unfit)?;
        // The only character that JSON takes as it is, and a plan does not.
        let text = text.replace('\u{7f}', "\\u007f");
        self.submit(PlanUpload {
            text: text.into(),
            format: PlanFormat::Json,
            start: true,
            update: false,
            publish: false,
        })
        .await
    }

    /// Waits for the end of a workflow; the function's result, or why there is none.
    pub async fn result<T: DeserializeOwned>(&self, id: &TaskId) -> Result<T, Error> {
        let task = self.ended(id).await?;
        match task.status {
            TaskStatus::Completed => Ok(serde_json::from_value(task.result.unwrap_or_default())?),
            status => {
                let unknown = || Cause { error_type: ErrorType::Unknown, reason: "it failed".to_owned() };
                let cause = task.failure.map(|it| Cause { error_type: it.error_type, reason: it.reason });
                Err(Error::failed(id.clone(), status, cause.unwrap_or_else(unknown)))
            }
        }
    }

    async fn ended(&self, id: &TaskId) -> Result<TaskView, Error> {
        let mut task = self.look(id).await?;
        while !task.status.is_ended() {
            let mut news = std::pin::pin!(self.watch(&task.plan_id));
            while !task.status.is_ended() {
                match news.next().await.transpose()? {
                    Some(event) if concerns(&event, id) => task = self.look(id).await?,
                    Some(_) => {}
                    // The plan has ended without it: it is being undone, or a person has it run once more.
                    None => {
                        tokio::time::sleep(LOOK_AGAIN).await;
                        task = self.look(id).await?;
                        break;
                    }
                }
            }
        }
        Ok(task)
    }

    async fn look(&self, id: &TaskId) -> Result<TaskView, Error> {
        match self.task(id).await {
            Err(error) if error.is_not_found() => Err(Error::NotFound { id: id.to_string() }),
            answer => Ok(answer?),
        }
    }
}

/// As a program submits a run of its own, so that the two are one.
fn run(workflow: WorkflowRef, id: &TaskId, input: serde_json::Value) -> PlanSpec {
    let WorkflowRef { name, version } = workflow;
    PlanSpec {
        plan: Some(id.to_string()),
        max_concurrency: Some(1),
        workflow: Some(WorkflowSpec::Version(WorkflowVersionSpec { name: name.to_string(), version: Some(version) })),
        tasks: vec![TaskSpec { id: Some(id.to_string()), input: Some(input), ..TaskSpec::default() }],
        ..PlanSpec::default()
    }
}

/// Whether the task may have ended by this.
fn concerns(event: &WatchEvent, id: &TaskId) -> bool {
    match event {
        WatchEvent::Snapshot(_) | WatchEvent::Reconnected | WatchEvent::End(_) => true,
        WatchEvent::State(state) => state.task_id.as_ref() == Some(id),
        WatchEvent::Progress(_) | WatchEvent::Error { .. } => false,
    }
}
