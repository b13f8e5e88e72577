//! The table beside the target, as a statement.

use rusqlite::Connection;

use super::catalogue::{find, plain};
use super::connect::{Failure, quoted, refused};
use super::types::{AUTOINCREMENT, UNTYPED, declared};
use crate::database::{Load, Shape};
use crate::table::{Column, Dialect, Kind, Table};

pub(super) fn create(connection: &Connection, load: &Load, shape: &Shape<'_>) -> Result<(), Failure> {
    let staging = plain(&load.staging)?;
    let sql = match shape {
        Shape::Of { table, from } => of(load, table, *from, staging),
        Shape::LikeTarget => like_target(connection, load, staging)?,
    };
    connection.execute(&sql, [])?;
    Ok(())
}

fn of(load: &Load, table: &Table, from: Dialect, staging: &str) -> String {
    let names = load.columns.iter().map(|(name, _)| name.as_str());
    let counted = counted(table, from);
    let mut parts: Vec<String> = names
        .clone()
        .zip(&table.columns)
        .enumerate()
        .map(|(place, (name, column))| {
            let name = quoted(name);
            if counted == Some(place) {
                let once = if column.native.ends_with(AUTOINCREMENT) { AUTOINCREMENT } else { "" };
                return format!("{name} INTEGER PRIMARY KEY{once}");
            }
            let never_null = if column.nullable { "" } else { " NOT NULL" };
            format!("{name} {}{never_null}", type_of(column, from))
        })
        .collect();
    if !table.primary.is_empty() && counted.is_none() {
        let key: Vec<_> = table.primary.iter().map(|place| quoted(&load.columns[*place].0)).collect();
        parts.push(format!("PRIMARY KEY ({})", key.join(", ")));
    }
    format!("CREATE TABLE {} ({})", quoted(staging), parts.join(", "))
}

/// The column that becomes the row's number: the fastest key there is.
fn counted(table: &Table, from: Dialect) -> Option<usize> {
    let [place] = table.primary.as_slice() else { return None };
    let column = &table.columns[*place];
    let fits = match column.kind {
        // What counts up never gets beyond a signed integer in this world.
        Kind::Int { bits: 64, unsigned: true } => column.counts_up,
        Kind::Int { .. } => column.counts_up || from != Dialect::Sqlite,
        _ => false,
    };
    fits.then_some(*place)
}

/// Verbatim from SQLite, unless the column is copied as something else than it is there.
fn type_of(column: &Column, from: Dialect) -> String {
    let native = column.native.strip_suffix(AUTOINCREMENT).unwrap_or(&column.native);
    if from != Dialect::Sqlite || native.is_empty() {
        return declared(&column.kind);
    }
    native.strip_prefix(UNTYPED).unwrap_or(native).to_owned()
}

/// The target's own statement under another name, so that all of its rules are kept where a single row can be blamed.
fn like_target(connection: &Connection, load: &Load, staging: &str) -> Result<String, Failure> {
    let missing = || refused(format!("there is no table `{}` to add rows to", load.into));
    let found = find(connection, &load.into)?.ok_or_else(missing)?;
    let sql: String = connection.query_row(
        "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?1",
        [found.name],
        |row| row.get(0),
    )?;
    let body = after_name(&sql).ok_or_else(|| refused(format!("how `{}` was made is not clear: {sql}", load.into)))?;
    Ok(format!("CREATE TABLE {} {body}", quoted(staging)))
}

/// SQLite keeps `CREATE TABLE name(…)`, with the name as it was quoted.
fn after_name(sql: &str) -> Option<&str> {
    let rest = sql.get(.."CREATE TABLE ".len()).and_then(|head| {
        head.eq_ignore_ascii_case("CREATE TABLE ").then(|| sql["CREATE TABLE ".len()..].trim_start())
    })?;
    let close = match rest.chars().next()? {
        '[' => ']',
        quote @ ('"' | '`' | '\'') => quote,
        _ => return rest.find(|c: char| c == '(' || c.is_whitespace()).map(|end| &rest[end..]),
    };
    let mut at = 1;
    loop {
        at += rest[at..].find(close)? + 1;
        // A quote within the name is doubled.
        if close != ']' && rest[at..].starts_with(close) { at += 1 } else { return Some(&rest[at..]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_goes_on_after_the_tables_name_however_that_is_quoted() {
        for name in ["t", "\"a (\"\"b\"\")\"", "[a (b]", "`a``(`", "'it''s'"] {
            assert_eq!(after_name(&format!("CREATE TABLE {name}(a INT)")), Some("(a INT)"), "{name}");
            assert_eq!(after_name(&format!("CREATE TABLE {name} (a INT)")), Some(" (a INT)"), "{name}");
        }
        assert_eq!(after_name("CREATE VIRTUAL TABLE t USING fts5(a)"), None);
    }
}
