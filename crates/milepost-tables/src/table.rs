//! What a table looks like, in words that all databases share.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Whose rules apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    Sqlite,
    Postgres,
    /// MariaDB as well.
    Mysql,
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dialect::Sqlite => "SQLite",
            Dialect::Postgres => "PostgreSQL",
            Dialect::Mysql => "MySQL",
        })
    }
}

/// `name`, or `schema.name`; a part with dots or double quotes in it is written in double quotes, those in it doubled.
/// A schema is PostgreSQL's; in MySQL it is a database, in SQLite there is none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    /// None: the one that the connection is in.
    pub schema: Option<String>,
    pub name: String,
}

impl TableName {
    pub fn new(name: impl Into<String>) -> Self {
        Self { schema: None, name: name.into() }
    }

    /// Another table of the same schema.
    pub fn beside(&self, name: impl Into<String>) -> Self {
        Self { schema: self.schema.clone(), name: name.into() }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |f: &mut fmt::Formatter<'_>, part: &str| {
            if part.contains(['.', '"']) { write!(f, "\"{}\"", part.replace('"', "\"\"")) } else { f.write_str(part) }
        };
        if let Some(schema) = &self.schema {
            part(f, schema)?;
            f.write_str(".")?;
        }
        part(f, &self.name)
    }
}

impl FromStr for TableName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is no table's name; write `name` or `schema.name`");
        let mut parts = Vec::new();
        let mut rest = text;
        loop {
            let (part, after) = split_part(rest).ok_or_else(bad)?;
            parts.push(part);
            match after.strip_prefix('.') {
                Some(next) => rest = next,
                None if after.is_empty() => break,
                None => return Err(bad()),
            }
        }
        let name = parts.pop().ok_or_else(bad)?;
        let schema = parts.pop();
        if !parts.is_empty() || name.is_empty() || schema.as_deref() == Some("") {
            return Err(bad());
        }
        Ok(Self { schema, name })
    }
}

/// The first part, and what comes after it.
fn split_part(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find('.').unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let (mut part, mut rest) = (String::new(), quoted);
    loop {
        let end = rest.find('"')?;
        part.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(more) => {
                part.push('"');
                rest = more;
            }
            None => return Some((part, rest)),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub name: TableName,
    pub columns: Vec<Column>,
    /// Positions in `columns`, in the key's own order; empty without a primary key.
    pub primary: Vec<usize>,
    /// The others, unique or not. Of those that are more than a list of columns only `left_out` tells.
    pub indexes: Vec<Index>,
    /// About how many rows it has, if that is known without counting.
    pub rows: Option<u64>,
    /// What belongs to the table and is not copied, in words: `foreign key orders_customer`, `trigger audit`.
    pub left_out: Vec<String>,
}

impl Table {
    /// What rows are read in the order of: the primary key, else a unique index in which nothing is NULL; else empty.
    pub fn paging_key(&self) -> Vec<usize> {
        if !self.primary.is_empty() {
            return self.primary.clone();
        }
        let filled =
            |index: &&Index| index.unique && index.columns.iter().all(|column| !self.columns[*column].nullable);
        self.indexes.iter().find(filled).map(|index| index.columns.clone()).unwrap_or_default()
    }

    /// The same for the same shape, another for another: what a copy that goes on after a break compares.
    pub fn fingerprint(&self) -> String {
        use sha2::{Digest, Sha256};
        let column =
            |column: &Column| format!("{} {} {:?} {}", column.name, column.native, column.kind, column.nullable);
        let columns = self.columns.iter().map(column).collect::<Vec<_>>().join("\n");
        let digest = Sha256::digest(format!("{}\n{:?}\n{columns}", self.name, self.primary));
        digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
    /// The type as its own database spells it, for a table that stays with the same kind of database. Empty: only the
    /// kind is known, because somebody asked for another than the column has.
    pub native: String,
    pub nullable: bool,
    /// The database counts it up by itself: AUTO_INCREMENT, identity, serial, SQLite's INTEGER PRIMARY KEY.
    pub counts_up: bool,
    /// Computed from others: copied into a new table as a value like any other, never written into one that computes it.
    pub generated: bool,
    /// The database has a value for it when none is written.
    pub default: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    pub name: String,
    pub unique: bool,
    pub columns: Vec<usize>,
}

/// What a column holds, and so which `Cell` its values are; texts in one spelling, whatever database they come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// `Cell::Bool`.
    Bool,
    /// `Cell::Int`, or `Cell::Uint` beyond it. `bits` is 8, 16, 24, 32 or 64.
    Int { bits: u8, unsigned: bool },
    /// `Cell::Float`; with 32 bits its value is one that an `f32` has.
    Float { bits: u8 },
    /// `Cell::Text`: `-12.50`, without exponent; `NaN`, `Infinity` where the source has them. None: as many as it takes.
    Decimal { digits: Option<Digits> },
    /// `Cell::Text`. In characters, not bytes; None: no limit.
    Text { length: Option<u32> },
    /// `Cell::Bytes`.
    Bytes { length: Option<u32> },
    /// `Cell::Text`: `2024-02-29`. What other databases cannot say stays as its own spells it: `0000-00-00`, `infinity`.
    Date,
    /// `Cell::Text`: `23:59:59.123`, no zeros at the end of the fraction, no point without one.
    Time { fraction: u8 },
    /// `Cell::Text`: `2024-02-29 23:59:59.123`, a reading of some clock.
    DateTime { fraction: u8 },
    /// `Cell::Text`, spelled as a date with a time, in UTC: a moment.
    Instant { fraction: u8 },
    /// `Cell::Text`, as the source spells it.
    Json,
    /// `Cell::Text`, lower case with hyphens.
    Uuid,
    /// `Cell::Text`, one of these.
    Enum { values: Vec<String> },
    /// `Cell::Text`: what no other kind fits, as its own database spells it.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digits {
    pub precision: u32,
    pub scale: u32,
}
