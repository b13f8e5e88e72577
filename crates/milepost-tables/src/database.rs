//! The seam between a copy and the databases: what each of them can be asked, as a source and as a target.
//!
//! A target keeps one small table of its own, `milepost_copies`, with one row (a mark) for each copy: who copies now, how
//! far it is, whether it is done. Every transaction of a writer changes its mark, on the condition that the token is still
//! its own: a node that was thought dead and wakes up again writes nothing into what another has begun since.

use async_trait::async_trait;

use crate::batch::{Batch, Value};
use crate::error::TableError;
use crate::table::{Dialect, Index, Table, TableName};

/// The table that a target keeps its marks in, beside the tables that are copied there.
pub(crate) const MARKS: &str = "milepost_copies";
/// Part of the name of every table that is not whole yet.
pub(crate) const UNFINISHED: &str = "__mp_";

#[async_trait]
pub trait Database: Send + Sync + std::fmt::Debug {
    fn dialect(&self) -> Dialect;

    /// Every table that people may want to copy, by name: none of the system's and none of Milepost's own.
    async fn tables(&self) -> Result<Vec<Listed>, TableError>;

    /// None: there is no such table. A view is refused.
    async fn table(&self, name: &TableName) -> Result<Option<Table>, TableError>;

    /// Counted, not estimated.
    async fn count(&self, name: &TableName, filter: Option<&str>) -> Result<u64, TableError>;

    /// The table's rows as they are at this moment, however long reading them takes.
    async fn read(&self, scan: Scan) -> Result<Box<dyn Rows>, TableError>;

    /// What the copy of this name left behind in the schema of its target, if it was ever begun there.
    async fn mark(&self, copy: &str, into: &TableName) -> Result<Option<Mark>, TableError>;

    /// Makes the copy this token's own, and the table beside the target: anew, or, if it may go on and an earlier
    /// attempt's fits, as that left it.
    async fn begin(&self, begin: Begin<'_>) -> Result<Begun, TableError>;

    /// Writes to the table that `begin` has made.
    async fn writer(&self, load: &Load, begun: &Begun, skip_bad_rows: bool) -> Result<Box<dyn Writer>, TableError>;

    /// Builds keys and indexes that are better built after the data. Those that cannot be built are refused by name.
    async fn add_indexes(&self, load: &Load, table: &Table) -> Result<(), TableError>;

    /// Lets the rows appear in the target, all at once, and marks the copy as done, or neither.
    async fn finish(&self, finish: Finish<'_>) -> Result<(), TableError>;

    /// Drops the table beside the target, if it is this token's own; the mark stays, and says that nothing is loaded.
    async fn discard(&self, load: &Load) -> Result<(), TableError>;
}

/// A table as a catalogue lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub name: TableName,
    /// Estimated, if the database estimates.
    pub rows: Option<u64>,
    /// On disk, if the database says so.
    pub bytes: Option<u64>,
}

/// What to read, and as what.
#[derive(Debug, Clone)]
pub struct Scan {
    pub table: TableName,
    /// Name, and the kind that its values are to be delivered as, which need not be that of the column: a target is read
    /// in the words of its source.
    pub columns: Vec<(String, crate::table::Kind)>,
    /// Positions in `columns` that the rows are read in the order of. Empty: in one pass, in no order.
    pub key: Vec<usize>,
    /// Positions in `columns` whose values are delivered as they are, whatever kind they should be of: SQLite keeps any
    /// value in any column, and another SQLite takes it. Other databases know no such values.
    pub as_is: Vec<usize>,
    /// Only rows with a greater key.
    pub after: Option<Vec<Value>>,
    /// Only rows with this key or a lesser one.
    pub until: Option<Vec<Value>>,
    /// A condition in the database's own SQL.
    pub filter: Option<String>,
    /// A batch has no more rows than this.
    pub batch_rows: usize,
    /// A batch is handed over when it is larger than this, however few rows it has.
    pub batch_bytes: usize,
}

#[async_trait]
pub trait Rows: Send {
    /// The next rows; None at the end. Pages by key: never skips by counting.
    async fn next(&mut self) -> Result<Option<Batch>, TableError>;
}

/// One copy on its way into one target.
#[derive(Debug, Clone)]
pub struct Load {
    /// The same for every attempt of every run: the mark's key.
    pub copy: String,
    pub run: u32,
    /// Of this attempt alone.
    pub token: String,
    pub into: TableName,
    /// The table beside it, of this copy alone.
    pub staging: TableName,
    /// The target's columns that are written, with the kinds that the batches have; in the batches' order.
    pub columns: Vec<(String, crate::table::Kind)>,
}

#[derive(Debug)]
pub struct Begin<'a> {
    pub load: &'a Load,
    pub shape: Shape<'a>,
    /// Go on with what an earlier attempt with this fingerprint has loaded.
    pub go_on: bool,
    /// Of the source and of what is asked of it.
    pub fingerprint: &'a str,
}

#[derive(Debug, Clone, Copy)]
pub enum Shape<'a> {
    /// A new table, as the source has it. `columns` of the load are all of its columns.
    Of { table: &'a Table, from: Dialect },
    /// As the target that is there.
    LikeTarget,
}

/// Where to go on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Begun {
    /// Loaded by an earlier attempt.
    pub rows: u64,
    pub rejected: u64,
    pub after: Option<Vec<Value>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    pub state: MarkState,
    /// Of the last attempt.
    pub run: u32,
    /// An attempt of that run has put into the target what is there: since then others may have begun, and be loading.
    pub own: bool,
    pub into: TableName,
    pub rows: u64,
    pub rejected: u64,
    pub after: Option<Vec<Value>>,
    pub fingerprint: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkState {
    Loading,
    /// The rows are in the target.
    Done,
}

#[async_trait]
pub trait Writer: Send {
    /// Writes the rows into an open transaction. If bad ones are to be skipped: says which those are, and the others are
    /// written; else the first bad one is an error. Fenced if the copy has been begun by somebody else.
    async fn write(&mut self, batch: &Batch) -> Result<Vec<Rejected>, TableError>;

    /// Makes what was written since the last commit last, together with how far the copy is. `rejected` are the rows
    /// that were left out since, by this writer or before it.
    async fn commit(&mut self, after: Option<Vec<Value>>, rejected: u64) -> Result<(), TableError>;
}

/// A row that is not in the target, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Rejected {
    /// In its batch; of no meaning to people.
    pub row: usize,
    pub column: Option<String>,
    /// In words, with the value where it helps.
    pub reason: String,
    /// The row itself, by column, as JSON: bytes as `\x…`.
    pub values: serde_json::Map<String, serde_json::Value>,
}

impl std::fmt::Display for Rejected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let row = serde_json::Value::Object(self.values.clone()).to_string();
        let shown: String = row.chars().take(300).collect();
        write!(f, "{} (row {shown})", self.reason)
    }
}

#[derive(Debug)]
pub struct Finish<'a> {
    pub load: &'a Load,
    pub how: How,
    /// Of the new table, with the names that they shall have once it is in its place.
    pub indexes: &'a [Index],
}

/// How rows get from beside the target into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// The table takes the target's name; a table that has it now goes.
    Replace,
    /// Added to the rows that are there.
    Append,
    /// Instead of the rows that are there; the target itself stays.
    Truncate,
    /// Rows that are there by this key get the new values, others are added.
    Upsert { key: Vec<String> },
}
