//! What lasts: the one seam to storage, its contract as a conformance suite, and the backends side by side.

mod error;
mod model;
mod store;
mod view;

pub mod conformance;
pub mod memory;
pub mod report;
pub mod sqlite;

pub use error::{BoxError, Clash, StoreError};
pub use model::{
    Change, ChangeQuery, Changed, Changes, ClaimRequest, Claimed, Commit, Committed, Difference, EventQuery, Holder,
    LeaseChange, LockRow, LogChunk, LogQuery, Note, Page, PlanChange, PlanQuery, PlanRow, Position, REQUESTS_KEPT_FOR,
    RequestKey, Resubmit, Start, StoreStats, StoredEvent, StoredTask, Submission, Submitted, TaskQuery, TaskRef,
    TaskRow, TasksOf, TokenRow, Wake,
};
pub use store::Store;
