//! Messages that set tasks off.

use milepost_core::task::TaskStatus;
use milepost_engine::Registry;
use milepost_store::Book;
use serde_json::json;

use crate::support::faulty::{Answers, Faulty};
use crate::support::kinds::{Flaky, Journal};
use crate::support::{Node, Topics, memory, message, until, working};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_sets_its_task_off_once_however_often_it_is_sent() {
    let Some(topics) = Topics::new("duplicates") else { return };
    let journal = Journal::default();
    let node = Node::start(topics.settings.clone(), memory(), working(&journal));
    node.plan("uploads", &["t-1", "t-2"]).await;
    for _ in 0..3 {
        topics.send(&message("m-1", "t-1")).await;
    }
    // Another message is for a task that waits for none any more.
    topics.send(&message("m-2", "t-1")).await;
    topics.send(&message("m-3", "t-2")).await;
    node.ends("t-1", TaskStatus::Completed).await;
    node.ends("t-2", TaskStatus::Completed).await;
    topics.is_committed(5).await;
    assert_eq!((journal.count("t-1/one/1"), journal.calls().len()), (1, 2));
    let status = node.consumer();
    assert_eq!((status.consumed_count, status.failed_count), (5, 0));
    let outcomes = topics.holds(&topics.settings.completed_topic, 2).await;
    let mut ids: Vec<_> = outcomes.iter().map(|outcome| outcome.json()["messageId"].to_string()).collect();
    ids.sort();
    assert_eq!(ids, [r#""m-1""#, r#""m-3""#]);
    node.close().await;
    assert_eq!(topics.read(&topics.settings.completed_topic).len(), 2);
    assert!(topics.read(&topics.settings.dead_letter_topic).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_group_has_read_before_is_known() {
    let Some(topics) = Topics::new("known") else { return };
    let (journal, store) = (Journal::default(), memory());
    let node = Node::start(topics.settings.clone(), store.clone(), working(&journal));
    node.plan("uploads", &["t-1"]).await;
    topics.send(&message("m-1", "t-1")).await;
    node.ends("t-1", TaskStatus::Completed).await;
    node.close().await;
    // As after a crash before the offset was committed: all of it is read again.
    let node = Node::start(topics.settings_of_another_group(), store, working(&journal));
    until("the message is read again", async || node.consumer().consumed_count == 1).await;
    assert_eq!(journal.calls(), ["t-1/one/1"]);
    node.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_makes_its_task_from_the_chain_that_it_names() {
    let Some(topics) = Topics::new("chain") else { return };
    let journal = Journal::default();
    let node = Node::start(topics.settings.clone(), memory(), working(&journal));
    let mut named = message("m-1", "upload-7");
    named["chain"] = json!("double");
    named["input"] = json!({ "width": 200 });
    topics.send(&named).await;
    topics.send(&named).await;
    node.ends("upload-7", TaskStatus::Completed).await;
    topics.is_committed(2).await;
    assert_eq!(journal.calls(), ["upload-7/one/1", "upload-7/two/1"]);
    let id = milepost_core::id::TaskId::parse("upload-7").unwrap();
    let task = node.engine.store().task(&id).await.unwrap().unwrap().task;
    assert_eq!(*task.spec().input, json!({ "width": 200 }));
    assert_eq!(task.spec().plan.as_str(), "upload-7");
    assert_eq!(task.spec().settings.task_timeout.unwrap().get(), 30 * 60 * 1000);
    node.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_after_its_deadline_fails_its_task() {
    let Some(topics) = Topics::new("expired") else { return };
    let journal = Journal::default();
    let node = Node::start(topics.settings.clone(), memory(), working(&journal));
    node.plan("uploads", &["t-1", "t-2"]).await;
    let mut late = message("m-1", "t-1");
    late["deadline"] = json!("2020-01-01T00:00:00Z");
    topics.send(&late).await;
    // Without a deadline it is an hour after it was published.
    let mut old = message("m-2", "t-2");
    old["publishedAt"] = json!("2020-01-01T00:00:00Z");
    topics.send(&old).await;
    node.ends("t-1", TaskStatus::Failed).await;
    node.ends("t-2", TaskStatus::Failed).await;
    let letters = topics.holds(&topics.settings.dead_letter_topic, 2).await;
    for (task, offset) in [("t-1", "0"), ("t-2", "1")] {
        let letter = letters.iter().find(|letter| letter.key == task).expect("a letter for each");
        assert_eq!((&letter.json()["errorType"], &letter.json()["taskId"]), (&json!("EXPIRED"), &json!(task)));
        assert_eq!(letter.header("kafka_dlt-original-topic"), topics.settings.topic);
        assert_eq!(letter.header("kafka_dlt-original-offset"), offset);
    }
    topics.holds(&topics.settings.failed_topic, 2).await;
    topics.is_committed(2).await;
    assert!(journal.calls().is_empty());
    assert_eq!(node.consumer().failed_count, 2);
    node.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_that_fails_is_a_dead_letter_with_its_stage() {
    let Some(topics) = Topics::new("failing") else { return };
    let flaky = Flaky::default();
    flaky.fail("one", 1);
    let node = Node::start(topics.settings.clone(), memory(), Registry::new().with("work", flaky.kind()));
    node.plan("uploads", &["t-1"]).await;
    topics.send(&message("m-1", "t-1")).await;
    node.ends("t-1", TaskStatus::Failed).await;
    let letters = topics.holds(&topics.settings.dead_letter_topic, 1).await;
    let letter = letters[0].json();
    assert_eq!((&letter["failedCallback"], &letter["failedStageIndex"]), (&json!("one"), &json!(0)));
    assert_eq!((&letter["originalMessageId"], &letter["attempts"]), (&json!("m-1"), &json!(1)));
    assert_eq!(letters[0].header("kafka_dlt-exception-fqcn"), "NETWORK");
    let failed = topics.holds(&topics.settings.failed_topic, 1).await;
    assert_eq!(failed[0].json()["reason"], json!("no route"));
    until("the outbox is empty", async || node.entries(Book::Outbox).await.is_empty()).await;
    node.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offset_is_committed_only_when_the_store_has_the_message() {
    let Some(topics) = Topics::new("durable") else { return };
    let (journal, store) = (Journal::default(), Faulty::over(memory()));
    let node = Node::start(topics.settings.clone(), store.clone(), working(&journal));
    node.plan("uploads", &["t-1"]).await;
    until("the node has its partition", async || node.consumer().partitions == 1).await;
    store.answer(Answers::Away);
    topics.send(&message("m-1", "t-1")).await;
    topics.send_bytes("t-1", b"garbage").await;
    for _ in 0..20 {
        store.refused().await;
    }
    assert_eq!((topics.committed(), node.consumer().consumed_count), (0, 0));
    store.answer(Answers::Truly);
    node.ends("t-1", TaskStatus::Completed).await;
    topics.is_committed(2).await;
    assert_eq!(node.entries(Book::DeadLetters).await.len(), 1);
    node.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_read_while_a_person_has_it_paused() {
    use milepost_engine::Consumer;
    let Some(topics) = Topics::new("paused") else { return };
    let journal = Journal::default();
    let node = Node::start(topics.settings.clone(), memory(), working(&journal));
    node.plan("uploads", &["t-1"]).await;
    until("the node has its partition", async || node.consumer().partitions == 1).await;
    node.kafka.pause();
    // The group's other member may come and go meanwhile: what comes back stays paused.
    topics.send(&message("m-1", "t-1")).await;
    until("the message is seen to wait", async || node.consumer().lag == Some(1)).await;
    assert!(node.consumer().paused);
    assert_eq!((node.status("t-1").await, node.consumer().consumed_count), (Some(TaskStatus::Pending), 0));
    node.kafka.resume();
    node.ends("t-1", TaskStatus::Completed).await;
    until("nothing waits", async || node.consumer().lag == Some(0)).await;
    node.close().await;
}
