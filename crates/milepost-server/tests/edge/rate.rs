//! A caller who asks too often waits; others do not.

use milepost_core::api::Scope;
use milepost_server::Settings;

use crate::support::{World, code};

#[tokio::test]
async fn who_asks_too_often_is_told_when_to_come_back_and_only_they_are() {
    let settings = Settings { rate_limit: Some(1), require_token: true, ..Settings::default() };
    let world = World::new(settings).await;
    let (eager, calm) = (world.token("eager", Scope::Read).await, world.token("calm", Scope::Read).await);
    let ask = |token: &str| world.get("/metrics").bearer_auth(token).send();
    let mut refused = None;
    // The bucket fills while we ask, so it may take more than two.
    for _ in 0..1000 {
        let response = ask(&eager.secret).await.unwrap();
        if response.status() == 429 {
            refused = Some(response);
            break;
        }
    }
    let refused = refused.expect("nobody stops an eager caller");
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(code(refused).await, "too-many-requests");
    assert_eq!(ask(&calm.secret).await.unwrap().status(), 200);
    for _ in 0..10 {
        assert_eq!(world.get("/healthz").send().await.unwrap().status(), 200);
    }
}
