//! The names that paths hold.

use milepost_core::id::{PlanId, StageName, TaskId, Tenant};
use milepost_engine::Target;
use serde::Deserialize;
use utoipa::IntoParams;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct PlanPath {
    /// The plan's id.
    #[param(example = "deploy-2025-11")]
    pub(super) id: PlanId,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct TaskPath {
    /// The task's id.
    #[param(example = "task-1")]
    pub(super) id: TaskId,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct SignalPath {
    /// The task's id.
    #[param(example = "order-17")]
    pub(super) id: TaskId,
    /// The signal, by the name that the workflow asks for it under.
    #[param(example = "approved")]
    pub(super) name: StageName,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct LetterPath {
    /// The dead letter's id, as the list has it.
    #[param(example = "upload-17.12")]
    pub(super) id: String,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct TenantPath {
    /// The tenant, percent-encoded: any text of up to 256 bytes without control characters.
    #[param(example = "tenant-001")]
    pub(super) tenant: Tenant,
}

impl From<PlanPath> for Target {
    fn from(path: PlanPath) -> Self {
        Target::Plan(path.id)
    }
}

impl From<TaskPath> for Target {
    fn from(path: TaskPath) -> Self {
        Target::Task(path.id)
    }
}

impl From<TenantPath> for Target {
    fn from(path: TenantPath) -> Self {
        Target::Tenant(path.tenant)
    }
}
