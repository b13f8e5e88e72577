//! Messages that are of no use, and what is behind them.

use milepost_core::task::TaskStatus;
use milepost_store::Book;
use serde_json::json;

use crate::support::kinds::Journal;
use crate::support::{Node, Topics, memory, message, until, working};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_of_no_use_is_a_dead_letter_once_and_blocks_nothing() {
    let Some(mut topics) = Topics::new("poison") else { return };
    topics.settings.max_message_bytes = 10_000;
    let (journal, store) = (Journal::default(), memory());
    let node = Node::start(topics.settings.clone(), store.clone(), working(&journal));
    node.plan("uploads", &["t-1"]).await;
    let mut unknown_chain = message("m-2", "t-2");
    unknown_chain["chain"] = json!("triple");
    let mut oversized = message("m-3", "t-3");
    oversized["input"] = json!("x".repeat(10_000));
    topics.send_bytes("k", b"not JSON").await;
    topics.send_bytes("k", &[0xff, 0xfe, 0x00]).await;
    topics.send_bytes("k", b"").await;
    topics.send(&json!({ "messageId": "", "taskId": "t-4" })).await;
    topics.send(&json!({ "messageId": "m-5", "taskId": "no task's id" })).await;
    topics.send(&unknown_chain).await;
    topics.send(&oversized).await;
    topics.send(&message("m-1", "t-1")).await;
    node.ends("t-1", TaskStatus::Completed).await;
    topics.is_committed(8).await;
    let letters = topics.holds(&topics.settings.dead_letter_topic, 7).await;
    let status = node.consumer();
    assert_eq!((status.consumed_count, status.failed_count), (8, 7));
    let kept: Vec<String> = node.entries(Book::DeadLetters).await.into_iter().map(|entry| entry.key).collect();
    let mut expected: Vec<String> = (0..7).map(|offset| format!("{}:0:{offset}", topics.settings.topic)).collect();
    let mut sorted = kept.clone();
    sorted.sort();
    assert_eq!(sorted, expected);
    let reason = |offset: &str| {
        let letter = letters.iter().find(|letter| letter.header("kafka_dlt-original-offset") == offset);
        letter.expect("a letter for every message of no use").header("kafka_dlt-exception-message").to_owned()
    };
    assert_eq!(reason("5"), "there is no chain `triple` here");
    assert!(reason("6").ends_with("bytes, and 10000 are allowed"), "{}", reason("6"));
    node.close().await;
    // Read from the beginning by another group, it is the same ones.
    let node = Node::start(topics.settings_of_another_group(), store, working(&journal));
    until("all of it is read again", async || node.consumer().consumed_count == 8).await;
    assert_eq!(node.consumer().failed_count, 0);
    expected.sort();
    assert_eq!(node.entries(Book::DeadLetters).await.len(), expected.len());
    node.close().await;
    assert_eq!(topics.read(&topics.settings.dead_letter_topic).len(), 7);
}
