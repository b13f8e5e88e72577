//! Who gets in, and how far.

use std::sync::Arc;

use milepost_core::api::{NewToken, Scope, TokenRequest};
use milepost_core::time::{Millis, Timestamp};
use milepost_server::{Settings, mint};
use serde_json::{Value, json};

use crate::support::store::Faulty;
use crate::support::{World, code};

#[tokio::test]
async fn without_a_token_only_health_is_told() {
    let world = World::asking_for_tokens().await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(world.get(path).send().await.unwrap().status(), 200, "{path}");
    }
    for path in ["/metrics", "/api/v1/tokens", "/api/v1/nothing", "/", "/healthz/", "/healthz/../metrics"] {
        let response = world.get(path).send().await.unwrap();
        assert_eq!(response.status(), 401, "{path}");
        assert_eq!(response.headers()["www-authenticate"], r#"Bearer realm="milepost""#);
        assert_eq!(code(response).await, "token-missing");
    }
}

#[tokio::test]
async fn each_scope_reaches_what_it_is_for_and_what_those_below_it_reach() {
    let world = World::asking_for_tokens().await;
    let mut tokens = Vec::new();
    for (name, scope) in [("reader", Scope::Read), ("operator", Scope::Operate), ("admin", Scope::Admin)] {
        tokens.push(world.token(name, scope).await.secret);
    }
    for (method, path, allowed) in [
        ("GET", "/metrics", [true, true, true]),
        ("GET", "/api/v1/tokens", [false, false, true]),
        ("POST", "/api/v1/tokens", [false, false, true]),
        ("DELETE", "/api/v1/tokens/none", [false, false, true]),
    ] {
        for (token, allowed) in tokens.iter().zip(allowed) {
            let request = world.client.request(method.parse().unwrap(), world.url(path)).bearer_auth(token);
            let request = request.json(&json!({"name": "new", "scope": "read"}));
            let response = request.send().await.unwrap();
            assert_eq!(response.status() != 403, allowed, "{method} {path}");
            if !allowed {
                let challenge = response.headers()["www-authenticate"].to_str().unwrap().to_owned();
                assert!(challenge.contains("insufficient_scope"), "{challenge}");
                assert_eq!(code(response).await, "forbidden");
            }
        }
    }
}

#[tokio::test]
async fn an_admin_who_is_bound_to_tenants_cannot_make_themselves_free() {
    let world = World::asking_for_tokens().await;
    let bound = world.bound_token("bound", Scope::Admin, &["t"]).await;
    let request = world.post("/api/v1/tokens").bearer_auth(&bound.secret);
    let response = request.json(&json!({"name": "free", "scope": "admin"})).send().await.unwrap();
    assert_eq!(code(response).await, "other-tenant");
}

#[tokio::test]
async fn one_who_is_bound_to_tenants_cannot_remove_anothers_task_by_leaving_it_out() {
    let world = World::asking_for_tokens().await;
    let (free, bound) =
        (world.token("free", Scope::Operate).await, world.bound_token("bound", Scope::Operate, &["mine"]).await);
    let submit = async |path: &str, token: &NewToken, tasks: Value| {
        let plan = json!({ "plan": "p", "stages": [{ "name": "s", "uses": "noop" }], "tasks": tasks });
        world.post(path).bearer_auth(&token.secret).json(&plan).send().await.unwrap()
    };
    let (mine, others) = (json!({ "id": "a", "tenant": "mine" }), json!({ "id": "b", "tenant": "others" }));
    assert_eq!(submit("/api/v1/plans", &free, json!([mine, others])).await.status(), 201);
    let refused = submit("/api/v1/plans?update=true", &bound, json!([mine])).await;
    assert_eq!(code(refused).await, "other-tenant");
    let kept = world.get("/api/v1/tasks/b").bearer_auth(&free.secret).send().await.unwrap();
    assert_eq!(kept.status(), 200);
}

#[tokio::test]
async fn an_unknown_token_and_a_wrong_secret_are_refused_in_the_same_words() {
    let world = World::asking_for_tokens().await;
    let real = world.token("real", Scope::Admin).await;
    let stranger = World::asking_for_tokens().await.token("stranger", Scope::Admin).await;
    let secret = |token: &NewToken| token.secret.rsplit_once('_').unwrap().1.to_owned();
    let wrong = format!("mp_{}_{}", real.token.id, secret(&stranger));
    let mut answers = Vec::new();
    for token in [&stranger.secret, &wrong, "mp_", "x", &real.secret.to_uppercase()] {
        let response = world.get("/metrics").bearer_auth(token).send().await.unwrap();
        assert_eq!(response.status(), 401);
        assert!(response.headers()["www-authenticate"].to_str().unwrap().contains("invalid_token"));
        answers.push(response.text().await.unwrap());
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    let basic = world.get("/metrics").basic_auth("a", Some("b")).send().await.unwrap();
    assert_eq!(basic.status(), 401);
    assert_eq!(world.get("/metrics").bearer_auth(&real.secret).send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_token_that_is_no_good_is_refused_also_where_none_is_needed() {
    let world = World::new(Settings::default()).await;
    assert_eq!(world.get("/metrics").send().await.unwrap().status(), 200);
    assert_eq!(world.get("/metrics").bearer_auth("mp_old").send().await.unwrap().status(), 401);
}

#[tokio::test]
async fn a_token_is_made_shown_once_used_listed_and_revoked() {
    let world = World::asking_for_tokens().await;
    let admin = world.token("admin", Scope::Admin).await;
    let ask = |request: reqwest::RequestBuilder| request.bearer_auth(&admin.secret).send();
    let body = json!({"name": "ops", "scope": "operate", "tenants": ["t-1"], "expiresAt": "2100-01-01T00:00:00Z"});
    let made = ask(world.post("/api/v1/tokens").json(&body)).await.unwrap();
    assert_eq!(made.status(), 201);
    let made: NewToken = made.json().await.unwrap();
    assert!(made.secret.starts_with(&format!("mp_{}_", made.token.id)));
    let again = ask(world.post("/api/v1/tokens").json(&body)).await.unwrap();
    assert_eq!(again.status(), 409);
    let listed = ask(world.get("/api/v1/tokens")).await.unwrap().text().await.unwrap();
    assert!(!listed.contains(made.secret.rsplit_once('_').unwrap().1) && !listed.contains("hash"), "{listed}");
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let of = |name: &str| listed["items"].as_array().unwrap().iter().find(|token| token["name"] == name).cloned();
    assert_eq!(of("ops").unwrap()["tenants"], json!(["t-1"]));
    assert_eq!(listed["nextCursor"], Value::Null);
    // It is known, and may not do this: 403, not 401.
    let use_it = || world.get("/metrics").bearer_auth(&made.secret).send();
    assert_eq!(use_it().await.unwrap().status(), 403);
    let path = format!("/api/v1/tokens/{}", made.token.id);
    for _ in 0..2 {
        let revoked: Value = ask(world.client.delete(world.url(&path))).await.unwrap().json().await.unwrap();
        assert!(revoked["revokedAt"].is_string());
    }
    assert_eq!(code(use_it().await.unwrap()).await, "invalid-token");
    assert_eq!(ask(world.client.delete(world.url("/api/v1/tokens/none"))).await.unwrap().status(), 404);
}

#[tokio::test]
async fn an_expired_token_is_refused() {
    let world = World::asking_for_tokens().await;
    let made_at = Timestamp::from_millis(0);
    let expires_at = Some(made_at + Millis::from_secs(1));
    let request = TokenRequest { name: "old".to_owned(), scope: Scope::Admin, tenants: Vec::new(), expires_at };
    let (row, old) = mint(request, &[], made_at).unwrap();
    world.engine.store().put_token(row).await.unwrap();
    let response = world.get("/metrics").bearer_auth(&old.secret).send().await.unwrap();
    assert_eq!(code(response).await, "invalid-token");
}

#[tokio::test]
async fn a_known_token_works_while_the_store_is_away_and_an_unknown_one_is_told_why() {
    let store = Arc::new(Faulty::default());
    let world = World::over(store.clone(), Settings { require_token: true, ..Settings::default() }).await;
    let known = world.token("known", Scope::Read).await;
    let unknown = world.token("unknown", Scope::Read).await;
    let ask = |token: &NewToken| world.get("/metrics").bearer_auth(&token.secret).send();
    assert_eq!(ask(&known).await.unwrap().status(), 200);
    let late = world.token("late", Scope::Read).await;
    store.go_away();
    assert_eq!(ask(&known).await.unwrap().status(), 200);
    assert_eq!(ask(&unknown).await.unwrap().status(), 200, "it was read together with the first");
    assert_eq!(code(ask(&late).await.unwrap()).await, "store-out-of-reach");
}
