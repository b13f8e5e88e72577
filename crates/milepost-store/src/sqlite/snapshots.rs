//! Images of tasks with long logs, so that what reads such a task need not read all that ever happened to it.
//!
//! A snapshot is written in the transaction of the commit that it shows, and only ever stands for events that the log
//! has: one that cannot be used is passed over, and the log folded from its start.

use rusqlite::{Connection, OptionalExtension, params};

use crate::codec::check_body;
use crate::error::StoreError;
use crate::model::TaskRef;
use crate::snapshot::Snapshot;

use super::codec::unavailable;
use super::writer::Writer;

/// A snapshot as it was kept, and the row of the log that it shows the task after.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) position: i64,
    pub(super) text: String,
}

/// The newest one of a task. A file of an older format, which no owner has opened since, has none.
pub(super) fn read_snapshot(connection: &Connection, key: &TaskRef) -> Result<Option<Kept>, StoreError> {
    let read = || {
        let known = connection
            .prepare_cached("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'snapshots'")?
            .query_row([], |row| row.get::<_, i64>(0))?;
        if known == 0 {
            return Ok(None);
        }
        connection
            .prepare_cached("SELECT pos, crc, body FROM snapshots WHERE task = ?1")?
            .query_row([key.no], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, u32>(1)?, row.get::<_, String>(2)?)))
            .optional()
    };
    let Some((position, crc, text)) = read().map_err(unavailable("read a snapshot"))? else { return Ok(None) };
    check_body(&text, crc, || format!("the snapshot of task {}", key.id))?;
    Ok(Some(Kept { position, text }))
}

impl Writer {
    /// In the place of the task's last one.
    pub(super) fn keep_snapshot(&self, no: i64, position: i64, snapshot: &Snapshot) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached("INSERT OR REPLACE INTO snapshots (task, seq, pos, crc, body) VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![no, snapshot.version as i64, position, snapshot.crc, snapshot.text])?;
        Ok(())
    }

    pub(super) fn forget_snapshot(&self, no: i64) -> rusqlite::Result<()> {
        self.connection.prepare_cached("DELETE FROM snapshots WHERE task = ?1")?.execute([no])?;
        Ok(())
    }
}
