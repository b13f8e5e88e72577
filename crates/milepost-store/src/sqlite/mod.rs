//! SQLite: one file, one owner, every commit on the disk before it is answered.
//!
//! The owner is the only process that writes, so leases, slots and waiting lists live in its memory (`board`) and are
//! rebuilt from the file when it is opened; what must outlive a crash is in the file.

mod board;
mod books;
mod changes;
mod claim;
mod codec;
mod commit;
mod counts;
mod eras;
mod log;
mod mend;
mod moved;
mod owner;
mod plans;
pub mod raw;
mod read;
mod requests;
mod schema;
mod shared;
mod snapshots;
mod store;
mod submit;
mod tokens;
mod wal;
mod writer;

pub use store::SqliteStore;
