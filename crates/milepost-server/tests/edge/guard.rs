//! A server without tokens, and the web pages that its user visits.

use milepost_server::Settings;

use crate::support::{World, code};

#[tokio::test]
async fn a_name_that_is_not_its_own_is_refused_and_one_that_was_allowed_is_not() {
    let settings = Settings { allowed_hosts: vec!["milepost.test".to_owned()], ..Settings::default() };
    let world = World::new(settings).await;
    let ask = |host: &'static str| world.get("/api/v1/tokens").header("host", host).send();
    for own in ["localhost", "127.0.0.1:9", "milepost.test:8080"] {
        assert_eq!(ask(own).await.unwrap().status(), 200, "{own}");
    }
    let refused = ask("rebound.example").await.unwrap();
    assert_eq!(refused.status(), 403);
    assert_eq!(code(refused).await, "unknown-host");
    // Whoever watches over the process asks by whatever name it has.
    assert_eq!(world.get("/healthz").header("host", "rebound.example").send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_page_of_another_origin_cannot_change_anything() {
    let world = World::new(Settings::default()).await;
    let body = r#"{"name":"stolen","scope":"admin"}"#;
    for (name, value) in [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")] {
        let post = world.post("/api/v1/tokens").header("content-type", "application/json").header(name, value);
        assert_eq!(code(post.body(body).send().await.unwrap()).await, "cross-origin");
    }
    assert!(world.engine.store().tokens().await.unwrap().is_empty());
    let own = world.post("/api/v1/tokens").header("origin", world.server.url());
    let made = own.header("content-type", "application/json").body(body).send().await.unwrap();
    assert_eq!(made.status(), 201);
}
