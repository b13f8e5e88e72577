//! Connections that take their time, and more of them than there is room for.

use std::time::Duration;

use milepost_server::Settings;
use tokio::io::AsyncWriteExt;

use crate::support::{World, exchange, rest};

fn impatient() -> Settings {
    Settings { head_timeout: Duration::from_millis(200), ..Settings::default() }
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed() {
    let world = World::new(impatient()).await;
    assert_eq!(rest(world.connect().await).await, "");
}

#[tokio::test]
async fn a_head_that_never_ends_is_not_waited_for() {
    let world = World::new(impatient()).await;
    for start in ["G", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n", "PRI * HT", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let answer = exchange(world.connect().await, start).await;
        assert!(!answer.contains("200 OK"), "{start}: {answer}");
    }
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let world = World::new(Settings::default()).await;
    let head = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(64 * 1024));
    let mut stream = world.connect().await;
    // It may be refused before all of it was sent.
    let _ = stream.write_all(head.as_bytes()).await;
    let answer = rest(stream).await;
    assert!(!answer.contains("200 OK"), "{answer}");
    assert_eq!(world.get("/healthz").send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_connection_beyond_the_limit_is_told_to_come_back_and_finds_room_later() {
    let world = World::new(Settings { max_connections: 1, ..Settings::default() }).await;
    let first = world.connect().await;
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    // Whoever connected first has the place, once the server has seen it.
    let answer = exchange(world.connect().await, request).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("retry-after: 1") && answer.contains("too-many-connections"), "{answer}");
    assert!(exchange(first, request).await.starts_with("HTTP/1.1 200"));
    let deadline = tokio::time::Instant::now() + crate::support::PATIENCE;
    // The place is free when the first connection has been cleared away, a moment after its end was read here.
    while !exchange(world.connect().await, request).await.starts_with("HTTP/1.1 200") {
        assert!(tokio::time::Instant::now() < deadline, "its place is never free");
    }
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_answered_all_the_same() {
    let settings = Settings { request_timeout: Duration::from_millis(100), ..Settings::default() };
    let world = World::new(settings).await;
    let half = "POST /api/v1/tokens HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Content-Length: 100\r\n\r\n{";
    let mut stream = world.connect().await;
    stream.write_all(half.as_bytes()).await.unwrap();
    let answer = rest(stream).await;
    assert!(answer.starts_with("HTTP/1.1 504") && answer.contains("timed-out"), "{answer}");
}
