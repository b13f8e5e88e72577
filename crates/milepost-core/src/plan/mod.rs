//! Plans: what a file may say, reading it with good errors, and the definition that is stored and run.

mod actions;
mod decode;
mod definition;
mod errors;
mod node;
mod order;
mod parse;
mod scope;
mod stages;
mod tasks;

pub use definition::{
    Action, OnFailure, OnInvalidCheckpoint, OnTaskFailure, OnTenantConflict, Plan, PlanDefinition, Recovery, Settings,
    StageDefinition, StageList, TaskDefinition, Trigger,
};
pub use errors::{PlanError, PlanErrors};
pub use parse::{CheckAction, ParseOptions, parse};
