//! How many rows a table has, more or less.

use rusqlite::{Connection, OptionalExtension};

use super::connect::{Failure, quoted};

/// Counting this many takes no time worth speaking of.
const QUICKLY_COUNTED: u64 = 1_000_000;
/// A row with its number takes no less, in bytes.
const SMALLEST_ROW: u64 = 4;

/// As ANALYZE left it, if it was ever run.
pub(super) fn known(connection: &Connection, table: &str) -> Result<Option<u64>, Failure> {
    if !connection.table_exists(None, "sqlite_stat1")? {
        return Ok(None);
    }
    // The first number is that of the rows, in the statistics of whichever index; a partial one counts fewer.
    let stat: Option<Option<i64>> = connection
        .query_row(
            "SELECT max(CAST(stat AS INTEGER)) FROM sqlite_stat1 WHERE tbl = ?1 COLLATE NOCASE",
            [table],
            |row| row.get(0),
        )
        .optional()?;
    Ok(stat.flatten().and_then(|rows| u64::try_from(rows).ok()))
}

/// Counted if that is quick; else by the rows' numbers, if those can be right.
pub(super) fn roughly(connection: &Connection, table: &str) -> Result<u64, Failure> {
    if let Some(rows) = known(connection, table)? {
        return Ok(rows);
    }
    let name = quoted(table);
    let few = number(connection, &format!("SELECT count(*) FROM (SELECT 1 FROM {name} LIMIT {QUICKLY_COUNTED})"))?;
    if few < QUICKLY_COUNTED {
        return Ok(few);
    }
    let span = connection
        .query_row(&format!("SELECT min(rowid), max(rowid) FROM {name}"), [], |row| Ok((row.get(0)?, row.get(1)?)))
        .ok()
        .and_then(|(least, most): (i64, i64)| u64::try_from(i128::from(most) - i128::from(least) + 1).ok());
    let file = number(connection, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")?;
    match span {
        Some(span) if span <= file / SMALLEST_ROW => Ok(span),
        _ => count(connection, table, None),
    }
}

pub(super) fn count(connection: &Connection, table: &str, filter: Option<&str>) -> Result<u64, Failure> {
    let filter = filter.map(|filter| format!(" WHERE ({filter}\n)")).unwrap_or_default();
    number(connection, &format!("SELECT count(*) FROM {}{filter}", quoted(table)))
}

fn number(connection: &Connection, sql: &str) -> Result<u64, Failure> {
    Ok(connection.query_row(sql, [], |row| row.get::<_, i64>(0))?.cast_unsigned())
}
