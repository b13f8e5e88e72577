//! The marks: how far each copy into this database is, and whose it is.
//!
//! A swap of tables is no part of a transaction here, so a mark says `swapping` before it and `done` after it: if the table
//! beside the target is gone while it says `swapping`, the swap has happened.

use mysql_async::Conn;

use crate::batch::Value;
use crate::database::{Load, MARKS, Mark, MarkState};
use crate::error::TableError;
use crate::table::TableName;

use super::connect::{Facts, Server};
use super::failure::NO_SUCH_TABLE;
use super::sql;

const NOW: &str = "UTC_TIMESTAMP(3)";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Loading,
    Swapping,
    Done,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Loading => "loading",
            State::Swapping => "swapping",
            State::Done => "done",
        }
    }

    fn of(word: &str) -> Result<Self, TableError> {
        match word {
            "loading" => Ok(State::Loading),
            "swapping" => Ok(State::Swapping),
            "done" => Ok(State::Done),
            other => Err(TableError::Refused(format!("the table {MARKS} says `{other}`, which nobody understands"))),
        }
    }
}

/// A mark as it is kept.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    run: u32,
    pub(super) token: String,
    pub(super) staging: String,
    pub(super) state: State,
    /// An attempt of this copy has put into the target what is there.
    own: bool,
    into: String,
    pub(super) rows: u64,
    pub(super) rejected: u64,
    pub(super) after: Option<Vec<Value>>,
    pub(super) fingerprint: String,
}

impl Kept {
    pub(super) fn is_into(&self, into: &TableName) -> bool {
        self.into == into.name
    }

    /// As everybody may know it; `swapped` is what the tables themselves say of a swap that was begun.
    pub(super) fn told(self, into: &TableName, swapped: bool) -> Mark {
        let state = match self.state {
            State::Done => MarkState::Done,
            State::Swapping if swapped => MarkState::Done,
            State::Swapping | State::Loading => MarkState::Loading,
        };
        Mark {
            state,
            run: self.run,
            own: self.own || state == MarkState::Done,
            into: into.beside(self.into),
            rows: self.rows,
            rejected: self.rejected,
            after: self.after,
            fingerprint: self.fingerprint,
        }
    }
}

fn marks(into: &TableName) -> String {
    sql::table(&into.beside(MARKS))
}

/// The table of marks, if it is not there.
pub(super) async fn make(server: &Server, conn: &mut Conn, into: &TableName, facts: Facts) -> Result<(), TableError> {
    let sql = format!(
        "CREATE TABLE IF NOT EXISTS {} (\
            copy VARCHAR(300) NOT NULL PRIMARY KEY, run INT UNSIGNED NOT NULL, token VARCHAR(100) NOT NULL, target VARCHAR(64) NOT NULL, \
            staging VARCHAR(64) NOT NULL, state VARCHAR(20) NOT NULL, own BOOLEAN NOT NULL, `rows` BIGINT UNSIGNED NOT NULL, \
            rejected BIGINT UNSIGNED NOT NULL, `after` LONGTEXT, fingerprint VARCHAR(100) NOT NULL, \
            changed_at DATETIME(3) NOT NULL\
         ) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE {}",
        marks(into),
        facts.exact_collation()
    );
    server.tell(conn, "make the table", MARKS, &sql).await.map(drop)
}

pub(super) async fn find(
    server: &Server,
    conn: &mut Conn,
    copy: &str,
    into: &TableName,
) -> Result<Option<Kept>, TableError> {
    use mysql_async::prelude::Queryable;
    type Row = (String, String, String, String, bool, u64, u64, Option<String>, String, u32);
    let sql = format!(
        "SELECT token, target, staging, state, own, `rows`, rejected, `after`, fingerprint, run FROM {} WHERE copy = {}",
        marks(into),
        sql::text(copy)
    );
    let found: Option<Row> = match conn.query_first(sql).await {
        Err(mysql_async::Error::Server(error)) if error.code == NO_SUCH_TABLE => return Ok(None),
        found => found.map_err(super::failure::failed(super::failure::Failing {
            server: &server.name,
            doing: "read the mark of",
            what: copy,
        }))?,
    };
    let Some((token, into, staging, state, own, rows, rejected, after, fingerprint, run)) = found else {
        return Ok(None);
    };
    let after = after.map(|after| serde_json::from_str(&after)).transpose().map_err(|error| {
        TableError::Refused(format!("the mark of the copy `{copy}` in {MARKS} cannot be read: {error}"))
    })?;
    Ok(Some(Kept { run, token, staging, state: State::of(&state)?, own, into, rows, rejected, after, fingerprint }))
}

/// Makes the copy this token's own, with nothing loaded, or with what was; it cannot be gone on with until `ready` says so.
pub(super) async fn own(server: &Server, conn: &mut Conn, load: &Load, keep: bool) -> Result<(), TableError> {
    let again = match keep {
        true => "state = 'loading', token = VALUES(token)",
        false => {
            "own = own AND target = VALUES(target) AND run = VALUES(run), run = VALUES(run), state = 'loading', token = VALUES(token), target = VALUES(target), staging = VALUES(staging), \
             `rows` = 0, rejected = 0, `after` = NULL, fingerprint = ''"
        }
    };
    let sql = format!(
        "INSERT INTO {} (copy, run, token, target, staging, state, own, `rows`, rejected, `after`, fingerprint, changed_at) \
         VALUES ({}, {}, {}, {}, {}, 'loading', FALSE, 0, 0, NULL, '', {NOW}) \
         ON DUPLICATE KEY UPDATE {again}, changed_at = VALUES(changed_at)",
        marks(&load.into),
        sql::text(&load.copy),
        load.run,
        sql::text(&load.token),
        sql::text(&load.into.name),
        sql::text(&load.staging.name),
    );
    server.tell(conn, "mark the copy", &load.copy, &sql).await.map(drop)
}

/// The table beside the target is new and empty: from here on, an attempt with this fingerprint may go on with it.
pub(super) async fn ready(server: &Server, conn: &mut Conn, load: &Load, fingerprint: &str) -> Result<(), TableError> {
    change(server, conn, load, &format!("fingerprint = {}", sql::text(fingerprint))).await
}

/// What a transaction of the writer adds.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) rows: u64,
    pub(super) rejected: u64,
    pub(super) after: Option<Vec<Value>>,
}

pub(super) async fn advance(server: &Server, conn: &mut Conn, load: &Load, step: &Step) -> Result<(), TableError> {
    let after = step.after.as_ref().map(|after| serde_json::to_string(after).expect("values are JSON"));
    let set = format!(
        "`rows` = `rows` + {}, rejected = rejected + {}, `after` = {}",
        step.rows,
        step.rejected,
        sql::text_or_null(after.as_deref())
    );
    change(server, conn, load, &set).await
}

pub(super) async fn turn(server: &Server, conn: &mut Conn, load: &Load, to: State) -> Result<(), TableError> {
    let own = if to == State::Done { ", own = TRUE" } else { "" };
    change(server, conn, load, &format!("state = '{}'{own}", to.word())).await
}

/// Nothing is loaded any more.
pub(super) async fn empty(server: &Server, conn: &mut Conn, load: &Load) -> Result<(), TableError> {
    let set = "state = 'loading', `rows` = 0, rejected = 0, `after` = NULL, fingerprint = ''";
    let sql = format!("UPDATE {} SET {set}, changed_at = {NOW} WHERE {}", marks(&load.into), whose(load));
    server.tell(conn, "mark the copy", &load.copy, &sql).await.map(drop)
}

/// What is done is not changed any more, except by a new beginning.
async fn change(server: &Server, conn: &mut Conn, load: &Load, set: &str) -> Result<(), TableError> {
    let sql =
        format!("UPDATE {} SET {set}, changed_at = {NOW} WHERE {} AND state <> 'done'", marks(&load.into), whose(load));
    match server.tell(conn, "mark the copy", &load.copy, &sql).await? {
        0 => Err(TableError::Fenced { copy: load.copy.clone() }),
        _ => Ok(()),
    }
}

/// A swap that has happened is said to have: by whoever sees it first.
pub(super) async fn settle(
    server: &Server,
    conn: &mut Conn,
    copy: &str,
    into: &TableName,
    token: &str,
) -> Result<(), TableError> {
    let sql = format!(
        "UPDATE {} SET state = 'done', own = TRUE, changed_at = {NOW} WHERE copy = {} AND token = {} AND state = 'swapping'",
        marks(into),
        sql::text(copy),
        sql::text(token)
    );
    server.tell(conn, "mark the copy", copy, &sql).await.map(drop)
}

fn whose(load: &Load) -> String {
    format!("copy = {} AND token = {}", sql::text(&load.copy), sql::text(&load.token))
}
