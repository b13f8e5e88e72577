//! Plans: what a file may say, reading it with good errors, and the definition that is stored and run.

mod actions;
mod chain;
mod decode;
mod definition;
mod difference;
mod errors;
mod file;
mod life;
mod node;
mod order;
mod parse;
mod scope;
pub mod spec;
mod stages;
mod tasks;
mod workflow;

pub use chain::{Chain, parse_chain};
pub use definition::{
    Action, FileRef, OnFailure, OnInvalidCheckpoint, OnTaskFailure, OnTenantConflict, Plan, PlanDefinition, Recovery,
    Settings, StageDefinition, StageList, TaskDefinition, Trigger, WorkflowRef,
};
pub use difference::first_difference;
pub use errors::{PlanError, PlanErrors};
pub use life::{PlanCommand, PlanRejection, TaskCounts, next_plan_status};
pub use parse::{CheckAction, ParseOptions, parse};
pub use spec::{openapi_schemas, schema};
