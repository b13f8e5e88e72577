//! A server whose node shares its store with others.

use std::sync::Arc;

use milepost_engine::{Engine, Options, Registry};
use milepost_store::memory::MemoryStore;
use milepost_store::{Membership, Store};
use serde_json::json;

use crate::support::{Steps, World};

/// A node under this name, on the same store.
fn node(store: &MemoryStore, name: &str, steps: &Steps) -> Engine {
    let joined = Arc::new(store.join(Membership::node(name, format!("{name}-boot"))));
    let engine = Engine::new(joined, Registry::new().with("step", steps.kind()), Options::new(name));
    engine.start();
    engine
}

#[tokio::test]
async fn nodes_locks_and_verbs_are_those_of_the_whole_store() {
    let store = MemoryStore::new();
    let steps = Steps::default();
    steps.hold("a/s");
    let other = node(&store, "other", &steps);
    // It runs nothing itself, so that whatever runs, runs elsewhere.
    let world = World::over(Arc::new(store.join(Membership::visitor())) as Arc<dyn Store>).await;
    world.submit("/plans?start=true", "{plan: p, stages: [{name: s, uses: step}], tasks: [{id: a, tenant: x}]}").await;
    steps.called("a/s").await;

    let nodes = world.read("/nodes").await;
    let first = &nodes["items"][0];
    assert_eq!(
        (&first["nodeId"], &first["bootId"], &first["live"]),
        (&json!("other"), &json!("other-boot"), &json!(true))
    );
    assert_eq!(nodes["items"].as_array().map(Vec::len), Some(1));
    let lock = &world.read("/locks").await["items"][0];
    assert_eq!((&lock["owner"], lock["expiresAt"].is_string()), (&json!("p:a"), true));

    let answer = world.post("/tasks/a/cancel").await.expect(reqwest::StatusCode::OK);
    assert_eq!(answer["task"]["status"], json!("CANCELLED"), "{answer}");
    assert_eq!(world.read("/tasks/a").await["status"], json!("CANCELLED"));
    other.stop().await;
    assert_eq!(world.read("/nodes").await["items"][0]["live"], json!(false));
    world.close().await;
}
