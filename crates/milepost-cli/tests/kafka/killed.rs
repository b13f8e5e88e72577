//! A node that dies in the middle of a chain.

use serde_json::json;

use milepost_core::task::TaskStatus;

use crate::files::Files;
use crate::judge;
use crate::mix;
use crate::node::Node;
use crate::place::block_on;
use crate::support::wait_for;
use crate::topics::Site;

#[test]
fn a_node_killed_in_the_second_callback_of_four_leaves_the_rest_to_the_other() {
    let test = "a_node_killed_in_the_second_callback_of_four_leaves_the_rest_to_the_other";
    let chain = mix::chain(4, "while [ ! -e go ]; do sleep 0.02; done");
    let Some(site) = Site::new(test, "partitions = 2", &[("four", &chain)]) else { return };
    let files = Files::serve();
    let a = Node::start(&site.world, &site.place, "a", &[]);
    let file = json!({ "uri": files.uri("upload") });
    site.topics.publish_message(&json!({ "messageId": "m", "taskId": "upload", "chain": "four", "file": file }));
    wait_for("the second callback", || judge::lines(&site.world, "upload").contains_key("s2").then_some(()));
    assert_eq!(files.fetched("upload"), 1, "the second callback has what the first one fetched");
    let b = Node::start(&site.world, &site.place, "b", &[]);

    a.kill();
    wait_for("the other node to begin it again", || {
        (judge::lines(&site.world, "upload").get("s2") == Some(&2)).then_some(())
    });
    site.world.file("go", "");

    let story = block_on(async {
        let store = judge::open(&site.place).await;
        while judge::status(&*store, "upload").await != Some(TaskStatus::Completed) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        judge::story(&*store, &site.world, "upload").await
    });
    let ran: Vec<(&str, usize)> = story.ran.iter().map(|(stage, times)| (stage.as_str(), *times)).collect();
    assert_eq!(ran, [("s1", 1), ("s2", 2), ("s3", 1), ("s4", 1)]);
    assert_eq!((story.interrupted, story.repeated), (1, 1));
    assert_eq!(files.fetched("upload"), 2, "each node has fetched it once");
    let completed = wait_for("its end to be told", || site.topics.read(&site.topics.completed).pop());
    assert_eq!(completed.text("nodeId"), "b");
    b.stop();
}
