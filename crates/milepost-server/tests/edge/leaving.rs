//! Ready, not ready any more, gone.

use milepost_server::Settings;
use std::sync::Arc;

use crate::support::store::Faulty;
use crate::support::{PATIENCE, World, code, rest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn a_server_that_is_about_to_leave_is_alive_and_not_ready_and_goes_on_answering() {
    let world = World::new(Settings::default()).await;
    assert_eq!(world.get("/readyz").send().await.unwrap().status(), 200);
    world.app.drain();
    let unready = world.get("/readyz").send().await.unwrap();
    assert_eq!((unready.status().as_u16(), unready.headers()["retry-after"].to_str().unwrap()), (503, "1"));
    assert_eq!(code(unready).await, "draining");
    assert_eq!(world.get("/healthz").send().await.unwrap().status(), 200);
    assert_eq!(world.get("/api/v1/tokens").send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_server_whose_store_is_away_is_alive_and_not_ready() {
    let store = Arc::new(Faulty::default());
    let world = World::over(store.clone(), Settings::default()).await;
    store.go_away();
    assert_eq!(code(world.get("/readyz").send().await.unwrap()).await, "store-out-of-reach");
    assert_eq!(world.get("/healthz").send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_request_that_is_being_read_gets_its_answer_when_the_server_leaves() {
    let world = World::new(Settings::default()).await;
    let body = r#"{"name":"ops","scope":"read"}"#;
    let mut stream = world.connect().await;
    let head = format!(
        "POST /api/v1/tokens HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Expect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // It says that it wants the body: the request has reached its handler.
    let mut continues = [0; 25];
    stream.read_exact(&mut continues).await.unwrap();
    assert!(continues.starts_with(b"HTTP/1.1 100"));
    let idle = world.connect().await;
    let address = world.server.address();
    let closing = tokio::spawn(world.server.close());
    assert_eq!(rest(idle).await, "");
    stream.write_all(body.as_bytes()).await.unwrap();
    assert!(rest(stream).await.starts_with("HTTP/1.1 201"));
    tokio::time::timeout(PATIENCE, closing).await.unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}
