//! What the store has to say, published.

use std::collections::HashMap;

use milepost_core::task::{By, TaskStatus};
use milepost_core::time::Timestamp;
use milepost_store::memory::MemoryStore;
use milepost_store::{Addressee, Book, BookChange, Entry, Parcel, Store, WrittenAs};
use serde_json::json;

use crate::support::kinds::Journal;
use crate::support::{Node, Topics, joined, message, until, working};

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

#[tokio::test(flavor = "multi_thread")]
async fn what_no_topic_takes_is_a_dead_letter_and_what_was_sent_with_it_is_published_whole() {
    let Some(topics) = Topics::new("refused") else { return };
    let completed = &topics.settings.completed_topic;
    topics.make(completed, &[("max.message.bytes", "4000")]).await;
    let (journal, store) = (Journal::default(), MemoryStore::new());
    let parcel = |to: Addressee, name: &str, body: serde_json::Value| {
        let parcel = Parcel { to, key: name.to_owned(), headers: Vec::new(), body };
        let (at, body) = (Timestamp::from_millis(1), serde_json::to_string(&parcel).unwrap());
        Entry { book: Book::Outbox, key: name.to_owned(), at, until: None, body }
    };
    let nowhere = Addressee::Topic { name: format!("{completed}-nowhere"), written_as: WrittenAs::Text };
    let mut keep = vec![
        parcel(Addressee::Completed, "large", json!({ "taskId": "large", "file": "x".repeat(9000) })),
        parcel(nowhere, "lost", json!("as it came")),
    ];
    // More than the topic takes in one batch.
    keep.extend(
        (0..20).map(|n| parcel(Addressee::Completed, &format!("e-{n}"), json!({ "outputs": "x".repeat(900) }))),
    );
    store.change_books(BookChange { keep, strike: Vec::new() }).await.unwrap();
    let node = Node::start(topics.settings.clone(), joined(&store, "node-1"), working(&journal));
    until("the outbox is empty", async || node.entries(Book::Outbox).await.is_empty()).await;
    let read = topics.read(completed);
    assert_eq!(read.len(), 20);
    assert!(read.iter().all(|read| read.json()["shortened"].is_null()), "a small record was shortened");
    let mut letters: Vec<String> = node.entries(Book::DeadLetters).await.into_iter().map(|entry| entry.key).collect();
    letters.sort();
    assert_eq!(letters, ["outbox:large", "outbox:lost"]);
    topics.set(completed, &[("max.message.bytes", "100000")]).await;
    node.engine.redrive("outbox:large", By::new("ann")).await.unwrap();
    until("the outbox is empty", async || node.entries(Book::Outbox).await.is_empty()).await;
    topics.holds(completed, 21).await;
    node.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_wait_while_only_their_topic_fails_and_all_else_goes_on() {
    let Some(topics) = Topics::new("dead-letter topic") else { return };
    let dead = &topics.settings.dead_letter_topic;
    let (journal, store) = (Journal::default(), MemoryStore::new());
    let node = Node::start(topics.settings.clone(), joined(&store, "node-1"), working(&journal));
    node.plan("uploads", &["t-1", "t-2"]).await;
    until("the node has its partition", async || node.consumer().partitions == 1).await;
    topics.delete(dead).await;
    topics.send_bytes("k", b"garbage").await;
    topics.send(&message("m-1", "t-1")).await;
    until("it is known", async || node.consumer().failing_topics == [dead.clone()]).await;
    // Reading goes on behind it, and outcomes are told.
    topics.send_bytes("k", b"more garbage").await;
    topics.send(&message("m-2", "t-2")).await;
    node.ends("t-2", TaskStatus::Completed).await;
    topics.holds(&topics.settings.completed_topic, 2).await;
    topics.is_committed(4).await;
    assert!(node.consumer().connected);
    until("only the letters wait", async || node.entries(Book::Outbox).await.len() == 2).await;
    assert_eq!(node.entries(Book::DeadLetters).await.len(), 2);
    topics.make(dead, &[]).await;
    let letters = topics.holds(dead, 2).await;
    let offsets: Vec<&str> = letters.iter().map(|letter| letter.header("kafka_dlt-original-offset")).collect();
    assert_eq!(offsets, ["0", "2"]);
    until("nothing fails any more", async || node.consumer().failing_topics.is_empty()).await;
    node.close().await;
}
