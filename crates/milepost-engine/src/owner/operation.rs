//! What can be asked of an owner, what it answers, and doing it.

use milepost_core::api::{LeftTask, PlanState, TaskState};
use milepost_core::id::{PlanId, TaskId, Tenant};
use milepost_core::task::By;
use milepost_store::{Store, StoreError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::hear::VERSION;
use crate::engine::Engine;
use crate::runner::chain;
use crate::verbs::{Effect, Target, Verb, VerbError};

/// Something that an owner can be asked to do.
pub trait Order: Serialize + Clone + Send {
    type Answer: Serialize + DeserializeOwned + Send;

    /// Does it, on a node that owns its store.
    fn perform(self, engine: &Engine) -> impl Future<Output = Self::Answer> + Send;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
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
pub enum Name {
    Id(String),
    /// A task's id, also where a plan has the same.
    Task(String),
    Tenant(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerbName {
    Start,
    Pause,
    Resume,
    Cancel,
    Retry,
    Rollback,
    ResetFailed,
    Repair,
}

/// Once this is sent, it is durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    Done(Done),
    Refused { message: String },
    NotFound { message: String },
    Failed { message: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    pub tasks: u64,
    pub plan: Option<PlanState>,
    pub task: Option<TaskState>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<LeftTask>,
}

impl Request {
    pub fn new(target: Name, verb: Verb, by: By) -> Self {
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
            VerbName::Repair => Verb::Repair,
        }
    }

    async fn try_perform(self, engine: &Engine) -> Result<Done, VerbError> {
        let verb = self.verb();
        let target = match self.target {
            Name::Id(id) => {
                let missing = || VerbError::NotFound { what: "plan or task", id: id.clone() };
                find(&**engine.store(), &id).await?.ok_or_else(missing)?
            }
            Name::Task(id) => {
                let missing = || VerbError::NotFound { what: "task", id: id.clone() };
                Target::Task(TaskId::parse(&id).map_err(|_| missing())?)
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
        self.try_perform(engine).await.map_or_else(Answer::from, Answer::Done)
    }
}

impl From<VerbError> for Answer {
    fn from(error: VerbError) -> Self {
        let message = chain(&error);
        match error {
            VerbError::NotFound { .. } | VerbError::Store(StoreError::NotFound { .. }) => Answer::NotFound { message },
            VerbError::Store(StoreError::PlanConflict { .. } | StoreError::Plan(_) | StoreError::Task(_))
            | VerbError::Rejected(_)
            | VerbError::Plan(_)
            | VerbError::Refused(_)
            | VerbError::Version { .. }
            | VerbError::Store(StoreError::Kept { .. })
            | VerbError::Moved => Answer::Refused { message },
            VerbError::InDoubt(_)
            | VerbError::Store(
                StoreError::Clash(_)
                | StoreError::KeyReused { .. }
                | StoreError::Conflict { .. }
                | StoreError::Fenced { .. }
                | StoreError::Damaged { .. }
                | StoreError::Format { .. }
                | StoreError::Owned { .. }
                | StoreError::Unavailable { .. },
            ) => Answer::Failed { message },
        }
    }
}

/// What an id means: a plan, else a task.
pub async fn find(store: &dyn Store, id: &str) -> Result<Option<Target>, StoreError> {
    if let Ok(plan) = PlanId::parse(id)
        && store.plan(&plan).await?.is_some()
    {
        return Ok(Some(Target::Plan(plan)));
    }
    if let Ok(task) = TaskId::parse(id)
        && store.task(&task).await?.is_some()
    {
        return Ok(Some(Target::Task(task)));
    }
    Ok(None)
}

/// A verb on a task may have changed its plan as well.
pub(super) async fn describe(engine: &Engine, effect: Effect) -> Result<Done, StoreError> {
    let Effect { tasks, plan, task, left } = effect;
    let mut done = Done { tasks, plan: plan.map(|(id, status)| PlanState { id, status }), task: None, left };
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
    pub fn as_str(self) -> &'static str {
        match self {
            VerbName::Start => "start",
            VerbName::Pause => "pause",
            VerbName::Resume => "resume",
            VerbName::Cancel => "cancel",
            VerbName::Retry => "retry",
            VerbName::Rollback => "rollback",
            VerbName::ResetFailed => "reset-failed",
            VerbName::Repair => "repair",
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
            Verb::Repair => VerbName::Repair,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reads_back_as_it_was_sent() {
        let by = By { who: "a@b".into(), why: Some("because".into()) };
        let request = Request::new(Name::Id("task-1".into()), Verb::Retry { from_checkpoint: false }, by);
        let line = serde_json::to_vec(&request).unwrap();
        assert_eq!(serde_json::from_slice::<Request>(&line).unwrap(), request);
        assert_eq!(request.verb(), Verb::Retry { from_checkpoint: false });
    }
}
