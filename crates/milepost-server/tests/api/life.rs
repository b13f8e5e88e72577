//! The life of a plan, from handing it in to its end, by requests alone.

use std::sync::Arc;

use milepost_core::task::TaskStatus;
use milepost_store::memory::MemoryStore;
use milepost_store::sqlite::SqliteStore;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::World;

const THREE_TENANTS: &str = "
plan: deploy
stages:
  - { name: push, uses: step }
  - { name: verify, uses: step, retry: { max_attempts: 1 } }
  - { name: tell, uses: step }
tasks:
  - { id: a, tenant: tenant-001 }
  - { id: b, tenant: tenant-002 }
  - { id: c, tenant: 'tenant 003/eu' }
";

#[tokio::test]
async fn a_plan_lives_through_its_life_in_memory() {
    a_plan_lives_through_its_life(World::over(Arc::new(MemoryStore::new())).await).await;
}

#[tokio::test]
async fn a_plan_lives_through_its_life_in_sqlite() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(dir.path().join("milepost.db")).expect("a store");
    a_plan_lives_through_its_life(World::over(Arc::new(store)).await).await;
}

async fn a_plan_lives_through_its_life(world: World) {
    // Handed in, it is READY and nothing runs.
    let accepted = world.submit("/plans", THREE_TENANTS).await;
    assert_eq!((&accepted["planId"], &accepted["status"]), (&json!("deploy"), &json!("READY")));
    assert_eq!(accepted["created"], true);
    let plan = world.read("/plans/deploy").await;
    assert_eq!(plan["taskIds"], json!(["a", "b", "c"]));
    assert_eq!(
        (&plan["maxConcurrency"], &plan["startedAt"], &plan["progress"]),
        (&json!(10), &Value::Null, &json!(0.0))
    );

    // Started, and paused while its tasks are in their first stage: each stops at its stage boundary.
    ["a/push", "b/push", "c/push"].iter().for_each(|stage| world.steps.hold(stage));
    let started = world.post("/plans/deploy/start").await.expect(StatusCode::OK);
    assert_eq!(started["plan"], json!({ "id": "deploy", "status": "RUNNING" }));
    for stage in ["a/push", "b/push", "c/push"] {
        world.steps.called(stage).await;
    }
    let lock = world.read("/tenants/tenant-001/lock").await;
    assert_eq!((&lock["owner"], &lock["taskId"]), (&json!("deploy:a"), &json!("a")));
    assert_eq!(world.read("/locks").await["items"].as_array().map(Vec::len), Some(3));
    assert_eq!(world.read("/nodes").await["items"][0]["inHand"], 3);
    assert_eq!(world.read("/plans/deploy/progress").await["running"].as_array().map(Vec::len), Some(3));
    let paused = world.post_json("/plans/deploy/pause", &json!({ "reason": "lunch" })).await.expect(StatusCode::OK);
    assert_eq!((&paused["tasks"], &paused["plan"]["status"]), (&json!(3), &json!("PAUSED")));
    assert_eq!(world.read("/tasks/a").await["pauseRequested"], true);
    ["a/push", "b/push", "c/push"].iter().for_each(|stage| world.steps.let_go(stage));
    for task in ["a", "b", "c"] {
        world.until_status(task, TaskStatus::Paused).await;
    }
    let by = &world.read("/plans/deploy").await["changedBy"];
    assert_eq!(by["why"], "lunch");

    // Resumed: one task fails in its second stage, the others end.
    world.steps.fail("c/verify");
    world.post("/plans/deploy/resume").await.expect(StatusCode::OK);
    world.until_ended("deploy").await;
    let plan = world.read("/plans/deploy").await;
    assert_eq!((&plan["status"], &plan["tasks"]["completed"]), (&json!("FAILED"), &json!(2)));
    let report = world.read("/plans/deploy/report").await;
    assert_eq!(report["failures"][0]["taskId"], "c");
    assert_eq!(report["failures"][0]["reason"], "told to fail");

    // By its tenant: what it is at, how far it has come, and that nobody holds it any more.
    let task = world.read("/tenants/tenant%20003%2Feu/task").await;
    assert_eq!((&task["taskId"], &task["status"]), (&json!("c"), &json!("FAILED")));
    assert_eq!(task["failure"]["stage"], "verify");
    let checkpoint = world.read("/tenants/tenant%20003%2Feu/checkpoint").await;
    assert_eq!((&checkpoint["hasCheckpoint"], &checkpoint["lastCompletedStageIndex"]), (&json!(true), &json!(0)));
    assert_eq!(checkpoint["completedStageNames"], json!(["push"]));
    assert_eq!(checkpoint["customData"]["push"], json!({ "by": "push" }));
    assert_eq!(world.read("/tasks/c/checkpoint").await, checkpoint);
    assert_eq!(world.read("/tasks/a/checkpoint").await, json!({ "hasCheckpoint": false }));
    world.get("/tenants/tenant%20003%2Feu/lock").await.problem(404, "not-found");

    // Retried from its checkpoint it ends well, and what was done is not done again.
    world.steps.heal("c/verify");
    let retried = world.post_json("/tenants/tenant%20003%2Feu/retry", &json!({ "fromCheckpoint": true })).await;
    let retried = retried.expect(StatusCode::OK);
    assert_eq!((&retried["target"], &retried["task"]["id"]), (&json!("tenant 003/eu"), &json!("c")));
    world.until_ended("deploy").await;
    world.until_status("c", TaskStatus::Completed).await;
    assert_eq!(world.read("/plans/deploy").await["status"], "COMPLETED");
    assert_eq!((world.steps.count("c/push"), world.steps.count("c/verify"), world.steps.count("c/tell")), (1, 2, 1));

    // All of it is in the log, and what the stages printed is kept.
    let events = world.read("/tasks/c/events").await;
    let kinds: Vec<&str> =
        events["items"].as_array().into_iter().flatten().filter_map(|e| e["eventType"].as_str()).collect();
    for kind in ["TASK_PAUSED", "TASK_RESUMED", "TASK_FAILED", "TASK_RETRIED", "TASK_COMPLETED"] {
        assert!(kinds.contains(&kind), "{kind} in {kinds:?}");
    }
    let logs = world.read("/tasks/c/logs?stage=push").await;
    assert_eq!(logs["items"][0]["text"], "hello from push\n");
    world.close().await;
}

#[tokio::test]
async fn a_retry_from_the_start_does_everything_again() {
    let world = World::new().await;
    world.steps.fail("a/verify");
    world.submit("/plans?start=true", THREE_TENANTS).await;
    world.until_ended("deploy").await;
    world.steps.heal("a/verify");
    world.post_json("/tasks/a/retry", &json!({ "fromCheckpoint": false })).await.expect(StatusCode::OK);
    world.until_status("a", TaskStatus::Completed).await;
    assert_eq!(world.steps.count("a/push"), 2);
    world.close().await;
}
