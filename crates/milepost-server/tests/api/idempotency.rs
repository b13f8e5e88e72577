//! A request that is sent again under its key is done once, and answered the same.

use std::sync::Arc;

use milepost_store::memory::MemoryStore;
use milepost_store::sqlite::SqliteStore;
use reqwest::{Method, StatusCode};

use crate::support::{Held, Reply, World, bounded};

const UNNAMED: &str = "stages: [{ name: s, uses: noop }]\ntasks: [{}]\n";

async fn submit(world: &World, key: &str, plan: &str) -> Reply {
    submit_to(world, "/api/v1/plans", key, plan).await
}

async fn submit_to(world: &World, path: &str, key: &str, plan: &str) -> Reply {
    let request = world.request(Method::POST, path).header("Idempotency-Key", key).header("Content-Type", "text/yaml");
    world.send(request.body(plan.to_owned())).await
}

#[tokio::test]
async fn the_same_request_again_gets_the_first_ones_answer() {
    let world = World::new().await;
    let first = submit(&world, "k-1", UNNAMED).await;
    first.expect(StatusCode::CREATED);
    assert_eq!(first.header("idempotency-replayed"), None);
    // Quoted or bare, it is the same key.
    for key in ["k-1", "\"k-1\""] {
        let again = submit(&world, key, UNNAMED).await;
        assert_eq!((again.status, &again.text), (StatusCode::CREATED, &first.text));
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
        assert_eq!(again.header("location"), first.header("location"));
    }
    assert_eq!(world.read("/plans").await["items"].as_array().map(Vec::len), Some(1));
    // Another key is another request, and so is none.
    assert_ne!(submit(&world, "k-2", UNNAMED).await.expect(StatusCode::CREATED)["planId"], first.json()["planId"]);
    world.close().await;
}

#[tokio::test]
async fn another_request_under_the_same_key_is_refused() {
    let world = World::new().await;
    submit(&world, "k", UNNAMED).await.expect(StatusCode::CREATED);
    let detail = submit(&world, "k", &UNNAMED.replace("name: s", "name: t")).await.problem(422, "key-reused");
    assert!(detail.contains("`k`"), "{detail}");
    submit_to(&world, "/api/v1/plans?start=true", "k", UNNAMED).await.problem(422, "key-reused");
    world.close().await;
}

#[tokio::test]
async fn a_key_outlives_the_server_that_took_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let open = || Arc::new(SqliteStore::open(dir.path().join("milepost.db")).expect("a store"));
    let store = open();
    let world = World::over(store.clone()).await;
    let first = submit(&world, "k", UNNAMED).await;
    world.close().await;
    store.close();
    let world = World::over(open()).await;
    let again = submit(&world, "k", UNNAMED).await;
    assert_eq!((again.status, &again.text), (StatusCode::CREATED, &first.text));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    world.close().await;
}

#[tokio::test]
async fn a_key_that_is_in_flight_is_refused_until_its_request_is_answered() {
    let store = Held::over(Arc::new(MemoryStore::new()));
    let world = World::over(store.clone()).await;
    let first = submit(&world, "k", UNNAMED);
    let second = async {
        store.came().await;
        let refused = submit(&world, "k", UNNAMED).await;
        refused.problem(409, "in-flight");
        assert_eq!(refused.header("retry-after"), Some("1"));
        store.let_go();
    };
    let (first, ()) = bounded("both answers", async { tokio::join!(first, second) }).await;
    first.expect(StatusCode::CREATED);
    world.close().await;
}

#[tokio::test]
async fn a_key_that_is_none_is_refused() {
    let world = World::new().await;
    for bad in ["", "\"open", "\"\"", &"x".repeat(256)] {
        submit(&world, bad, UNNAMED).await.problem(400, "bad-request");
    }
    let twice =
        world.request(Method::POST, "/api/v1/plans").header("Idempotency-Key", "a").header("Idempotency-Key", "b");
    world.send(twice.header("Content-Type", "text/yaml").body(UNNAMED)).await.problem(400, "bad-request");
    submit(&world, &"x".repeat(255), UNNAMED).await.expect(StatusCode::CREATED);
    world.close().await;
}
