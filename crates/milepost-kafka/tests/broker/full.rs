//! A node that has as much to do as it may.

use std::time::{Duration, Instant};

use milepost_core::task::TaskStatus;
use milepost_engine::Registry;

use crate::support::kinds::Gate;
use crate::support::{Node, Topics, memory, message, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_full_node_takes_no_more_in_and_stays_in_its_group() {
    let Some(mut topics) = Topics::new("full") else { return };
    // Shorter than the chain: only asking on keeps it in its group. Under its own name, one that has stopped asking is
    // missed a session later.
    let missed_after = Duration::from_secs(6 + 6);
    for (property, value) in [("max.poll.interval.ms", "6000"), ("session.timeout.ms", "6000")] {
        topics.settings.properties.insert(property.to_owned(), value.to_owned());
    }
    let gate = Gate::shut();
    let registry = Registry::new().with("work", gate.kind());
    let node = Node::start_as("node-1", topics.settings.clone(), memory(), registry, |options| options.chains = 1);
    let tasks: Vec<String> = (0..20).map(|number| format!("t-{number}")).collect();
    node.plan("uploads", &tasks.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for task in &tasks {
        topics.send(&message(&format!("m-{task}"), task)).await;
    }
    gate.inside(1).await;
    let start = Instant::now();
    until("longer than the group waits", async || start.elapsed() > missed_after + Duration::from_secs(3)).await;
    // On a busy machine it may be missed and come back for other reasons; one that has stopped asking never does.
    until("it is in its group", async || (topics.members(), node.consumer().partitions) == (1, 1)).await;
    assert_eq!(gate.peak(), 1);
    let taken = node.consumer().consumed_count;
    assert!((1..=4).contains(&taken), "{taken} messages were taken in by a node with one place");
    gate.open();
    for task in &tasks {
        node.ends(task, TaskStatus::Completed).await;
    }
    topics.is_committed(20).await;
    assert_eq!((gate.peak(), gate.all().len()), (1, 20));
    node.close().await;
}
