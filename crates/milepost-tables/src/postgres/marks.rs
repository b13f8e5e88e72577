//! What a target remembers of each copy.

use tokio_postgres::types::Type;

use crate::batch::Value;
use crate::database::{Load, MARKS, Mark, MarkState};
use crate::error::TableError;
use crate::table::TableName;

use super::connect::Session;
use super::names::{Place, literal};

const DOING: &str = "look at its marks";
/// The server divides by zero where a mark is no longer this attempt's.
const DIVIDED: &str = "22012";

/// Beside the tables that are copied there.
pub(super) fn marks(into: &Place) -> Place {
    into.beside(MARKS)
}

/// Makes the table for the marks, if it is not there.
pub(super) async fn ensure(session: &Session, into: &Place) -> Result<(), TableError> {
    let marks = marks(into);
    if is_there(session, &marks).await? {
        return Ok(());
    }
    // Two that make it at once would collide, whatever they ask for.
    session.run(DOING, "BEGIN").await?;
    session.take_turn(DOING, &marks.sql()).await?;
    let sql = format!(
        "CREATE TABLE IF NOT EXISTS {} (
            copy varchar(300) PRIMARY KEY,
            run bigint NOT NULL,
            token text NOT NULL,
            target text NOT NULL,
            staging text NOT NULL,
            state text NOT NULL CHECK (state IN ('loading', 'done')),
            own boolean NOT NULL DEFAULT false,
            rows bigint NOT NULL,
            rejected bigint NOT NULL,
            after text,
            fingerprint text NOT NULL,
            changed_at timestamptz NOT NULL DEFAULT now()
        ) WITH (fillfactor = 50);
        COMMIT",
        marks.sql()
    );
    session.run("make its table of marks", &sql).await
}

/// A mark, and what only this database wants to know of it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) mark: Mark,
    pub(super) token: String,
    pub(super) staging: String,
}

/// `locked`: nobody else may change it until the transaction ends.
pub(super) async fn find(
    session: &Session,
    copy: &str,
    into: &TableName,
    locked: bool,
) -> Result<Option<Found>, TableError> {
    let place = session.place(into);
    let marks = marks(&place);
    if !locked && !is_there(session, &marks).await? {
        return Ok(None);
    }
    let sql = format!(
        "SELECT token, target, staging, state, rows, rejected, after, fingerprint, own, run FROM {} WHERE copy = $1{}",
        marks.sql(),
        if locked { " FOR UPDATE" } else { "" }
    );
    let rows = session.ask(DOING, &sql, &[(&copy, Type::TEXT)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let unreadable = |what: &str| {
        TableError::Refused(format!("the mark of the copy `{copy}` in {} has no readable {what}", marks.shown()))
    };
    let target: TableName = row.get::<_, String>(1).parse().map_err(|_| unreadable("target"))?;
    let after = row.get::<_, Option<String>>(6).map(|after| serde_json::from_str(&after)).transpose();
    let mark = Mark {
        state: if row.get::<_, String>(3) == "done" { MarkState::Done } else { MarkState::Loading },
        run: u32::try_from(row.get::<_, i64>(9)).map_err(|_| unreadable("run"))?,
        own: row.get(8),
        // As whoever asks has written it.
        into: if session.place(&target) == place { into.clone() } else { target },
        rows: row.get::<_, i64>(4) as u64,
        rejected: row.get::<_, i64>(5) as u64,
        after: after.map_err(|_| unreadable("key"))?,
        fingerprint: row.get(7),
    };
    Ok(Some(Found { mark, token: row.get(0), staging: row.get(2) }))
}

/// Makes the copy this token's own, as if nothing had been loaded.
pub(super) async fn begin_anew(session: &Session, load: &Load, fingerprint: &str) -> Result<(), TableError> {
    let into = session.place(&load.into);
    let sql = format!(
        "INSERT INTO {} AS m (copy, token, target, staging, state, rows, rejected, after, fingerprint, run)
         VALUES ($1, $2, $3, $4, 'loading', 0, 0, NULL, $5, $6)
         ON CONFLICT (copy) DO UPDATE SET run = excluded.run, token = excluded.token, target = excluded.target, staging = excluded.staging,
             own = m.own AND m.target = excluded.target AND m.run = excluded.run, state = 'loading', rows = 0, rejected = 0, after = NULL, fingerprint = excluded.fingerprint, changed_at = now()",
        marks(&into).sql()
    );
    let (target, staging, run) = (into.shown(), session.place(&load.staging).shown(), i64::from(load.run));
    let parameters: &super::connect::Parameters<'_> = &[
        (&load.copy, Type::TEXT),
        (&load.token, Type::TEXT),
        (&target, Type::TEXT),
        (&staging, Type::TEXT),
        (&fingerprint, Type::TEXT),
        (&run, Type::INT8),
    ];
    session.ask("begin a copy", &sql, parameters).await.map(drop)
}

/// Makes the copy this token's own, as far as it is.
pub(super) async fn take_over(session: &Session, load: &Load) -> Result<(), TableError> {
    let sql = format!(
        "UPDATE {} SET token = $2, changed_at = now() WHERE copy = $1",
        marks(&session.place(&load.into)).sql()
    );
    session.ask("go on with a copy", &sql, &[(&load.copy, Type::TEXT), (&load.token, Type::TEXT)]).await.map(drop)
}

/// A statement that adds to what is loaded; it fails if the copy is not this token's own, and so does what follows it.
pub(super) fn advance(into: &Place, load: &Load, rows: u64, rejected: u64, after: Option<&[Value]>) -> String {
    let after = after.map(|after| serde_json::to_string(after).expect("values are JSON"));
    let after = after.map_or_else(|| "after".to_owned(), |after| literal(&after));
    changed(into, load, &format!("rows = rows + {rows}, rejected = rejected + {rejected}, after = {after}"))
}

/// A statement that says that the rows are in the target; it fails as `advance` does.
pub(super) fn done(into: &Place, load: &Load) -> String {
    changed(into, load, "state = 'done', own = true, after = NULL")
}

/// A statement that says that nothing is loaded; it fails as `advance` does.
pub(super) fn emptied(into: &Place, load: &Load) -> String {
    changed(into, load, "state = 'loading', rows = 0, rejected = 0, after = NULL")
}

fn changed(into: &Place, load: &Load, what: &str) -> String {
    format!(
        "WITH changed AS (UPDATE {} SET {what}, changed_at = now() WHERE copy = {} AND token = {} RETURNING 1)
         SELECT 1 / count(*) FROM changed",
        marks(into).sql(),
        literal(&load.copy),
        literal(&load.token)
    )
}

/// Whether a statement of these has failed because somebody else has begun the copy.
pub(super) fn is_fenced(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| code.code() == DIVIDED)
}

pub(super) fn fenced(load: &Load) -> TableError {
    TableError::Fenced { copy: load.copy.clone() }
}

/// Keeps the mark as it is until the transaction ends, if it is this token's own.
pub(super) async fn hold(session: &Session, load: &Load) -> Result<(), TableError> {
    match find(session, &load.copy, &load.into, true).await? {
        Some(found) if found.token == load.token => Ok(()),
        Some(_) | None => Err(fenced(load)),
    }
}

pub(super) async fn is_there(session: &Session, place: &Place) -> Result<bool, TableError> {
    let sql =
        "SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2";
    let rows = session.ask(DOING, sql, &[(&place.schema, Type::TEXT), (&place.name, Type::TEXT)]).await?;
    Ok(!rows.is_empty())
}
