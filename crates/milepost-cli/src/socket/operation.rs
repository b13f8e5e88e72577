//! What can be asked of an owner, what it answers, and doing it.

use milepost_core::api::{PlanState, TaskState};
use milepost_core::id::Tenant;
use milepost_core::task::By;
use milepost_engine::{Effect, Engine, Target, Verb, VerbError};
use milepost_store::StoreError;
use serde::{Deserialize, Serialize};

use super::ask::Order;
use super::incoming::VERSION;
use crate::exit::{Exit, Failure};
use crate::store;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    v: u32,
    target: Name,
    verb: VerbName,
    #[serde(default)]
    from_start: bool,
    by: By,
}

/// What the person typed; only the owner's store knows what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Name {
    Id(String),
    Tenant(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum VerbName {
    Start,
    Pause,
    Resume,
    Cancel,
    Retry,
    Rollback,
    ResetFailed,
}

/// Once this is sent, it is durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum Answer {
    Done(Done),
    Refused { message: String },
    NotFound { message: String },
    Failed { message: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) tasks: u64,
    pub(crate) plan: Option<PlanState>,
    pub(crate) task: Option<TaskState>,
}

impl Request {
    pub(crate) fn new(target: Name, verb: Verb, by: By) -> Self {
        let from_start = matches!(verb, Verb::Retry { from_checkpoint: false });
        Self { v: VERSION, target, verb: verb.into(), from_start, by }
    }

    fn verb(&self) -> Verb {
        match self.verb {
            VerbName::Start => Verb::Start,
            VerbName::Pause => Verb::Pause,
            VerbName::Resume => Verb::Resume,
            VerbName::Cancel => Verb::Cancel,
            VerbName::Retry => Verb::Retry { from_checkpoint: !self.from_start },
            VerbName::Rollback => Verb::Rollback,
            VerbName::ResetFailed => Verb::ResetFailed,
        }
    }

    async fn try_perform(self, engine: &Engine) -> Result<Done, VerbError> {
        let verb = self.verb();
        let target = match self.target {
            Name::Id(id) => {
                let missing = || VerbError::NotFound { what: "plan or task", id: id.clone() };
                store::find(&**engine.store(), &id).await?.ok_or_else(missing)?
            }
            Name::Tenant(text) => match Tenant::parse(&text) {
                Ok(tenant) => Target::Tenant(tenant),
                Err(_) => return Err(VerbError::NotFound { what: "task of tenant", id: text }),
            },
        };
        let effect = engine.operate(target, verb, self.by).await?;
        Ok(describe(engine, effect).await?)
    }
}

impl Order for Request {
    type Answer = Answer;

    async fn perform(self, engine: &Engine) -> Answer {
        match self.try_perform(engine).await {
            Ok(done) => Answer::Done(done),
            Err(error) => {
                let failure = Failure::from(error);
                let message = failure.message;
                match failure.exit {
                    Exit::NotFound => Answer::NotFound { message },
                    Exit::Refused => Answer::Refused { message },
                    Exit::Done | Exit::TaskFailed | Exit::Usage | Exit::OutOfReach | Exit::Interrupted => {
                        Answer::Failed { message }
                    }
                }
            }
        }
    }
}

/// A verb on a task may have changed its plan as well.
async fn describe(engine: &Engine, effect: Effect) -> Result<Done, StoreError> {
    let Effect { tasks, plan, task } = effect;
    let mut done = Done { tasks, plan: plan.map(|(id, status)| PlanState { id, status }), task: None };
    if let Some((id, status)) = task {
        let stored = engine.store().task(&id).await?;
        let pause_requested = stored.as_ref().is_some_and(|stored| stored.task.pause_requested().is_some());
        if let Some(stored) = stored
            && let Some(plan) = engine.store().plan(&stored.task.spec().plan).await?
        {
            done.plan = Some(PlanState { id: plan.id, status: plan.status });
        }
        done.task = Some(TaskState { id, status, pause_requested });
    }
    Ok(done)
}

impl VerbName {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            VerbName::Start => "start",
            VerbName::Pause => "pause",
            VerbName::Resume => "resume",
            VerbName::Cancel => "cancel",
            VerbName::Retry => "retry",
            VerbName::Rollback => "rollback",
            VerbName::ResetFailed => "reset-failed",
        }
    }
}

impl From<Verb> for VerbName {
    fn from(verb: Verb) -> Self {
        match verb {
            Verb::Start => VerbName::Start,
            Verb::Pause => VerbName::Pause,
            Verb::Resume => VerbName::Resume,
            Verb::Cancel => VerbName::Cancel,
            Verb::Retry { .. } => VerbName::Retry,
            Verb::Rollback => VerbName::Rollback,
            Verb::ResetFailed => VerbName::ResetFailed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::incoming::Incoming;
    use super::*;

    #[test]
    fn a_request_reads_back_as_it_was_sent() {
        let by = By { who: "a@b".into(), why: Some("because".into()) };
        let request = Request::new(Name::Id("task-1".into()), Verb::Retry { from_checkpoint: false }, by);
        let line = serde_json::to_vec(&request).unwrap();
        let Ok(Incoming::Verb(read)) = Incoming::parse(&line) else { panic!() };
        assert_eq!(read, request);
        assert_eq!(request.verb(), Verb::Retry { from_checkpoint: false });
    }
}
