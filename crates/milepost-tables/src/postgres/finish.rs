//! The rows appear in the target, all at once.

use tokio_postgres::types::Type;

use crate::database::{Finish, How, Load};
use crate::error::TableError;

use super::connect::{Session, words};
use super::indexes;
use super::marks;
use super::names::{Place, joined, literal, quoted, quoted_list};

const DOING: &str = "finish a copy";

/// What belongs to a column and counts it up.
const SEQUENCES: &str = "
    SELECT a.attname::text, n.nspname::text, s.relname::text
    FROM pg_depend d JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
    JOIN pg_namespace n ON n.oid = s.relnamespace JOIN pg_sequence q ON q.seqrelid = s.oid AND q.seqincrement > 0
    JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
    JOIN pg_class t ON t.oid = d.refobjid JOIN pg_namespace m ON m.oid = t.relnamespace
    WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
      AND m.nspname = $1 AND t.relname = $2";

pub(super) async fn finish(session: &Session, finish: Finish<'_>) -> Result<(), TableError> {
    let into = session.place(&finish.load.into);
    session.run(DOING, "BEGIN").await?;
    marks::hold(session, finish.load).await?;
    match &finish.how {
        How::Replace => replace(session, &finish, &into).await?,
        How::Append => insert(session, finish.load, &into, "").await?,
        How::Truncate => {
            truncate(session, &into).await?;
            insert(session, finish.load, &into, "").await?;
        }
        How::Upsert { key } => insert(session, finish.load, &into, &on_conflict(finish.load, key)).await?,
    }
    count_on(session, &into).await?;
    let sql = format!("{}; COMMIT", marks::done(&into, finish.load));
    session.run(DOING, &sql).await
}

/// Drops the table beside the target, if it is this token's own.
pub(super) async fn discard(session: &Session, load: &Load) -> Result<(), TableError> {
    const DOING: &str = "drop an unfinished table";
    let into = session.place(&load.into);
    session.run(DOING, "BEGIN").await?;
    match marks::hold(session, load).await {
        Ok(()) => {}
        Err(TableError::Fenced { .. }) => return session.run(DOING, "ROLLBACK").await,
        Err(other) => return Err(other),
    }
    let staging = session.place(&load.staging).sql();
    session.run(DOING, &format!("DROP TABLE IF EXISTS {staging}; {}; COMMIT", marks::emptied(&into, load))).await
}

async fn replace(session: &Session, finish: &Finish<'_>, into: &Place) -> Result<(), TableError> {
    let staging = session.place(&finish.load.staging);
    // Names of indexes are chosen by what is there; of two that finish at once the second has to see the first's.
    session.take_turn(DOING, &format!("names in {}", into.schema)).await?;
    let dropped = session.client.batch_execute(&format!("DROP TABLE IF EXISTS {}", into.sql())).await;
    dropped.map_err(|error| match error.as_db_error() {
        Some(refused) if refused.code().code() == "2BP01" => TableError::Refused(format!(
            "table {} cannot be replaced, since other things depend on it: {}; with `if_exists: truncate` the table itself stays",
            into.shown(),
            refused.detail().unwrap_or(refused.message()).replace('\n', "; ")
        )),
        _ => session.failed(DOING, &error),
    })?;
    let sql = format!("ALTER TABLE {} RENAME TO {}", staging.sql(), quoted(&into.name));
    session.run(DOING, &sql).await?;
    indexes::rename(session, finish).await?;
    for (column, sequence) in sequences(session, into).await? {
        let free = indexes::free_name(session, into, &joined(&into.name, &format!("{column}_seq"))).await?;
        session.run(DOING, &format!("ALTER SEQUENCE {} RENAME TO {}", sequence.sql(), quoted(&free))).await?;
    }
    rename_constraints(session, &staging, into).await
}

/// Checks have been named after the table beside the target.
async fn rename_constraints(session: &Session, staging: &Place, into: &Place) -> Result<(), TableError> {
    let sql = "SELECT c.conname::text FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid
        JOIN pg_namespace n ON n.oid = t.relnamespace WHERE n.nspname = $1 AND t.relname = $2";
    let rows = session.ask(DOING, sql, &[(&into.schema, Type::TEXT), (&into.name, Type::TEXT)]).await?;
    for name in rows.iter().map(|row| row.get::<_, String>(0)) {
        if let Some(part) = name.strip_prefix(&staging.name) {
            let wanted = joined(&into.name, part.trim_start_matches('_'));
            let renamed = format!("RENAME CONSTRAINT {} TO {}", quoted(&name), quoted(&wanted));
            session.run(DOING, &format!("ALTER TABLE {} {renamed}", into.sql())).await?;
        }
    }
    Ok(())
}

/// Refused if another table refers to it: a cascade would empty that as well.
async fn truncate(session: &Session, into: &Place) -> Result<(), TableError> {
    session.client.batch_execute(&format!("TRUNCATE {}", into.sql())).await.map_err(|error| match error.code() {
        Some(code) if code.code() == "0A000" => TableError::Refused(format!(
            "table {} cannot be emptied: {}; with `if_exists: upsert` its rows stay",
            into.shown(),
            error.as_db_error().and_then(|error| error.detail()).unwrap_or("another table refers to it")
        )),
        _ => session.failed(DOING, &error),
    })
}

async fn insert(session: &Session, load: &Load, into: &Place, on_conflict: &str) -> Result<(), TableError> {
    let staging = session.place(&load.staging);
    let columns = quoted_list(load.columns.iter().map(|(name, _)| name.as_str()));
    // Numbers that the target would count up by itself are kept as well.
    let sql = format!(
        "INSERT INTO {} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM {}{on_conflict}; DROP TABLE {}",
        into.sql(),
        staging.sql(),
        staging.sql()
    );
    session.client.batch_execute(&sql).await.map_err(|error| match error.code().map(|code| code.code()) {
        Some("42P10") => TableError::Refused(format!(
            "table {} has no unique key of just these columns, so that no row can be told to be there: create one, or use another `if_exists`",
            into.shown()
        )),
        Some("21000") => TableError::Refused(format!(
            "several of the new rows have the same key in {}: {}",
            into.shown(),
            words(&error)
        )),
        Some("23505") => TableError::Refused(format!(
            "rows of table {} collide with new ones: {}; `if_exists: upsert` gives them the new values",
            into.shown(),
            words(&error)
        )),
        _ => session.failed(DOING, &error),
    })
}

fn on_conflict(load: &Load, key: &[String]) -> String {
    let columns = load.columns.iter().map(|(name, _)| name).filter(|name| !key.contains(name));
    let sets: Vec<String> = columns.map(|name| format!("{0} = excluded.{0}", quoted(name))).collect();
    let key = quoted_list(key.iter().map(String::as_str));
    if sets.is_empty() {
        return format!(" ON CONFLICT ({key}) DO NOTHING");
    }
    format!(" ON CONFLICT ({key}) DO UPDATE SET {}", sets.join(", "))
}

/// What is counted up goes on after the highest number that is there.
async fn count_on(session: &Session, into: &Place) -> Result<(), TableError> {
    for (column, sequence) in sequences(session, into).await? {
        let sql = format!(
            "SELECT setval({}::regclass, highest) FROM (SELECT max({})::bigint AS highest FROM {}) AS rows
             WHERE highest >= (SELECT last_value FROM {})",
            literal(&sequence.sql()),
            quoted(&column),
            into.sql(),
            sequence.sql()
        );
        session.run(DOING, &sql).await?;
    }
    Ok(())
}

async fn sequences(session: &Session, table: &Place) -> Result<Vec<(String, Place)>, TableError> {
    let rows = session.ask(DOING, SEQUENCES, &[(&table.schema, Type::TEXT), (&table.name, Type::TEXT)]).await?;
    Ok(rows.iter().map(|row| (row.get(0), Place { schema: row.get(1), name: row.get(2) })).collect())
}
