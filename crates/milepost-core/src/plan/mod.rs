//! Plans: what a file may say, reading it with good errors, and the definition that is stored and run.

mod definition;
mod life;

pub use definition::{
    Action, OnFailure, OnInvalidCheckpoint, OnTaskFailure, OnTenantConflict, Plan, PlanDefinition, Recovery, Settings,
    StageDefinition, StageList, TaskDefinition, Trigger,
};
pub use life::{PlanCommand, PlanRejection, TaskCounts, next_plan_status};
