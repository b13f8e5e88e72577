//! The beginning of a copy: whose it is, and the table beside the target; and what earlier attempts left behind.

use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sha2::{Digest, Sha256};

use crate::database::{Begin, Begun, Load, Mark, Shape, UNFINISHED};
use crate::error::TableError;
use crate::table::TableName;

use super::connect::Server;
use super::failure::{Failing, code, failed};
use super::marks::{self, Kept, State};
use super::{catalogue, lock, place, sql};

pub(super) async fn begin(server: &Server, begin: Begin<'_>) -> Result<Begun, TableError> {
    let load = begin.load;
    let mut conn = server.connect().await?;
    let facts = server.facts(&mut conn).await?;
    lock::take(server, &mut conn, &load.copy, &load.into).await?;
    let kept = marks::find(server, &mut conn, &load.copy, &load.into).await?;
    if let Some(kept) = &kept
        && is_swapped(server, &mut conn, kept, &load.into).await?
    {
        marks::settle(server, &mut conn, &load.copy, &load.into, &kept.token).await?;
    }
    if let Shape::Of { .. } = begin.shape {
        refuse_if_referred_to(server, &mut conn, &load.into).await?;
    }
    let begun = match kept.filter(|_| begin.go_on).filter(|kept| goes_on(kept, &begin)) {
        Some(kept) if exists(server, &mut conn, &load.staging).await? => {
            marks::own(server, &mut conn, load, true).await?;
            Begun { rows: kept.rows, rejected: kept.rejected, after: kept.after }
        }
        Some(_) | None => {
            marks::make(server, &mut conn, &load.into, facts).await?;
            marks::own(server, &mut conn, load, false).await?;
            drop_tables(server, &mut conn, &[&load.staging, &old(&load.copy, &load.into)]).await?;
            match begin.shape {
                Shape::Of { table, from } => {
                    let verbatim = place::create(load, table, from, true, facts);
                    let by_kind = place::create(load, table, from, false, facts);
                    create(server, &mut conn, &load.staging, &verbatim, &by_kind).await?;
                }
                Shape::LikeTarget => create_like(server, &mut conn, load).await?,
            }
            marks::ready(server, &mut conn, load, begin.fingerprint).await?;
            Begun::default()
        }
    };
    drop(conn.disconnect().await);
    Ok(begun)
}

fn goes_on(kept: &Kept, begin: &Begin<'_>) -> bool {
    kept.state != State::Done
        && kept.is_into(&begin.load.into)
        && kept.staging == begin.load.staging.name
        && kept.fingerprint == begin.fingerprint
}

/// Types and collations that only the other of MySQL and MariaDB knows: then by kind.
const UNKNOWN_HERE: &[u16] = &[1064, 1115, 1253, 1273, 4161];

async fn create(
    server: &Server,
    conn: &mut Conn,
    staging: &TableName,
    verbatim: &str,
    by_kind: &str,
) -> Result<(), TableError> {
    // Else the first TIMESTAMP would change by itself with every UPDATE. Not every server lets everybody say so, and those
    // that do not are those that know better anyway.
    let _ = conn.query_drop("SET SESSION explicit_defaults_for_timestamp = 1").await;
    let made = match conn.query_drop(verbatim).await {
        Err(error) if code(&error).is_some_and(|code| UNKNOWN_HERE.contains(&code)) => conn.query_drop(by_kind).await,
        made => made,
    };
    made.map_err(failed(Failing { server: &server.name, doing: "create the table", what: &staging.to_string() }))
}

/// As the target is, without indexes that only make loading slower.
async fn create_like(server: &Server, conn: &mut Conn, load: &Load) -> Result<(), TableError> {
    let Some(target) = catalogue::table(server, conn, &load.into).await? else {
        return Err(TableError::Refused(format!("there is no table {} in {}", load.into, server.name)));
    };
    refuse_without_transactions(server, &load.into, &target.engine)?;
    let staging = sql::table(&load.staging);
    let what = load.staging.to_string();
    let like = format!("CREATE TABLE {staging} LIKE {}", sql::table(&load.into));
    server.tell(conn, "create the table", &what, &like).await?;
    let counts = |column: Option<&usize>| column.is_some_and(|column| target.table.columns[*column].counts_up);
    let slow: Vec<String> = (target.table.indexes.iter())
        .filter(|index| !index.unique && !counts(index.columns.first()))
        .map(|index| format!("DROP INDEX {}", sql::name(&index.name)))
        .collect();
    if !slow.is_empty() {
        let alter = format!("ALTER TABLE {staging} {}", slow.join(", "));
        server.tell(conn, "prepare the table", &what, &alter).await?;
    }
    Ok(())
}

pub(super) fn refuse_without_transactions(server: &Server, table: &TableName, engine: &str) -> Result<(), TableError> {
    if engine.eq_ignore_ascii_case("InnoDB") {
        return Ok(());
    }
    Err(TableError::Refused(format!(
        "table {table} in {} is kept by {engine}, which knows no transactions: rows could appear by halves; \
         `if_exists: drop` replaces it as a whole",
        server.name
    )))
}

/// Foreign keys of others would go on to refer to the table that goes.
pub(super) async fn refuse_if_referred_to(
    server: &Server,
    conn: &mut Conn,
    into: &TableName,
) -> Result<(), TableError> {
    let referrers = catalogue::referrers(server, conn, into).await?;
    let Some(first) = referrers.first() else { return Ok(()) };
    Err(TableError::Refused(format!(
        "table {into} in {} cannot be replaced: foreign key {} of {} refers to it; `if_exists: truncate` keeps the table and \
         replaces its rows",
        server.name, first.name, first.table
    )))
}

/// What became of the copy. Brings to its end what a crash has cut short: a swap that has happened is marked as done, and
/// what it left over is dropped.
pub(super) async fn mark(server: &Server, copy: &str, into: &TableName) -> Result<Option<Mark>, TableError> {
    let mut conn = server.connect().await?;
    let Some(kept) = marks::find(server, &mut conn, copy, into).await? else { return Ok(None) };
    let swapped = is_swapped(server, &mut conn, &kept, into).await?;
    if swapped {
        marks::settle(server, &mut conn, copy, into, &kept.token).await?;
    }
    if (swapped || kept.state == State::Done) && lock::is_free(server, &mut conn, copy, into).await? {
        sweep(server, &mut conn, copy, into, &kept).await?;
    }
    drop(conn.disconnect().await);
    Ok(Some(kept.told(into, swapped)))
}

/// The one table is gone only by becoming the other.
pub(super) async fn is_swapped(
    server: &Server,
    conn: &mut Conn,
    kept: &Kept,
    into: &TableName,
) -> Result<bool, TableError> {
    Ok(kept.state == State::Swapping && !exists(server, conn, &into.beside(&*kept.staging)).await?)
}

/// Drops what a copy that is done has no more use for. Only with the lock, and only if it is still as it was.
async fn sweep(server: &Server, conn: &mut Conn, copy: &str, into: &TableName, kept: &Kept) -> Result<(), TableError> {
    let now = marks::find(server, conn, copy, into).await?;
    if now.is_none_or(|now| now.token != kept.token || now.state != State::Done) {
        return Ok(());
    }
    for left in [into.beside(&*kept.staging), old(copy, into)] {
        if exists(server, conn, &left).await? {
            drop_tables(server, conn, &[&left]).await?;
        }
    }
    Ok(())
}

/// Where the target goes that another table takes the place of.
pub(super) fn old(copy: &str, into: &TableName) -> TableName {
    let digest: String = Sha256::digest(copy).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    into.beside(format!("{UNFINISHED}old_{digest}"))
}

pub(super) async fn exists(server: &Server, conn: &mut Conn, table: &TableName) -> Result<bool, TableError> {
    let sql = format!(
        "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {}",
        sql::schema(table),
        sql::text(&table.name)
    );
    let found: Vec<u8> = server.ask(conn, "look at", &table.to_string(), &sql).await?;
    Ok(!found.is_empty())
}

pub(super) async fn drop_tables(server: &Server, conn: &mut Conn, tables: &[&TableName]) -> Result<(), TableError> {
    let names: Vec<String> = tables.iter().map(|table| sql::table(table)).collect();
    let sql = format!("DROP TABLE IF EXISTS {}", names.join(", "));
    server.tell(conn, "drop the table", &names.join(", "), &sql).await.map(drop)
}

/// The copy is this token's own; else somebody else has begun it since.
pub(super) async fn is_own(server: &Server, conn: &mut Conn, load: &Load) -> Result<Kept, TableError> {
    let kept = marks::find(server, conn, &load.copy, &load.into).await?;
    kept.filter(|kept| kept.token == load.token).ok_or_else(|| TableError::Fenced { copy: load.copy.clone() })
}

/// With the lock, so that nothing that was sent before is still on its way.
pub(super) async fn lock_own(server: &Server, conn: &mut Conn, load: &Load) -> Result<Kept, TableError> {
    is_own(server, conn, load).await?;
    lock::take(server, conn, &load.copy, &load.into).await?;
    is_own(server, conn, load).await
}
