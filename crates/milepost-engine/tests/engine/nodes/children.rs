//! Workflows whose children run elsewhere.

use std::time::Duration;

use milepost_core::task::TaskStatus;
use milepost_engine::Verb;
use serde_json::{Value, json};

use crate::support::{Answers, Cluster, Flow, Member, flow, of_task, task_id};

/// It has one child, `half`.
fn parent_of(child: &Flow) -> Flow {
    let child = child.clone();
    flow("parent", move |ctx, input| {
        let child = child.clone();
        async move { ctx.child("half", || child, input).await }
    })
}

#[tokio::test(start_paused = true)]
async fn a_parent_learns_at_once_that_its_child_has_ended_on_another_node() {
    let cluster = Cluster::new();
    let child = flow("child", |ctx, input| async move {
        ctx.sleep("rest", Duration::from_secs(10)).await?;
        Ok(json!(input.as_i64().unwrap() * 2))
    });
    let parent = parent_of(&child);
    // Each node knows one of the two only, so that they cannot meet.
    let one = cluster.node("one", &parent.registry());
    let two = cluster.node("two", &child.registry());
    let began = tokio::time::Instant::now();
    one.node.begin(&parent, "p", json!(21)).await;
    assert_eq!(one.node.outcome("p").await.unwrap(), json!(42));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(12), "{took:?}");
    assert_eq!(two.node.task("p.half").await.node().unwrap().to_string(), "two");
}

#[tokio::test(start_paused = true)]
async fn a_child_that_its_node_did_not_come_to_submit_before_it_stopped_is_submitted_by_the_next_at_once() {
    let cluster = Cluster::new();
    let child = flow("child", |_, input| async move { Ok(input) });
    let parent = parent_of(&child);
    let one = cluster.node("one", &parent.registry());
    one.line.commits_take(Duration::from_secs(2));
    one.node.begin(&parent, "p", json!(21)).await;
    one.node.until("p", |task| task.status() == TaskStatus::Running).await;
    // The step of the child is on its way to the store.
    tokio::time::sleep(Duration::from_secs(1)).await;
    one.node.stop().await;
    let log = one.node.log("p").await;
    assert!(log.iter().any(|event| event.starts_with("STAGE_STARTED half")), "{log:?}");
    let began = tokio::time::Instant::now();
    let two = cluster.node("two", &parent.registry());
    let _three = cluster.node("three", &child.registry());
    assert_eq!(two.node.outcome("p").await.unwrap(), json!(21));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_parent_cancels_its_child_on_another_node() {
    let cluster = Cluster::new();
    let child = flow("child", |ctx, _| async move {
        let word: serde_json::Value = ctx.signal("never").await?;
        Ok(word)
    });
    let parent = parent_of(&child);
    let one = cluster.node("one", &parent.registry());
    let two = cluster.node("two", &child.registry());
    one.node.begin(&parent, "p", json!(21)).await;
    one.node.until_stored("p.half").await;
    two.sees("p.half", |task| task.status() == TaskStatus::Running).await;
    two.node.does(of_task("p"), Verb::Cancel).await;
    two.sees("p.half", |task| task.status() == TaskStatus::Cancelled).await;
    assert_eq!(one.node.status("p").await, TaskStatus::Cancelled);
}

/// A parent on one node; its child has ended on another, which could not tell the parent because the store is away.
async fn untold(cluster: &Cluster) -> (Member, Member) {
    let child = flow("child", |ctx, _| async move { ctx.signal::<serde_json::Value>("go").await });
    let parent = parent_of(&child);
    let one = cluster.node("one", &parent.registry());
    let two = cluster.node("two", &child.registry());
    one.node.begin(&parent, "p", json!(null)).await;
    one.node.until_stored("p.half").await;
    two.sees("p.half", |task| task.flow().is_some_and(|flow| flow.open().next().is_some())).await;
    two.line.answer(Answers::AwayOnceEnded);
    two.node.signal("p.half", "go", json!(42)).await;
    two.sees("p.half", |task| task.status() == TaskStatus::Completed).await;
    (one, two)
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_does_not_sleep_before_it_gives_up_telling_a_parent() {
    let cluster = Cluster::new();
    let (_one, two) = untold(&cluster).await;
    // By now it tries every five seconds, and has just tried.
    tokio::time::sleep(Duration::from_secs(22)).await;
    let asked_at = tokio::time::Instant::now();
    two.node.stop().await;
    assert!(asked_at.elapsed() < Duration::from_secs(1), "{:?}", asked_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_parent_learns_of_its_childs_end_also_when_the_store_was_away_in_that_moment() {
    let cluster = Cluster::new();
    let (one, two) = untold(&cluster).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(one.node.status("p").await, TaskStatus::Running);
    two.mend();
    let mended = tokio::time::Instant::now();
    assert_eq!(one.node.outcome("p").await.unwrap(), json!(42));
    assert!(mended.elapsed() < Duration::from_secs(30), "{:?}", mended.elapsed());
}

/// `p` on a node whose commits and submissions take two seconds each, and its child, which waits for good.
async fn slow_parent(cluster: &Cluster) -> (Member, Flow) {
    let waits = flow("waits", |ctx, _| async move { ctx.signal::<Value>("never").await });
    let parent = parent_of(&waits);
    let one = cluster.node("one", &parent.registry());
    one.line.commits_take(Duration::from_secs(2));
    one.node.begin(&parent, "p", json!(21)).await;
    (one, waits)
}

#[tokio::test(start_paused = true)]
async fn a_cancel_leaves_alone_what_has_the_name_of_a_child_that_was_never_submitted() {
    let cluster = Cluster::new();
    let (one, waits) = slow_parent(&cluster).await;
    one.node.until("p", |task| task.status() == TaskStatus::Running).await;
    // The step of the child is on its way to the store, and its submission never is.
    tokio::time::sleep(Duration::from_secs(1)).await;
    one.node.stop().await;
    let two = cluster.node("two", &waits.registry());
    two.node.begin(&waits, "p.half", json!("a stranger's")).await;
    two.sees("p.half", |task| task.status() == TaskStatus::Running).await;
    two.node.does(of_task("p"), Verb::Cancel).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(two.node.status("p.half").await, TaskStatus::Running);
}

#[tokio::test(start_paused = true)]
async fn a_child_that_arrives_after_its_parent_was_cancelled_is_cancelled_too() {
    let cluster = Cluster::new();
    let (one, _) = slow_parent(&cluster).await;
    one.node.until("p", |task| task.stages().len() == 1).await;
    // Its submission is on its way to the store.
    tokio::time::sleep(Duration::from_secs(1)).await;
    one.line.commits_take(Duration::ZERO);
    one.node.does(of_task("p"), Verb::Cancel).await;
    assert!(one.node.engine.store().task(&task_id("p.half")).await.unwrap().is_none());
    one.node.until_stored("p.half").await;
    one.sees("p.half", |task| task.status() == TaskStatus::Cancelled).await;
}
