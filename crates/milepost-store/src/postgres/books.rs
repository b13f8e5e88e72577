//! Books: what is kept beside tasks. With a commit, a claim or a submission it travels in their own statement; a statement
//! that has nothing for the books is what it would be without them.

use std::collections::HashSet;

use milepost_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::books::{Book, BookChange, Entry, EntryQuery};
use crate::error::StoreError;
use crate::model::Page;

use super::codec::time;
use super::columns::{call, text};
use super::read::{one_more, page};
use super::store::Inner;

/// What is on its way to the books, each with the place of what it goes with.
#[derive(Debug, Default)]
pub(super) struct BookColumns {
    ords: Vec<i64>,
    books: Vec<i16>,
    keys: Vec<String>,
    ats: Vec<i64>,
    untils: Vec<Option<i64>>,
    bodies: Vec<String>,
    /// The same change strikes out what is there.
    replaces: Vec<bool>,
    strike_ords: Vec<i64>,
    strike_books: Vec<i16>,
    strike_keys: Vec<String>,
}

impl BookColumns {
    pub(super) fn extend(&mut self, ord: i64, change: BookChange) {
        for (book, key) in change.strike {
            self.strike_ords.push(ord);
            self.strike_books.push(code(book));
            self.strike_keys.push(text(key));
        }
        for entry in change.keep {
            let (book, key) = (code(entry.book), text(entry.key));
            let struck = self.strike_ords.iter().zip(&self.strike_books).zip(&self.strike_keys).rev();
            let mut own = struck.take_while(|((of, _), _)| **of == ord);
            self.replaces.push(own.any(|((_, struck), name)| *struck == book && *name == key));
            self.ords.push(ord);
            self.books.push(book);
            self.keys.push(key);
            self.ats.push(entry.at.as_millis());
            self.untils.push(entry.until.map(Timestamp::as_millis));
            self.bodies.push(text(entry.body));
        }
    }

    pub(super) fn of(change: BookChange) -> Self {
        let mut columns = Self::default();
        columns.extend(1, change);
        columns
    }

    fn is_empty(&self) -> bool {
        self.ords.is_empty() && self.strike_ords.is_empty()
    }

    /// The last of their function. There are none when there is nothing to write: it has a default for each.
    pub(super) fn parameters(&self) -> Vec<(&(dyn ToSql + Sync), Type)> {
        if self.is_empty() { Vec::new() } else { self.columns().into() }
    }

    fn columns(&self) -> [(&(dyn ToSql + Sync), Type); 10] {
        [
            (&self.ords, Type::INT8_ARRAY),
            (&self.books, Type::INT2_ARRAY),
            (&self.keys, Type::TEXT_ARRAY),
            (&self.ats, Type::INT8_ARRAY),
            (&self.untils, Type::INT8_ARRAY),
            (&self.bodies, Type::TEXT_ARRAY),
            (&self.replaces, Type::BOOL_ARRAY),
            (&self.strike_ords, Type::INT8_ARRAY),
            (&self.strike_books, Type::INT2_ARRAY),
            (&self.strike_keys, Type::TEXT_ARRAY),
        ]
    }

    /// The first entry with this place among those that the server says were there.
    pub(super) fn refusal(&self, ord: i64, row: &Row) -> Option<StoreError> {
        let there: Option<Vec<i64>> = row.get("there");
        let mut places = there?.into_iter().filter_map(|place| usize::try_from(place - 1).ok());
        let place = places.find(|place| self.ords.get(*place) == Some(&ord))?;
        let book = Book::ALL.into_iter().find(|book| code(*book) == self.books[place])?;
        Some(StoreError::Kept { book, key: self.keys[place].clone() })
    }
}

/// What a change names. Two that name the same cannot be written in one statement: the second depends on the first.
pub(super) fn names(change: &BookChange) -> impl Iterator<Item = (Book, String)> {
    let kept = change.keep.iter().map(|entry| (entry.book, &entry.key));
    let named = kept.chain(change.strike.iter().map(|(book, key)| (*book, key)));
    named.map(|(book, key)| (book, text(key.clone())))
}

/// Refused when it names a key twice by itself; each entry would find the one before it.
pub(super) fn check(keep: &[Entry]) -> Result<(), StoreError> {
    let mut seen = HashSet::new();
    match keep.iter().find(|entry| !seen.insert((entry.book, text(entry.key.clone())))) {
        None => Ok(()),
        Some(again) => Err(StoreError::Kept { book: again.book, key: again.key.clone() }),
    }
}

impl Inner {
    pub(super) async fn change_books(&self, change: BookChange) -> Result<(), StoreError> {
        check(&change.keep)?;
        let columns = BookColumns::of(change);
        if columns.is_empty() {
            return Ok(());
        }
        let parameters = columns.parameters();
        let rows = self.server.write("write to the books", &call("change_books", &parameters), &parameters).await?;
        self.stats.count(1, 0);
        columns.refusal(1, &rows[0]).map_or(Ok(()), Err)
    }

    pub(super) async fn entries(&self, query: &EntryQuery) -> Result<Page<Entry>, StoreError> {
        let sql = "SELECT no, key, at, until, body FROM @.entries WHERE book = $1 AND no > $2 \
                   AND (until IS NULL OR until > $3) ORDER BY no LIMIT $4";
        let (book, after, now) = (code(query.book), query.after.unwrap_or(0), query.now.as_millis());
        let limit = one_more(query.limit);
        let parameters: &super::connect::Parameters<'_> =
            &[(&book, Type::INT2), (&after, Type::INT8), (&now, Type::INT8), (&limit, Type::INT8)];
        let rows = self.server.read("read a book", sql, parameters).await?;
        let rows = rows.iter().map(|row| (row.get("no"), entry(query.book, row))).collect();
        Ok(page(rows, query.limit))
    }

    pub(super) async fn entry(&self, book: Book, key: String, now: Timestamp) -> Result<Option<Entry>, StoreError> {
        let sql = "SELECT key, at, until, body FROM @.entries WHERE book = $1 AND key = $2 \
                   AND (until IS NULL OR until > $3)";
        let (of, key, now) = (code(book), text(key), now.as_millis());
        let parameters: &super::connect::Parameters<'_> = &[(&of, Type::INT2), (&key, Type::TEXT), (&now, Type::INT8)];
        let rows = self.server.read("look into a book", sql, parameters).await?;
        Ok(rows.first().map(|row| entry(book, row)))
    }
}

fn entry(book: Book, row: &Row) -> Entry {
    Entry {
        book,
        key: row.get("key"),
        at: Timestamp::from_millis(row.get("at")),
        until: time(row, "until"),
        body: row.get("body"),
    }
}

fn code(book: Book) -> i16 {
    book.code() as i16
}
