//! Books: who was heard, what is still to be said, and what was given up.
//!
//! What a group wants to keep is looked up with the lock, so that a key which is there already refuses one operation and
//! not the others. A group that has nothing for the books neither asks nor writes here.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use milepost_core::time::Timestamp;
use mysql_async::{Error, Row};

use crate::books::{Book, BookChange, Entry, EntryQuery};
use crate::error::StoreError;
use crate::model::Page;

use super::codec::{Columns, Sql, unavailable};
use super::desk::Desk;
use super::lists::{one_more, page};
use super::read::first;
use super::sql::{Rows, number_or_null, push_text, text, texts};
use super::store::Shared;

/// Entries that are over and go with one write to their book: few, so that nobody waits.
const FORGOTTEN_AT_ONCE: usize = 256;
/// Keys that one statement names.
const KEYS_AT_ONCE: usize = 1024;

const ENTRY: &str = "no, book, name, at, expires_at, body";

type Key = (Book, String);

/// What a transaction knows of the books, and has to write to them.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// What is there under the keys that the group asks for, and until when that counts.
    known: HashMap<Key, Option<Timestamp>>,
    struck: BTreeSet<Key>,
    kept: BTreeMap<Key, (i64, Entry)>,
}

impl Books {
    pub(super) fn know(&mut self, rows: Vec<Row>) -> Sql<()> {
        for row in rows {
            let mut columns = Columns::from(row);
            self.known.insert((book(&mut columns)?, columns.next()?), columns.maybe_time()?);
        }
        Ok(())
    }

    /// Nothing was written yet when this refuses.
    pub(super) fn refuse_kept(&self, change: &BookChange) -> Result<(), StoreError> {
        let kept = change.kept(|entry| {
            let known = self.known.get(&(entry.book, entry.key.clone()));
            Ok::<_, StoreError>(known.is_some_and(|until| until.is_none_or(|until| until > entry.at)))
        })?;
        kept.map_or(Ok(()), Err)
    }

    fn strike(&mut self, key: Key) {
        self.known.remove(&key);
        self.kept.remove(&key);
        self.struck.insert(key);
    }

    fn keep(&mut self, no: i64, entry: &Entry) {
        let key = (entry.book, entry.key.clone());
        if self.known.contains_key(&key) {
            self.strike(key.clone());
        }
        self.known.insert(key.clone(), entry.until);
        self.kept.insert(key, (no, entry.clone()));
    }

    /// All that is to be written; nothing of it is left here.
    pub(super) fn statements(&mut self) -> Vec<String> {
        let mut statements = Vec::new();
        let struck: Vec<Key> = std::mem::take(&mut self.struck).into_iter().collect();
        for keys in struck.chunks(KEYS_AT_ONCE) {
            let keys = keys.iter().map(|(book, key)| (*book, key.as_str()));
            statements.push(format!("DELETE FROM milepost_books WHERE {}", named(keys)));
        }
        let mut rows = Rows::new("INSERT INTO milepost_books (no, book, name, at, expires_at, body) VALUES ", "");
        let mut earliest: BTreeMap<Book, i64> = BTreeMap::new();
        for (no, entry) in std::mem::take(&mut self.kept).into_values() {
            let (book, at) = (entry.book, entry.at.as_millis());
            earliest.entry(book).and_modify(|earliest| *earliest = at.min(*earliest)).or_insert(at);
            let until = number_or_null(entry.until.map(Timestamp::as_millis));
            rows.push(|sql| {
                sql.push_str(&format!("{no},{},{},{at},{until},", book.code(), text(&entry.key)));
                push_text(sql, &entry.body);
            });
        }
        statements.extend(earliest.into_iter().map(|(book, now)| {
            let book = book.code();
            format!(
                "DELETE FROM milepost_books WHERE book = {book} AND expires_at <= {now} ORDER BY expires_at \
                 LIMIT {FORGOTTEN_AT_ONCE}"
            )
        }));
        statements.extend(rows.statements());
        statements
    }
}

impl Desk {
    pub(super) fn change_books(&mut self, change: &BookChange) -> Result<(), StoreError> {
        self.books.refuse_kept(change)?;
        self.write_books(change);
        Ok(())
    }

    /// What `refuse_kept` has let pass.
    pub(super) fn write_books(&mut self, change: &BookChange) {
        for key in &change.strike {
            self.books.strike(key.clone());
        }
        for entry in &change.keep {
            self.counters.entries += 1;
            self.books.keep(self.counters.entries, entry);
        }
    }

    /// A claim is refused by nobody. Its keys are the task's own, so what is there under one of them is of a task with
    /// the same name that is gone.
    pub(super) fn write_books_of_claim(&mut self, mut change: BookChange) {
        change.strike.extend(change.keep.iter().map(|entry| (entry.book, entry.key.clone())));
        self.write_books(&change);
    }
}

/// What is there under these keys; nothing when there are none.
pub(super) fn questions<'a>(entries: impl Iterator<Item = &'a Entry>) -> Option<String> {
    let mut keys = entries.map(|entry| (entry.book, entry.key.as_str())).peekable();
    keys.peek()?;
    Some(format!("SELECT book, name, expires_at FROM milepost_books WHERE {}", named(keys)))
}

fn named<'a>(keys: impl Iterator<Item = (Book, &'a str)>) -> String {
    let mut books: BTreeMap<Book, Vec<&str>> = BTreeMap::new();
    for (book, key) in keys {
        books.entry(book).or_default().push(key);
    }
    let named: Vec<String> = books
        .into_iter()
        .map(|(book, keys)| format!("(book = {} AND name IN ({}))", book.code(), texts(keys)))
        .collect();
    named.join(" OR ")
}

impl Shared {
    pub(super) async fn entries(&self, query: &EntryQuery) -> Result<Page<Entry>, StoreError> {
        let sql = format!(
            "SELECT {ENTRY} FROM milepost_books WHERE book = {} AND no > {} AND (expires_at IS NULL OR expires_at > {}) \
             ORDER BY no LIMIT {}",
            query.book.code(),
            query.after.unwrap_or(0),
            query.now.as_millis(),
            one_more(query.limit)
        );
        let rows = self.server.ask("read a book", &sql).await?.concat();
        let rows = rows.into_iter().map(entry).collect::<Sql<_>>().map_err(unavailable("read a book"))?;
        Ok(page(rows, query.limit))
    }

    pub(super) async fn entry(&self, book: Book, key: &str, now: Timestamp) -> Result<Option<Entry>, StoreError> {
        let sql = format!(
            "SELECT {ENTRY} FROM milepost_books WHERE book = {} AND name = {} AND (expires_at IS NULL OR expires_at > {})",
            book.code(),
            text(key),
            now.as_millis()
        );
        let row = first(self.server.ask("read a book", &sql).await?).map(entry).transpose();
        Ok(row.map_err(unavailable("read a book"))?.map(|(_, entry)| entry))
    }
}

fn entry(row: Row) -> Sql<(i64, Entry)> {
    let mut columns = Columns::from(row);
    let (no, book, key) = (columns.next()?, book(&mut columns)?, columns.next()?);
    let (at, until) = (columns.time()?, columns.maybe_time()?);
    Ok((no, Entry { book, key, at, until, body: columns.next()? }))
}

fn book(columns: &mut Columns) -> Sql<Book> {
    let code: i64 = columns.next()?;
    let known = Book::ALL.into_iter().find(|book| book.code() == code);
    known.ok_or_else(|| Error::Other(format!("there is no book {code}").into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_has_nothing_for_the_books_neither_asks_nor_writes() {
        assert_eq!(questions(std::iter::empty()), None);
        assert!(Books::default().statements().is_empty());
    }
}
