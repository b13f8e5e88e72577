//! Plans as they come in: in two formats, checked whole, and stored once.

use milepost_server::Settings;
use reqwest::StatusCode;
use serde_json::json;
use std::sync::Arc;

use milepost_store::memory::MemoryStore;

use crate::support::World;

const NOOP: &str = "plan: p\nstages: [{ name: s, uses: noop }]\ntasks: [{ id: a }]\n";

#[tokio::test]
async fn a_plan_is_the_same_in_json_and_in_every_name_of_yaml() {
    let world = World::new().await;
    let plan = json!({ "plan": "p", "stages": [{ "name": "s", "uses": "noop" }], "tasks": [{ "id": "a" }] });
    let created = world.post_json("/plans", &plan).await;
    assert_eq!(created.expect(StatusCode::CREATED)["created"], true);
    assert_eq!(created.header("location"), Some("/api/v1/plans/p"));
    for media_type in ["application/yaml", "application/x-yaml", "text/yaml; charset=utf-8", "Application/YAML"] {
        let again = world.post_text("/plans", media_type, NOOP).await;
        assert_eq!(again.expect(StatusCode::OK)["created"], false);
        assert_eq!(again.header("location"), Some("/api/v1/plans/p"));
    }
    world.close().await;
}

#[tokio::test]
async fn a_plan_without_an_id_gets_a_new_one_each_time() {
    let world = World::new().await;
    let plan = "stages: [{ name: s, uses: noop }]\ntasks: [{}]\n";
    let (first, second) = (world.submit("/plans", plan).await, world.submit("/plans", plan).await);
    assert!(first["planId"].as_str().is_some_and(|id| id.starts_with("plan-")), "{first}");
    assert_ne!(first["planId"], second["planId"]);
    world.close().await;
}

#[tokio::test]
async fn other_content_under_the_same_id_is_refused_unless_it_is_an_update() {
    let world = World::new().await;
    world.submit("/plans", NOOP).await;
    let more = NOOP.replace("[{ id: a }]", "[{ id: a }, { id: b }]");
    let detail = world.post_text("/plans", "application/yaml", &more).await.problem(409, "clash");
    assert!(detail.contains("other content"), "{detail}");
    let updated = world.post_text("/plans?update=true", "application/yaml", &more).await.expect(StatusCode::OK);
    assert_eq!((&updated["added"], &updated["removed"]), (&json!(1), &json!(0)));
    assert_eq!(world.read("/plans/p").await["taskIds"], json!(["a", "b"]));
    let detail = world.post_text("/plans", "application/yaml", &NOOP.replace("plan: p", "plan: q")).await;
    assert!(detail.problem(409, "clash").contains("is taken by plan p"));
    world.close().await;
}

#[tokio::test]
async fn a_bad_plan_is_refused_with_every_mistake_and_its_place() {
    let world = World::new().await;
    let bad = "plan: p\nstages:\n  - name: s\n    uses: nop\n  - name: s\n    uses: noop\ntasks: [{ tenent: x }]\n";
    let reply = world.post_text("/plans", "application/yaml", bad).await;
    reply.problem(422, "invalid-plan");
    let errors = reply.json()["errors"].clone();
    let at: Vec<_> = errors
        .as_array()
        .into_iter()
        .flatten()
        .map(|error| (error["line"].as_u64(), error["column"].as_u64()))
        .collect();
    assert!(at.contains(&(Some(4), Some(11))) && at.len() == 3, "{errors}");
    assert!(errors[0]["message"].as_str().is_some_and(|message| message.contains("no stage kind `nop`")), "{errors}");
    world.get("/plans/p").await.problem(404, "not-found");

    let detail = world.post_text("/plans", "application/json", "{\n  \"plan\": p\n}").await.problem(400, "bad-json");
    assert!(detail.contains("line 2 column 11"), "{detail}");
    // YAML that says it is JSON is not.
    world.post_text("/plans", "application/json", NOOP).await.problem(400, "bad-json");
    world.post_text("/plans", "application/json", "").await.problem(400, "bad-json");
    world.post_text("/plans", "text/csv", NOOP).await.problem(415, "unsupported-media-type");
    world.post("/plans").await.problem(415, "unsupported-media-type");
    world.close().await;
}

#[tokio::test]
async fn commands_are_refused_unless_the_server_was_told_to_take_them() {
    let plans = [
        "plan: p\nstages: [{ name: s, run: 'true' }]\ntasks: [{}]\n",
        "plan: p\nstages: [{ name: s, uses: noop, rollback: { run: 'true' } }]\ntasks: [{}]\n",
        "plan: p\ntasks: [{ stages: [{ name: s, run: 'true' }] }]\n",
    ];
    let world = World::new().await;
    for plan in plans {
        let detail = world.post_text("/plans", "text/yaml", plan).await.problem(403, "commands-not-allowed");
        assert!(detail.contains("`s`"), "{detail}");
    }
    world.close().await;
    for plan in plans {
        let settings = Settings { allow_commands: true, ..Settings::default() };
        let world = World::with(Arc::new(MemoryStore::new()), settings).await;
        world.submit("/plans", plan).await;
        world.close().await;
    }
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_announced_or_not() {
    let settings = Settings { max_body_bytes: 1000, ..Settings::default() };
    let world = World::with(Arc::new(MemoryStore::new()), settings).await;
    let long = format!("{NOOP}# {}\n", "x".repeat(1000));
    world.post_text("/plans", "text/yaml", &long).await.problem(413, "too-large");
    world.post_text("/plans", "text/yaml", NOOP).await.expect(StatusCode::CREATED);
    world.close().await;
}

#[tokio::test]
async fn a_plan_too_large_to_be_read_in_passing_is_read_all_the_same() {
    let world = World::new().await;
    let tasks: String = (0..3000).map(|n| format!("  - {{ id: task-{n}, tenant: tenant-{n} }}\n")).collect();
    let accepted =
        world.submit("/plans", &format!("plan: p\nstages: [{{ name: s, uses: noop }}]\ntasks:\n{tasks}")).await;
    assert_eq!(accepted["tasks"]["total"], 3000);
    // The plan's own answer has the first thousand ids.
    assert_eq!(world.read("/plans/p").await["taskIds"].as_array().map(Vec::len), Some(1000));
    world.close().await;
}
