//! Streams of what other nodes do.

use std::sync::Arc;

use milepost_engine::{Engine, Options, Registry};
use milepost_store::Membership;
use milepost_store::memory::MemoryStore;
use serde_json::Value;

use crate::support::{World, states};

#[tokio::test]
async fn a_stream_shows_what_another_node_commits_and_ends_with_its_plan() {
    let store = MemoryStore::new();
    let world = World::on(Arc::new(store.join(Membership::visitor()))).await;
    let registry =
        Registry::new().with("gate", Arc::new(world.gate.clone())).with("noop", Arc::new(crate::support::Noop));
    let other = Engine::new(Arc::new(store.join(Membership::node("other", "boot"))), registry, Options::new("other"));
    world.submit("{plan: p, stages: [{name: a, uses: noop}, {name: b, uses: gate}], tasks: [{id: t}]}").await;
    let mut client = world.watch("plans/p").await;
    assert_eq!(client.next().await.unwrap().name, "snapshot");
    other.start();
    world.gate.open();
    let rest = client.rest().await;
    let last = rest.last().unwrap();
    assert_eq!((last.name.as_str(), &last.data["planStatus"]), ("end", &Value::from("COMPLETED")));
    assert!(!states(&rest).is_empty(), "{rest:?}");
    other.stop().await;
    world.close().await;
}
