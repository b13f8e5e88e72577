//! Nodes that come and go, and chains that take longer than Kafka waits for a node to ask for more.

use std::time::{Duration, Instant};

use milepost_core::task::TaskStatus;
use serde_json::{Value, json};

use crate::judge;
use crate::node::Node;
use crate::place::block_on;
use crate::support::{PATIENCE, wait_for};
use crate::topics::Site;

/// The shortest that a broker allows: who leaves is missed soon.
const HASTY: &str = "partitions = 4\nconcurrency = 1\n[kafka.properties]\n\
    'session.timeout.ms' = '6000'\n'max.poll.interval.ms' = '6000'\n'heartbeat.interval.ms' = '1000'";
/// Longer than a busy machine keeps a node from running: nobody is to be missed.
const POLL_INTERVAL: Duration = Duration::from_secs(25);
const CALM: &str = "partitions = 4\nconcurrency = 1\n[kafka.properties]\n\
    'session.timeout.ms' = '25000'\n'max.poll.interval.ms' = '25000'\n'heartbeat.interval.ms' = '1000'";
/// Writes down each stage that it runs; the first waits for the file `go`.
const LONG: &str = r#"stages:
  - name: wait
    run: |
      echo "$MILEPOST_STAGE $MILEPOST_ATTEMPT" >> "lines-$MILEPOST_TASK"
      while [ ! -e go ]; do sleep 0.05; done
  - name: finish
    run: echo "$MILEPOST_STAGE $MILEPOST_ATTEMPT" >> "lines-$MILEPOST_TASK"
"#;
const SHORT: &str = r#"stages:
  - name: wait
    run: |
      echo "$MILEPOST_STAGE $MILEPOST_ATTEMPT" >> "lines-$MILEPOST_TASK"
      sleep 0.2
  - name: finish
    run: echo "$MILEPOST_STAGE $MILEPOST_ATTEMPT" >> "lines-$MILEPOST_TASK"
"#;

fn message(task: &str, chain: &str) -> Value {
    json!({ "messageId": format!("of-{task}"), "taskId": task, "chain": chain })
}

fn begin(site: &Site) -> Node {
    let a = Node::start(&site.world, &site.place, "a", &[]);
    site.topics.publish_message(&message("long", "long"));
    wait_for("the long chain to begin", || site.world.exists("lines-long").then_some(()));
    a
}

/// Each stage of each of these tasks has run once and no more, by its own word.
fn each_ran_once(site: &Site, tasks: &[String]) {
    block_on(async {
        let store = judge::open(&site.place).await;
        for task in tasks {
            let deadline = Instant::now() + PATIENCE;
            while judge::status(&*store, task).await != Some(TaskStatus::Completed) {
                assert!(Instant::now() < deadline, "{task} does not end");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let story = judge::story(&*store, &site.world, task).await;
            let ran: Vec<(&str, usize)> = story.ran.iter().map(|(stage, times)| (stage.as_str(), *times)).collect();
            assert_eq!(ran, [("finish", 1), ("wait", 1)], "{task}: {story:?}");
        }
    });
    wait_for("all offsets to be committed", || site.topics.is_all_committed().then_some(()));
}

#[test]
fn a_chain_longer_than_the_poll_interval_ends_without_a_rebalance() {
    let test = "a_chain_longer_than_the_poll_interval_ends_without_a_rebalance";
    let Some(site) = Site::new(test, CALM, &[("long", LONG), ("short", SHORT)]) else { return };
    let a = begin(&site);
    // The node has no place for these, and still has to ask for more.
    let tasks: Vec<String> = (0..8).map(|number| format!("short-{number}")).collect();
    tasks.iter().for_each(|task| site.topics.publish_message(&message(task, "short")));
    let members = site.topics.members();
    assert_eq!(members["state"], "Stable");
    let came = said(&a, "partitions came");

    // What it is about: twice what Kafka waits passes, and nothing happens.
    std::thread::sleep(POLL_INTERVAL * 2 + Duration::from_secs(3));
    assert_eq!(site.topics.members(), members, "a node that joins anew has another id");
    site.world.file("go", "");
    each_ran_once(&site, &[vec!["long".to_owned()], tasks].concat());
    assert_eq!(site.topics.members(), members);
    assert_eq!((said(&a, "partitions came"), said(&a, "partitions went")), (came, 0));
    a.stop();
}

#[test]
fn fifty_joins_and_leaves_of_a_second_node_run_nothing_twice() {
    let test = "fifty_joins_and_leaves_of_a_second_node_run_nothing_twice";
    let Some(site) = Site::new(test, HASTY, &[("long", LONG), ("short", SHORT)]) else { return };
    let a = begin(&site);
    let mut tasks = vec!["long".to_owned()];
    let begun = Instant::now();
    for round in 0..50 {
        // Now and then it is one that the group has never seen: all partitions are shared out anew, which takes Kafka as
        // long as it waits for the one that left. A node that comes back under its name gets its own ones at once.
        let name = if round % 10 == 9 { format!("b-{round}") } else { "b".to_owned() };
        let b = Node::start(&site.world, &site.place, &name, &[]);
        wait_for("the second node to have partitions", || has_partitions(&b).then_some(()));
        let task = format!("short-{round}");
        site.topics.publish_message(&message(&task, "short"));
        tasks.push(task);
        b.stop();
    }
    let (rebalances, went) = (said(&a, "partitions came"), said(&a, "partitions went"));
    eprintln!(
        "50 joins and leaves in {:.1?}: {rebalances} rebalances for the node that stayed, {went} took partitions from it",
        begun.elapsed()
    );
    assert!(rebalances > 5 && went > 0, "the partitions were hardly ever shared out anew");
    assert_eq!(judge::lines(&site.world, "long").len(), 1, "the long chain still waits");
    site.world.file("go", "");
    each_ran_once(&site, &tasks);
    a.stop();
}

fn has_partitions(node: &Node) -> bool {
    let said = node.said();
    let mut came = said.split("partitions came partitions=").skip(1);
    came.any(|count| !count.starts_with('0'))
}

fn said(node: &Node, words: &str) -> usize {
    node.said().matches(words).count()
}
