//! The end of a copy: its rows appear in the target, all at once.

use std::time::Duration;

use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::database::{Finish, How, Load};
use crate::error::TableError;
use crate::table::TableName;

use super::begin::{
    drop_tables, exists, is_swapped, lock_own, old, refuse_if_referred_to, refuse_without_transactions,
};
use super::connect::Server;
use super::failure::{Failing, LOCK_WAIT_TIMEOUT, code, failed};
use super::marks::{self, State};
use super::{catalogue, sql};

pub(super) async fn finish(server: &Server, finish: Finish<'_>) -> Result<(), TableError> {
    let load = finish.load;
    let mut conn = server.connect().await?;
    let kept = lock_own(server, &mut conn, load).await?;
    match &finish.how {
        // An answer that was lost on its way is asked for again.
        _ if kept.state == State::Done => {}
        How::Replace if is_swapped(server, &mut conn, &kept, &load.into).await? => {
            marks::turn(server, &mut conn, load, State::Done).await?;
        }
        How::Replace => swap(server, &mut conn, load).await?,
        How::Append => merge(server, &mut conn, load, &[append(load)]).await?,
        How::Truncate => {
            let delete = format!("DELETE FROM {}", sql::table(&load.into));
            merge(server, &mut conn, load, &[delete, append(load)]).await?;
        }
        How::Upsert { key } => {
            refuse_without_unique(server, &mut conn, load, key).await?;
            merge(server, &mut conn, load, &upsert(load, key)).await?;
        }
    }
    drop_tables(server, &mut conn, &[&load.staging, &old(&load.copy, &load.into)]).await?;
    drop(conn.disconnect().await);
    Ok(())
}

/// Both names change in one statement, so that nobody sees one without the other. The mark says before it what is about to
/// happen, and whoever finds it so can tell from the tables whether it has.
async fn swap(server: &Server, conn: &mut Conn, load: &Load) -> Result<(), TableError> {
    refuse_if_referred_to(server, conn, &load.into).await?;
    marks::turn(server, conn, load, State::Swapping).await?;
    let old = old(&load.copy, &load.into);
    drop_tables(server, conn, &[&old]).await?;
    let mut moves = vec![(&load.staging, &load.into)];
    if exists(server, conn, &load.into).await? {
        moves.insert(0, (&load.into, &old));
    }
    let moves = moves.iter().map(|(from, to)| format!("{} TO {}", sql::table(from), sql::table(to)));
    let rename = format!("RENAME TABLE {}", moves.collect::<Vec<_>>().join(", "));
    rename_patiently(server, conn, load, &rename).await?;
    marks::turn(server, conn, load, State::Done).await
}

/// A statement that waits for those who read the target now makes all others wait behind it. So it waits for a short while
/// only, lets the others pass, and tries again.
async fn rename_patiently(server: &Server, conn: &mut Conn, load: &Load, rename: &str) -> Result<(), TableError> {
    const DOING: &str = "put in its place the table";
    const WAIT_SECONDS: u32 = 5;
    const TRIES: u32 = 30;
    let into = load.into.to_string();
    server.tell(conn, DOING, &into, &format!("SET SESSION lock_wait_timeout = {WAIT_SECONDS}")).await?;
    for _ in 1..TRIES {
        match conn.query_drop(rename).await {
            Err(error) if code(&error) == Some(LOCK_WAIT_TIMEOUT) => tokio::time::sleep(Duration::from_secs(1)).await,
            renamed => return renamed.map_err(failed(Failing { server: &server.name, doing: DOING, what: &into })),
        }
    }
    server.tell(conn, DOING, &into, rename).await.map(drop)
}

/// The rows and the mark, in one transaction. Foreign keys of the target are minded here, other than while loading.
async fn merge(server: &Server, conn: &mut Conn, load: &Load, statements: &[String]) -> Result<(), TableError> {
    let into = load.into.to_string();
    let Some(target) = catalogue::table(server, conn, &load.into).await? else {
        return Err(TableError::Refused(format!("table {into} is no longer in {}", server.name)));
    };
    refuse_without_transactions(server, &load.into, &target.engine)?;
    const DOING: &str = "put the rows into";
    server.tell(conn, DOING, &into, "START TRANSACTION").await?;
    marks::turn(server, conn, load, State::Done).await?;
    for statement in statements {
        // Rows that go now come back in a moment, and must take none with them that refer to them.
        let checks = if statement.starts_with("DELETE") { 0 } else { 1 };
        server.tell(conn, DOING, &into, &format!("SET SESSION foreign_key_checks = {checks}")).await?;
        server.tell(conn, DOING, &into, statement).await?;
    }
    refuse_orphans(server, conn, &load.into).await?;
    server.tell(conn, DOING, &into, "COMMIT").await.map(drop)
}

fn append(load: &Load) -> String {
    let columns = sql::names(load.columns.iter().map(|(name, _)| name.as_str()));
    let (into, staging) = (sql::table(&load.into), sql::table(&load.staging));
    format!("INSERT INTO {into} ({columns}) SELECT {columns} FROM {staging}")
}

/// By this key and no other: `ON DUPLICATE KEY` would take a row that is the same by any unique index for the same.
fn upsert(load: &Load, key: &[String]) -> [String; 2] {
    let (into, staging) = (sql::table(&load.into), sql::table(&load.staging));
    let same: Vec<String> = key.iter().map(|name| format!("t.{0} = s.{0}", sql::name(name))).collect();
    let same = same.join(" AND ");
    let columns = || load.columns.iter().map(|(name, _)| sql::name(name));
    // The key's columns as well: what is equal to a collation need not be the same.
    let set: Vec<String> = columns().map(|name| format!("t.{name} = s.{name}")).collect();
    let names: Vec<String> = columns().collect();
    let values: Vec<String> = columns().map(|name| format!("s.{name}")).collect();
    let first = sql::name(key.first().map_or("", String::as_str));
    [
        format!("UPDATE {into} t JOIN {staging} s ON {same} SET {}", set.join(", ")),
        format!(
            "INSERT INTO {into} ({}) SELECT {} FROM {staging} s LEFT JOIN {into} t ON {same} WHERE t.{first} IS NULL",
            names.join(", "),
            values.join(", ")
        ),
    ]
}

async fn refuse_without_unique(
    server: &Server,
    conn: &mut Conn,
    load: &Load,
    key: &[String],
) -> Result<(), TableError> {
    let known = catalogue::table(server, conn, &load.into).await?;
    let is_key = |columns: &[usize], known: &catalogue::Known| {
        columns.len() == key.len()
            && columns.iter().all(|at| key.iter().any(|name| name.eq_ignore_ascii_case(&known.table.columns[*at].name)))
    };
    let unique = known.is_some_and(|known| {
        let indexes = known.table.indexes.iter().filter(|index| index.unique).map(|index| &index.columns);
        std::iter::once(&known.table.primary).chain(indexes).any(|columns| is_key(columns, &known))
    });
    if unique {
        return Ok(());
    }
    Err(TableError::Refused(format!(
        "table {} in {} has no unique index on ({}), by which rows could be found again",
        load.into,
        server.name,
        key.join(", ")
    )))
}

/// Rows of other tables that refer to one that is no longer there.
async fn refuse_orphans(server: &Server, conn: &mut Conn, into: &TableName) -> Result<(), TableError> {
    for referrer in catalogue::referrers(server, conn, into).await? {
        let on = |(from, to): &(String, String)| format!("c.{} = p.{}", sql::name(from), sql::name(to));
        let on: Vec<String> = referrer.columns.iter().map(on).collect();
        let filled = |(from, _): &(String, String)| format!("c.{} IS NOT NULL", sql::name(from));
        let filled: Vec<String> = referrer.columns.iter().map(filled).collect();
        let orphan = format!(
            "SELECT 1 FROM {} c LEFT JOIN {} p ON {} WHERE {} AND p.{} IS NULL LIMIT 1",
            sql::table(&referrer.table),
            sql::table(into),
            on.join(" AND "),
            filled.join(" AND "),
            sql::name(&referrer.columns[0].1)
        );
        let found: Vec<u8> = server.ask(conn, "look for rows that refer to", &into.to_string(), &orphan).await?;
        if !found.is_empty() {
            return Err(TableError::Refused(format!(
                "rows of {} refer by foreign key {} to rows of {into} that would no longer be there",
                referrer.table, referrer.name
            )));
        }
    }
    Ok(())
}
