//! A store, brokers, and the nodes between them.

use std::sync::Arc;

use milepost_core::time::Timestamp;
use milepost_engine::{Clock, Options, Registry};
use milepost_store::memory::MemoryStore;
use milepost_store::{Addressee, Book, BookChange, Entry, Parcel, Store};
use serde_json::{Value, json};

use crate::brokers::{Brokers, Line};
use crate::support::kinds::Journal;
use crate::support::{Node, joined, working};

const DAWN: Timestamp = Timestamp::from_millis(1_700_000_000_000);

pub(crate) struct World {
    pub(crate) brokers: Arc<Brokers>,
    pub(crate) store: MemoryStore,
    pub(crate) journal: Journal,
    clock: Clock,
}

impl World {
    pub(crate) fn new(partitions: usize) -> Self {
        let (brokers, store) = (Brokers::new(partitions), MemoryStore::beginning_at(DAWN));
        Self { brokers, store, journal: Journal::default(), clock: Clock::manual(DAWN) }
    }

    pub(crate) fn node(&self, name: &str) -> Node {
        self.node_over(name, joined(&self.store, name), working(&self.journal))
    }

    pub(crate) fn node_over(&self, name: &str, store: Arc<dyn Store>, registry: Registry) -> Node {
        let options = Options { clock: self.clock.clone(), boot_id: boot_id(name), ..Options::new(name) };
        let line = Arc::new(Line(self.brokers.clone()));
        Node::start_on(line, options, self.brokers.settings.clone(), store, registry)
    }

    /// As if a node had taken the first turn to publish, and the answer had been lost.
    pub(crate) async fn turn_taken_by(&self, name: &str) {
        let (key, at) = (format!("relay-{}", DAWN.as_millis() / 10_000), DAWN);
        let body = json!({ "node": name, "boot": &*boot_id(name) }).to_string();
        let entry = Entry { book: Book::Turns, key, at, until: None, body };
        self.store.change_books(BookChange { keep: vec![entry], strike: Vec::new() }).await.unwrap();
    }

    /// Milliseconds since the beginning.
    pub(crate) fn passed(&self) -> i64 {
        self.clock.now().as_millis() - DAWN.as_millis()
    }

    /// Something to publish, as if a task had left it.
    pub(crate) async fn outbox(&self, name: &str, to: Addressee, key: &str, body: Value) {
        let parcel = Parcel { to, key: key.to_owned(), headers: Vec::new(), body };
        let body = serde_json::to_string(&parcel).unwrap();
        let entry = Entry { book: Book::Outbox, key: name.to_owned(), at: DAWN, until: None, body };
        self.store.change_books(BookChange { keep: vec![entry], strike: Vec::new() }).await.unwrap();
    }

    pub(crate) async fn completed(&self, name: &str, key: &str) {
        self.outbox(name, Addressee::Completed, key, json!({ "taskId": key })).await;
    }

    pub(crate) async fn letter(&self, name: &str, key: &str) {
        self.outbox(name, Addressee::DeadLetters, key, json!({ "taskId": key })).await;
    }

    /// The entries that are in a topic, in its order.
    pub(crate) fn published(&self, topic: &str) -> Vec<String> {
        let records = self.brokers.published(topic);
        let entry = |headers: &[(String, String)]| headers.iter().find(|(name, _)| name == "milepost-entry").cloned();
        records.iter().map(|record| entry(&record.headers).expect("every record names its entry").1).collect()
    }
}

fn boot_id(name: &str) -> Arc<str> {
    format!("boot-of-{name}").into()
}
