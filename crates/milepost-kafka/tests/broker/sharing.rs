//! Nodes that share a topic.

use milepost_core::task::TaskStatus;
use milepost_store::memory::MemoryStore;
use serde_json::json;

use crate::support::kinds::Journal;
use crate::support::{Node, Topics, joined, message, until, working};

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_come_and_go_run_nothing_twice() {
    let Some(mut topics) = Topics::new("sharing") else { return };
    topics.settings.partitions = 4;
    // A node under a name of its own is missed only after its session, and the group waits as long for its partitions.
    topics.settings.properties.insert("session.timeout.ms".to_owned(), "6000".to_owned());
    let (journal, store) = (Journal::default(), MemoryStore::new());
    let node =
        |name: &str| Node::start_as(name, topics.settings.clone(), joined(&store, name), working(&journal), |_| {});
    let stays = node("stays");
    until("it has all partitions", async || stays.consumer().partitions == 4).await;
    let tasks: Vec<String> = (0..120).map(|number| format!("upload-{number}")).collect();
    for (round, some) in tasks.chunks(30).enumerate() {
        let guest = node(&format!("guest-{round}"));
        for task in some {
            let mut named = message(&format!("m-{task}"), task);
            named["chain"] = json!("double");
            topics.send(&named).await;
        }
        until("the guest has its share", async || guest.consumer().partitions > 0).await;
        guest.close().await;
    }
    for task in &tasks {
        stays.ends(task, TaskStatus::Completed).await;
    }
    topics.is_committed(120).await;
    let mut calls = journal.calls();
    assert_eq!(calls.len(), 240);
    calls.sort();
    calls.dedup();
    assert_eq!(calls.len(), 240);
    stays.close().await;
}
