//! The move of the books: the oldest entries first, so that a copy that was cut off is the beginning of its original.

use std::collections::VecDeque;

use milepost_core::time::Timestamp;
use milepost_store::{Book, BookChange, Entry, EntryQuery, Store, StoreError};

use super::moving::Trouble;

/// Whose turn it is among nodes means nothing where none of them is.
const MOVED: [Book; 3] = [Book::Messages, Book::Outbox, Book::DeadLetters];
/// Entries read, and written, at a time.
const SOME: usize = 500;

pub(super) struct MovingBooks<'a> {
    pub(super) from: &'a dyn Store,
    pub(super) to: &'a dyn Store,
    /// What is over by then need not come along.
    pub(super) now: Timestamp,
}

impl<'a> MovingBooks<'a> {
    /// Whether what the target has is the beginning of what the source has.
    pub(super) async fn check(&self) -> Result<(), Trouble> {
        for book in MOVED {
            self.still_to_move(book).await?;
        }
        Ok(())
    }

    /// Moves the rest, reads all of it back, and says how many entries there are.
    pub(super) async fn run(&self) -> Result<u64, Trouble> {
        let mut count = 0;
        for book in MOVED {
            let mut rest = self.still_to_move(book).await?;
            loop {
                let keep = rest.some().await.map_err(Trouble::From)?;
                if keep.is_empty() {
                    break;
                }
                let change = BookChange { keep, strike: Vec::new() };
                self.to.change_books(change).await.map_err(Trouble::To)?;
            }
            count += self.compare(book).await?;
        }
        Ok(count)
    }

    async fn still_to_move(&self, book: Book) -> Result<Pages<'a>, Trouble> {
        let (mut here, mut there) = (self.pages(self.from, book), self.pages(self.to, book));
        while let Some(copy) = there.next().await.map_err(Trouble::To)? {
            if here.next().await.map_err(Trouble::From)?.as_ref() != Some(&copy) {
                let what = format!("`{}` in its book of {} is its own, or out of place", copy.key, book.as_str());
                return Err(Trouble::NotEmpty(what));
            }
        }
        Ok(here)
    }

    async fn compare(&self, book: Book) -> Result<u64, Trouble> {
        let (mut here, mut there, mut count) = (self.pages(self.from, book), self.pages(self.to, book), 0);
        loop {
            let original = here.next().await.map_err(Trouble::From)?;
            if there.next().await.map_err(Trouble::To)? != original {
                return Err(Trouble::Differs(format!("its book of {}", book.as_str())));
            }
            if original.is_none() {
                return Ok(count);
            }
            count += 1;
        }
    }

    fn pages(&self, store: &'a dyn Store, book: Book) -> Pages<'a> {
        let query = EntryQuery { book, after: None, limit: SOME, now: self.now };
        Pages { store, query: Some(query), read: VecDeque::new() }
    }
}

/// A book from its beginning to its end.
struct Pages<'a> {
    store: &'a dyn Store,
    /// For the next page, if there is one.
    query: Option<EntryQuery>,
    read: VecDeque<Entry>,
}

impl Pages<'_> {
    async fn next(&mut self) -> Result<Option<Entry>, StoreError> {
        self.turn().await?;
        Ok(self.read.pop_front())
    }

    /// The next few; none at the end.
    async fn some(&mut self) -> Result<Vec<Entry>, StoreError> {
        self.turn().await?;
        Ok(self.read.drain(..).collect())
    }

    /// To the next page, when all of this one is read.
    async fn turn(&mut self) -> Result<(), StoreError> {
        while self.read.is_empty()
            && let Some(query) = self.query.take()
        {
            let page = self.store.entries(query.clone()).await?;
            self.query = page.next.map(|next| EntryQuery { after: Some(next), ..query });
            self.read = page.items.into();
        }
        Ok(())
    }
}
