//! A plan that is handed in arrives once, however often it has to be sent.

use milepost::{Client, ClientError, PlanFormat, PlanUpload};

use crate::server::{PLAN, Reply, Server};

fn upload() -> PlanUpload {
    let text = "plan: p\n".as_bytes().into();
    PlanUpload { text, format: PlanFormat::Yaml, start: true, update: false, publish: false }
}

fn accepted() -> Reply {
    Reply::json("201 Created", &format!(r#"{{{PLAN},"created":true,"added":2,"removed":0}}"#))
}

#[tokio::test]
async fn a_plan_is_sent_again_under_the_same_key_while_the_server_is_away() {
    let away = Reply::problem(503, "store-out-of-reach", "the store is away");
    let server = Server::new(vec![Reply::HangUp, away, accepted()]);
    let client = Client::new(&server.url).unwrap();
    let accepted = client.submit(upload()).await.unwrap();
    assert!(accepted.created);
    assert_eq!(accepted.plan.plan_id.as_str(), "p");
    let asked = server.asked();
    assert_eq!(asked.len(), 3);
    let key = asked[0].header("idempotency-key").unwrap();
    for asked in &asked {
        assert_eq!(asked.line, "POST /api/v1/plans?start=true HTTP/1.1");
        assert_eq!(asked.header("idempotency-key"), Some(key));
        assert_eq!((asked.header("content-type"), asked.body.as_str()), (Some("application/yaml"), "plan: p\n"));
    }
}

#[tokio::test]
async fn two_submissions_have_two_keys() {
    let server = Server::new(vec![accepted(), accepted()]);
    let client = Client::new(&server.url).unwrap();
    client.submit(upload()).await.unwrap();
    client.submit(PlanUpload { start: false, update: true, format: PlanFormat::Json, ..upload() }).await.unwrap();
    let asked = server.asked();
    assert_ne!(asked[0].header("idempotency-key"), asked[1].header("idempotency-key"));
    assert_eq!(asked[1].line, "POST /api/v1/plans?start=false&update=true HTTP/1.1");
    assert_eq!(asked[1].header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn a_refusal_is_not_tried_again_and_every_mistake_is_told() {
    let body = r#"{"type":"urn:milepost:problem:invalid-plan","title":"","status":422,"detail":"2 errors","code":"invalid-plan","errors":[{"message":"no tasks","line":3,"column":1},{"message":"no stages"}]}"#;
    let server = Server::new(vec![Reply::typed("422 Unprocessable", "application/problem+json", body)]);
    let error = Client::new(&server.url).unwrap().submit(upload()).await.unwrap_err();
    let ClientError::Problem { status: 422, errors, .. } = error else { panic!("{error:?}") };
    assert_eq!((errors[0].line, errors[0].column, errors[1].line), (Some(3), Some(1), None));
    assert_eq!(server.asked().len(), 1);
}
