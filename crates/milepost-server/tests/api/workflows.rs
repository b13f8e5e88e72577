//! Workflows over HTTP: begun by name, like any other plan, and run where the function is.

use milepost_core::task::TaskStatus;
use reqwest::StatusCode;
use serde_json::json;

use crate::support::World;

#[tokio::test]
async fn a_plan_with_a_workflow_is_run_by_the_node_that_has_the_function() {
    let world = World::new().await;
    let plan = json!({
        "plan": "p", "workflow": "waits",
        "tasks": [{ "id": "a", "tenant": "x", "input": { "n": 1 } }, { "id": "b" }],
    });
    let accepted = world.post_json("/plans?start=true", &plan).await.expect(StatusCode::CREATED);
    assert_eq!(accepted["tasks"]["total"], 2);
    for id in ["a", "b"] {
        world.post_json(&format!("/tasks/{id}/signals/go"), &json!(id)).await.expect(StatusCode::OK);
        world.until_status(id, TaskStatus::Completed).await;
        let task = world.read(&format!("/tasks/{id}")).await;
        assert_eq!((&task["result"], &task["workflow"]["name"]), (&json!(id), &json!("waits")), "{task}");
    }
    world.until_ended("p").await;
    // Again, and written in full: it is the same plan.
    let plan = "{ plan: p, workflow: { name: waits, version: 1 }, \
        tasks: [{ id: a, tenant: x, input: { n: 1 } }, { id: b }] }";
    world.post_text("/plans", "application/yaml", plan).await.expect(StatusCode::OK);
    world.close().await;
}

#[tokio::test]
async fn a_workflow_that_no_node_knows_waits_and_says_so() {
    let world = World::new().await;
    let plan = json!({ "plan": "p", "workflow": { "name": "waits", "version": 2 }, "tasks": [{ "id": "a" }] });
    world.post_json("/plans?start=true", &plan).await.expect(StatusCode::CREATED);
    let said = world.read("/tasks/a/explain").await;
    assert_eq!(said["reason"], "NO_NODE_KNOWS", "{said}");
    assert!(said["message"].as_str().expect("words").contains("waits (version 2)"), "{said}");
    world.close().await;
}

#[tokio::test]
async fn a_workflow_beside_stages_is_refused_with_the_place() {
    let world = World::new().await;
    let plan = "workflow: waits\nstages: [{ name: s, uses: noop }]\ntasks: [{ id: a }]\n";
    let reply = world.post_text("/plans", "application/yaml", plan).await;
    let problem = reply.expect(StatusCode::UNPROCESSABLE_ENTITY);
    let error = &problem["errors"][0];
    assert_eq!(
        (&error["line"], &error["column"], &error["path"]),
        (&json!(2), &json!(1), &json!("stages")),
        "{problem}"
    );
    world.close().await;
}
