//! Whose turn it is to publish: one node's at a time, by entries in a book of the store, which has one outbox.

use milepost_core::time::{Millis, Timestamp};
use milepost_engine::Engine;
use milepost_store::{Book, BookChange, Entry, StoreError};
use serde_json::json;

use crate::cluster::PUBLISH_WITHIN;

const WINDOW_MS: i64 = 10_000;
/// A batch is begun only when it is sure to end within the turn.
const MARGIN: Millis = Millis::new(PUBLISH_WITHIN.get() + 500);
/// Entries of old turns go by themselves.
const FORGOTTEN_AFTER: Millis = Millis::from_secs(60);

#[derive(Debug)]
pub(crate) struct Turns {
    engine: Engine,
    until: Option<Timestamp>,
}

impl Turns {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine, until: None }
    }

    /// Whether there is time for one more batch. A turn that ends soon is prolonged before anybody else can have it, unless
    /// the brokers are out of reach from here: another node may be luckier.
    pub(crate) async fn have(&mut self, in_reach: bool) -> Result<bool, StoreError> {
        let now = self.engine.clock().now();
        match self.until {
            Some(until) if now + MARGIN < until => Ok(true),
            Some(until) if now < until => Ok(in_reach && self.take(until).await?),
            Some(_) | None => {
                let begun = Timestamp::from_millis(now.as_millis() / WINDOW_MS * WINDOW_MS);
                Ok(self.take(begun).await? && now + MARGIN < begun + Millis::new(WINDOW_MS.unsigned_abs()))
            }
        }
    }

    /// Takes the window that begins then, unless somebody else has it. That this very process has it, and never heard so
    /// because the answer was lost, is as good as taking it.
    async fn take(&mut self, begin: Timestamp) -> Result<bool, StoreError> {
        let end = begin + Millis::new(WINDOW_MS.unsigned_abs());
        let entry = Entry {
            book: Book::Turns,
            key: format!("relay-{}", begin.as_millis() / WINDOW_MS),
            at: self.engine.clock().now(),
            until: Some(end + FORGOTTEN_AFTER),
            body: json!({ "node": self.engine.node(), "boot": self.engine.boot_id() }).to_string(),
        };
        let store = self.engine.store();
        let is_ours = match store.change_books(BookChange { keep: vec![entry.clone()], strike: Vec::new() }).await {
            Ok(()) => true,
            Err(StoreError::Kept { .. }) => {
                let kept = store.entry(Book::Turns, &entry.key, entry.at).await?;
                kept.is_some_and(|kept| kept.body == entry.body)
            }
            Err(error) => return Err(error),
        };
        if is_ours {
            self.until = Some(end);
        }
        Ok(is_ours)
    }
}
