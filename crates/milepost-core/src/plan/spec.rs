//! A plan file as it is written: for programs that write one, and for the JSON Schema that editors use.
//!
//! Reading goes another way, because these types stop at the first mistake and forget where everything stood.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::definition::{FileRef, OnFailure, OnInvalidCheckpoint, OnTaskFailure, OnTenantConflict, Recovery, Trigger};
use crate::retry::Strategy;

/// The JSON Schema of plan files. Draft 7, which every editor's YAML support understands.
pub fn schema() -> Value {
    let schema = SchemaSettings::draft07().into_generator().into_root_schema_for::<PlanSpec>();
    let mut schema = schema.to_value();
    schema["title"] = json!("Milepost plan");
    schema
}

/// The same schema for an OpenAPI 3.1 document: every part of it by its name among `components.schemas`, the plan as `name`.
pub fn openapi_schemas(name: &str) -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let plan = generator.root_schema_for::<PlanSpec>().to_value();
    let mut schemas = generator.take_definitions(true);
    if let Value::Object(mut plan) = plan {
        plan.remove("components");
        schemas.insert(name.to_owned(), Value::Object(plan));
    }
    for schema in schemas.values_mut() {
        // Draft 7's word, which the later ones have split in two.
        if let Some(needs) = schema.as_object_mut().and_then(|schema| schema.remove("dependencies")) {
            schema["dependentRequired"] = needs;
        }
    }
    schemas
}

/// A plan: tasks, each of which goes through stages or runs a workflow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("not" = {
    "required": ["workflow"],
    "anyOf": [{"required": ["stages"]}, {"required": ["defaults"]}, {"required": ["on_failure"]}],
}))]
pub struct PlanSpec {
    /// The id of the plan, unique in its store. Left out, each run is a new plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"))]
    pub plan: Option<String>,
    /// How many tasks of this plan run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000), extend("default" = 10))]
    pub max_concurrency: Option<u32>,
    /// `auto`: a lost node's tasks go on by themselves; `manual`: a person decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "auto"))]
    pub recovery: Option<Recovery>,
    /// `wait`: a task whose tenant is busy stays pending; `refuse`: the plan is not accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "wait"))]
    pub on_tenant_conflict: Option<OnTenantConflict>,
    /// What the plan does when a task fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "continue"))]
    pub on_task_failure: Option<OnTaskFailure>,
    /// What the failed task does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "stop"))]
    pub on_failure: Option<OnFailure>,
    /// What happens to a task whose checkpoint does not fit its stages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "restart"))]
    pub on_invalid_checkpoint: Option<OnInvalidCheckpoint>,
    /// `start`: tasks run when the plan is started; `message`: each runs when its message arrives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "start"))]
    pub trigger: Option<Trigger>,
    /// How long a whole task may take. Left out: as long as it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9]+(ms|s|m|h)$"))]
    pub task_timeout: Option<String>,
    /// For every stage that does not say otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<DefaultsSpec>,
    /// What every task runs in place of stages: a function of a program that knows it by this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowSpec>,
    /// Used by every task that has none of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<Vec<StageSpec>>,
    #[schemars(length(min = 1))]
    pub tasks: Vec<TaskSpec>,
}

/// A workflow by its name, in its first version or in the one that is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum WorkflowSpec {
    Name(#[schemars(length(min = 1, max = 256))] String),
    Version(WorkflowVersionSpec),
}

/// A workflow by its name and version.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkflowVersionSpec {
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 1))]
    pub version: Option<u32>,
}

/// For every stage that does not say otherwise.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DefaultsSpec {
    /// How long one attempt may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9]+(ms|s|m|h)$"), extend("default" = "5m"))]
    pub timeout: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetrySpec>,
}

/// How often a stage is tried, and how long to wait in between. What is left out comes from `defaults`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetrySpec {
    /// Executions in all, the first one included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = 4))]
    pub max_attempts: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "exponential"))]
    pub strategy: Option<Strategy>,
    /// The first wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9]+(ms|s|m|h)$"), extend("default" = "1s"))]
    pub base: Option<String>,
    /// What an exponential wait grows by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1.0), extend("default" = 2.0))]
    pub multiplier: Option<f64>,
    /// The longest wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9]+(ms|s|m|h)$"), extend("default" = "1m"))]
    pub max: Option<String>,
    /// Adds up to half of `base`, so that many tasks do not come back at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub jitter: Option<bool>,
    /// Exit codes of `run` that end the stage at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(inner(range(min = 1, max = 255)))]
    pub fatal_exit_codes: Option<Vec<u8>>,
}

/// One step of a task: exactly one of `run`, `http` or `uses`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    extend("oneOf" = [{"required": ["run"]}, {"required": ["http"]}, {"required": ["uses"]}]),
    extend("dependencies" = {"env": ["run"], "with": ["uses"]})
)]
pub struct StageSpec {
    /// Unique in the task.
    #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"))]
    pub name: String,
    /// A shell command, given to `sh -c` as it is; values reach it through its environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Variables for `run`; their values may hold `{{ … }}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("propertyNames" = {"pattern": "^(?!MILEPOST_)[A-Za-z_][A-Za-z0-9_]*$"}))]
    pub env: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpSpec>,
    /// A stage kind that is built in or registered, such as `noop` or `copy-table`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<String>,
    /// Parameters of `uses`; texts in it may hold `{{ … }}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetrySpec>,
    /// How long one attempt may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9]+(ms|s|m|h)$"), extend("default" = "5m"))]
    pub timeout: Option<String>,
    /// The stages to wait for. Left out: the one before; `[]`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    pub needs: Option<Vec<String>>,
    /// An expression; the stage is skipped when it is false.
    #[serde(default, rename = "if", skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// How to undo the stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<RollbackSpec>,
}

/// How to undo a stage: exactly one of `run`, `http` or `uses`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    extend("oneOf" = [{"required": ["run"]}, {"required": ["http"]}, {"required": ["uses"]}]),
    extend("dependencies" = {"env": ["run"], "with": ["uses"]})
)]
pub struct RollbackSpec {
    /// A shell command, given to `sh -c` as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Variables for `run`; their values may hold `{{ … }}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("propertyNames" = {"pattern": "^(?!MILEPOST_)[A-Za-z_][A-Za-z0-9_]*$"}))]
    pub env: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpSpec>,
    /// A stage kind that is built in or registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<String>,
    /// Parameters of `uses`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<Map<String, Value>>,
}

/// A call over HTTP. Texts in it may hold `{{ … }}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpSpec {
    /// Left out: GET, or POST with a body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", null]))]
    pub method: Option<String>,
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
    /// Sent as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<ExpectSpec>,
}

/// What counts as success. Left out: any status from 200 to 299.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpectSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Statuses>,
}

/// One status or several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Statuses {
    One(#[schemars(range(min = 100, max = 599))] u16),
    Many(#[schemars(length(min = 1), inner(range(min = 100, max = 599)))] Vec<u16>),
}

/// One task, or with `matrix` one for each combination of its values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskSpec {
    /// Unique in the store. Left out: the plan's id and the position of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"))]
    pub id: Option<String>,
    /// What two tasks may not hold at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub tenant: Option<String>,
    /// Which of the tasks that could run is taken first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0))]
    pub priority: Option<i32>,
    /// Anything that the stages are to know, or what the workflow is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// What its stages work on, brought to the node that runs them. Texts in it may hold `{{ matrix.… }}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileRef>,
    /// In place of the plan's stages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<Vec<StageSpec>>,
    /// One task for each combination of values; `tenant` sets the tenant, the others are `matrix.<key>` in templates. A workflow's has `tenant` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<String, Vec<Value>>", extend("minProperties" = 1))]
    pub matrix: Option<Map<String, Value>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{actions, file, parse, stages, tasks, workflow};
    use std::collections::BTreeSet;

    #[test]
    fn the_schema_and_the_reader_know_the_same_keys() {
        let schema = schema();
        let objects: [(&Value, &[&str]); 10] = [
            (&schema, &parse::PLAN_KEYS),
            (&schema["definitions"]["DefaultsSpec"], &parse::DEFAULTS_KEYS),
            (&schema["definitions"]["WorkflowVersionSpec"], &workflow::WORKFLOW_KEYS),
            (&schema["definitions"]["StageSpec"], &stages::STAGE_KEYS),
            (&schema["definitions"]["RetrySpec"], &stages::RETRY_KEYS),
            (&schema["definitions"]["RollbackSpec"], &actions::ACTION_KEYS),
            (&schema["definitions"]["HttpSpec"], &actions::HTTP_KEYS),
            (&schema["definitions"]["ExpectSpec"], &["status"]),
            (&schema["definitions"]["FileRef"], &file::FILE_KEYS),
            (&schema["definitions"]["TaskSpec"], &tasks::TASK_KEYS),
        ];
        for (object, keys) in objects {
            let properties: BTreeSet<&str> =
                object["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(properties, keys.iter().copied().collect());
            assert_eq!(object["additionalProperties"], json!(false));
        }
    }

    #[test]
    fn the_schema_says_what_editors_show() {
        let schema = schema();
        assert_eq!(schema["$schema"], json!("http://json-schema.org/draft-07/schema#"));
        assert_eq!(schema["required"], json!(["tasks"]));
        assert_eq!(schema["properties"]["max_concurrency"]["default"], json!(10));
        assert!(schema["properties"]["recovery"]["description"].as_str().unwrap().contains("a person decides"));
        assert_eq!(schema["definitions"]["StageSpec"]["required"], json!(["name"]));
        assert_eq!(schema["definitions"]["StageSpec"]["properties"]["needs"]["type"], json!("array"));
    }
}
