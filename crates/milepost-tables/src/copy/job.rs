//! What a copy is asked to do, and what it says when it is done.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::database::Database;
use crate::table::{Kind, TableName};

/// One table to copy.
#[derive(Debug, Clone)]
pub struct Copy {
    /// The same for every attempt of every run, and no other copy's: an attempt ends those before it by it.
    pub name: String,
    /// What an earlier run has put into the target is not this one's own: it may have been undone, or changed, since.
    pub run: u32,
    pub from: Arc<dyn Database>,
    pub to: Arc<dyn Database>,
    pub table: TableName,
    pub into: TableName,
    /// By name, in this order; None: all.
    pub columns: Option<Vec<String>>,
    /// Columns to be read as something else than the source says.
    pub types: BTreeMap<String, Kind>,
    /// A condition in the source's own SQL: only such rows.
    pub filter: Option<String>,
    pub batch_rows: usize,
    pub if_exists: IfExists,
    pub on_row_error: OnRowError,
    /// Where rejected rows are written, one JSON object a line; for `OnRowError::Skip`.
    pub rejected_file: Option<PathBuf>,
    pub resume: Resume,
    pub verify: Verify,
    pub indexes: bool,
    pub limits: Limits,
}

/// What happens to a target that is there, if this very copy has not put it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IfExists {
    #[default]
    Fail,
    Drop,
    Truncate,
    /// At most once for one copy, however often it is begun.
    Append,
    Upsert,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnRowError {
    #[default]
    Stop,
    Skip,
}

/// Where an attempt begins that follows a broken one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resume {
    /// From zero.
    #[default]
    Table,
    /// After the last batch that was committed. Needs a key.
    Chunk,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    None,
    /// Rows are counted on both sides.
    #[default]
    Counts,
    /// Every value is read again on both sides, and compared by ranges of the key.
    Checksums,
}

/// None: as fast as it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    pub rows_per_second: Option<u64>,
    pub bytes_per_second: Option<u64>,
}

/// Who is told, while it goes on.
pub trait Watch: Send + Sync {
    /// After every batch: rows that are dealt with, and how many there are, as far as is known.
    fn progress(&self, done: u64, total: u64);
    /// A line for people.
    fn say(&self, line: &str);
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Copied {
    /// In the target, by this copy.
    pub rows: u64,
    pub rejected: u64,
    /// As they were on the way.
    pub bytes: u64,
    /// Ranges of the key that were compared, if there were any.
    pub ranges: Option<u64>,
    /// An earlier attempt had done it all.
    pub already: bool,
}
