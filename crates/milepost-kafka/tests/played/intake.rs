//! What comes in: once, in order, and never acknowledged before the store has it.

use milepost_core::task::TaskStatus;
use milepost_store::Book;
use serde_json::{Value, json};

use crate::support::faulty::{Answers, Faulty};
use crate::support::kinds::Gate;
use crate::support::{joined, message, until, working};
use crate::world::World;

impl World {
    fn send(&self, partition: usize, message: &Value) {
        self.brokers.put(partition, message.to_string().as_bytes());
    }

    async fn is_committed(&self, offset: i64) {
        until(&format!("offset {offset} is committed"), async || self.brokers.committed() == offset).await;
    }
}

fn chained(id: &str, task: &str) -> Value {
    let mut message = message(id, task);
    message["chain"] = json!("double");
    message
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_again_changes_nothing() {
    let world = World::new(2);
    let node = world.node("node-1");
    // By another way as well: the same id on another partition.
    for partition in [0, 1, 0, 0] {
        world.send(partition, &chained("m-1", "t-1"));
    }
    node.ends("t-1", TaskStatus::Completed).await;
    world.is_committed(4).await;
    assert_eq!(world.journal.calls(), ["t-1/one/1", "t-1/two/1"]);
    assert_eq!((node.consumer().consumed_count, node.consumer().failed_count), (4, 0));
    until("its end is told", async || world.published(&world.brokers.settings.completed_topic).len() == 1).await;
    node.close().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_durable_and_not_acknowledged_is_read_again_and_known() {
    let world = World::new(1);
    world.brokers.loses_commits(true);
    let node = world.node("node-1");
    for number in 0..10 {
        world.send(0, &chained(&format!("m-{number}"), &format!("t-{number}")));
    }
    world.brokers.put(0, b"garbage");
    for number in 0..10 {
        node.ends(&format!("t-{number}"), TaskStatus::Completed).await;
    }
    until("the letter is there", async || node.entries(Book::DeadLetters).await.len() == 1).await;
    node.close().await;
    assert_eq!(world.brokers.committed(), 0, "the node went before it could acknowledge");

    world.brokers.loses_commits(false);
    let node = world.node("node-2");
    world.is_committed(11).await;
    let mut calls = world.journal.calls();
    calls.sort();
    calls.dedup();
    assert_eq!((calls.len(), world.journal.calls().len()), (20, 20));
    assert_eq!((node.consumer().consumed_count, node.consumer().failed_count), (11, 0));
    assert_eq!(node.entries(Book::DeadLetters).await.len(), 1);
    node.close().await;
}

#[tokio::test(start_paused = true)]
async fn partitions_that_come_and_go_run_nothing_twice_and_lose_nothing() {
    let world = World::new(4);
    let stays = world.node("stays");
    let mut number = 0;
    for round in 0..20 {
        let guest = world.node(&format!("guest-{round}"));
        for partition in 0..4 {
            number += 1;
            world.send(partition, &chained(&format!("m-{number}"), &format!("t-{number}")));
        }
        // Some leave in the middle of it.
        if round % 2 == 0 {
            until("the guest has its share", async || guest.consumer().partitions == 2).await;
        }
        guest.close().await;
    }
    for task in 1..=number {
        stays.ends(&format!("t-{task}"), TaskStatus::Completed).await;
    }
    world.is_committed(number).await;
    let mut calls = world.journal.calls();
    calls.sort();
    calls.dedup();
    assert_eq!(calls.len(), world.journal.calls().len(), "a stage has run twice");
    assert_eq!(calls.len() as i64, number * 2);
    stays.close().await;
}

#[tokio::test(start_paused = true)]
async fn poison_is_a_dead_letter_once_and_goes_on_while_its_topic_fails() {
    let world = World::new(1);
    let dead = &world.brokers.settings.dead_letter_topic;
    world.brokers.fails(dead, true);
    let node = world.node("node-1");
    world.brokers.put(0, b"garbage");
    world.send(0, &chained("m-1", "t-1"));
    world.brokers.put(0, &[0xff, 0xfe]);
    node.ends("t-1", TaskStatus::Completed).await;
    // It is durable, so what is behind it need not wait for its topic.
    world.is_committed(3).await;
    until("the end is told", async || world.published(&world.brokers.settings.completed_topic).len() == 1).await;
    until("the alert is there", async || node.consumer().failing_topics == [dead.clone()]).await;
    until("only the letters wait", async || node.entries(Book::Outbox).await.len() == 2).await;
    assert_eq!(node.entries(Book::DeadLetters).await.len(), 2);
    assert!(world.published(dead).is_empty());
    world.brokers.fails(dead, false);
    until("the outbox is empty", async || node.entries(Book::Outbox).await.is_empty()).await;
    assert_eq!(world.published(dead), ["file-callback-tasks:0:0", "file-callback-tasks:0:2"]);
    node.close().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_acknowledged_that_the_store_does_not_have() {
    let world = World::new(1);
    let store = Faulty::over(joined(&world.store, "node-1"));
    let node = world.node_over("node-1", store.clone(), working(&world.journal));
    until("the node has its partition", async || node.consumer().partitions == 1).await;
    store.answer(Answers::Away);
    world.send(0, &chained("m-1", "t-1"));
    world.brokers.put(0, b"garbage");
    for _ in 0..20 {
        store.refused().await;
    }
    assert_eq!((world.brokers.committed(), node.consumer().consumed_count), (0, 0));
    store.answer(Answers::Truly);
    node.ends("t-1", TaskStatus::Completed).await;
    world.is_committed(2).await;
    assert_eq!(node.entries(Book::DeadLetters).await.len(), 1);
    node.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_node_pauses_its_partitions_also_those_that_come_later() {
    let world = World::new(2);
    let gate = Gate::shut();
    let registry = milepost_engine::Registry::new().with("work", gate.kind());
    let full = world.node_over("full", joined(&world.store, "full"), registry.clone());
    for number in 0..40 {
        world.send(number % 2, &chained(&format!("m-{number}"), &format!("t-{number}")));
    }
    gate.inside(4).await;
    let guest = world.node_over("guest", joined(&world.store, "guest"), registry);
    until("the guest has its share", async || guest.consumer().partitions == 1).await;
    gate.inside(8).await;
    guest.close().await;
    until("all partitions are back", async || full.consumer().partitions == 2).await;
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    let taken = full.consumer().consumed_count;
    assert!(taken <= 16, "{taken} messages were taken in by a node with four places");
    gate.open();
    for number in 0..40 {
        full.ends(&format!("t-{number}"), TaskStatus::Completed).await;
    }
    world.is_committed(40).await;
    full.close().await;
}
