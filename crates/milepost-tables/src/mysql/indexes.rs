//! Keys and indexes of a table: what the catalogue says, and how they are built after the data.

use mysql_async::Conn;

use crate::database::Load;
use crate::error::TableError;
use crate::table::{Column, Index, Table, TableName};

use super::catalogue::{self, Known};
use super::connect::Server;
use super::declare::CHARACTER;
use super::failure::{Failing, code, failed, in_words, is_away};
use super::place::KEY_BYTES;
use super::sql;
use super::types::Native;

/// What the catalogue says of them.
#[derive(Debug, Default)]
pub(super) struct Indexes {
    pub(super) primary: Vec<usize>,
    pub(super) indexes: Vec<Index>,
    /// Those that are more than a list of columns.
    pub(super) left_out: Vec<String>,
}

/// One column of one index, as the catalogue lists them.
type Part = (String, bool, Option<String>, Option<u64>, String);

pub(super) async fn of(
    server: &Server,
    conn: &mut Conn,
    name: &TableName,
    columns: &[Column],
) -> Result<Indexes, TableError> {
    let sql = format!(
        "SELECT INDEX_NAME, NON_UNIQUE, COLUMN_NAME, SUB_PART, INDEX_TYPE FROM information_schema.STATISTICS \
         WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {} ORDER BY INDEX_NAME, SEQ_IN_INDEX",
        sql::schema(name),
        sql::text(&name.name)
    );
    let parts: Vec<Part> = server.ask(conn, "look at", &name.to_string(), &sql).await?;
    let mut found = Indexes::default();
    for index in parts.chunk_by(|one, next| one.0 == next.0) {
        let (name, not_unique, .., kind) = &index[0];
        let plain = |(_, _, column, prefix, _): &Part| {
            let column = column.as_deref().filter(|_| prefix.is_none())?;
            columns.iter().position(|known| known.name == column)
        };
        let positions: Option<Vec<usize>> = index.iter().map(plain).collect();
        match positions.filter(|_| matches!(kind.as_str(), "BTREE" | "HASH")) {
            Some(positions) if name == "PRIMARY" => found.primary = positions,
            Some(columns) => found.indexes.push(Index { name: name.clone(), unique: !not_unique, columns }),
            None => found.left_out.push(format!("index {name}")),
        }
    }
    Ok(found)
}

/// All of them in one pass over the table; those that are there already are left alone.
pub(super) async fn add(server: &Server, conn: &mut Conn, load: &Load, table: &Table) -> Result<(), TableError> {
    let Some(staging) = catalogue::table(server, conn, &load.staging).await? else {
        return Err(TableError::Fenced { copy: load.copy.clone() });
    };
    let there =
        |index: &Index| staging.table.indexes.iter().any(|known| known.name.eq_ignore_ascii_case(&index_name(index)));
    let missing: Vec<(&str, String)> = (table.indexes.iter())
        .filter(|index| !there(index))
        .filter_map(|index| Some((index.name.as_str(), definition(&staging, table, index)?)))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let alter = |parts: &[&str]| format!("ALTER TABLE {} {}", sql::table(&load.staging), parts.join(", "));
    let parts: Vec<&str> = missing.iter().map(|(_, part)| part.as_str()).collect();
    let Err(error) = query(conn, &alter(&parts)).await else { return Ok(()) };
    if is_away(&error) || code(&error).is_none() {
        return Err(failed(Failing { server: &server.name, doing: "build indexes of", what: &load.into.to_string() })(
            error,
        ));
    }
    // Which one it is, only each by itself can tell for sure.
    for (name, part) in &missing {
        if let Err(error) = query(conn, &alter(&[part])).await {
            let what = format!("index {name} of {}", load.into);
            if is_away(&error) {
                return Err(failed(Failing { server: &server.name, doing: "build", what: &what })(error));
            }
            return Err(TableError::Refused(format!(
                "{} could not build {what}: {}; `indexes: false` copies the rows without indexes",
                server.name,
                in_words(&error)
            )));
        }
    }
    Ok(())
}

/// None if one of its columns is not there.
fn definition(staging: &Known, table: &Table, index: &Index) -> Option<String> {
    let parts: Option<Vec<usize>> =
        index.columns.iter().map(|column| staging.position(&table.columns[*column].name)).collect();
    let parts = parts?;
    let bytes = |part: &usize| match &staging.natives[*part] {
        Native::Text(text) => u32::try_from(text.bytes).unwrap_or(u32::MAX),
        Native::Bytes { length, .. } => u32::try_from(*length).unwrap_or(u32::MAX),
        Native::Json | Native::Space | Native::Unknown => u32::MAX,
        _ => SHORT,
    };
    let whole = parts.iter().map(bytes).fold(0, u32::saturating_add);
    let long = |part: &usize| whole > KEY_BYTES && bytes(part) > SHORT;
    let short: u32 = parts.iter().filter(|part| !long(part)).map(bytes).sum();
    let share = KEY_BYTES.saturating_sub(short) / parts.iter().filter(|part| long(part)).count().max(1) as u32;
    let part = |part: &usize| {
        let name = sql::name(&staging.table.columns[*part].name);
        match staging.natives[*part] {
            // Only an index that does not forbid anything may make do with the beginnings of texts.
            _ if index.unique || !long(part) => name,
            Native::Bytes { .. } => format!("{name}({share})"),
            _ => format!("{name}({})", share / CHARACTER),
        }
    };
    let columns: Vec<String> = parts.iter().map(part).collect();
    let unique = if index.unique { "UNIQUE " } else { "" };
    Some(format!("ADD {unique}INDEX {} ({})", sql::name(&index_name(index)), columns.join(", ")))
}

/// What any column takes in an index that is no text and no bytes, at most.
const SHORT: u32 = 36;

async fn query(conn: &mut Conn, sql: &str) -> Result<(), mysql_async::Error> {
    use mysql_async::prelude::Queryable;
    conn.query_drop(sql).await
}

/// Names have 64 characters at most, and PRIMARY is no name for one that is not.
pub(super) fn index_name(index: &Index) -> String {
    let name: String = index.name.chars().take(64).collect();
    if name.eq_ignore_ascii_case("primary") { "primary_index".to_owned() } else { name }
}
