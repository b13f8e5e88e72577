//! What the store has to say, published.

use std::collections::HashMap;

use milepost_core::time::Timestamp;
use milepost_store::memory::MemoryStore;
use milepost_store::{Addressee, Book, BookChange, Entry, Parcel, Store};
use serde_json::json;

use crate::support::kinds::Journal;
use crate::support::{Node, Topics, joined, until, working};

const KEYS: usize = 7;

fn entry(number: usize) -> Entry {
    let key = format!("t-{}", number % KEYS);
    let parcel = Parcel { to: Addressee::Completed, key, headers: Vec::new(), body: json!({ "number": number }) };
    let (at, body) = (Timestamp::from_millis(1), serde_json::to_string(&parcel).unwrap());
    Entry { book: Book::Outbox, key: format!("e-{number}"), at, until: None, body }
}

async fn write(store: &dyn Store, numbers: std::ops::Range<usize>) {
    let keep = numbers.map(entry).collect();
    store.change_books(BookChange { keep, strike: Vec::new() }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_publish_every_entry_once_and_in_the_order_of_its_key() {
    let Some(mut topics) = Topics::new("order") else { return };
    topics.settings.partitions = 3;
    let (journal, store) = (Journal::default(), MemoryStore::new());
    write(&store, 0..1200).await;
    let node =
        |name: &str| Node::start_as(name, topics.settings.clone(), joined(&store, name), working(&journal), |_| {});
    let nodes = [node("node-1"), node("node-2")];
    for from in (1200..1500).step_by(50) {
        write(&store, from..from + 50).await;
        tokio::task::yield_now().await;
    }
    until("the outbox is empty", async || nodes[0].entries(Book::Outbox).await.is_empty()).await;
    let all = topics.read(&topics.settings.completed_topic);
    assert_eq!(all.len(), 1500);
    let mut last: HashMap<String, u64> = HashMap::new();
    for read in &all {
        let number = read.json()["number"].as_u64().unwrap();
        assert_eq!(read.header("milepost-entry"), format!("e-{number}"));
        let before = last.insert(read.key.clone(), number);
        assert!(before < Some(number), "{number} came after {before:?}");
    }
    assert_eq!(last.len(), KEYS);
    let [first, second] = nodes;
    first.close().await;
    second.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_for_its_topic_is_published_without_its_large_parts() {
    let Some(topics) = Topics::new("large") else { return };
    let (journal, store) = (Journal::default(), MemoryStore::new());
    let body = json!({ "taskId": "t-1", "originalMessage": "x".repeat(2_000_000) });
    let parcel = Parcel { to: Addressee::DeadLetters, key: "t-1".to_owned(), headers: Vec::new(), body };
    let (key, body) = ("e-1".to_owned(), serde_json::to_string(&parcel).unwrap());
    let large = Entry { book: Book::Outbox, key, at: Timestamp::from_millis(1), until: None, body };
    store.change_books(BookChange { keep: vec![large], strike: Vec::new() }).await.unwrap();
    let node = Node::start(topics.settings.clone(), joined(&store, "node-1"), working(&journal));
    let read = topics.holds(&topics.settings.dead_letter_topic, 1).await;
    assert_eq!(read[0].json(), json!({ "taskId": "t-1", "shortened": true }));
    node.close().await;
}
