//! Which tables there are, and what each looks like.

use rusqlite::{Connection, OptionalExtension, params};

use super::connect::{Failure, quoted, refused};
use super::types::{AUTOINCREMENT, Affinity, COLLATE, UNTYPED, affinity, kind};
use super::{indexes, size};
use crate::database::{Listed, MARKS, UNFINISHED};
use crate::table::{Column, Kind, Table, TableName};

pub(super) fn tables(connection: &Connection) -> Result<Vec<Listed>, Failure> {
    let mut names = connection.prepare(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'
         AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
    )?;
    let names = names.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    let people_s = names.into_iter().filter(|name| name != MARKS && !name.contains(UNFINISHED));
    people_s
        .map(|name| {
            let rows = size::roughly(connection, &name)?;
            Ok(Listed { name: TableName::new(name), rows: Some(rows), bytes: None })
        })
        .collect()
}

pub(super) fn table(connection: &Connection, name: &TableName) -> Result<Option<Table>, Failure> {
    let Some(found) = find(connection, name)? else { return Ok(None) };
    let mut left_out = Vec::new();
    let mut read = columns(connection, &found, &mut left_out)?;
    know_by_values(connection, &found.name, &mut read.columns)?;
    let (indexes, others) = indexes::of(connection, &found.name, &read.columns)?;
    left_out.extend(others);
    left_out.extend(foreign_keys(connection, &found.name)?);
    left_out.extend(triggers(connection, &found.name)?);
    if found.strict {
        left_out.push("STRICT".into());
    }
    let rows = size::known(connection, &found.name)?;
    let name = TableName::new(found.name);
    Ok(Some(Table { name, columns: read.columns, primary: read.primary, indexes, rows, left_out }))
}

/// A table as it spells itself: SQLite minds no case.
pub(super) struct Found {
    pub(super) name: String,
    strict: bool,
}

pub(super) fn find(connection: &Connection, name: &TableName) -> Result<Option<Found>, Failure> {
    let plain = plain(name)?;
    let found = connection
        .query_row(
            "SELECT name, type, strict FROM pragma_table_list WHERE schema = 'main' AND name = ?1 COLLATE NOCASE",
            [plain],
            |row| Ok((Found { name: row.get(0)?, strict: row.get(2)? }, row.get::<_, String>(1)?)),
        )
        .optional()?;
    match found {
        Some((found, kind)) if kind == "table" => Ok(Some(found)),
        Some((found, kind)) => {
            Err(refused(format!("`{}` is a {kind}, and only tables are copied; copy the tables it shows", found.name)))
        }
        None => Ok(None),
    }
}

/// SQLite has one schema for people's tables.
pub(super) fn plain(name: &TableName) -> Result<&str, Failure> {
    match name.schema.as_deref() {
        None | Some("main") => Ok(&name.name),
        Some(schema) => {
            Err(refused(format!("SQLite has no schemas: `{name}` cannot be in `{schema}`; write `{}`", name.name)))
        }
    }
}

struct Columns {
    columns: Vec<Column>,
    primary: Vec<usize>,
}

fn columns(connection: &Connection, found: &Found, left_out: &mut Vec<String>) -> Result<Columns, Failure> {
    let mut query = connection.prepare(
        "SELECT name, type, \"notnull\", pk, hidden, dflt_value IS NOT NULL FROM pragma_table_xinfo(?1)
         WHERE hidden <> 1 ORDER BY cid",
    )?;
    let mut rows = query.query([&found.name])?;
    let (mut columns, mut key) = (Vec::new(), Vec::new());
    let counter = counter(connection, &found.name)?;
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        let declared: String = row.get(1)?;
        let (never_null, place, hidden): (bool, u32, u32) = (row.get(2)?, row.get(3)?, row.get(4)?);
        if place > 0 {
            key.push((place, columns.len()));
        }
        let default = row.get(5)?;
        if default {
            left_out.push(format!("default of column {name}"));
        }
        let native = native(connection, found, &name, declared, left_out)?;
        columns.push(Column {
            kind: kind(&native),
            counts_up: counter.as_ref() == Some(&name),
            native,
            // SQLite lets keys hold NULL, by an old mistake of its own; rows that do are spoilt when they are read.
            nullable: !never_null && place == 0,
            generated: hidden == 2 || hidden == 3,
            default,
            name,
        });
    }
    key.sort_unstable();
    Ok(Columns { columns, primary: key.into_iter().map(|(_, column)| column).collect() })
}

/// The declared type, with what else a column of another SQLite database needs to be the same.
fn native(
    connection: &Connection,
    found: &Found,
    name: &str,
    declared: String,
    left_out: &mut Vec<String>,
) -> Result<String, Failure> {
    // Only in a STRICT table does ANY leave values alone; elsewhere it is no type at all that does so.
    let untyped = declared.is_empty() || found.strict && declared.eq_ignore_ascii_case("ANY");
    let mut native = if untyped { UNTYPED.to_owned() } else { declared };
    let (_, collation, _, _, counts_once) = connection.column_metadata(None, found.name.as_str(), name)?;
    let collation = collation.map(|collation| collation.to_string_lossy().to_ascii_uppercase()).unwrap_or_default();
    match collation.as_str() {
        "" | "BINARY" => {}
        "NOCASE" | "RTRIM" => native.push_str(&format!("{COLLATE}{collation}")),
        _ => left_out.push(format!("collation {collation} of column {name}")),
    }
    if counts_once {
        native.push_str(AUTOINCREMENT);
    }
    Ok(native)
}

/// The column that stands for the row's number, if there is one.
fn counter(connection: &Connection, table: &str) -> Result<Option<String>, Failure> {
    let mut query = connection.prepare("SELECT name, type FROM pragma_table_info(?1) WHERE pk > 0")?;
    let key =
        query.query_map([table], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?.collect::<Result<Vec<_>, _>>()?;
    // A key with an index, or in a table without row numbers, is a key like any other.
    let indexed: bool = connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM pragma_index_list(?1) WHERE origin = 'pk')",
        [table],
        |row| row.get(0),
    )?;
    Ok(match key.as_slice() {
        [(name, native)] if native.eq_ignore_ascii_case("INTEGER") && !indexed => Some(String::clone(name)),
        _ => None,
    })
}

/// A column without a type is what all of its values are, if they are of one; a UUID may be held as its 16 bytes.
fn know_by_values(connection: &Connection, table: &str, columns: &mut [Column]) -> Result<(), Failure> {
    for column in columns {
        let untyped = column.kind == Kind::Other && affinity(&column.native) == Affinity::Nothing;
        if !untyped && column.kind != Kind::Uuid {
            continue;
        }
        let (table, name) = (quoted(table), quoted(&column.name));
        // A type that says something is believed unless the first values say otherwise at once.
        let some = if untyped { "" } else { " LIMIT 1000" };
        let mut query = connection.prepare(&format!(
            "SELECT DISTINCT typeof(value) FROM
             (SELECT {table}.{name} AS value FROM {table} WHERE {table}.{name} IS NOT NULL{some}) LIMIT 2"
        ))?;
        let classes = query.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
        column.kind = match classes.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["blob"] => Kind::Bytes { length: None },
            ["integer"] if untyped => Kind::Int { bits: 64, unsigned: false },
            ["real"] if untyped => Kind::Float { bits: 64 },
            ["text"] if untyped => Kind::Text { length: None },
            _ => continue,
        };
    }
    Ok(())
}

fn foreign_keys(connection: &Connection, table: &str) -> Result<Vec<String>, Failure> {
    let mut query = connection.prepare(
        "SELECT group_concat(\"from\", ', '), \"table\" FROM pragma_foreign_key_list(?1) GROUP BY id ORDER BY id DESC",
    )?;
    let words = |row: &rusqlite::Row<'_>| {
        Ok(format!("foreign key ({}) to {}", row.get::<_, String>(0)?, row.get::<_, String>(1)?))
    };
    Ok(query.query_map([table], words)?.collect::<Result<_, _>>()?)
}

fn triggers(connection: &Connection, table: &str) -> Result<Vec<String>, Failure> {
    let mut query = connection.prepare(
        "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?1 COLLATE NOCASE ORDER BY name",
    )?;
    let words = |row: &rusqlite::Row<'_>| Ok(format!("trigger {}", row.get::<_, String>(0)?));
    Ok(query.query_map(params![table], words)?.collect::<Result<_, _>>()?)
}
