//! What is copied: the columns of the source that are asked for, how they are read, and how many rows there may be.

use super::job::{Copy, Resume};
use super::near::near;
use super::reader::BATCH_BYTES;
use crate::batch::Value;
use crate::database::Scan;
use crate::error::TableError;
use crate::table::{Column, Dialect, Index, Kind, Table, TableName};

/// An estimate below this is not worth much, and counting costs little.
const COUNTED_BELOW: u64 = 1_000_000;

/// The source, looked at.
#[derive(Debug)]
pub(super) struct Source {
    /// As the catalogue has it.
    pub(super) table: Table,
    /// The part of it that is copied.
    pub(super) copied: Table,
    /// Positions in the copied columns by which rows are read; empty: in one pass.
    pub(super) key: Vec<usize>,
    /// Positions in the copied columns that are not read as what they should be, but as what they are.
    as_is: Vec<usize>,
}

impl Source {
    pub(super) async fn look(copy: &Copy) -> Result<Self, TableError> {
        let Some(table) = copy.from.table(&copy.table).await? else {
            let known = copy.from.tables().await?.into_iter().map(|listed| listed.name.to_string());
            let near = near(&copy.table.to_string(), known);
            return Err(TableError::Refused(format!("the source has no table `{}`{near}", copy.table)));
        };
        let copied = part_of(&table, copy)?;
        let key = paging_key(&copied, copy);
        if key.is_empty() && copy.resume == Resume::Chunk {
            return Err(TableError::Refused(format!(
                "`{}` has no primary key and no unique index without NULLs among the copied columns, so a copy cannot go on \
                 in the middle of it; say `resume: table`",
                copy.table
            )));
        }
        Ok(Self { table, copied, key, as_is: Vec::new() })
    }

    /// For a new table in a database of the same kind, which takes every value as it is.
    pub(super) fn verbatim(mut self, copy: &Copy) -> Self {
        for (place, column) in self.copied.columns.iter_mut().enumerate() {
            if copy.from.dialect() != copy.to.dialect() || copy.types.contains_key(&column.name) {
                continue;
            }
            match copy.from.dialect() {
                Dialect::Sqlite => self.as_is.push(place),
                // TINYINT(1) is called a boolean, and holds 256 numbers.
                Dialect::Mysql if column.kind == Kind::Bool && column.native.starts_with("tinyint") => {
                    column.kind = Kind::Int { bits: 8, unsigned: false };
                }
                Dialect::Mysql | Dialect::Postgres => {}
            }
        }
        self
    }

    /// Names and kinds, as they are read and written.
    pub(super) fn columns(&self) -> Vec<(String, Kind)> {
        self.copied.columns.iter().map(|column| (column.name.clone(), column.kind.clone())).collect()
    }

    /// The copied columns, in their own kinds, of this table or of one that is to hold the same.
    pub(super) fn scan(
        &self,
        table: &TableName,
        filter: Option<String>,
        batch_rows: usize,
        after: Option<Vec<Value>>,
        until: Option<Vec<Value>>,
    ) -> Scan {
        let (table, columns, key, as_is) = (table.clone(), self.columns(), self.key.clone(), self.as_is.clone());
        Scan { table, columns, key, as_is, after, until, filter, batch_rows, batch_bytes: BATCH_BYTES }
    }

    /// Nothing else can be in it. SQLite lets other values into a column of integers, unless it numbers the rows.
    pub(super) fn holds_integers(&self, place: usize) -> bool {
        let column = &self.copied.columns[place];
        matches!(column.kind, Kind::Int { .. }) && (column.counts_up || !self.as_is.contains(&place))
    }

    /// `id 17`, or `year 2024, number 3`.
    pub(super) fn key_in_words(&self, key: &[Value]) -> String {
        let value = |value: &Value| match value {
            Value::Null => "NULL".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
            Value::Uint(value) => value.to_string(),
            Value::Float(value) => value.to_string(),
            Value::Text(value) => format!("{value:?}"),
            Value::Bytes(value) => format!("{value:02x?}"),
        };
        let named =
            self.key.iter().zip(key).map(|(at, part)| format!("{} {}", self.copied.columns[*at].name, value(part)));
        named.collect::<Vec<_>>().join(", ")
    }

    /// How many rows there are, counted where that is quick or where nothing else is known.
    pub(super) async fn total(&self, copy: &Copy) -> Result<u64, TableError> {
        match self.table.rows {
            Some(rows) if rows >= COUNTED_BELOW && copy.filter.is_none() && copy.from.dialect() != Dialect::Sqlite => {
                Ok(rows)
            }
            Some(_) | None => copy.from.count(&copy.table, copy.filter.as_deref()).await,
        }
    }
}

/// The table as the copy has it: the columns asked for, as what they are asked to be, and the indexes of those alone.
fn part_of(table: &Table, copy: &Copy) -> Result<Table, TableError> {
    let position = |name: &str| {
        table.columns.iter().position(|column| column.name == name).ok_or_else(|| {
            let near = near(name, table.columns.iter().map(|column| column.name.clone()));
            TableError::Refused(format!("`{}` has no column `{name}`{near}", table.name))
        })
    };
    let positions = match &copy.columns {
        None => (0..table.columns.len()).collect(),
        Some(names) => names.iter().map(|name| position(name)).collect::<Result<Vec<_>, _>>()?,
    };
    let twice = (1..positions.len()).find(|at| positions[..*at].contains(&positions[*at]));
    if let Some(at) = twice {
        let name = &table.columns[positions[at]].name;
        return Err(TableError::Refused(format!("`columns` names the column `{name}` twice")));
    }
    if positions.is_empty() {
        return Err(TableError::Refused(format!("no column of `{}` is left to copy", table.name)));
    }
    let columns: Vec<Column> = positions.iter().map(|at| asked_for(&table.columns[*at], copy)).collect();
    for name in copy.types.keys() {
        position(name)?;
        if !columns.iter().any(|column| column.name == *name) {
            return Err(TableError::Refused(format!("`types` names the column `{name}`, which is not copied")));
        }
    }
    // None as soon as one of them is not copied.
    let moved = |of: &[usize]| -> Option<Vec<usize>> {
        of.iter().map(|at| positions.iter().position(|copied| copied == at)).collect()
    };
    let index = |index: &Index| moved(&index.columns).map(|columns| Index { columns, ..index.clone() });
    let primary = moved(&table.primary).unwrap_or_default();
    let indexes = table.indexes.iter().filter_map(index).collect();
    Ok(Table { columns, primary, indexes, ..table.clone() })
}

/// A computed column is a value like any other in a copy. What is read as something else has lost its own type.
fn asked_for(column: &Column, copy: &Copy) -> Column {
    let column = Column { generated: false, ..column.clone() };
    match copy.types.get(&column.name) {
        Some(kind) if *kind != column.kind => Column { kind: kind.clone(), native: String::new(), ..column },
        Some(_) | None => column,
    }
}

/// A key that is read as something else than it is has another order than its database gives it.
fn paging_key(copied: &Table, copy: &Copy) -> Vec<usize> {
    let own = |columns: &[usize]| columns.iter().all(|at| !copy.types.contains_key(&copied.columns[*at].name));
    let mut table = copied.clone();
    if !own(&table.primary) {
        table.primary.clear();
    }
    table.indexes.retain(|index| own(&index.columns));
    table.paging_key()
}
