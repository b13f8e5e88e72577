//! Looks, when the file is opened, at what nothing else would notice: a place in the queue that contradicts its row, a
//! row that is lost, and a lock of a tenant that its task is not of.
//!
//! Logs, definitions and snapshots have checksums. A task's place in the queue has none, and a task that cannot be found
//! there is never claimed, without a word.

use rusqlite::{Connection, Row, params};

use super::board::{Queue, open_plans};

/// Of the plans that are open, so that it costs about what counting their tasks does. All of it or nothing: who dies here
/// finds the same again.
pub(super) fn mend(connection: &Connection) -> rusqlite::Result<()> {
    let together = connection.unchecked_transaction()?;
    for plan in open_plans(connection)? {
        let (first, last): (i64, i64) = connection
            .prepare_cached("SELECT first_task, last_task FROM plans WHERE no = ?1")?
            .query_row([plan], |row| Ok((row.get(0)?, row.get(1)?)))?;
        set_lost_aside(connection, plan, first, last)?;
        set_contradictions_aside(connection, plan, first, last)?;
        if places_in_table(connection, plan, first, last)? != places_in_index(connection, plan)? {
            tracing::error!(plan, "the index of the queue was damaged; it is made anew from its table");
            connection.execute_batch("REINDEX task_runtimes_queue")?;
        }
    }
    free_locks_left(connection)?;
    together.commit()
}

/// Earlier versions left a task's lock when an update gave it another tenant, and nothing else would ever free it.
fn free_locks_left(connection: &Connection) -> rusqlite::Result<()> {
    let found = free_strange_locks(connection)?;
    if found > 0 {
        tracing::warn!(tenants = found, "tenants were locked by tasks that are not theirs; they are free again");
        line_up_anew(connection)?;
    }
    Ok(())
}

/// Those of tenants that their tasks are not of, and how many they were.
pub(super) fn free_strange_locks(connection: &Connection) -> rusqlite::Result<usize> {
    connection.execute("DELETE FROM locks WHERE tenant IS NOT (SELECT tenant FROM task_configs WHERE no = task)", [])
}

/// A tenant may have become free; who still has to wait for one lines up at the next claim.
pub(super) fn line_up_anew(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("UPDATE task_runtimes SET queue = 0 WHERE queue = 1", []).map(drop)
}

/// A task whose row is gone would be missed by nobody. Its log is there, and what to make of that a person decides.
fn set_lost_aside(connection: &Connection, plan: i64, first: i64, last: i64) -> rusqlite::Result<()> {
    let found = connection
        .prepare_cached(
            "INSERT OR REPLACE INTO task_runtimes (no, plan, queue, rank, status, version, lease, last_event, done, total, attempt, \
             flags, reason, updated_at) SELECT c.no, c.plan, ?4, 0, 1, \
             coalesce((SELECT max(seq) FROM events WHERE task = c.no), 0), 0, \
             coalesce((SELECT max(pos) FROM events WHERE task = c.no), 0), 0, 0, 0, 0, 'its row is lost', c.created_at \
             FROM task_configs c WHERE c.no BETWEEN ?2 AND ?3 AND c.plan = ?1 \
             AND NOT EXISTS (SELECT 1 FROM task_runtimes r WHERE r.no = c.no AND r.plan = c.plan)",
        )?
        .execute(params![plan, first, last, Queue::Damaged.code()])?;
    if found > 0 {
        tracing::error!(
            plan,
            tasks = found,
            "tasks cannot be run, because what is stored of them is damaged: rows are lost"
        );
        // What is left of them, under a number that is nobody's.
        let strays = "DELETE FROM task_runtimes WHERE plan = ?1 AND no NOT IN (SELECT no FROM task_configs)";
        connection.execute(strays, [plan])?;
    }
    Ok(())
}

/// Which of the two columns is right, only the log can say; a person must look.
fn set_contradictions_aside(connection: &Connection, plan: i64, first: i64, last: i64) -> rusqlite::Result<()> {
    let found = connection
        .prepare_cached(
            "UPDATE task_runtimes NOT INDEXED SET queue = ?4, reason = 'its status and its place in the queue do not fit' \
             WHERE no BETWEEN ?2 AND ?3 AND plan = ?1 AND queue IS NOT ?4 AND NOT coalesce(CASE status \
             WHEN 0 THEN queue IN (0, 1, 6) WHEN 1 THEN queue = 2 WHEN 2 THEN queue = 3 WHEN 6 THEN queue IN (2, 5) \
             ELSE queue IS NULL END, false)",
        )?
        .execute(params![plan, first, last, Queue::Damaged.code()])?;
    if found > 0 {
        tracing::error!(plan, tasks = found, "tasks cannot be run, because what is stored of them contradicts itself");
        // They leave their tenants to others.
        connection.execute("DELETE FROM locks WHERE task IN (SELECT no FROM task_runtimes WHERE queue = 4)", [])?;
        line_up_anew(connection)?;
    }
    Ok(())
}

/// Equal for the same places, and hardly ever for others.
type Places = (i64, f64, f64, f64);

fn places_in_table(connection: &Connection, plan: i64, first: i64, last: i64) -> rusqlite::Result<Places> {
    connection
        .prepare_cached(
            "SELECT count(*), total(no), total(queue), total(rank) FROM task_runtimes NOT INDEXED \
             WHERE no BETWEEN ?2 AND ?3 AND plan = ?1 AND queue IS NOT NULL",
        )?
        .query_row([plan, first, last], places)
}

fn places_in_index(connection: &Connection, plan: i64) -> rusqlite::Result<Places> {
    connection
        .prepare_cached(
            "SELECT count(*), total(no), total(queue), total(rank) FROM task_runtimes INDEXED BY task_runtimes_queue \
             WHERE plan = ?1 AND queue IS NOT NULL",
        )?
        .query_row([plan], places)
}

fn places(row: &Row<'_>) -> rusqlite::Result<Places> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
}
