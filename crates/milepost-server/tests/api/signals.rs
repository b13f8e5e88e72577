//! Signals over HTTP: what they carry, whom they reach, and when they are refused.

use std::sync::Arc;

use milepost_core::id::TaskId;
use milepost_core::task::TaskStatus;
use milepost_engine::workflow::{Run, Workflow};
use milepost_store::{Resubmit, Start};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::{Waits, World};

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
