//! What is published, what waits, and what is set aside.

use milepost_core::api::DeadLetterView;
use milepost_core::task::By;
use milepost_store::{Addressee, Book, WrittenAs};
use serde_json::{Value, json};

use crate::support::{Node, until};
use crate::world::World;

async fn letters(node: &Node) -> Vec<String> {
    node.entries(Book::DeadLetters).await.into_iter().map(|entry| entry.key).collect()
}

async fn outbox_is_empty(node: &Node) {
    until("the outbox is empty", async || node.entries(Book::Outbox).await.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn what_can_never_be_published_is_set_aside_and_those_behind_it_go_on() {
    let world = World::new(1);
    let completed = world.brokers.settings.completed_topic.clone();
    world.brokers.limit(&completed, 1000);
    world.completed("e-1", "t-1").await;
    world.outbox("e-2", Addressee::Completed, "t-1", json!({ "taskId": "t-1", "file": "x".repeat(2000) })).await;
    world.completed("e-3", "t-1").await;
    world.completed("e-4", "t-2").await;
    let node = world.node("node-1");
    outbox_is_empty(&node).await;
    // Nobody had to wait for another turn.
    assert!(world.passed() < 10_000, "it took {} ms", world.passed());
    let mut published = world.published(&completed);
    assert_eq!(published.iter().filter(|entry| *entry != "e-4").collect::<Vec<_>>(), ["e-1", "e-3"]);
    published.sort();
    assert_eq!(published, ["e-1", "e-3", "e-4"]);
    let letter = node.entries(Book::DeadLetters).await.pop().expect("a letter");
    let said: Value = serde_json::from_str(&letter.body).unwrap();
    assert_eq!((letter.key.as_str(), &said["taskId"]), ("outbox:e-2", &json!("t-1")));
    assert_eq!(said["failureReason"], json!("it cannot be published to file-task-completed: the message is too large"));
    let shown = DeadLetterView::try_from(&letter).expect("it is shown as every other");
    assert_eq!(shown.original_topic.as_deref(), Some(&*completed));
    // The topic takes more now, and a person says so.
    world.brokers.limit(&completed, 10_000);
    node.engine.redrive("outbox:e-2", By::new("tester")).await.unwrap();
    outbox_is_empty(&node).await;
    assert_eq!(letters(&node).await, [""; 0]);
    let last = world.brokers.published(&completed).pop().unwrap();
    assert_eq!(last.headers, [("milepost-entry".to_owned(), "e-2".to_owned())]);
    assert!(last.payload.len() > 2000, "it is as it was");
    node.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_taking_was_not_answered_is_had_all_the_same_and_that_of_another_is_waited_for() {
    for (taken_by, waits) in [("node-1", false), ("node-2", true)] {
        let world = World::new(1);
        world.turn_taken_by(taken_by).await;
        world.completed("e-1", "t-1").await;
        let node = world.node("node-1");
        outbox_is_empty(&node).await;
        assert_eq!(world.passed() >= 10_000, waits, "{taken_by}: it took {} ms", world.passed());
        node.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_refused_for_what_it_is_does_not_hold_up_others() {
    let world = World::new(1);
    world.brokers.refuses("t-1");
    world.completed("e-1", "t-1").await;
    world.completed("e-2", "t-2").await;
    let node = world.node("node-1");
    outbox_is_empty(&node).await;
    assert_eq!(world.published(&world.brokers.settings.completed_topic), ["e-2"]);
    assert_eq!(letters(&node).await, ["outbox:e-1"]);
    node.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_record_is_shortened_for_its_own_size_and_never_for_that_of_its_batch() {
    let world = World::new(1);
    let completed = world.brokers.settings.completed_topic.clone();
    world.brokers.limit(&completed, 1000);
    for number in 0..10 {
        let body = json!({ "taskId": number, "outputs": "x".repeat(300) });
        world.outbox(&format!("e-{number}"), Addressee::Completed, &format!("t-{number}"), body).await;
    }
    let large = json!({ "taskId": "large", "outputs": "x".repeat(2000) });
    world.outbox("e-large", Addressee::Completed, "large", large).await;
    let node = world.node("node-1");
    outbox_is_empty(&node).await;
    assert_eq!(letters(&node).await, [""; 0]);
    let records = world.brokers.published(&completed);
    assert_eq!(records.len(), 11);
    for record in records {
        let body: Value = serde_json::from_slice(&record.payload).unwrap();
        assert_eq!(body["shortened"] == json!(true), record.key == "large", "{body}");
    }
    node.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_takes_nothing_holds_up_what_is_for_it_and_nothing_else() {
    let world = World::new(1);
    let (completed, dead) = (&world.brokers.settings.completed_topic, &world.brokers.settings.dead_letter_topic);
    world.brokers.fails(dead, true);
    // More than are read at a time.
    for number in 0..1200 {
        world.letter(&format!("l-{number}"), &format!("t-{}", number % 7)).await;
    }
    let node = world.node("node-1");
    until("it is known", async || node.consumer().failing_topics == [dead.clone()]).await;
    for number in 0..100 {
        let (before, entry) = (world.passed(), format!("e-{number}"));
        world.completed(&entry, "t-1").await;
        until("it is published", async || world.published(completed).contains(&entry)).await;
        let took = world.passed() - before;
        assert!(took <= 2_000, "what is for another topic took {took} ms");
    }
    assert_eq!((world.published(dead).len(), letters(&node).await.len()), (0, 0));
    assert!(node.consumer().connected);
    world.brokers.fails(dead, false);
    outbox_is_empty(&node).await;
    until("it is known", async || node.consumer().failing_topics.is_empty()).await;
    let published = world.published(dead);
    assert_eq!(published.len(), 1200);
    for key in 0..7 {
        let of_key = published.iter().map(|entry| entry[2..].parse::<usize>().unwrap()).filter(|n| n % 7 == key);
        assert!(of_key.is_sorted(), "those of t-{key} came out of order");
    }
    node.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_topic_of_the_settings_that_is_gone_is_waited_for_and_one_that_a_message_named_is_not() {
    let world = World::new(1);
    let dead = &world.brokers.settings.dead_letter_topic;
    world.brokers.delete(dead);
    world.letter("l-1", "t-1").await;
    let back = Addressee::Topic { name: "elsewhere".to_owned(), written_as: WrittenAs::Text };
    world.outbox("m-1", back, "t-1", json!("as it came")).await;
    let node = world.node("node-1");
    until("the other is set aside", async || letters(&node).await == ["outbox:m-1"]).await;
    until("it is known", async || node.consumer().failing_topics == [dead.clone()]).await;
    world.brokers.create(dead);
    world.brokers.create("elsewhere");
    outbox_is_empty(&node).await;
    assert_eq!(world.published(dead), ["l-1"]);
    node.engine.redrive("outbox:m-1", By::new("tester")).await.unwrap();
    outbox_is_empty(&node).await;
    assert_eq!(world.brokers.published("elsewhere")[0].payload, b"as it came");
    node.close().await;
}

#[tokio::test(start_paused = true)]
async fn another_node_publishes_when_the_first_is_gone() {
    let world = World::new(1);
    let completed = &world.brokers.settings.completed_topic;
    let (first, second) = (world.node("node-1"), world.node("node-2"));
    world.completed("e-1", "t-1").await;
    outbox_is_empty(&second).await;
    first.close().await;
    world.completed("e-2", "t-1").await;
    outbox_is_empty(&second).await;
    assert_eq!(world.published(completed), ["e-1", "e-2"]);
    second.close().await;
}
