//! The books: of each one a hash of its entries by key, a sorted set of the keys in their order, and one of those that end
//! by when they do. An entry is its number, its time, its end, if it has one, and its body.

use milepost_core::time::Timestamp;
use redis::{Cmd, Value};

use crate::books::{Book, BookChange, Entry, EntryQuery};
use crate::codec::damaged;
use crate::error::StoreError;
use crate::model::Page;

use super::answer::Answer;
use super::codec::time;
use super::link::unavailable;
use super::script::CHANGE_BOOKS;
use super::shared::Shared;

/// Entries read at once: nobody else is served meanwhile.
const MOST: usize = 500;

/// A change of the books in the form that scripts read: `books.lua`.
#[derive(Debug, Default)]
pub(super) struct Lines(Vec<String>);

impl Lines {
    pub(super) fn of(change: &BookChange) -> Self {
        let mut lines = Vec::new();
        for (book, key) in &change.strike {
            lines.extend(["-", book.as_str(), key].map(str::to_owned));
        }
        for Entry { book, key, at, until, body } in &change.keep {
            lines.extend(["+", book.as_str(), key].map(str::to_owned));
            lines.extend([at.as_millis().to_string(), time(*until), body.clone()]);
        }
        Self(lines)
    }

    pub(super) fn write(&self, call: &mut Cmd) {
        call.arg(self.0.len());
        for line in &self.0 {
            call.arg(line);
        }
    }
}

/// Which entry was there already.
pub(super) fn kept(answer: &Answer) -> Result<StoreError, StoreError> {
    let name = answer.text(1)?;
    let book = Book::ALL.into_iter().find(|book| book.as_str() == name);
    let book = book.ok_or_else(|| damaged("an answer of redis", format!("there is no book of {name}")))?;
    Ok(StoreError::Kept { book, key: answer.text(2)?.to_owned() })
}

pub(super) async fn change_books(shared: &Shared, change: &BookChange) -> Result<(), StoreError> {
    let mut call = shared.call(&CHANGE_BOOKS);
    Lines::of(change).write(&mut call);
    shared.stats.count(1, 0);
    let answer = shared.answer(&CHANGE_BOOKS, &call, "write to the books").await?;
    match answer.text(0)? {
        "ok" => Ok(()),
        "kept" => Err(kept(&answer)?),
        _ => Err(Shared::lost("write to the books")),
    }
}

pub(super) async fn entries(shared: &Shared, query: &EntryQuery) -> Result<Page<Entry>, StoreError> {
    let mut after = query.after.unwrap_or(0);
    let mut found: Vec<(i64, Entry)> = Vec::new();
    loop {
        // One more than asked for, so that the last page says that it is the last.
        let some = (query.limit + 1 - found.len()).min(MOST);
        let arguments = [query.book.as_str(), &after.to_string(), &some.to_string()];
        let rows = shared.question("entries", &arguments, "read the books").await?.lists()?;
        let last = rows.len() < some;
        for row in rows {
            after = row.number(0)?;
            let entry = decode(query.book, row.text(1)?, row.text(2)?)?;
            if !entry.is_over(query.now) {
                found.push((after, entry));
            }
        }
        if last || found.len() > query.limit {
            break;
        }
    }
    let next = (found.len() > query.limit && query.limit > 0).then(|| found[query.limit - 1].0);
    found.truncate(query.limit);
    Ok(Page { items: found.into_iter().map(|(_, entry)| entry).collect(), next })
}

pub(super) async fn entry(shared: &Shared, book: Book, key: &str, now: Timestamp) -> Result<Option<Entry>, StoreError> {
    let mut call = redis::cmd("HGET");
    call.arg(shared.prelude.key(&format!("book:{}", book.as_str()))).arg(key);
    let found = shared.link.ask(&call).await.map_err(unavailable("read the books"))?;
    if found == Value::Nil {
        return Ok(None);
    }
    let text: String = redis::from_redis_value(found).map_err(|error| damaged(name(book, key), error))?;
    Ok(Some(decode(book, key, &text)?).filter(|entry| !entry.is_over(now)))
}

fn decode(book: Book, key: &str, text: &str) -> Result<Entry, StoreError> {
    let broken = || damaged(name(book, key), "it does not begin with its number and its times");
    let mut parts = text.splitn(4, ' ').skip(1);
    let (Some(at), Some(until), Some(body)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(broken());
    };
    let moment = |text: &str| text.parse().map(Timestamp::from_millis).map_err(|_| broken());
    let until = if until.is_empty() { None } else { Some(moment(until)?) };
    Ok(Entry { book, key: key.to_owned(), at: moment(at)?, until, body: body.to_owned() })
}

fn name(book: Book, key: &str) -> String {
    format!("`{key}` in the book of {}", book.as_str())
}
