//! The document lists every route and is what it says it is.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::World;

const ROUTES: &[&str] = &[
    "DELETE /api/v1/tokens/{id}",
    "GET /api/v1/consumer",
    "GET /api/v1/dead-letters",
    "GET /api/v1/dead-letters/{id}",
    "GET /api/v1/docs",
    "GET /api/v1/locks",
    "GET /api/v1/nodes",
    "GET /api/v1/openapi.json",
    "GET /api/v1/plans",
    "GET /api/v1/plans/{id}",
    "GET /api/v1/plans/{id}/progress",
    "GET /api/v1/plans/{id}/progress/stream",
    "GET /api/v1/plans/{id}/report",
    "GET /api/v1/plans/{id}/tasks",
    "GET /api/v1/tasks/{id}",
    "GET /api/v1/tasks/{id}/checkpoint",
    "GET /api/v1/tasks/{id}/events",
    "GET /api/v1/tasks/{id}/explain",
    "GET /api/v1/tasks/{id}/logs",
    "GET /api/v1/tasks/{id}/progress/stream",
    "GET /api/v1/tenants/{tenant}/checkpoint",
    "GET /api/v1/tenants/{tenant}/lock",
    "GET /api/v1/tenants/{tenant}/task",
    "GET /api/v1/tokens",
    "GET /healthz",
    "GET /metrics",
    "GET /readyz",
    "POST /api/v1/consumer/pause",
    "POST /api/v1/consumer/resume",
    "POST /api/v1/dead-letters/{id}/redrive",
    "POST /api/v1/plans",
    "POST /api/v1/plans/{id}/cancel",
    "POST /api/v1/plans/{id}/pause",
    "POST /api/v1/plans/{id}/reset-failed",
    "POST /api/v1/plans/{id}/resume",
    "POST /api/v1/plans/{id}/retry",
    "POST /api/v1/plans/{id}/rollback",
    "POST /api/v1/plans/{id}/start",
    "POST /api/v1/tasks/{id}/cancel",
    "POST /api/v1/tasks/{id}/pause",
    "POST /api/v1/tasks/{id}/publish",
    "POST /api/v1/tasks/{id}/repair",
    "POST /api/v1/tasks/{id}/reset-failed",
    "POST /api/v1/tasks/{id}/resume",
    "POST /api/v1/tasks/{id}/retry",
    "POST /api/v1/tasks/{id}/rollback",
    "POST /api/v1/tasks/{id}/signals/{name}",
    "POST /api/v1/tenants/{tenant}/cancel",
    "POST /api/v1/tenants/{tenant}/pause",
    "POST /api/v1/tenants/{tenant}/resume",
    "POST /api/v1/tenants/{tenant}/retry",
    "POST /api/v1/tenants/{tenant}/rollback",
    "POST /api/v1/tokens",
];

fn operations(document: &Value) -> Vec<(String, &Value)> {
    let paths = document["paths"].as_object().expect("paths");
    let operations = paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().expect("methods").iter();
        methods.map(move |(method, operation)| (format!("{} {path}", method.to_uppercase()), operation))
    });
    operations.collect()
}

#[tokio::test]
async fn the_document_lists_every_route() {
    let world = World::new().await;
    let document = world.read("/openapi.json").await;
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")), "{}", document["openapi"]);
    let listed: BTreeSet<String> = operations(&document).into_iter().map(|(route, _)| route).collect();
    let expected: BTreeSet<String> = ROUTES.iter().map(ToString::to_string).collect();
    assert_eq!(listed, expected);
    let ids: Vec<&str> =
        operations(&document).iter().filter_map(|(_, operation)| operation["operationId"].as_str()).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ROUTES.len(), "every operation has a name of its own");
    world.close().await;
}

#[tokio::test]
async fn every_reference_in_the_document_leads_somewhere() {
    let world = World::new().await;
    let document = world.read("/openapi.json").await;
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(references.len() > 100);
    for reference in references {
        let pointer = reference.strip_prefix('#').expect("a place in the document");
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    world.close().await;
}

fn collect<'a>(value: &'a Value, references: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            references.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|field| collect(field, references));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, references)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[tokio::test]
async fn the_document_says_what_plans_and_errors_look_like() {
    let world = World::new().await;
    let document = world.read("/openapi.json").await;
    let submit = &document["paths"]["/api/v1/plans"]["post"];
    for media_type in ["application/json", "application/yaml", "application/x-yaml", "text/yaml"] {
        let schema = &submit["requestBody"]["content"][media_type]["schema"];
        assert_eq!(*schema, json!({ "$ref": "#/components/schemas/Plan" }), "{media_type}");
    }
    let schemas = &document["components"]["schemas"];
    assert_eq!(schemas["Plan"]["required"], json!(["tasks"]));
    assert_eq!(schemas["StageSpec"]["dependentRequired"]["env"], json!(["run"]));
    assert_eq!(schemas["TaskStatus"]["enum"][6], "ROLLING_BACK");
    for (route, operation) in operations(&document) {
        let body = operation["requestBody"].to_string();
        assert!(!route.ends_with("/retry") || body.contains("#/components/schemas/VerbRequest"), "{route}: {body}");
        for (status, answer) in operation["responses"].as_object().expect("answers") {
            if status.as_str() >= "400" {
                let content = &answer["content"]["application/problem+json"]["schema"]["$ref"];
                assert_eq!(*content, "#/components/schemas/ProblemView", "{route} {status}");
            }
        }
    }
    world.close().await;
}

#[tokio::test]
async fn the_page_for_people_needs_nothing_from_elsewhere() {
    let world = World::new().await;
    let reply = world.send(world.request(Method::GET, "/api/v1/docs")).await;
    assert_eq!(reply.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = reply.header("content-security-policy").unwrap_or_default();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let (_, nonce) = policy.split_once("script-src 'nonce-").expect("a nonce");
    let (nonce, _) = nonce.split_once('\'').expect("its end");
    assert!(reply.text.contains(&format!("<script nonce=\"{nonce}\">")));
    assert!(!reply.text.contains("https://") && !reply.text.contains("{nonce}"));
    let again = world.send(world.request(Method::GET, "/api/v1/docs")).await;
    assert!(!again.text.contains(nonce), "a nonce is for once");
    world.close().await;
}
