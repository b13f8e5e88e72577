//! The tables, and the way from one version of them to the next.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior};

use crate::error::StoreError;

use super::codec::unavailable;

/// "mile" in ASCII: tells our files from other SQLite databases.
const APPLICATION_ID: i32 = 0x6d69_6c65;

/// Each entry leads from the version before it to its own; entries are only ever added.
const MIGRATIONS: &[&str] = &[
    r"
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('epoch', 0);

CREATE TABLE plans (
    no          INTEGER PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    status      INTEGER NOT NULL,
    version     INTEGER NOT NULL,
    definition  TEXT NOT NULL,
    digest      BLOB NOT NULL,          -- of the definition and all tasks, to tell the same plan from another
    first_task  INTEGER NOT NULL,       -- its tasks lie between these two numbers
    last_task   INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    started_at  INTEGER,
    ended_at    INTEGER,
    changed_by  TEXT
);
-- What is not ended is looked at when the store is opened.
CREATE INDEX plans_open ON plans (no) WHERE ended_at IS NULL;

-- What was asked for; never changes.
CREATE TABLE task_configs (
    no          INTEGER PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    plan        INTEGER NOT NULL,
    tenant      TEXT,
    created_at  INTEGER NOT NULL,
    body        TEXT,                   -- input, matrix and own stages; null when there is none of them
    crc         INTEGER NOT NULL
);
CREATE INDEX task_configs_tenant ON task_configs (tenant, no) WHERE tenant IS NOT NULL;

-- Where each task is: small, and written with every stage.
CREATE TABLE task_runtimes (
    no          INTEGER PRIMARY KEY,
    plan        INTEGER NOT NULL,
    queue       INTEGER,                -- 0 ready, 1 waits for its tenant, 2 active, 3 paused, 4 damaged, 5 to be undone; null when ended
    rank        INTEGER NOT NULL,       -- smaller first: the priority, negated
    status      INTEGER NOT NULL,
    version     INTEGER NOT NULL,       -- the number of its events
    lease       INTEGER NOT NULL,       -- the lease it is held under, of which each owner has a range of its own; 0 when nobody does
    wake_at     INTEGER,                -- when it may be claimed again, for one given back until then
    last_event  INTEGER NOT NULL,       -- the newest row of its log
    done        INTEGER NOT NULL,
    total       INTEGER NOT NULL,
    stage       TEXT,
    attempt     INTEGER NOT NULL,
    due_at      INTEGER,
    flags       INTEGER NOT NULL,       -- 1 interrupted, 2 pause requested
    reason      TEXT,
    progress    INTEGER,
    progress_of INTEGER,
    started_at  INTEGER,
    updated_at  INTEGER NOT NULL,
    ended_at    INTEGER
);
CREATE INDEX task_runtimes_queue ON task_runtimes (plan, queue, rank, no) WHERE queue IS NOT NULL;

-- The log, in commit order. A row holds the events of one commit and points back to its task's previous row, so that
-- appending touches one place of one tree, whatever the number of tasks.
CREATE TABLE events (
    pos         INTEGER PRIMARY KEY,
    task        INTEGER NOT NULL,
    seq         INTEGER NOT NULL,       -- of the first event in it
    prev        INTEGER NOT NULL,       -- 0: there is none
    crc         INTEGER NOT NULL,
    body        TEXT NOT NULL           -- [[milliseconds, event], ...]
);

CREATE TABLE locks (
    tenant      TEXT PRIMARY KEY,
    task        INTEGER NOT NULL,
    since       INTEGER NOT NULL,
    fence       INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE logs (
    no          INTEGER PRIMARY KEY,
    task        INTEGER NOT NULL,
    stage       TEXT NOT NULL,
    attempt     INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    bytes       BLOB NOT NULL
);
CREATE INDEX logs_task ON logs (task, no);
",
    r"
-- In `events`, a row with a plan's number, negated, for its task says what became of that plan: `seq` is the plan's
-- version, and the body {is: status, at: milliseconds, by: who asked}.

-- What clients call their submissions, and what they were answered.
CREATE TABLE requests (
    key         TEXT PRIMARY KEY,
    digest      BLOB NOT NULL,          -- of all that was asked
    at          INTEGER NOT NULL,
    answer      TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX requests_at ON requests (at);

CREATE TABLE tokens (
    id          TEXT PRIMARY KEY,
    name        TEXT NOT NULL,
    hash        BLOB NOT NULL,
    scope       TEXT NOT NULL,
    tenants     TEXT NOT NULL,          -- [tenant, ...]; none: not bound to any
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER,
    revoked_at  INTEGER
) WITHOUT ROWID;
",
    r"
-- What a task with a long log is after one of its rows: whatever follows from the log up to there. At most one a task.
CREATE TABLE snapshots (
    task        INTEGER PRIMARY KEY,
    seq         INTEGER NOT NULL,       -- of the last event in it
    pos         INTEGER NOT NULL,       -- the row of that event
    crc         INTEGER NOT NULL,
    body        TEXT NOT NULL
);
",
    r"
-- What is kept beside tasks. Numbers are never given again: who reads a book page by page goes on after the last one.
CREATE TABLE entries (
    no          INTEGER PRIMARY KEY AUTOINCREMENT,
    book        INTEGER NOT NULL,       -- 1 messages heard, 2 outbox, 3 dead letters, 4 turns
    key         TEXT NOT NULL,
    at          INTEGER NOT NULL,
    until       INTEGER,                -- from then on it counts as gone
    body        TEXT NOT NULL,
    UNIQUE (book, key)
);
CREATE INDEX entries_order ON entries (book, no);
CREATE INDEX entries_until ON entries (book, until) WHERE until IS NOT NULL;

-- In `task_runtimes`, queue 6 and flag 4 are for a PENDING task that may not be claimed before its message is here.
UPDATE task_runtimes SET queue = 6, flags = flags | 4 WHERE queue IN (0, 1)
    AND plan IN (SELECT no FROM plans WHERE json_extract(definition, '$.trigger') = 'message');
",
    r"
-- Which eras a plan, or a task by itself, is set going for, where recovery is manual: 0 none, 1 this one, 2 also the next.
-- In `meta`, `settled` is the epoch of the last owner that has claimed, and so begun an era.
ALTER TABLE plans ADD COLUMN go INTEGER NOT NULL DEFAULT 1;
ALTER TABLE task_runtimes ADD COLUMN go INTEGER NOT NULL DEFAULT 0;
CREATE INDEX task_runtimes_go ON task_runtimes (plan, queue, rank, no) WHERE go > 0;
INSERT INTO meta VALUES ('settled', 0);
",
    r"
-- Without `queue`, which each task changes when it starts and when it ends.
DROP INDEX task_runtimes_go;
CREATE INDEX task_runtimes_go ON task_runtimes (plan, rank, no) WHERE go > 0;
",
];

/// How long is waited for a file that another program has locked.
pub(super) const BUSY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// Sets up how the owner's connection writes: the log synced at every commit, checkpoints when we say so.
pub(super) fn configure_writer(connection: &Connection) -> rusqlite::Result<()> {
    use_write_ahead_log(connection)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "cache_size", -8_192)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // Without it statements are planned again whenever a parameter changes, at the cost of several stages.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// Sets up a connection that only ever reads.
pub(super) fn configure_reader(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "query_only", true)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// The change is committed only when its statement has run to its end, after its one row: a disk that fails then would
/// leave the file without a write-ahead log, and nobody the wiser.
fn use_write_ahead_log(connection: &Connection) -> rusqlite::Result<()> {
    let mut change = connection.prepare("PRAGMA journal_mode = WAL")?;
    let answers: Vec<String> = change.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    if answers == ["wal"] {
        return Ok(());
    }
    let why = format!("a write-ahead log is not possible here; the journal mode is {}", answers.concat());
    Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN), Some(why)))
}

/// Refuses files that are not ours or are from a later version; changes nothing.
pub(super) fn check_format(connection: &Connection, path: &str) -> Result<i32, StoreError> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let read =
        || Ok::<_, rusqlite::Error>((pragma("application_id")?, pragma("user_version")?, pragma("schema_version")?));
    let (application, version, schema) = read().map_err(|error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => {
            StoreError::Format { detail: format!("{path} is not a Milepost store: it is no SQLite database") }
        }
        _ => unavailable("read the store's version")(error),
    })?;
    let newest = i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX);
    match (application, version) {
        (0, 0) if schema == 0 => Ok(0),
        (APPLICATION_ID, version) if version <= newest => Ok(version),
        (APPLICATION_ID, version) => Err(StoreError::Format {
            detail: format!(
                "{path} has format {version}, and this milepost knows formats up to {newest}; use a newer one"
            ),
        }),
        _ => Err(StoreError::Format { detail: format!("{path} is an SQLite database of some other program") }),
    }
}

/// Brings the file to the newest version, in one transaction.
pub(super) fn migrate(connection: &mut Connection, from: i32) -> rusqlite::Result<()> {
    let done = usize::try_from(from).unwrap_or(0);
    if done == MIGRATIONS.len() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for migration in &MIGRATIONS[done..] {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX))?;
    transaction.commit()
}
