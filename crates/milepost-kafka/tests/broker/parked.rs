//! Messages that come before their tasks.

use milepost_core::task::TaskStatus;
use milepost_core::time::Millis;
use milepost_store::Book;
use serde_json::json;

use crate::support::kinds::Journal;
use crate::support::{Node, Topics, memory, message, working};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_waits_for_its_task_and_keeps_none_behind_it() {
    let Some(topics) = Topics::new("parked") else { return };
    let journal = Journal::default();
    let node = Node::start(topics.settings.clone(), memory(), working(&journal));
    node.plan("early", &["t-2"]).await;
    topics.send(&message("m-1", "t-1")).await;
    topics.send(&message("m-2", "t-2")).await;
    node.ends("t-2", TaskStatus::Completed).await;
    // It is in memory alone, so whoever reads next must see it again.
    assert_eq!(topics.committed(), 0);
    node.plan("late", &["t-1"]).await;
    node.ends("t-1", TaskStatus::Completed).await;
    topics.is_committed(2).await;
    assert_eq!(node.consumer().failed_count, 0);
    node.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_task_never_comes_is_a_dead_letter() {
    let Some(mut topics) = Topics::new("never") else { return };
    topics.settings.patience = Millis::from_secs(2);
    let journal = Journal::default();
    let node = Node::start(topics.settings.clone(), memory(), working(&journal));
    topics.send(&message("m-1", "t-1")).await;
    let letters = topics.holds(&topics.settings.dead_letter_topic, 1).await;
    let letter = letters[0].json();
    assert_eq!((&letter["taskId"], &letter["originalMessageId"]), (&json!("t-1"), &json!("m-1")));
    assert_eq!(letter["failureReason"], json!("there is no task `t-1`"));
    topics.is_committed(1).await;
    assert_eq!(node.entries(Book::Messages).await.len(), 1);
    assert_eq!(node.consumer().failed_count, 1);
    node.close().await;
}
