//! What lasts: the one seam to storage, its contract as a conformance suite, and the backends side by side.

mod books;
mod clock;
mod codec;
mod contended;
mod doubt;
mod error;
mod export;
mod going;
mod group;
mod identity;
mod model;
mod moved;
mod nodes;
mod open;
mod poison;
mod row;
mod set_aside;
mod snapshot;
mod store;
mod view;

pub mod conformance;
pub mod memory;
pub mod mysql;
pub mod postgres;
pub mod raw;
pub mod redis;
pub mod report;
pub mod sqlite;

pub use crate::redis::RedisStore;
pub use books::{Addressee, Book, BookChange, Entry, EntryQuery, Parcel, WrittenAs, book_changes, dead_letter_key};
pub use clock::ClockReading;
pub use error::{BoxError, Clash, StoreError};
pub use export::{all_plans, read_moved};
pub use identity::{store_id, store_id_to_move};
pub use model::{
    Change, ChangeQuery, Changed, Changes, ClaimRequest, Claimed, Commit, Committed, Difference, EventQuery, Holder,
    LeaseChange, LockRow, LogChunk, LogQuery, Note, Page, PlanChange, PlanQuery, PlanRow, Position, REQUESTS_KEPT_FOR,
    RequestKey, Resubmit, Start, StoreStats, StoredEvent, StoredTask, Submission, Submitted, TaskQuery, TaskRef,
    TaskRow, TasksOf, TokenRow, Wake,
};
pub use moved::{MovedPlan, MovedTask, total_digest};
pub use mysql::MysqlStore;
pub use nodes::{Answered, Beat, Beaten, LEASE, LOCK_TTL, Letter, Membership, NodeIdentity, NodeRow, Posted};
pub use open::{BadUrl, StoreUrl, redacted};
pub use poison::{Poison, PoisonOrigin};
pub use postgres::PostgresStore;
pub use set_aside::{SetAside, Unpublished};
pub use store::Store;
