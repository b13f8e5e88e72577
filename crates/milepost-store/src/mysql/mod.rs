//! MySQL and MariaDB: several nodes on one database, every commit on the server's disk before it is answered.
//!
//! Whoever writes first locks one row (`milepost_counters`), so writers come one after another, see all that was written
//! before, and can never wait for each other in a circle. A transaction is two round trips however many commits share it:
//! one that locks and reads what they are about, one that writes and commits. Reading waits for nobody.

mod begin;
mod books;
mod changes;
mod claim;
mod codec;
mod commit;
mod connect;
mod desk;
mod doubt;
mod eras;
mod flush;
mod heard;
mod images;
mod import;
mod known;
mod letters;
mod line;
mod lists;
mod log;
mod nodes;
mod plans;
mod read;
mod requests;
mod schema;
mod sql;
mod states;
mod store;
mod submit;
mod sweep;
mod take;
mod tokens;
mod update;
mod watch;
mod writer;
mod writes;

pub use store::MysqlStore;
