//! The tables, and the way from one version of them to the next.
//!
//! `sync_tasks` 1:N `task_unit_configs` 1:1 `task_unit_runtimes` are DataTrace's tables: a plan, the tasks asked for, and
//! where each of them is. What they do not know of has columns beside theirs, and tables whose names begin with
//! `milepost_`.

use mysql_async::Conn;

use crate::error::StoreError;

use super::codec::{Columns, unavailable};
use super::connect::run;
use super::sql::SMALLEST_LIMIT;

/// Each entry leads from the version before it to its own; entries are only ever added. Here every statement is a commit
/// of its own, so each must bear to be run again after a crash in the middle.
const MIGRATIONS: &[&[&str]] = &[&[
    r"CREATE TABLE IF NOT EXISTS milepost_counters (
        id          TINYINT NOT NULL PRIMARY KEY,
        position    BIGINT NOT NULL COMMENT 'of the newest row in milepost_events',
        sessions    BIGINT NOT NULL COMMENT 'given out so far',
        fence       BIGINT NOT NULL COMMENT 'of the tenant lock that was taken last',
        offered     BIGINT NOT NULL COMMENT 'grows whenever there may be something new to claim',
        plans       BIGINT NOT NULL,
        tasks       BIGINT NOT NULL,
        entries     BIGINT NOT NULL COMMENT 'written to the books so far'
    )",
    "INSERT IGNORE INTO milepost_counters VALUES (1, 0, 0, 0, 0, 0, 0, 0)",
    r"CREATE TABLE IF NOT EXISTS sync_tasks (
        id              BIGINT NOT NULL PRIMARY KEY,
        name            VARCHAR(128) NOT NULL UNIQUE COMMENT 'the id of the plan',
        config          LONGTEXT NOT NULL COMMENT 'the plan without its tasks, as JSON',
        digest          BINARY(32) NOT NULL COMMENT 'of the plan and all of its tasks',
        status          ENUM('created','ready','running','paused','completed','failed','cancelled') NOT NULL,
        sync_mode       VARCHAR(16) NOT NULL DEFAULT 'auto',
        version         BIGINT NOT NULL,
        max_concurrency INT UNSIGNED NOT NULL,
        recovery        ENUM('auto','manual') NULL COMMENT 'null when the plan does not say',
        workflow        VARCHAR(512) NULL COMMENT 'the function its task runs, and its version',
        pending         BIGINT NOT NULL DEFAULT 0,
        running         BIGINT NOT NULL DEFAULT 0,
        paused          BIGINT NOT NULL DEFAULT 0,
        completed       BIGINT NOT NULL DEFAULT 0,
        failed          BIGINT NOT NULL DEFAULT 0,
        cancelled       BIGINT NOT NULL DEFAULT 0,
        rolling_back    BIGINT NOT NULL DEFAULT 0,
        rolled_back     BIGINT NOT NULL DEFAULT 0,
        rollback_failed BIGINT NOT NULL DEFAULT 0,
        slotless        BIGINT NOT NULL DEFAULT 0 COMMENT 'active tasks without a slot: rollbacks that have not begun, and damaged ones',
        ready           BIGINT NOT NULL DEFAULT 0 COMMENT 'pending tasks that wait for no tenant',
        offers          TINYINT NOT NULL DEFAULT 0 COMMENT 'it runs, and has a free slot and a ready task',
        created_at      BIGINT NOT NULL,
        updated_at      BIGINT NOT NULL,
        started_at      BIGINT NULL,
        ended_at        BIGINT NULL,
        changed_by      TEXT NULL,
        go              TINYINT NOT NULL DEFAULT 0 COMMENT 'which eras it is set going for: 0 none, 1 this one, 2 also the next',
        KEY sync_tasks_offers (offers, id),
        KEY sync_tasks_open (ended_at, id),
        KEY sync_tasks_go (go)
    )",
    r"CREATE TABLE IF NOT EXISTS task_unit_configs (
        id              BIGINT NOT NULL PRIMARY KEY,
        task_id         BIGINT NOT NULL COMMENT 'sync_tasks.id',
        unit_name       VARCHAR(128) NOT NULL UNIQUE COMMENT 'the id of the task',
        unit_type       VARCHAR(16) NOT NULL DEFAULT 'task',
        tenant          VARBINARY(256) NULL,
        turn            INT NOT NULL COMMENT 'smaller first: the priority, negated',
        created_at      BIGINT NOT NULL,
        body            LONGTEXT NULL COMMENT 'input, matrix and own stages, as JSON',
        crc             INT UNSIGNED NOT NULL,
        UNIQUE KEY task_unit_configs_unit (task_id, unit_name),
        KEY task_unit_configs_order (task_id, id),
        KEY task_unit_configs_tenant (tenant, id)
    )",
    r"CREATE TABLE IF NOT EXISTS task_unit_runtimes (
        id                BIGINT NOT NULL PRIMARY KEY COMMENT 'task_unit_configs.id',
        task_id           BIGINT NOT NULL COMMENT 'sync_tasks.id',
        unit_name         VARCHAR(128) NOT NULL,
        status            ENUM('pending','running','paused','completed','failed','cancelled','rolling_back','rolled_back','rollback_failed') NOT NULL,
        total_records     BIGINT UNSIGNED NULL,
        processed_records BIGINT UNSIGNED NULL,
        error_message     MEDIUMTEXT NULL,
        tenant            VARBINARY(256) NULL,
        turn              INT NOT NULL,
        queue             TINYINT NULL COMMENT '0 ready, 1 waits for its tenant, 2 held, 3 paused, 4 damaged, 5 to be undone, 6 asleep, 7 left, 8 awaits its message; null when ended',
        version           BIGINT NOT NULL COMMENT 'the number of its events',
        lease             BIGINT NOT NULL COMMENT 'held under, of which each session has a range of its own; 0 when nobody does',
        wake_at           BIGINT NULL COMMENT 'when it may be claimed again, for one given back until then',
        done              INT UNSIGNED NOT NULL,
        total             INT UNSIGNED NOT NULL,
        stage             VARCHAR(128) NULL,
        attempt           INT UNSIGNED NOT NULL,
        due_at            BIGINT NULL,
        flags             INT NOT NULL COMMENT '1 interrupted, 2 pause requested, 4 awaits its message',
        started_at        BIGINT NULL,
        updated_at        BIGINT NOT NULL,
        ended_at          BIGINT NULL,
        UNIQUE KEY task_unit_runtimes_unit (task_id, unit_name),
        KEY task_unit_runtimes_status (task_id, status),
        KEY task_unit_runtimes_turn (task_id, queue, turn, id),
        KEY task_unit_runtimes_wake (queue, lease, wake_at, id),
        KEY task_unit_runtimes_tenant (tenant, queue, task_id, turn, id)
    )",
    r"CREATE TABLE IF NOT EXISTS milepost_events (
        position    BIGINT NOT NULL PRIMARY KEY,
        task        BIGINT NOT NULL COMMENT 'a number below zero is that of a plan, whose status this is',
        sequence    BIGINT NOT NULL COMMENT 'of the first event in it; of a plan, its version',
        crc         INT UNSIGNED NOT NULL,
        body        LONGTEXT NOT NULL COMMENT '[[milliseconds, event], ...]',
        KEY milepost_events_task (task, sequence)
    )",
    r"CREATE TABLE IF NOT EXISTS milepost_snapshots (
        task        BIGINT NOT NULL PRIMARY KEY,
        sequence    BIGINT NOT NULL COMMENT 'of the last event in it',
        crc         INT UNSIGNED NOT NULL,
        body        LONGTEXT NOT NULL
    )",
    r"CREATE TABLE IF NOT EXISTS milepost_locks (
        tenant      VARBINARY(256) NOT NULL PRIMARY KEY,
        task        BIGINT NOT NULL,
        since       BIGINT NOT NULL,
        fence       BIGINT NOT NULL,
        expires_at  BIGINT NOT NULL,
        KEY milepost_locks_task (task),
        KEY milepost_locks_expiry (expires_at)
    )",
    r"CREATE TABLE IF NOT EXISTS milepost_nodes (
        name        VARBINARY(1024) NOT NULL PRIMARY KEY,
        session     BIGINT NOT NULL UNIQUE,
        boot_id     VARCHAR(256) NOT NULL,
        started_at  BIGINT NOT NULL,
        seen_at     BIGINT NOT NULL,
        expires_at  BIGINT NOT NULL,
        ended       TINYINT NOT NULL DEFAULT 0,
        in_hand     BIGINT UNSIGNED NOT NULL DEFAULT 0,
        capacity    BIGINT UNSIGNED NOT NULL DEFAULT 0,
        lease_ms    BIGINT NOT NULL,
        patience_ms BIGINT NOT NULL COMMENT 'how long nobody may be heard of before somebody has to wonder'
    )",
    r"CREATE TABLE IF NOT EXISTS milepost_heard (
        id          TINYINT NOT NULL PRIMARY KEY,
        at          BIGINT NOT NULL COMMENT 'when any node was last heard of'
    )",
    "INSERT IGNORE INTO milepost_heard VALUES (1, CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED))",
    r"CREATE TABLE IF NOT EXISTS milepost_settled (
        session     BIGINT NOT NULL PRIMARY KEY COMMENT 'of a node that knows which era it is in'
    )",
    r"CREATE TABLE IF NOT EXISTS milepost_asking (
        session     BIGINT NOT NULL PRIMARY KEY COMMENT 'of a node that wants to know and could not be told yet'
    )",
    r"CREATE TABLE IF NOT EXISTS milepost_going (
        task        BIGINT NOT NULL PRIMARY KEY COMMENT 'set going by itself, where recovery is manual',
        go          TINYINT NOT NULL COMMENT 'as of plans'
    )",
    r"CREATE TABLE IF NOT EXISTS milepost_letters (
        no          BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT,
        id          VARCHAR(128) NOT NULL UNIQUE COMMENT 'posted again under it, it is still one letter',
        session     BIGINT NOT NULL COMMENT 'of the node that is to read it',
        task        VARCHAR(128) NOT NULL,
        body        LONGTEXT NOT NULL,
        answer      LONGTEXT NULL,
        at          BIGINT NOT NULL,
        KEY milepost_letters_open (session, answer(1)),
        KEY milepost_letters_at (at)
    )",
    r"CREATE TABLE IF NOT EXISTS milepost_logs (
        no          BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT,
        task        BIGINT NOT NULL,
        stage       VARCHAR(128) NOT NULL,
        attempt     INT UNSIGNED NOT NULL,
        at          BIGINT NOT NULL,
        bytes       LONGBLOB NOT NULL,
        KEY milepost_logs_task (task, no)
    )",
    r"CREATE TABLE IF NOT EXISTS milepost_books (
        book        TINYINT NOT NULL COMMENT '1 messages, 2 outbox, 3 dead letters, 4 turns',
        no          BIGINT NOT NULL COMMENT 'in the order in which they came',
        name        VARBINARY(2048) NOT NULL,
        at          BIGINT NOT NULL,
        expires_at  BIGINT NULL COMMENT 'from then on it counts as gone',
        body        LONGTEXT NOT NULL,
        PRIMARY KEY (book, no),
        UNIQUE KEY milepost_books_name (book, name),
        KEY milepost_books_expiry (book, expires_at)
    )",
    r"CREATE TABLE IF NOT EXISTS milepost_requests (
        name        VARBINARY(2048) NOT NULL PRIMARY KEY,
        digest      BINARY(32) NOT NULL COMMENT 'of all that was asked',
        at          BIGINT NOT NULL,
        answer      LONGTEXT NOT NULL,
        KEY milepost_requests_at (at)
    )",
    r"CREATE TABLE IF NOT EXISTS milepost_tokens (
        id          VARCHAR(128) NOT NULL PRIMARY KEY,
        name        TEXT NOT NULL,
        hash        BINARY(32) NOT NULL,
        scope       VARCHAR(16) NOT NULL,
        tenants     LONGTEXT NOT NULL COMMENT '[tenant, ...]; none: not bound to any',
        created_at  BIGINT NOT NULL,
        expires_at  BIGINT NULL,
        revoked_at  BIGINT NULL
    )",
]];

/// Every table of ours: safe after a crash, and ids compared byte by byte. Names that may end in a space are binary in
/// addition: to every collation that both servers know, `a` and `a ` are the same.
const OPTIONS: &str = " ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin";

/// Refuses a server on which a commit may be undone by another's, or that takes too little at once. Answers how many bytes
/// it takes in one packet.
pub(super) async fn check_server(connection: &mut Conn, name: &str) -> Result<usize, StoreError> {
    let unavailable = unavailable("ask the server what it is");
    let sql = "SHOW GLOBAL VARIABLES WHERE variable_name IN ('wsrep_on', 'innodb_flush_log_at_trx_commit', \
               'max_allowed_packet')";
    let mut packet = SMALLEST_LIMIT;
    for row in run(connection, sql).await.map_err(&unavailable)?.concat() {
        let mut columns = Columns::from(row);
        let variable: String = columns.next().map_err(&unavailable)?;
        let value: String = columns.next().map_err(&unavailable)?;
        match (variable.as_str(), value.as_str()) {
            ("wsrep_on", "ON" | "1") => {
                return Err(StoreError::Format {
                    detail: format!(
                        "{name} is a Galera cluster, which loses updates when several of its servers are written to; \
                         use one server of MySQL or MariaDB"
                    ),
                });
            }
            ("innodb_flush_log_at_trx_commit", value) if value != "1" => {
                tracing::warn!(
                    innodb_flush_log_at_trx_commit = value,
                    "the server does not write every commit to its disk: a crash of its machine may undo the last ones"
                );
            }
            ("max_allowed_packet", value) => packet = value.parse().unwrap_or(packet),
            _ => {}
        }
    }
    if packet < SMALLEST_LIMIT {
        let detail = format!(
            "{name} takes no more than {packet} bytes at once (max_allowed_packet); set it to {SMALLEST_LIMIT} or more"
        );
        return Err(StoreError::Format { detail });
    }
    Ok(packet)
}

/// Brings the tables to the newest version. Nodes that start at once wait for the first of them to have done it.
pub(super) async fn migrate(connection: &mut Conn, name: &str) -> Result<(), StoreError> {
    // Who is to stand still with the lock in hand keeps nobody out of tables that are as they should be.
    if version(connection, name).await? == MIGRATIONS.len() {
        return Ok(());
    }
    let unavailable = unavailable("bring the tables to this version's format");
    let lock = "CONCAT('milepost.', LEFT(SHA1(DATABASE()), 40))";
    let locked = run(connection, &format!("SELECT GET_LOCK({lock}, 25)")).await.map_err(&unavailable)?.concat();
    let locked = locked.into_iter().next().map(|row| Columns::from(row).next::<Option<i64>>()).transpose();
    if locked.map_err(&unavailable)?.flatten() != Some(1) {
        let why = "another node has been changing the tables for too long";
        return Err(unavailable(mysql_async::Error::Other(why.into())));
    }
    let migrated = migrate_alone(connection, name).await;
    run(connection, &format!("SELECT RELEASE_LOCK({lock})")).await.map_err(&unavailable)?;
    migrated
}

/// How far the tables have come; 0 where there are none of ours.
async fn version(connection: &mut Conn, name: &str) -> Result<usize, StoreError> {
    let unavailable = unavailable("bring the tables to this version's format");
    let found = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() \
                 AND table_name = 'milepost_format'";
    let mut done = 0;
    if count(connection, found).await.map_err(&unavailable)? > 0 {
        done =
            count(connection, "SELECT COALESCE(MAX(version), 0) FROM milepost_format").await.map_err(&unavailable)?;
    }
    let newest = MIGRATIONS.len();
    if done > newest {
        return Err(StoreError::Format {
            detail: format!(
                "{name} has format {done}, and this milepost knows formats up to {newest}; use a newer one"
            ),
        });
    }
    Ok(done)
}

async fn migrate_alone(connection: &mut Conn, name: &str) -> Result<(), StoreError> {
    // Another node may have been faster.
    let done = version(connection, name).await?;
    if done == MIGRATIONS.len() {
        return Ok(());
    }
    let unavailable = unavailable("bring the tables to this version's format");
    let table = format!("CREATE TABLE IF NOT EXISTS milepost_format (version INT NOT NULL PRIMARY KEY){OPTIONS}");
    run(connection, &table).await.map_err(&unavailable)?;
    for (version, statements) in (1..).zip(MIGRATIONS).skip(done) {
        for statement in *statements {
            let options = if statement.starts_with("CREATE TABLE") { OPTIONS } else { "" };
            run(connection, &format!("{statement}{options}")).await.map_err(&unavailable)?;
        }
        let kept = format!("INSERT INTO milepost_format VALUES ({version})");
        run(connection, &kept).await.map_err(&unavailable)?;
    }
    Ok(())
}

async fn count(connection: &mut Conn, sql: &str) -> super::codec::Sql<usize> {
    let row = run(connection, sql).await?.concat().into_iter().next();
    row.map_or(Ok(0), |row| Columns::from(row).next())
}
