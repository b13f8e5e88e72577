//! SQLite as a source and as a target.
//!
//! Its types are advice, and each value has a type of its own: a column is what it is declared as, and a row that holds
//! something else is spoilt. One writer at a time is all that a file allows, so those of this process take turns.

mod catalogue;
mod connect;
mod database;
mod declare;
mod finish;
mod indexes;
mod last_key;
mod marks;
mod numbers;
mod query;
mod read;
mod size;
mod times;
mod turn;
mod types;
mod value;
mod write;
mod written;

pub(crate) use database::Sqlite;
