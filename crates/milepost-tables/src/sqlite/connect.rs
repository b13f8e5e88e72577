//! Connections to a file, and what its errors mean to whoever copies.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::TableError;

/// How long another process may hold the file.
const PATIENCE: Duration = Duration::from_secs(30);
const BUSY: &str =
    "; with `PRAGMA journal_mode = wal` whoever reads the file and whoever writes to it need not wait for each other";
/// Of pages, for each connection, in KiB: ten tables at once stay below a hundred megabytes.
const CACHE_KIB: i64 = 8_000;
/// Pages in the log before they are moved into the file: rarely enough that a page that many rows touch moves once.
const CHECKPOINT_PAGES: i64 = 4_000;

/// Where a database is.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) path: PathBuf,
}

/// What went wrong inside, before it is said whose fault it is.
#[derive(Debug)]
pub(super) enum Failure {
    Sql(rusqlite::Error),
    Said(TableError),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Failure::Sql(error)
    }
}

impl From<TableError> for Failure {
    fn from(error: TableError) -> Self {
        Failure::Said(error)
    }
}

pub(super) fn refused(reason: impl Into<String>) -> Failure {
    Failure::Said(TableError::Refused(reason.into()))
}

impl Place {
    pub(super) fn exists(&self) -> bool {
        self.path.exists()
    }

    pub(super) fn name(&self) -> String {
        format!("sqlite:{}", self.path.display())
    }

    /// Changes nothing. The file has to be there.
    pub(super) fn reader(&self) -> Result<Connection, Failure> {
        if !self.exists() {
            return Err(refused(format!("there is no SQLite database at {}", self.path.display())));
        }
        let connection = Connection::open_with_flags(
            &self.path,
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        connection.busy_timeout(PATIENCE)?;
        connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
        Ok(connection)
    }

    /// Makes the file if there is none. Only for whoever has its turn.
    pub(super) fn writer(&self) -> Result<Connection, Failure> {
        let connection = Connection::open_with_flags(
            &self.path,
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        connection.busy_timeout(PATIENCE)?;
        let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
        if pages == 0 {
            // Readers and the writer of a new file need not wait for each other; one that is there stays as it is.
            connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
        }
        connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
        connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        // Rows come in the order of their tables, not of what refers to what.
        connection.pragma_update(None, "foreign_keys", false)?;
        // A table takes the place of another of the same name: what refers to that name goes on doing so.
        connection.pragma_update(None, "legacy_alter_table", true)?;
        durable(&connection)?;
        Ok(connection)
    }

    pub(super) fn said(&self, doing: &'static str) -> impl Fn(Failure) -> TableError {
        let database = self.name();
        move |failure| match failure {
            Failure::Said(error) => error,
            Failure::Sql(error) if passes(&error) => {
                let busy = error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy);
                let advice = if busy { BUSY } else { "" };
                TableError::Away { database: database.clone(), doing, reason: format!("{error}{advice}") }
            }
            Failure::Sql(error) => TableError::Refused(format!("{database} could not {doing}: {error}")),
        }
    }
}

/// What is committed from now on survives a loss of power.
pub(super) fn durable(connection: &Connection) -> Result<(), Failure> {
    Ok(connection.pragma_update(None, "synchronous", "full")?)
}

/// What is committed from now on may be undone by a loss of power, as a whole and in order; only a log that is written
/// ahead allows that without the file being torn.
pub(super) fn swift(connection: &Connection) -> Result<(), Failure> {
    let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    if mode == "wal" {
        connection.pragma_update(None, "synchronous", "normal")?;
    }
    Ok(())
}

/// True if the same may succeed later.
fn passes(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::OutOfMemory
                | ErrorCode::OperationInterrupted
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::SchemaChanged
        )
    )
}

/// True if it is about the row that was being written.
pub(super) fn is_about_the_row(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig)
    )
}

/// In double quotes, those in it doubled.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Why a path is none that can be kept.
pub(super) fn checked(path: &Path) -> Result<Place, TableError> {
    if path.as_os_str().is_empty() || path.as_os_str() == ":memory:" {
        let reason = "a SQLite database in memory is gone with its connection; give the path of a file";
        return Err(TableError::Refused(reason.into()));
    }
    Ok(Place { path: path.to_owned() })
}
