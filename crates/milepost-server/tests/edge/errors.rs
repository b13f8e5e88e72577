//! Errors that no handler made are problems like all others, and every answer has its headers.

use milepost_server::Settings;

use crate::support::{World, code};

#[tokio::test]
async fn what_is_not_there_and_what_is_not_allowed_there_are_problems() {
    let world = World::new(Settings::default()).await;
    let missing = world.get("/api/v1/nothing").send().await.unwrap();
    assert_eq!(missing.status(), 404);
    code(missing).await;
    let wrong = world.client.put(world.url("/api/v1/tokens")).send().await.unwrap();
    assert_eq!(wrong.status(), 405);
    assert!(wrong.headers().contains_key("allow"));
    code(wrong).await;
}

#[tokio::test]
async fn a_body_that_is_no_token_request_is_a_problem() {
    let world = World::new(Settings::default()).await;
    let post = |kind: &'static str, body: &'static str| {
        world.post("/api/v1/tokens").header("content-type", kind).body(body).send()
    };
    assert_eq!(code(post("application/json", "{").await.unwrap()).await, "bad-json");
    assert_eq!(code(post("text/plain", "{}").await.unwrap()).await, "unsupported-media-type");
    let surplus = r#"{"name":"a","scope":"read","power":1}"#;
    assert_eq!(code(post("application/json", surplus).await.unwrap()).await, "invalid-body");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_413_announced_or_not() {
    let world = World::new(Settings { max_body_bytes: 1000, ..Settings::default() }).await;
    let body = "x".repeat(2000);
    let announced = world.post("/api/v1/tokens").header("content-type", "application/json").body(body.clone());
    let response = announced.send().await.unwrap();
    assert_eq!(response.status(), 413);
    assert_eq!(code(response).await, "too-large");
    let chunks = format!(
        "POST /api/v1/tokens HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n7d0\r\n{body}\r\n0\r\n\r\n"
    );
    let answer = crate::support::exchange(world.connect().await, &chunks).await;
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("too-large"), "{answer}");
}

#[tokio::test]
async fn every_answer_tells_browsers_to_keep_their_hands_off() {
    let world = World::new(Settings::default()).await;
    for path in ["/healthz", "/nothing"] {
        let response = world.get(path).send().await.unwrap();
        let header = |name: &str| response.headers()[name].to_str().unwrap();
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("referrer-policy"), "no-referrer");
        assert_eq!(header("content-security-policy"), "default-src 'none'; frame-ancestors 'none'");
        assert_eq!(header("x-frame-options"), "DENY");
        assert_eq!(header("cache-control"), "no-store");
    }
}

#[tokio::test]
async fn a_request_keeps_its_name_and_gets_one_if_it_has_none() {
    let world = World::new(Settings::default()).await;
    let named = |name: &'static str| world.get("/healthz").header("x-request-id", name).send();
    assert_eq!(named("my-request-1").await.unwrap().headers()["x-request-id"], "my-request-1");
    for odd in ["a b", "<script>", ""] {
        let given = named(odd).await.unwrap().headers()["x-request-id"].clone();
        assert_ne!(given, odd);
        assert_eq!(given.len(), 36);
    }
}
