//! Every error has one form, whatever went wrong, and says what to do.

use std::sync::Arc;

use milepost_server::Settings;
use milepost_store::memory::MemoryStore;
use reqwest::Method;

use crate::support::World;

#[tokio::test]
async fn what_is_not_there_is_a_problem() {
    let world = World::new().await;
    for path in ["/plans/x", "/plans/x/report", "/plans/x/progress", "/tasks/x", "/tasks/x/events", "/tasks/x/logs"] {
        let detail = world.get(path).await.problem(404, "not-found");
        assert!(detail.contains("`x`"), "{detail}");
    }
    for path in ["/tenants/x/task", "/tenants/x/checkpoint", "/tenants/x/lock"] {
        world.get(path).await.problem(404, "not-found");
    }
    for path in ["/nothing", "/plans/x/nothing", "/plans/", "/plans/x/y/z"] {
        world.get(path).await.problem(404, "unknown-route");
    }
    world.send(world.request(Method::GET, "/")).await.problem(404, "unknown-route");
    world.close().await;
}

#[tokio::test]
async fn a_method_that_a_route_does_not_take_is_answered_with_those_it_does() {
    let world = World::new().await;
    for (method, path, allowed) in [
        (Method::DELETE, "/plans/x", "GET,HEAD"),
        (Method::GET, "/plans/x/pause", "POST"),
        (Method::PUT, "/nodes", "GET,HEAD"),
    ] {
        let reply = world.send(world.request(method.clone(), &format!("/api/v1{path}"))).await;
        let detail = reply.problem(405, "method-not-allowed");
        assert!(detail.contains(method.as_str()), "{detail}");
        assert_eq!(reply.header("allow"), Some(allowed));
    }
    let reply = world.send(world.request(Method::PATCH, "/api/v1/plans")).await;
    reply.problem(405, "method-not-allowed");
    let mut allowed: Vec<&str> = reply.header("allow").unwrap_or_default().split(',').collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD", "POST"]);
    world.close().await;
}

#[tokio::test]
async fn a_name_that_cannot_be_one_is_told_what_names_look_like() {
    let world = World::new().await;
    for path in ["/plans/a%20b", "/tasks/-a", "/tasks/a%2Fb/events", &format!("/plans/{}", "x".repeat(129))] {
        let detail = world.get(path).await.problem(400, "bad-request");
        assert!(detail.contains("allowed"), "{detail}");
    }
    world.get(&format!("/tenants/{}/task", "x".repeat(257))).await.problem(400, "bad-request");
    world.get("/tenants/a%0Ab/task").await.problem(400, "bad-request");
    // Not UTF-8.
    world.get("/tenants/%FF/task").await.problem(400, "bad-request");
    world.get(&format!("/tenants/{}/task", "x".repeat(256))).await.problem(404, "not-found");
    world.close().await;
}

#[tokio::test]
async fn a_query_that_is_not_understood_is_refused_rather_than_ignored() {
    let world = World::new().await;
    world.submit("/plans", "plan: p\nstages: [{ name: s, uses: noop }]\ntasks: [{ id: a }]\n").await;
    for (path, says) in [
        ("/plans?limit=0", "from 1 to 500"),
        ("/plans?limit=501", "from 1 to 500"),
        ("/plans?limit=", "from 1 to 500"),
        ("/plans?limit=1&limit=2", "twice"),
        ("/plans?cursor=abc", "nextCursor"),
        ("/plans?open=yes", "`true` or `false`"),
        ("/plans?opne=true", "limit, cursor, open"),
        ("/plans/p?x=1", "there are none"),
        ("/plans/p/tasks?status=DONE", "PENDING"),
        ("/tasks/a/events?after=-1", "from 0"),
        ("/tasks/a/events?attempt=0", "from 1"),
        ("/tasks/a/logs?stage=a%20b", "stage"),
        ("/nodes?x=1", "there are none"),
    ] {
        let detail = world.get(path).await.problem(400, "bad-request");
        assert!(detail.contains(says), "{path}: {detail}");
    }
    world.get("/tasks/a/logs?stage=none").await.problem(404, "not-found");
    world.post("/plans?start=1").await.problem(400, "bad-request");
    world.post("/plans/p/start?x=1").await.problem(400, "bad-request");
    world.close().await;
}

#[tokio::test]
async fn a_long_body_is_refused_also_when_its_length_is_not_announced() {
    let settings = Settings { max_body_bytes: 100, ..Settings::default() };
    let world = World::with(Arc::new(MemoryStore::new()), settings).await;
    let address = world.request(Method::GET, "/").build().expect("a request").url().clone();
    let host = format!("{}:{}", address.host_str().unwrap_or_default(), address.port().unwrap_or_default());
    // In chunks, which no client of ours sends.
    let answer = crate::support::bounded("an answer", async {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(&host).await.expect("a connection");
        let chunk = "x".repeat(200);
        let head = "POST /api/v1/plans HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: text/yaml\r\nTransfer-Encoding: chunked";
        stream.write_all(format!("{head}\r\n\r\nc8\r\n{chunk}\r\n0\r\n\r\n").as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer
    })
    .await;
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("urn:milepost:problem:too-large"), "{answer}");
    world.close().await;
}
