//! A broker that goes away and comes back. Alone in its program, since all tests share the broker.

#[expect(dead_code, reason = "the tests with a broker need more of it")]
mod support;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use milepost_core::task::TaskStatus;
use milepost_engine::Registry;
use milepost_store::Book;

use support::kinds::Gate;
use support::{Node, Topics, memory, message, until};

/// Only a broker that `dev/services` has started may be stopped.
fn is_ours(topics: &Topics) -> bool {
    let url = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/services/kafka/url");
    let ours = std::fs::read_to_string(url).is_ok_and(|url| url.trim() == topics.settings.brokers);
    if !ours {
        eprintln!("SKIPPED: the broker is somebody else's, and is not stopped");
    }
    ours
}

fn service(verb: &str) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev/services");
    let done = Command::new(program).args([verb, "kafka"]).output().unwrap();
    assert!(done.status.success(), "dev/services {verb} kafka: {}", String::from_utf8_lossy(&done.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_away_stops_no_chain_and_no_farewell() {
    let Some(topics) = Topics::new("away").filter(is_ours) else { return };
    let (gate, store) = (Gate::shut(), memory());
    let start = || {
        let registry = Registry::new().with("work", gate.kind());
        Node::start(topics.settings.clone(), store.clone(), registry)
    };
    let node = start();
    node.plan("uploads", &["t-1", "t-2", "t-3"]).await;
    topics.send(&message("m-1", "t-1")).await;
    gate.came(1).await;

    service("stop");
    gate.open();
    node.ends("t-1", TaskStatus::Completed).await;
    until("the node knows", async || !node.consumer().connected).await;
    // Its outcome waits in the store.
    assert_eq!(node.entries(Book::Outbox).await.len(), 1);

    service("start");
    topics.send(&message("m-2", "t-2")).await;
    node.ends("t-2", TaskStatus::Completed).await;
    topics.holds(&topics.settings.completed_topic, 2).await;
    until("the node knows", async || node.consumer().connected).await;
    topics.is_committed(2).await;

    service("kill");
    let begin = Instant::now();
    node.close().await;
    // Seconds, and not for ever: a busy machine may make more of them.
    assert!(begin.elapsed() < Duration::from_secs(60), "the farewell took {:?}", begin.elapsed());

    // One that starts without a broker waits for it.
    let node = start();
    until("the node knows", async || !node.consumer().connected).await;
    service("start");
    topics.send(&message("m-3", "t-3")).await;
    node.ends("t-3", TaskStatus::Completed).await;
    topics.is_committed(3).await;
    assert_eq!(gate.all().len(), 3);
    node.close().await;
}
