//! Tables, copied from one database to another: SQLite, PostgreSQL, and MySQL or MariaDB, in every direction.
//!
//! `copy` writes a table beside its target and lets it appear whole at the end. Databases differ in one place each, behind
//! `Database`; what a copy does, and in which order, is said once, in `copy`. Knows nothing of plans, tasks and stores.

mod address;
mod batch;
mod canonical;
mod copy;
mod database;
mod error;
mod kind_text;
mod mysql;
mod open;
mod postgres;
mod shown;
mod sqlite;
mod table;

pub use address::{Address, BadAddress};
pub use batch::{Batch, Cell, Span, Spoilt, Value};
pub use copy::{Copied, Copy, IfExists, Limits, OnRowError, Resume, Verify, Watch, copy};
pub use database::{
    Begin, Begun, Database, Finish, How, Listed, Load, Mark, MarkState, Rejected, Rows, Scan, Shape, Writer,
};
pub use error::TableError;
pub use open::open;
pub use table::{Column, Dialect, Digits, Index, Kind, Table, TableName};
