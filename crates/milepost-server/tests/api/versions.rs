//! A verb that names the version its sender looked at is done to that version or not at all.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::id::TaskId;
use milepost_core::task::TaskStatus;
use milepost_engine::workflow::{Run, Workflow};
use milepost_store::{Resubmit, Start};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::{Waits, World, bounded};

const PLAN: &str = "
plan: p
stages:
  - { name: one, uses: step, retry: { max_attempts: 1 }, rollback: { uses: step } }
  - { name: two, uses: step, retry: { max_attempts: 1 } }
tasks: [{ id: a, tenant: x }]
";

/// All that there is to see of the plan.
async fn seen(world: &World) -> [Value; 3] {
    [world.read("/plans/p").await, world.read("/tasks/a").await, world.read("/tasks/a/events").await]
}

async fn version(world: &World, of: &str) -> u64 {
    world.read(of).await["version"].as_u64().expect("a version")
}

/// Refused for any version but the present one, without a trace; done for that.
async fn only_at_its_version(world: &World, of: &str, verb: &str) -> Value {
    let path = format!("{of}/{verb}");
    let of = if of.starts_with("/tenants") { "/tasks/a" } else { of };
    let (before, present) = (seen(world).await, version(world, of).await);
    for stale in [present - 1, present + 1, 0] {
        let refused = world.post_json(&path, &json!({ "expectedVersion": stale })).await;
        let detail = refused.problem(409, "version-conflict");
        assert!(detail.contains(&format!("is at version {present}, expected {stale}")), "{path}: {detail}");
        assert_eq!(seen(world).await, before, "{path} was refused, and done all the same");
    }
    world.post_json(&path, &json!({ "expectedVersion": present })).await.expect(StatusCode::OK)
}

#[tokio::test]
async fn a_plan_is_changed_at_the_version_that_was_looked_at_or_not_at_all() {
    let world = World::new().await;
    world.steps.hold("a/one");
    world.steps.fail("a/two");
    world.submit("/plans", PLAN).await;
    only_at_its_version(&world, "/plans/p", "start").await;
    world.steps.called("a/one").await;
    only_at_its_version(&world, "/plans/p", "pause").await;
    world.steps.let_go("a/one");
    world.until_status("a", TaskStatus::Paused).await;
    only_at_its_version(&world, "/plans/p", "resume").await;
    world.until_ended("p").await;
    world.steps.hold("a/two");
    only_at_its_version(&world, "/plans/p", "retry").await;
    world.until_status("a", TaskStatus::Running).await;
    world.steps.let_go("a/two");
    world.until_ended("p").await;
    assert_eq!(only_at_its_version(&world, "/plans/p", "reset-failed").await, json!({ "reset": 1 }));
    only_at_its_version(&world, "/plans/p", "cancel").await;
    assert_eq!(world.read("/tasks/a").await["status"], "CANCELLED");
    world.close().await;
}

#[tokio::test]
async fn a_task_is_changed_at_the_version_that_was_looked_at_in_hand_or_not() {
    for of in ["/tasks/a", "/tenants/x"] {
        let world = World::new().await;
        world.steps.hold("a/one");
        world.steps.fail("a/two");
        world.submit("/plans?start=true", PLAN).await;
        world.steps.called("a/one").await;
        // While a node has it.
        only_at_its_version(&world, of, "pause").await;
        world.steps.let_go("a/one");
        world.until_status("a", TaskStatus::Paused).await;
        // While nobody has.
        only_at_its_version(&world, of, "resume").await;
        world.until_status("a", TaskStatus::Failed).await;
        only_at_its_version(&world, of, "retry").await;
        world.until_ended("p").await;
        only_at_its_version(&world, of, "rollback").await;
        world.until_status("a", TaskStatus::RolledBack).await;
        world.close().await;
    }
}

#[tokio::test]
async fn a_workflow_in_hand_is_changed_at_the_version_that_was_looked_at_or_not_at_all() {
    let world = World::new().await;
    let run = Run::new(Waits.reference(), TaskId::parse("a").expect("an id"), Value::Null);
    world.engine.submit(Arc::new(run.plan()), Start::AtOnce, Resubmit::Same).await.expect("a store");
    // From then on nothing happens to it by itself.
    let waits = async {
        while !world.read("/tasks/a/events").await.to_string().contains("STAGE_STARTED") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    bounded("a workflow that waits", waits).await;
    for verb in ["pause", "resume", "cancel"] {
        let (path, present) = (format!("/tasks/a/{verb}"), version(&world, "/tasks/a").await);
        for stale in [present - 1, present + 1, 0] {
            let refused = world.post_json(&path, &json!({ "expectedVersion": stale })).await;
            let detail = refused.problem(409, "version-conflict");
            assert!(detail.contains(&format!("is at version {present}, expected {stale}")), "{path}: {detail}");
        }
        assert_eq!(version(&world, "/tasks/a").await, present, "{verb} was refused, and done all the same");
        world.post_json(&path, &json!({ "expectedVersion": present })).await.expect(StatusCode::OK);
        if verb == "resume" {
            // Its node has it in hand again.
            let again = async {
                while version(&world, "/tasks/a").await == present + 1 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            bounded("a workflow that waits again", again).await;
        }
    }
    world.close().await;
}

#[tokio::test]
async fn who_looked_at_an_older_version_does_not_undo_what_somebody_did_since() {
    let world = World::new().await;
    world.submit("/plans", PLAN).await;
    let looked_at = version(&world, "/plans/p").await;
    world.post("/plans/p/pause").await.expect(StatusCode::OK);
    let late = world.post_json("/plans/p/start", &json!({ "expectedVersion": looked_at })).await;
    late.problem(409, "version-conflict");
    assert_eq!(world.read("/plans/p").await["status"], "PAUSED");
    world.close().await;
}
