//! The operator's verbs over HTTP: what they take, what they answer, and when they refuse.

use milepost_core::task::TaskStatus;
use reqwest::StatusCode;
use serde_json::json;

use crate::support::World;

const TWO_TASKS: &str = "
plan: p
stages:
  - { name: one, uses: step, retry: { max_attempts: 1 }, rollback: { uses: step } }
  - { name: two, uses: step, retry: { max_attempts: 1 } }
tasks: [{ id: a, tenant: x }, { id: b }]
";

#[tokio::test]
async fn reset_failed_counts_what_it_reset_by_the_plans_id_and_by_a_tasks() {
    let world = World::new().await;
    ["a/two", "b/two"].iter().for_each(|stage| world.steps.fail(stage));
    world.submit("/plans?start=true", TWO_TASKS).await;
    world.until_ended("p").await;
    assert_eq!(world.post("/tasks/a/reset-failed").await.expect(StatusCode::OK), json!({ "reset": 1 }));
    assert_eq!(world.read("/plans/p").await["status"], "READY");
    // A plan's id is good there too.
    assert_eq!(world.post("/tasks/p/reset-failed").await.expect(StatusCode::OK), json!({ "reset": 1 }));
    assert_eq!(world.post("/plans/p/reset-failed").await.expect(StatusCode::OK), json!({ "reset": 0 }));
    world.post("/tasks/none/reset-failed").await.problem(404, "not-found");
    world.close().await;
}

#[tokio::test]
async fn a_task_is_rolled_back_and_paused_and_cancelled_by_its_own_routes() {
    let world = World::new().await;
    world.steps.fail("a/two");
    world.steps.hold("b/one");
    world.submit("/plans?start=true", TWO_TASKS).await;
    world.until_status("a", TaskStatus::Failed).await;
    let undone = world.post("/tasks/a/rollback").await.expect(StatusCode::OK);
    assert_eq!((&undone["verb"], &undone["tasks"]), (&json!("rollback"), &json!(1)));
    world.until_status("a", TaskStatus::RolledBack).await;
    world.steps.called("b/one").await;
    let paused = world.post("/tasks/b/pause").await.expect(StatusCode::OK);
    assert_eq!(paused["task"], json!({ "id": "b", "status": "RUNNING", "pauseRequested": true }));
    world.steps.let_go("b/one");
    world.until_status("b", TaskStatus::Paused).await;
    let cancelled = world.post("/tasks/b/cancel").await.expect(StatusCode::OK);
    assert_eq!(cancelled["task"]["status"], "CANCELLED");
    world.close().await;
}

#[tokio::test]
async fn a_verb_that_the_state_forbids_is_refused() {
    let world = World::new().await;
    world.submit("/plans", TWO_TASKS).await;
    for path in ["/plans/p/resume", "/plans/p/retry", "/plans/p/rollback", "/tasks/a/resume", "/tenants/x/retry"] {
        world.post(path).await.problem(409, "refused");
    }
    for path in ["/plans/q/start", "/tasks/q/pause", "/tenants/q/cancel"] {
        world.post(path).await.problem(404, "not-found");
    }
    world.close().await;
}

#[tokio::test]
async fn what_goes_with_a_verb_is_read_strictly() {
    let world = World::new().await;
    world.submit("/plans", TWO_TASKS).await;
    let path = "/plans/p/pause";
    let detail = world.post_json(path, &json!({ "reasn": "typo" })).await.problem(422, "invalid-body");
    assert!(detail.contains("unknown field `reasn`") && detail.contains("line 1"), "{detail}");
    world.post_json(path, &json!([])).await.problem(422, "invalid-body");
    world.post_json(path, &json!({ "fromCheckpoint": true })).await.problem(422, "invalid-body");
    world.post_json(path, &json!({ "expectedVersion": -1 })).await.problem(422, "invalid-body");
    world.post_json(path, &json!({ "reason": "x".repeat(2001) })).await.problem(422, "invalid-body");
    world.post_json(path, &json!({ "reason": "x".repeat(70_000) })).await.problem(413, "too-large");
    world.post_text(path, "application/json", "{").await.problem(400, "bad-json");
    world.post_text(path, "text/plain", "{}").await.problem(415, "unsupported-media-type");
    // None of it did anything.
    assert_eq!(world.read("/plans/p").await["status"], "READY");
    for body in [json!({}), json!(null), json!({ "reason": null, "expectedVersion": null, "fromCheckpoint": null })] {
        world.post_json("/plans/p/start", &body).await;
    }
    world.close().await;
}
