//! The seam itself. Everything that changes a task goes through `claim` or `commit`; there is no third way.

use async_trait::async_trait;
use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::Plan;

use crate::error::StoreError;
use crate::model::{
    ChangeQuery, Changes, ClaimRequest, Claimed, Commit, Committed, EventQuery, LockRow, LogChunk, LogQuery, Note,
    Page, PlanChange, PlanQuery, PlanRow, Position, StoreStats, StoredEvent, StoredTask, Submission, Submitted,
    TaskQuery, TaskRow, TokenRow,
};

/// Where plans and tasks live. The conformance suite says in full what each method promises.
///
/// An `Ok` of the writing methods means durable. An `Err` means that nothing changed, except `Unavailable`, after
/// which the outcome is unknown: the same commit sent again answers `Conflict` if the first one had arrived.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Stores a whole plan or nothing.
    async fn submit(&self, submission: Submission) -> Result<Submitted, StoreError>;

    /// Takes tasks on, each with lease, tenant lock and plan slot at once, and commits their start.
    ///
    /// Order: what is due or was interrupted first, then PENDING tasks by plan, priority and position. A task whose
    /// tenant is busy stays PENDING and takes up no slot.
    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError>;

    /// Makes what happened to one task durable, if its version and lease are still the ones that were decided on.
    ///
    /// A commit that ends its task also gives back lease, slot and tenant lock, and ends the plan if that was the last.
    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError>;

    /// Changes a plan's own status. Its tasks are changed by commits of their own.
    async fn change_plan(&self, change: PlanChange) -> Result<PlanRow, StoreError>;

    /// Keeps progress and output for people to see. The last moments of it may be lost in a crash.
    async fn note(&self, notes: Vec<Note>) -> Result<(), StoreError>;

    async fn plan(&self, id: &PlanId) -> Result<Option<PlanRow>, StoreError>;

    /// The plan with all of its tasks, as it was submitted.
    async fn definition(&self, id: &PlanId) -> Result<Option<Plan>, StoreError>;

    async fn plans(&self, query: PlanQuery) -> Result<Page<PlanRow>, StoreError>;

    async fn task(&self, id: &TaskId) -> Result<Option<StoredTask>, StoreError>;

    async fn tasks(&self, query: TaskQuery) -> Result<Page<TaskRow>, StoreError>;

    async fn events(&self, query: EventQuery) -> Result<Vec<StoredEvent>, StoreError>;

    async fn logs(&self, query: LogQuery) -> Result<Vec<LogChunk>, StoreError>;

    /// What was committed after a position, in order and without a gap: what is answered once is never followed by
    /// something earlier.
    async fn changes(&self, query: ChangeQuery) -> Result<Changes, StoreError>;

    /// Where the newest commit is; `changes` after it are those still to come.
    async fn newest(&self) -> Result<Position, StoreError>;

    async fn locks(&self) -> Result<Vec<LockRow>, StoreError>;

    /// Every token, also revoked and expired ones.
    async fn tokens(&self) -> Result<Vec<TokenRow>, StoreError>;

    /// Keeps a token, or takes the place of the one with its id.
    async fn put_token(&self, token: TokenRow) -> Result<(), StoreError>;

    fn stats(&self) -> StoreStats;
}
