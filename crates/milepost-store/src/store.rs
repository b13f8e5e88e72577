//! The seam itself. Everything that changes a task goes through `claim` or `commit`; there is no third way.

use async_trait::async_trait;
use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::Plan;
use milepost_core::time::Timestamp;

use crate::books::{Book, BookChange, Entry, EntryQuery};
use crate::clock::ClockReading;
use crate::error::StoreError;
use crate::model::{
    ChangeQuery, Changes, ClaimRequest, Claimed, Commit, Committed, EventQuery, LockRow, LogChunk, LogQuery, Note,
    Page, PlanChange, PlanQuery, PlanRow, Position, StoreStats, StoredEvent, StoredTask, Submission, Submitted,
    TaskQuery, TaskRow, TokenRow,
};
use crate::moved::MovedPlan;
use crate::nodes::{Answered, Beat, Beaten, Letter, NodeRow, Posted};

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

    /// Takes in a plan that another store has had until now, with its history, its times and its tenants, whole or not at
    /// all; `Clash` when its id, a task's or a tenant is taken. A visitor may do it as well.
    ///
    /// What was under way goes on as its `wake` says. One that waits for recovery without its log saying that it was
    /// interrupted had a node that is gone: it shows as interrupted, and its next claim commits that.
    async fn import(&self, plan: MovedPlan) -> Result<(), StoreError>;

    /// Writes to the books and strikes out. What tasks mean for the books (`book_changes`) their own commits and claims
    /// write, in the same transaction; a commit whose message was heard before is refused as `Kept`.
    async fn change_books(&self, change: BookChange) -> Result<(), StoreError>;

    async fn entries(&self, query: EntryQuery) -> Result<Page<Entry>, StoreError>;

    /// None also when it is over.
    async fn entry(&self, book: Book, key: &str, now: Timestamp) -> Result<Option<Entry>, StoreError>;

    fn stats(&self) -> StoreStats;

    // --- several nodes; a store with one owner has nothing to add to what is said here ---

    /// Others may be on the same store, and change it unseen.
    fn is_shared(&self) -> bool {
        false
    }

    /// What the store's own clock said when it was opened. On a shared store it is the one that counts: nodes and visitors
    /// set theirs by it, so that what they write down agrees. Later on, beats say what time it is.
    fn clock(&self) -> Option<ClockReading> {
        None
    }

    /// Renews this node's lease, and the tenant locks that are open to be renewed; told every third of a lease.
    ///
    /// Leases are judged by the store's own clock. The tasks of a node whose lease has run out are orphans from the
    /// first beat or claim on that finds it so; time in which nobody could write counts for nothing
    /// (`Membership::patience`). `Owned` when another process has taken this node's name.
    ///
    /// A visitor that waits for a node beats as well: it has no lease, but somebody has to find out that others' are over.
    async fn beat(&self, _beat: Beat) -> Result<Beaten, StoreError> {
        Ok(Beaten::default())
    }

    /// Gives the node's place up, as when it has stopped in good order; tasks it still holds are orphans at once.
    async fn leave(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Every node that was seen of late, by name.
    async fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        Ok(Vec::new())
    }

    /// Leaves a letter for the live node that holds its task; none when nobody does.
    async fn post(&self, _letter: Letter) -> Result<Option<i64>, StoreError> {
        Ok(None)
    }

    /// The letters for this node that are not answered yet, the oldest first.
    async fn letters(&self) -> Result<Vec<Posted>, StoreError> {
        Ok(Vec::new())
    }

    /// The first answer counts: another one changes nothing.
    async fn answer(&self, _letter: i64, _answer: String) -> Result<(), StoreError> {
        Ok(())
    }

    /// What came of a letter; letters and answers are forgotten after an hour.
    async fn answer_to(&self, _letter: i64) -> Result<Answered, StoreError> {
        Ok(Answered::Never)
    }

    /// Calls the other nodes: there is something to do that this one cannot do now.
    async fn call(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Resolves when another process may have left something to do here: a task to claim, a letter, an answer. It may
    /// resolve for nothing, but nothing stays unsaid for longer than a moment.
    async fn called(&self) {
        std::future::pending::<()>().await;
    }
}
