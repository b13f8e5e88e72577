//! A store's own id: by it the work of one store is told from work of the same name in another.
//!
//! It is an entry of a book, so every backend keeps it alike. A move takes it along: work that goes on elsewhere must be
//! recognized there by those who were sent its idempotency keys before. Two stores then have one id, but only one of them
//! goes on with the work.

use std::sync::Arc;

use milepost_core::time::Timestamp;

use crate::books::{Book, BookChange, Entry};
use crate::codec::damaged;
use crate::error::StoreError;
use crate::store::Store;

const KEY: &str = "id";

/// The id of the store. One that has none yet gets `fresh`, unless somebody else is faster.
pub async fn store_id(store: &dyn Store, fresh: &str, now: Timestamp) -> Result<Arc<str>, StoreError> {
    loop {
        if let Some(entry) = store.entry(Book::Store, KEY, now).await? {
            let id: Result<String, _> = serde_json::from_str(&entry.body);
            return id.map(Into::into).map_err(|error| damaged("the store's id", error.to_string()));
        }
        let body = serde_json::to_string(fresh).expect("a string is JSON");
        let entry = Entry { book: Book::Store, key: KEY.to_owned(), at: now, until: None, body };
        match store.change_books(BookChange { keep: vec![entry], strike: Vec::new() }).await {
            Ok(()) | Err(StoreError::Kept { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

/// What gives another store the id of this one. None: nothing has ever run here, so there is none to give.
pub async fn store_id_to_move(store: &dyn Store, now: Timestamp) -> Result<Option<BookChange>, StoreError> {
    let entry = store.entry(Book::Store, KEY, now).await?;
    Ok(entry.map(|entry| BookChange { strike: vec![(Book::Store, KEY.to_owned())], keep: vec![entry] }))
}
