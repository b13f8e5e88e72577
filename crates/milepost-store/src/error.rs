//! What a caller of the store does next decides which error it gets.

use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::PlanRejection;
use milepost_core::task::Rejection;

use crate::books::Book;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Someone committed first: reload and decide again.
    #[error("task {task} is at version {found}, expected {expected}")]
    Conflict { task: TaskId, expected: u64, found: u64 },
    /// Another owner has the task by now: stop working on it.
    #[error("task {task} is no longer ours: its lease is {found}, ours was {expected}")]
    Fenced { task: TaskId, expected: u64, found: u64 },
    /// There is no such thing.
    #[error("there is no {what} `{id}`")]
    NotFound { what: &'static str, id: String },
    /// The plan was changed by somebody else since it was looked at.
    #[error("plan {plan} is at version {found}, expected {expected}")]
    PlanConflict { plan: PlanId, expected: u64, found: u64 },
    /// The key was used for another request.
    #[error("the key `{key}` was used for another request")]
    KeyReused { key: String },
    /// An entry with this key is in the book already; nothing was written.
    #[error("`{key}` is in the book of {} already", .book.as_str())]
    Kept { book: Book, key: String },
    /// The submission clashes with what is there; nothing of it was stored.
    #[error("{0}")]
    Clash(#[from] Clash),
    /// The plan's status forbids it.
    #[error(transparent)]
    Plan(#[from] PlanRejection),
    /// The task's status forbids it.
    #[error(transparent)]
    Task(#[from] Rejection),
    /// What is stored cannot be trusted: leave it as it is and tell a person.
    #[error("{what} is damaged: {detail}")]
    Damaged { what: String, detail: String },
    /// The file was written by a newer version, or is not ours.
    #[error("{detail}")]
    Format { detail: String },
    /// Another process owns the store.
    #[error("{path} is in use by process {pid}{command}; wait for it, or stop it with `kill {pid}`")]
    Owned { path: String, pid: u32, command: String },
    /// The backend is away: back off, then send the same commit.
    #[error("{backend} could not {operation}")]
    Unavailable { backend: &'static str, operation: &'static str, source: BoxError },
}

/// Why a submission is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Clash {
    #[error("plan {plan} exists with other content: {difference}")]
    OtherContent { plan: PlanId, difference: String },
    #[error("task id `{task}` is taken by plan {owner}; task ids are unique in a store")]
    TaskId { task: TaskId, owner: PlanId },
    #[error("plan {plan} cannot be updated while its tasks run; pause or finish it first")]
    Running { plan: PlanId },
    #[error("plan {plan} refuses busy tenants, and {tenants} busy: {list}", tenants = if .busy.len() == 1 { "one is".to_owned() } else { format!("{} are", .busy.len()) }, list = .busy.join(", "))]
    TenantsBusy { plan: PlanId, busy: Vec<String> },
}
