//! A plan with every default filled in: what is stored, and what the engine runs. Reading files is next door.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::id::{PlanId, StageName, TaskId, Tenant};
use crate::message::Arrival;
use crate::retry::RetryPolicy;
use crate::time::Millis;

/// Everything a plan file said, ready to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub definition: PlanDefinition,
    /// In the order of the file; at least one.
    pub tasks: Vec<TaskDefinition>,
}

/// What all tasks of a plan share; stored once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanDefinition {
    pub id: PlanId,
    #[serde(flatten)]
    pub settings: Settings,
    /// Used by every task that has none of its own.
    pub stages: StageList,
    /// Its tasks run this function rather than stages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowRef>,
    /// The workflow that started this one and waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TaskId>,
}

/// Which function, and which version of it: a run keeps to the one that it began with.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkflowRef {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Arc<str>,
    pub version: u32,
}

impl WorkflowRef {
    /// The version that a workflow has unless its program says otherwise.
    pub fn first(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), version: 1 }
    }
}

impl From<&str> for WorkflowRef {
    fn from(name: &str) -> Self {
        Self::first(name)
    }
}

impl std::fmt::Display for WorkflowRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (version {})", self.name, self.version)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub max_concurrency: u32,
    /// None when the plan does not say: then it is up to each node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    pub on_tenant_conflict: OnTenantConflict,
    pub on_task_failure: OnTaskFailure,
    pub on_failure: OnFailure,
    pub on_invalid_checkpoint: OnInvalidCheckpoint,
    pub trigger: Trigger,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_timeout: Option<Millis>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_concurrency: 10,
            recovery: None,
            on_tenant_conflict: OnTenantConflict::Wait,
            on_task_failure: OnTaskFailure::Continue,
            on_failure: OnFailure::Stop,
            on_invalid_checkpoint: OnInvalidCheckpoint::Restart,
            trigger: Trigger::Start,
            task_timeout: None,
        }
    }
}

macro_rules! setting {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "lowercase")]
        pub enum $name { $($(#[$vdoc])* $variant),+ }
    };
}
setting!(
    /// Who decides what happens to a plan when its nodes are gone.
    #[derive(Default)]
    Recovery {
        #[default]
        Auto,
        Manual,
    }
);

impl Settings {
    /// `default` is the setting of the node that asks.
    pub fn recovery_or(&self, default: Recovery) -> Recovery {
        self.recovery.unwrap_or(default)
    }
}

setting!(
    /// What happens to a task whose tenant is busy.
    OnTenantConflict { Wait, Refuse }
);
setting!(
    /// What the plan does when one of its tasks fails.
    OnTaskFailure { Continue, Pause }
);
setting!(
    /// What the failed task itself does.
    OnFailure { Stop, Rollback }
);
setting!(
    /// What happens to a task whose checkpoint does not fit its stages.
    OnInvalidCheckpoint { Restart, Block }
);
setting!(
    /// What sets a task off.
    Trigger { Start, Message }
);

/// The stages of a task, shared by all tasks that have the same ones.
pub type StageList = Arc<[StageDefinition]>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskDefinition {
    pub id: TaskId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub input: Value,
    /// The values this task got from its `matrix`, without `tenant`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub matrix: Map<String, Value>,
    /// The task's own stages, when it does not use the plan's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<StageList>,
    /// What its stages work on; brought to the node that runs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileRef>,
    /// The message that made it, when one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<Arrival>>,
}

/// A file somewhere else: `file:///…`, `s3://…`, `http://…`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileRef {
    #[schemars(regex(pattern = r"^(file:///|s3://|https?://|\{\{)"))]
    pub uri: String,
    /// In bytes; checked when it has been fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// In hexadecimal; checked when it has been fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// What people call it; else the last part of `uri`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

fn is_zero(priority: &i32) -> bool {
    *priority == 0
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageDefinition {
    pub name: StageName,
    #[serde(flatten)]
    pub action: Action,
    /// Indices into the stage list, each smaller or larger than this stage's own; never a cycle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<usize>,
    /// A template expression; the stage is skipped when it is false.
    #[serde(default, rename = "if", skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    pub retry: RetryPolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<Action>,
}

/// What to do: a stage kind and what it is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// `run`, `http`, or the name of a registered kind.
    pub uses: String,
    /// The shell text of `run:`, which is never templated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Parameters; strings in it may hold templates (`env` of `run:`, all of `http:` and `with:`).
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub with: Value,
}
