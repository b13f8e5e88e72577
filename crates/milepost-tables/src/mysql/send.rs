//! Rows on their way to the server: by LOAD DATA if nothing is wrong with them, else by INSERT.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error};

use crate::batch::Batch;
use crate::database::Load;
use crate::error::TableError;

use super::begin::is_own;
use super::connect::Server;
use super::encode::{push_line, push_row};
use super::failure::{Failing, NO_SUCH_TABLE, code, failed, in_words, is_about_a_row, is_away};

/// No statement is longer than this, even if the server takes longer ones: it is all kept in memory on both sides.
const STATEMENT: usize = 4 << 20;
/// What LOAD DATA sends at once.
const PACKET: usize = 256 << 10;
/// What a statement needs beside its rows, generously.
pub(super) const BESIDE: usize = 64 << 10;

pub(super) struct Sender {
    pub(super) server: Arc<Server>,
    pub(super) conn: Conn,
    pub(super) load: Load,
    /// `INSERT INTO … VALUES `.
    pub(super) insert: String,
    /// `LOAD DATA …`.
    pub(super) load_data: String,
    /// LOAD DATA is worth a try.
    pub(super) loads: bool,
    /// The longest row that the server takes.
    pub(super) packet: usize,
    /// Else the first bad row is the last.
    pub(super) skip_bad_rows: bool,
    pub(super) buffer: Vec<u8>,
}

/// A row of the batch, the column if it is known, and the reason.
#[derive(Debug)]
pub(super) struct Bad {
    pub(super) row: usize,
    pub(super) column: Option<usize>,
    pub(super) reason: String,
}

impl Sender {
    /// Those that are not written.
    pub(super) async fn send(&mut self, batch: &Batch, rows: &[usize]) -> Result<Vec<Bad>, TableError> {
        if !self.loads || rows.is_empty() {
            return self.insert(batch, rows).await;
        }
        if self.load_data(batch, rows).await? {
            return Ok(Vec::new());
        }
        let bad = self.insert(batch, rows).await?;
        // If nothing is wrong with any row, it was LOAD DATA itself, and would be again.
        self.loads = !bad.is_empty();
        Ok(bad)
    }

    /// True if all rows are written as they are. LOAD DATA makes of every error a warning and goes on, so one word of
    /// warning means that nothing is written: INSERT tells exactly what is wrong.
    async fn load_data(&mut self, batch: &Batch, rows: &[usize]) -> Result<bool, TableError> {
        self.query("SAVEPOINT batch").await?;
        let mut rows = rows;
        while !rows.is_empty() {
            self.buffer.clear();
            let taken = rows.iter().take_while(|row| {
                push_line(&mut self.buffer, batch, **row);
                self.buffer.len() < STATEMENT
            });
            // The row that made it full is in it as well.
            let taken = (taken.count() + 1).min(rows.len());
            rows = &rows[taken..];
            let lines = Bytes::from(std::mem::take(&mut self.buffer));
            let parts = (0..lines.len()).step_by(PACKET).map(|at| Ok(lines.slice(at..lines.len().min(at + PACKET))));
            let parts: Vec<_> = parts.collect();
            self.conn.set_infile_handler(async move { Ok(stream::iter(parts).boxed()) });
            let loaded = self.conn.query_drop(self.load_data.as_str()).await;
            self.buffer = lines.try_into_mut().map(Vec::from).unwrap_or_default();
            let clean = match loaded {
                Ok(()) => self.conn.get_warnings() == 0 && self.conn.affected_rows() == taken as u64,
                Err(error) if is_away(&error) || code(&error) == Some(NO_SUCH_TABLE) => {
                    return Err(self.failed(error).await);
                }
                Err(_) => false,
            };
            if !clean {
                self.query("ROLLBACK TO SAVEPOINT batch").await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// As many rows a statement as fit. A statement that fails leaves nothing behind, so that it can be tried in parts.
    async fn insert(&mut self, batch: &Batch, rows: &[usize]) -> Result<Vec<Bad>, TableError> {
        let mut bad = Vec::new();
        let mut parts = vec![rows];
        // Where bad rows are many, short statements find them sooner: a long one fails at the first, and is sent again.
        let mut width = usize::MAX;
        while let Some(part) = parts.pop() {
            let Some(first) = part.first() else { continue };
            let taken = self.statement(batch, &part[..part.len().min(width)]);
            if taken == 0 {
                bad.push(self.too_long(*first));
                parts.push(&part[1..]);
                continue;
            }
            let statement = std::mem::take(&mut self.buffer);
            let sent = self.conn.query_drop(statement.as_slice()).await;
            self.buffer = statement;
            let (part, rest) = part.split_at(taken);
            parts.push(rest);
            match sent {
                Ok(()) => width = width.saturating_mul(4),
                Err(error) if !is_about_a_row(&error) => return Err(self.failed(error).await),
                Err(error) if part.len() == 1 => bad.push(self.bad(*first, &error)),
                Err(error) => {
                    width = (part.len() / 4).max(1);
                    // The row that it names alone, or halves.
                    let (at, width) = match named_row(&error).filter(|row| *row < part.len()) {
                        Some(row) => (row, 1),
                        None => (part.len() / 2, part.len() - part.len() / 2),
                    };
                    parts.push(&part[at + width..]);
                    parts.push(&part[at..at + width]);
                    parts.push(&part[..at]);
                }
            }
            if !bad.is_empty() && !self.skip_bad_rows {
                break;
            }
        }
        Ok(bad)
    }

    /// Writes a statement for the first rows of these; says how many.
    fn statement(&mut self, batch: &Batch, rows: &[usize]) -> usize {
        let most = self.packet.min(STATEMENT);
        self.buffer.clear();
        self.buffer.extend_from_slice(self.insert.as_bytes());
        for (taken, row) in rows.iter().enumerate() {
            let before = self.buffer.len();
            if taken > 0 {
                self.buffer.push(b',');
            }
            push_row(&mut self.buffer, batch, *row);
            // One row may be longer than we like, if the server takes it.
            if self.buffer.len() > if taken == 0 { self.packet } else { most } {
                self.buffer.truncate(before);
                return taken;
            }
        }
        rows.len()
    }

    pub(super) fn too_long(&self, row: usize) -> Bad {
        let name = &self.server.name;
        let reason = format!("the row is longer than max_allowed_packet of {name} ({} bytes)", self.packet + BESIDE);
        Bad { row, column: None, reason }
    }

    fn bad(&self, row: usize, error: &Error) -> Bad {
        let message = in_words(error);
        let message = message.split(" at row ").next().unwrap_or_default();
        let about = message.find("olumn ").map(|at| &message[at..]);
        let names = |(name, _): &(String, _)| {
            about.is_some_and(|about| about.contains(&format!("'{name}'")) || about.ends_with(&format!("`{name}`")))
        };
        Bad { row, column: self.load.columns.iter().position(names), reason: message.to_owned() }
    }

    async fn query(&mut self, sql: &str) -> Result<(), TableError> {
        match self.conn.query_drop(sql).await {
            Err(error) => Err(self.failed(error).await),
            Ok(()) => Ok(()),
        }
    }

    /// A table that is gone, or a connection that was ended: perhaps by another node that has begun the copy anew.
    async fn failed(&mut self, error: Error) -> TableError {
        match self.is_still_own().await {
            true => {
                failed(Failing { server: &self.server.name, doing: "write to", what: &self.load.into.to_string() })(
                    error,
                )
            }
            false => TableError::Fenced { copy: self.load.copy.clone() },
        }
    }

    /// As far as can be told.
    pub(super) async fn is_still_own(&self) -> bool {
        let Ok(mut conn) = self.server.connect().await else { return true };
        let own = is_own(&self.server, &mut conn, &self.load).await;
        !matches!(own, Err(TableError::Fenced { .. }))
    }
}

/// `… at row 3`, of the statement's rows.
fn named_row(error: &Error) -> Option<usize> {
    let Error::Server(error) = error else { return None };
    let (_, row) = error.message.rsplit_once(" at row ")?;
    row.trim_end_matches(|char: char| !char.is_ascii_digit()).parse::<usize>().ok()?.checked_sub(1)
}
