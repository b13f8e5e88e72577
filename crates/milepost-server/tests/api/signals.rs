//! Signals over HTTP: what they carry, whom they reach, and when they are refused.

use std::sync::Arc;

use milepost_core::id::TaskId;
use milepost_core::task::TaskStatus;
use milepost_engine::workflow::{Run, Workflow};
use milepost_store::{Resubmit, Start};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{Reply, Waits, World};

async fn begin(world: &World, id: &str) {
    let id = TaskId::parse(id).expect("an id");
    let run = Run::new(Waits.reference(), id, Value::Null);
    world.engine.submit(Arc::new(run.plan()), Start::AtOnce, Resubmit::Same).await.expect("a store");
}

#[tokio::test]
async fn a_signal_carries_any_json_to_its_workflow_and_its_sender_is_in_the_log() {
    let world = World::new().await;
    for (id, payload) in [("a", json!({ "by": "Ann" })), ("b", json!([1, 2])), ("c", json!("yes")), ("d", json!(null))]
    {
        begin(&world, id).await;
        let answer = world.post_json(&format!("/tasks/{id}/signals/go"), &payload).await.expect(StatusCode::OK);
        assert_eq!((&answer["target"], &answer["verb"]), (&json!(id), &json!("signal")));
        world.until_status(id, TaskStatus::Completed).await;
        let task = world.read(&format!("/tasks/{id}")).await;
        assert_eq!(task.get("result").unwrap_or(&Value::Null), &payload, "{task}");
        let events = world.read(&format!("/tasks/{id}/events")).await;
        let received = events["items"].as_array().expect("events").iter();
        let received: Vec<&Value> = received.filter(|event| event["eventType"] == "SIGNAL_RECEIVED").collect();
        assert_eq!(received.len(), 1);
        assert_eq!(received[0]["payload"]["name"], "go");
        assert!(received[0]["payload"]["by"]["who"].is_string());
    }
    world.close().await;
}

#[tokio::test]
async fn a_signal_without_a_body_carries_null() {
    let world = World::new().await;
    begin(&world, "a").await;
    world.post("/tasks/a/signals/go").await.expect(StatusCode::OK);
    world.until_status("a", TaskStatus::Completed).await;
    world.close().await;
}

async fn received(world: &World, id: &str) -> Vec<Value> {
    let events = world.read(&format!("/tasks/{id}/events?limit=500")).await;
    let events = events["items"].as_array().expect("events").iter();
    events.filter(|event| event["eventType"] == "SIGNAL_RECEIVED").map(|event| event["payload"].clone()).collect()
}

async fn send(world: &World, path: &str, key: &str, payload: &Value) -> Reply {
    let path = format!("/api/v1{path}");
    world.send(world.request(Method::POST, &path).header("Idempotency-Key", key).json(payload)).await
}

#[tokio::test]
async fn a_signal_sent_again_under_its_key_is_received_once_and_answered_the_same() {
    let world = World::new().await;
    begin(&world, "a").await;
    let first = send(&world, "/tasks/a/signals/other", "k-1", &json!({ "n": 1 })).await;
    first.expect(StatusCode::OK);
    // Quoted or bare, it is the same key.
    for key in ["k-1", "\"k-1\""] {
        let again = send(&world, "/tasks/a/signals/other", key, &json!({ "n": 1 })).await;
        assert_eq!((again.status, &again.text), (StatusCode::OK, &first.text));
    }
    let events = received(&world, "a").await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["id"], "k-1");
    // Also when the workflow has ended since.
    send(&world, "/tasks/a/signals/go", "k-2", &json!(2)).await.expect(StatusCode::OK);
    world.until_status("a", TaskStatus::Completed).await;
    send(&world, "/tasks/a/signals/go", "k-2", &json!(2)).await.expect(StatusCode::OK);
    send(&world, "/tasks/a/signals/go", "k-3", &json!(3)).await.problem(409, "refused");
    assert_eq!(received(&world, "a").await.len(), 2);
    world.close().await;
}

#[tokio::test]
async fn another_signal_under_a_used_key_is_refused_and_changes_nothing() {
    let world = World::new().await;
    begin(&world, "a").await;
    send(&world, "/tasks/a/signals/other", "k", &json!(1)).await.expect(StatusCode::OK);
    for (path, payload) in [("/tasks/a/signals/other", json!(2)), ("/tasks/a/signals/go", json!(1))] {
        let detail = send(&world, path, "k", &payload).await.problem(422, "key-reused");
        assert!(detail.contains("`k`"), "{detail}");
    }
    let long = "x".repeat(256);
    send(&world, "/tasks/a/signals/other", &long, &json!(1)).await.problem(400, "bad-request");
    assert_eq!(received(&world, "a").await.len(), 1);
    // The keys of one workflow are not another's, and a signal without a key is a new one.
    begin(&world, "b").await;
    send(&world, "/tasks/b/signals/other", "k", &json!(2)).await.expect(StatusCode::OK);
    for _ in 0..2 {
        world.post_json("/tasks/b/signals/other", &json!(2)).await.expect(StatusCode::OK);
    }
    assert_eq!(received(&world, "b").await.len(), 3);
    world.close().await;
}

#[tokio::test]
async fn a_signal_to_a_plans_task_an_ended_workflow_or_nobody_is_refused_with_the_reason() {
    let world = World::new().await;
    world.submit("/plans", "{ plan: p, stages: [{ name: s, uses: noop }], tasks: [{ id: t }] }").await;
    let reason = world.post("/tasks/t/signals/go").await.problem(409, "refused");
    assert_eq!(reason, "task t runs a plan's stages: only a workflow can be sent a signal");
    begin(&world, "a").await;
    world.post("/tasks/a/cancel").await.expect(StatusCode::OK);
    let reason = world.post("/tasks/a/signals/go").await.problem(409, "refused");
    assert_eq!(reason, "cannot signal task a: it is CANCELLED");
    world.post("/tasks/none/signals/go").await.problem(404, "not-found");
    world.post("/tasks/a/signals/-").await.problem(400, "bad-request");
    world.post_text("/tasks/a/signals/go", "application/json", "{").await.problem(400, "bad-json");
    world.post_text("/tasks/a/signals/go", "text/plain", "yes").await.problem(415, "unsupported-media-type");
    let long = format!("\"{}\"", "x".repeat(1024 * 1024));
    world.post_text("/tasks/a/signals/go", "application/json", &long).await.problem(413, "too-large");
    world.close().await;
}
