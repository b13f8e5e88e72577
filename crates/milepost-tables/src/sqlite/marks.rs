//! How far each copy into this database is, and whose it is.

use rusqlite::{Connection, OptionalExtension, params};

use super::catalogue::{find, plain};
use super::connect::{Failure, quoted};
use super::declare;
use crate::batch::Value;
use crate::database::{Begin, Begun, Load, MARKS, Mark, MarkState};
use crate::error::TableError;
use crate::table::TableName;

const LOADING: &str = "loading";
const DONE: &str = "done";
/// Loading once more what was done: the target that is there is still this copy's own.
const AGAIN: &str = "again";

const NOW: &str = "strftime('%Y-%m-%d %H:%M:%f', 'now')";

struct Row {
    run: u32,
    target: String,
    staging: String,
    state: String,
    rows: u64,
    rejected: u64,
    after: Option<String>,
    fingerprint: String,
}

pub(super) fn mark(connection: &Connection, copy: &str, into: &TableName) -> Result<Option<Mark>, Failure> {
    plain(into)?;
    Ok(row(connection, copy)?.map(|row| Mark {
        state: if row.state == DONE { MarkState::Done } else { MarkState::Loading },
        run: row.run,
        own: row.state != LOADING,
        into: row.target.parse().unwrap_or_else(|_| TableName::new(row.target.as_str())),
        rows: row.rows,
        rejected: row.rejected,
        after: row.key(),
        fingerprint: row.fingerprint,
    }))
}

/// In one transaction: whoever looks sees the mark and the table, or neither.
pub(super) fn begin(connection: &Connection, begin: &Begin<'_>) -> Result<Begun, Failure> {
    connection.execute_batch(&format!(
        "CREATE TABLE IF NOT EXISTS {MARKS} (copy TEXT NOT NULL PRIMARY KEY, run INTEGER NOT NULL, token TEXT NOT NULL, target TEXT NOT NULL,
         staging TEXT NOT NULL, state TEXT NOT NULL, \"rows\" INTEGER NOT NULL, rejected INTEGER NOT NULL,
         \"after\" TEXT, fingerprint TEXT NOT NULL, changed_at TEXT NOT NULL)"
    ))?;
    let load = begin.load;
    let row = row(connection, &load.copy)?;
    let begun = match &row {
        Some(row) if begin.go_on && row.is_left_by(begin) && find(connection, &load.staging)?.is_some() => {
            Begun { rows: row.rows, rejected: row.rejected, after: row.key() }
        }
        _ => {
            drop_staging(connection, load)?;
            declare::create(connection, load, &begin.shape)?;
            Begun::default()
        }
    };
    let finished =
        row.is_some_and(|row| row.run == load.run && row.state != LOADING && row.target == load.into.to_string());
    let own = finished && find(connection, &load.into)?.is_some();
    let after = begun.after.as_deref().map(json);
    connection.execute(
        &format!(
            "INSERT INTO {MARKS} (copy, token, target, staging, state, \"rows\", rejected, \"after\", fingerprint, run, changed_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, {NOW})
             ON CONFLICT (copy) DO UPDATE SET run = excluded.run, token = excluded.token, target = excluded.target,
             staging = excluded.staging, state = excluded.state, \"rows\" = excluded.\"rows\",
             rejected = excluded.rejected, \"after\" = excluded.\"after\", fingerprint = excluded.fingerprint,
             changed_at = excluded.changed_at"
        ),
        params![
            load.copy,
            load.token,
            load.into.to_string(),
            load.staging.to_string(),
            if own { AGAIN } else { LOADING },
            begun.rows.cast_signed(),
            begun.rejected.cast_signed(),
            after,
            begin.fingerprint,
            load.run
        ],
    )?;
    Ok(begun)
}

/// Fenced, unless the copy is this token's own.
pub(super) fn must_be_own(connection: &Connection, load: &Load) -> Result<(), Failure> {
    if is_own(connection, load)? { Ok(()) } else { Err(fenced(load)) }
}

pub(super) fn is_own(connection: &Connection, load: &Load) -> Result<bool, Failure> {
    if !connection.table_exists(None, MARKS)? {
        return Ok(false);
    }
    let sql = format!("SELECT EXISTS (SELECT 1 FROM {MARKS} WHERE copy = ?1 AND token = ?2)");
    Ok(connection.prepare_cached(&sql)?.query_row([&load.copy, &load.token], |row| row.get(0))?)
}

/// What has been written since the last time.
pub(super) struct Step {
    pub(super) rows: u64,
    pub(super) rejected: u64,
    pub(super) after: Option<Vec<Value>>,
}

pub(super) fn advance(connection: &Connection, load: &Load, step: &Step) -> Result<(), Failure> {
    let sql = format!(
        "UPDATE {MARKS} SET \"rows\" = \"rows\" + ?3, rejected = rejected + ?4, \"after\" = coalesce(?5, \"after\"), changed_at = {NOW}
         WHERE copy = ?1 AND token = ?2"
    );
    let after = step.after.as_deref().map(json);
    let changed = connection.prepare_cached(&sql)?.execute(params![
        load.copy,
        load.token,
        step.rows.cast_signed(),
        step.rejected.cast_signed(),
        after
    ])?;
    if changed == 1 { Ok(()) } else { Err(fenced(load)) }
}

pub(super) fn done(connection: &Connection, load: &Load) -> Result<(), Failure> {
    let sql = format!("UPDATE {MARKS} SET state = '{DONE}', changed_at = {NOW} WHERE copy = ?1 AND token = ?2");
    let changed = connection.execute(&sql, [&load.copy, &load.token])?;
    if changed == 1 { Ok(()) } else { Err(fenced(load)) }
}

/// Nothing is loaded; whether the target is this copy's own stays known.
pub(super) fn empty(connection: &Connection, load: &Load) -> Result<(), Failure> {
    connection.execute(
        &format!(
            "UPDATE {MARKS} SET \"rows\" = 0, rejected = 0, \"after\" = NULL, fingerprint = '', changed_at = {NOW}
             WHERE copy = ?1 AND token = ?2 AND state <> '{DONE}'"
        ),
        [&load.copy, &load.token],
    )?;
    drop_staging(connection, load)
}

fn drop_staging(connection: &Connection, load: &Load) -> Result<(), Failure> {
    let staging = plain(&load.staging)?;
    connection.execute(&format!("DROP TABLE IF EXISTS {}", quoted(staging)), [])?;
    Ok(())
}

fn row(connection: &Connection, copy: &str) -> Result<Option<Row>, Failure> {
    if !connection.table_exists(None, MARKS)? {
        return Ok(None);
    }
    let sql = format!(
        "SELECT target, staging, state, \"rows\", rejected, \"after\", fingerprint, run FROM {MARKS} WHERE copy = ?1"
    );
    let row = connection.query_row(&sql, [copy], |row| {
        Ok(Row {
            target: row.get(0)?,
            staging: row.get(1)?,
            state: row.get(2)?,
            rows: row.get::<_, i64>(3)?.cast_unsigned(),
            rejected: row.get::<_, i64>(4)?.cast_unsigned(),
            after: row.get(5)?,
            fingerprint: row.get(6)?,
            run: row.get(7)?,
        })
    });
    Ok(row.optional()?)
}

impl Row {
    fn key(&self) -> Option<Vec<Value>> {
        self.after.as_deref().and_then(|after| serde_json::from_str(after).ok())
    }

    fn is_left_by(&self, begin: &Begin<'_>) -> bool {
        let load = begin.load;
        self.state != DONE
            && self.fingerprint == begin.fingerprint
            && self.target == load.into.to_string()
            && self.staging == load.staging.to_string()
            // A key that cannot be read again is nowhere to go on from.
            && (self.after.is_none() || self.key().is_some())
    }
}

fn json(after: &[Value]) -> String {
    serde_json::to_string(after).expect("a key is plain data")
}

fn fenced(load: &Load) -> Failure {
    Failure::Said(TableError::Fenced { copy: load.copy.clone() })
}
