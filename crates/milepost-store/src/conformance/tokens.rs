//! Keys to the API.

use milepost_core::api::Scope;
use milepost_core::time::Millis;

use crate::model::TokenRow;

use super::Harness;
use super::given::{Scene, tenant};

fn token(scene: &Scene<'_>, id: &str, scope: Scope) -> TokenRow {
    TokenRow {
        id: id.to_owned(),
        name: format!("the token {id}"),
        hash: std::array::from_fn(|index| index as u8 ^ id.as_bytes()[0]),
        scope,
        tenants: Vec::new(),
        created_at: scene.now,
        expires_at: None,
        revoked_at: None,
    }
}

pub(super) async fn tokens_are_kept_whole_and_listed_oldest_first(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    assert_eq!(scene.store.tokens().await.unwrap(), []);
    let mut tokens = Vec::new();
    for (id, scope) in [("z", Scope::Read), ("m", Scope::Operate), ("a", Scope::Admin)] {
        tokens.push(token(&scene, id, scope));
        scene.later(Millis::new(1));
    }
    tokens[1].tenants = vec![tenant("t-1"), tenant("租户 001/eu")];
    tokens[1].expires_at = Some(scene.now);
    for token in &tokens {
        scene.store.put_token(token.clone()).await.unwrap();
    }
    assert_eq!(scene.store.tokens().await.unwrap(), tokens);
    scene.crash().await;
    assert_eq!(scene.store.tokens().await.unwrap(), tokens);
}

pub(super) async fn a_token_put_again_takes_the_place_of_the_first(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    let (first, second) = (token(&scene, "a", Scope::Admin), token(&scene, "b", Scope::Read));
    scene.store.put_token(first.clone()).await.unwrap();
    scene.store.put_token(second.clone()).await.unwrap();
    scene.later(Millis::new(1));
    let revoked = TokenRow { revoked_at: Some(scene.now), ..first };
    scene.store.put_token(revoked.clone()).await.unwrap();
    assert_eq!(scene.store.tokens().await.unwrap(), [revoked, second]);
}
