//! What is kept beside tasks: who was heard, what is still to be said, and what was given up.

use milepost_core::time::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

use crate::books::{Book, BookChange, Entry, EntryQuery};
use crate::error::StoreError;
use crate::model::Page;

use super::codec::{time, unavailable};
use super::read::{Reader, page};
use super::writer::{Performed, Writer};

/// Entries that are over and go with a new one of their book: more than come at once, and few enough to wait for.
const FORGOTTEN_AT_ONCE: i64 = 200;

impl Writer {
    pub(super) fn change_books(&self, change: &BookChange) -> Performed<()> {
        if let Some(kept) = self.kept(change)? {
            return Ok(Err(kept));
        }
        self.write_books(change)?;
        Ok(Ok(()))
    }

    /// Why the change is refused. Other commits share the transaction, so it is looked at before anything is written.
    pub(super) fn kept(&self, change: &BookChange) -> rusqlite::Result<Option<StoreError>> {
        change.kept(|entry| {
            let there = self
                .connection
                .prepare_cached("SELECT 1 FROM entries WHERE book = ?1 AND key = ?2 AND (until IS NULL OR until > ?3)")?
                .query_row(params![entry.book.code(), entry.key, entry.at.as_millis()], |_| Ok(()))
                .optional()?;
            Ok(there.is_some())
        })
    }

    /// What nothing speaks against. A change with nothing in it runs no statement.
    pub(super) fn write_books(&self, change: &BookChange) -> rusqlite::Result<()> {
        for (book, key) in &change.strike {
            self.connection
                .prepare_cached("DELETE FROM entries WHERE book = ?1 AND key = ?2")?
                .execute(params![book.code(), key])?;
        }
        for book in Book::ALL {
            let timed = change.keep.iter().filter(|entry| entry.book == book && entry.until.is_some());
            if let Some(now) = timed.map(|entry| entry.at).max() {
                self.forget_entries(book, now)?;
            }
        }
        for entry in &change.keep {
            // One that is over and still there makes room, and the new one comes last.
            self.connection
                .prepare_cached(
                    "INSERT OR REPLACE INTO entries (book, key, at, until, body) VALUES (?1, ?2, ?3, ?4, ?5)",
                )?
                .execute(params![
                    entry.book.code(),
                    entry.key,
                    entry.at.as_millis(),
                    entry.until.map(Timestamp::as_millis),
                    entry.body,
                ])?;
        }
        Ok(())
    }

    fn forget_entries(&self, book: Book, now: Timestamp) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached(
                "DELETE FROM entries WHERE no IN \
                 (SELECT no FROM entries WHERE book = ?1 AND until <= ?2 ORDER BY until LIMIT ?3)",
            )?
            .execute(params![book.code(), now.as_millis(), FORGOTTEN_AT_ONCE])?;
        Ok(())
    }
}

impl Reader<'_> {
    pub(super) fn entries(&self, query: &EntryQuery) -> Result<Page<Entry>, StoreError> {
        let read = || {
            if !self.has_table("entries")? {
                return Ok(Vec::new());
            }
            let mut statement = self.connection.prepare_cached(
                "SELECT key, at, until, body, no FROM entries WHERE book = ?1 AND no > ?2 \
                 AND (until IS NULL OR until > ?3) ORDER BY no LIMIT ?4",
            )?;
            let (after, limit) = (query.after.unwrap_or(0), query.limit as i64 + 1);
            let rows = statement.query_map(params![query.book.code(), after, query.now.as_millis(), limit], |row| {
                Ok((row.get::<_, i64>(4)?, entry(query.book, row)?))
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        Ok(page(read().map_err(unavailable("read a book"))?, query.limit))
    }

    pub(super) fn entry(&self, book: Book, key: &str, now: Timestamp) -> Result<Option<Entry>, StoreError> {
        let read = || {
            if !self.has_table("entries")? {
                return Ok(None);
            }
            self.connection
                .prepare_cached("SELECT key, at, until, body FROM entries WHERE book = ?1 AND key = ?2")?
                .query_row(params![book.code(), key], |row| entry(book, row))
                .optional()
        };
        let found = read().map_err(unavailable("read a book"))?;
        Ok(found.filter(|entry| !entry.is_over(now)))
    }
}

fn entry(book: Book, row: &Row<'_>) -> rusqlite::Result<Entry> {
    let (at, until) = (Timestamp::from_millis(row.get(1)?), time(row, 2)?);
    Ok(Entry { book, key: row.get(0)?, at, until, body: row.get(3)? })
}
