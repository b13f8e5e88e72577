//! Plans: what a file may say, reading it with good errors, and the definition that is stored and run.

mod definition;

pub use definition::{
    Action, OnFailure, OnInvalidCheckpoint, OnTaskFailure, OnTenantConflict, Plan, PlanDefinition, Recovery, Settings,
    StageDefinition, StageList, TaskDefinition, Trigger,
};
