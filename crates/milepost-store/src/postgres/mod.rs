//! PostgreSQL: several nodes on one server, every commit on its disk before it is answered.
//!
//! What is written goes through functions that the migration makes (`sql/`): many commits are one statement in one round
//! trip, and its own transaction, so that a node that freezes in the middle of something holds no lock. All of them begin
//! by taking the one row of `counters`, and keep it until they are committed: positions are in commit order, and nothing
//! is decided on what somebody else is about to change. What follows from what is decided in `milepost-core`, here as
//! everywhere; the functions check that what was decided on is still so.

mod address;
mod books;
mod changes;
mod claim;
mod codec;
mod columns;
mod commit;
mod connect;
mod durability;
mod fold;
mod import;
mod listen;
mod nodes;
mod notes;
mod plans;
mod read;
mod requests;
mod schema;
mod session;
mod shared;
mod store;
mod submit;
mod tasks;
mod tokens;
mod update;

pub(crate) use address::take_search_path;
pub use store::PostgresStore;
