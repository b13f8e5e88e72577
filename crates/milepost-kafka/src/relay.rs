//! Publishes what the store has to say, in its order, and strikes it out when the brokers have it.
//!
//! What is published but not struck out yet is published again by whoever comes next: readers know it by its header.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::join_all;
use milepost_engine::Engine;
use milepost_store::{Addressee, Book, BookChange, Entry, EntryQuery, Parcel, StoreError, WrittenAs};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::FutureRecord;
use serde_json::Value;

use crate::clients::{self, Writer};
use crate::settings::Settings;
use crate::shared::Shared;
use crate::turn::Turns;

/// Tells one entry of the outbox from every other.
const ENTRY_HEADER: &str = "milepost-entry";
const BATCH: usize = 500;
/// While there is something to say, and when there is not.
const SOON: Duration = Duration::from_millis(50);
const LATER: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The library's own queue may be full for a moment.
const QUEUE_WITHIN: Duration = Duration::from_secs(1);

pub(crate) struct Relay {
    pub(crate) engine: Engine,
    pub(crate) shared: Arc<Shared>,
    pub(crate) writer: Writer,
    turns: Turns,
    /// Published, and not yet struck out: the store was away in between.
    published: HashSet<String>,
    /// A newer version may know what they are.
    unreadable: HashSet<String>,
}

/// What came of a look at the outbox.
enum Look {
    Nothing,
    Published,
    /// It is another node's turn.
    NotOurs,
    /// Some of it could not be published.
    Failed,
}

/// An entry of the outbox, read.
struct Outgoing {
    entry: String,
    parcel: Parcel,
}

impl Relay {
    pub(crate) fn new(engine: Engine, shared: Arc<Shared>, writer: Writer) -> Self {
        let turns = Turns::new(engine.clone());
        Self { engine, shared, writer, turns, published: HashSet::new(), unreadable: HashSet::new() }
    }

    pub(crate) async fn run(mut self) {
        let closed = self.shared.closed.clone();
        closed.run_until_cancelled(self.relay()).await;
        // It waits for what is under way, which without brokers nobody should have to.
        let writer = self.writer;
        std::thread::spawn(move || drop(writer));
    }

    async fn relay(&mut self) {
        self.shared.ready().await;
        let mut failed = LATER;
        loop {
            let pause = match self.look().await {
                Ok(Look::Published) => SOON,
                Ok(Look::Nothing | Look::NotOurs) => LATER,
                Ok(Look::Failed) => {
                    self.turns.give_up();
                    self.renew_writer();
                    failed = (failed * 2).min(LONGEST_PAUSE);
                    failed
                }
                Err(error) => {
                    tracing::debug!(%error, "the outbox could not be read");
                    LATER
                }
            };
            if pause < LATER {
                failed = LATER;
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Goes through the whole outbox once, page by page.
    async fn look(&mut self) -> Result<Look, StoreError> {
        let mut look = Look::Nothing;
        let mut after = None;
        loop {
            let now = self.engine.clock().now();
            let query = EntryQuery { book: Book::Outbox, after, limit: BATCH, now };
            let page = self.engine.store().entries(query).await?;
            let entries = self.readable(page.items);
            if entries.is_empty() {
                return Ok(look);
            }
            if !self.turns.have().await? {
                return Ok(Look::NotOurs);
            }
            if !self.publish(entries).await? {
                return Ok(Look::Failed);
            }
            look = Look::Published;
            after = page.next;
            if after.is_none() {
                return Ok(look);
            }
        }
    }

    fn readable(&mut self, entries: Vec<Entry>) -> Vec<Outgoing> {
        let mut readable = Vec::with_capacity(entries.len());
        for entry in entries {
            match serde_json::from_str::<Parcel>(&entry.body) {
                Ok(parcel) => readable.push(Outgoing { entry: entry.key, parcel }),
                Err(error) => {
                    if self.unreadable.insert(entry.key.clone()) {
                        tracing::error!(%error, entry = entry.key, "an entry of the outbox cannot be read");
                    }
                }
            }
        }
        readable
    }

    /// False when some of them could not be published; then those after them have to wait.
    async fn publish(&mut self, entries: Vec<Outgoing>) -> Result<bool, StoreError> {
        let mut left = entries;
        while !left.is_empty() {
            // At most one of a key at a time: one that fails must not be overtaken by the next.
            let (wave, later) = wave(left, &self.shared.settings);
            left = later;
            let sent = wave.into_iter().map(async |outgoing| {
                let known = self.published.contains(&outgoing.entry);
                let sent = if known { Ok(()) } else { send(&self.shared, &self.writer, &outgoing).await };
                (outgoing.entry, sent)
            });
            let (mut strike, mut failure) = (Vec::new(), None);
            for (key, sent) in join_all(sent).await {
                match sent {
                    Ok(()) => strike.push(key),
                    Err(error) => failure = Some(error),
                }
            }
            self.strike(strike).await?;
            if let Some(error) = failure {
                self.shared.reach.troubled("outcomes could not be published, and wait in the store", &error);
                return Ok(false);
            }
            self.shared.reach.well();
        }
        Ok(true)
    }

    async fn strike(&mut self, keys: Vec<String>) -> Result<(), StoreError> {
        if keys.is_empty() {
            return Ok(());
        }
        let strike = keys.iter().map(|key| (Book::Outbox, key.clone())).collect();
        self.published.extend(keys.iter().cloned());
        self.engine.store().change_books(BookChange { keep: Vec::new(), strike }).await?;
        keys.iter().for_each(|key| _ = self.published.remove(key));
        Ok(())
    }

    /// One that has met an error that it cannot recover from stays useless.
    fn renew_writer(&mut self) {
        use rdkafka::producer::Producer;
        if self.writer.client().fatal_error().is_none() {
            return;
        }
        match clients::writer(&self.shared, self.engine.node()) {
            Ok(writer) => {
                let broken = std::mem::replace(&mut self.writer, writer);
                std::thread::spawn(move || drop(broken));
            }
            Err(error) => tracing::error!(%error, "the outbox is not published any more"),
        }
    }
}

/// The first entry of every key of a topic, and the rest, both in order.
fn wave(entries: Vec<Outgoing>, settings: &Settings) -> (Vec<Outgoing>, Vec<Outgoing>) {
    let mut seen = HashSet::new();
    entries.into_iter().partition(|Outgoing { parcel, .. }| {
        let address = (settings.topic_of(&parcel.to).to_owned(), parcel.key.clone());
        // Without a key there is no order to keep.
        parcel.key.is_empty() || seen.insert(address)
    })
}

async fn send(shared: &Shared, writer: &Writer, outgoing: &Outgoing) -> Result<(), KafkaError> {
    match send_bytes(shared, writer, outgoing, &bytes(&outgoing.parcel)).await {
        Err(error) if error.rdkafka_error_code() == Some(RDKafkaErrorCode::MessageSizeTooLarge) => {
            tracing::warn!(outgoing.entry, "an entry of the outbox is too large for its topic, and is shortened");
            send_bytes(shared, writer, outgoing, &shortened(&outgoing.parcel)).await
        }
        sent => sent,
    }
}

async fn send_bytes(shared: &Shared, writer: &Writer, outgoing: &Outgoing, bytes: &[u8]) -> Result<(), KafkaError> {
    let Outgoing { entry, parcel } = outgoing;
    let own = OwnedHeaders::new().insert(Header { key: ENTRY_HEADER, value: Some(entry) });
    let headers = parcel.headers.iter().fold(own, |all, (key, value)| all.insert(Header { key, value: Some(value) }));
    let record = FutureRecord::to(shared.settings.topic_of(&parcel.to)).payload(bytes).headers(headers);
    let record = if parcel.key.is_empty() { record } else { record.key(&parcel.key) };
    writer.send(record, QUEUE_WITHIN).await.map(|_| ()).map_err(|(error, _)| error)
}

/// What goes back to where it came from goes as it was.
fn bytes(parcel: &Parcel) -> Vec<u8> {
    match (&parcel.to, &parcel.body) {
        (Addressee::Topic { written_as: WrittenAs::Text, .. }, Value::String(text)) => text.clone().into_bytes(),
        (Addressee::Topic { written_as: WrittenAs::Base64, .. }, Value::String(text)) => {
            STANDARD.decode(text).unwrap_or_else(|_| text.clone().into_bytes())
        }
        (_, body) => body.to_string().into_bytes(),
    }
}

/// Without what may be large; the store has all of it.
fn shortened(parcel: &Parcel) -> Vec<u8> {
    let mut body = parcel.body.clone();
    if let Value::Object(fields) = &mut body {
        fields.shift_remove("originalMessage");
        fields.shift_remove("outputs");
        fields.insert("shortened".to_owned(), Value::Bool(true));
    }
    body.to_string().into_bytes()
}
