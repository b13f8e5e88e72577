//! What is asked, and what becomes of the answers.

use milepost::{Client, ClientError, EventFilter, Paging, Verb};
use milepost_core::api::{PublishRequest, VerbRequest};
use milepost_core::id::{PlanId, TaskId, Tenant};

use crate::server::{PLAN, Reply, Server};

fn plan() -> PlanId {
    PlanId::parse("p").unwrap()
}

#[tokio::test]
async fn a_question_carries_the_token_and_the_filters_that_were_given() {
    let server = Server::new(vec![
        Reply::json("200 OK", &format!(r#"{{"items":[{{{PLAN}}}],"nextCursor":"7"}}"#)),
        Reply::json("200 OK", r#"{"items":[],"nextCursor":null}"#),
    ]);
    let client = Client::new(&server.url).unwrap().token("mp_a_b").unwrap();
    let page = client.plans(&Paging { cursor: None, limit: Some(1) }).await.unwrap();
    assert_eq!((page.items[0].plan_id.as_str(), page.next_cursor.as_deref()), ("p", Some("7")));
    let filter = EventFilter { after: Some("3".into()), attempt: Some(2), limit: None };
    client.events(&TaskId::parse("t").unwrap(), &filter).await.unwrap();
    let asked = server.asked();
    assert_eq!(asked[0].line, "GET /api/v1/plans?limit=1 HTTP/1.1");
    assert_eq!(asked[1].line, "GET /api/v1/tasks/t/events?after=3&attempt=2 HTTP/1.1");
    assert!(asked.iter().all(|asked| asked.header("authorization") == Some("Bearer mp_a_b")));
    assert!(!format!("{client:?}").contains("mp_a_b"), "the token shows");
}

#[tokio::test]
async fn a_tenant_of_any_text_stays_one_part_of_the_path_and_a_base_path_stays_before_it() {
    let answer = r#"{"target":"a/b c?","verb":"pause","tasks":1,"plan":null,"task":null}"#;
    let server = Server::new(vec![Reply::json("200 OK", answer)]);
    let client = Client::new(&format!("{}/milepost/", server.url)).unwrap();
    let request = VerbRequest { reason: Some("lunch".into()), ..VerbRequest::default() };
    let answer = client.operate_tenant(&Tenant::parse("a/b c?").unwrap(), Verb::Pause, &request).await.unwrap();
    assert_eq!(answer.tasks, 1);
    let asked = &server.asked()[0];
    assert_eq!(asked.line, "POST /milepost/api/v1/tenants/a%2Fb%20c%3F/pause HTTP/1.1");
    assert!(asked.body.contains(r#""reason":"lunch""#), "{}", asked.body);
}

#[tokio::test]
async fn a_problem_is_told_with_its_code_and_words() {
    let server = Server::new(vec![
        Reply::problem(409, "refused", "cannot pause plan p: it is FAILED"),
        Reply::problem(404, "not-found", "there is no plan `p`"),
    ]);
    let client = Client::new(&server.url).unwrap();
    let refused = client.operate_plan(&plan(), Verb::Pause, &VerbRequest::default()).await.unwrap_err();
    let ClientError::Problem { status: 409, code, detail, .. } = &refused else { panic!("{refused:?}") };
    assert_eq!((code.as_str(), detail.as_str()), ("refused", "cannot pause plan p: it is FAILED"));
    assert!(client.plan(&plan()).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn what_is_no_milepost_server_is_told_apart_from_one_that_is_away() {
    let server = Server::new(vec![
        Reply::typed("404 Not Found", "text/html", "<h1>no such page</h1>"),
        Reply::typed("200 OK", "text/html", "<h1>welcome</h1>"),
        Reply::typed("502 Bad Gateway", "text/html", "<h1>nobody home</h1>"),
        Reply::HangUp,
    ]);
    let client = Client::new(&server.url).unwrap();
    for shown in ["no such page", "welcome"] {
        let error = client.plan(&plan()).await.unwrap_err();
        assert!(matches!(error, ClientError::Protocol { .. }), "{error:?}");
        assert!(error.to_string().contains(shown), "{error}");
    }
    // The third by a proxy, the fourth hangs up, and then nobody listens any more.
    for _ in 0..3 {
        let error = client.plan(&plan()).await.unwrap_err();
        assert!(matches!(error, ClientError::Unreachable { .. }), "{error:?}");
        assert!(error.to_string().contains(&server.url), "{error}");
    }
}

#[test]
fn an_address_that_cannot_be_one_is_refused_at_once() {
    for url in ["", "localhost:8080", "ftp://host", "http://", "http://user:secret@host", "http://host/?a=b"] {
        let error = Client::new(url).unwrap_err();
        assert!(matches!(error, ClientError::Settings(_)), "{url}: {error:?}");
    }
    assert!(Client::new("http://host").unwrap().token("line\nbreak").is_err());
    assert_eq!(Client::new("http://host:80/").unwrap().url(), "http://host");
}

#[tokio::test]
async fn messages_and_dead_letters_are_asked_for_under_their_own_names() {
    let letter = r#"{"id":"a b.3","failureReason":"no route","failedAt":"2026-01-01T00:00:00Z"}"#;
    let consumer =
        r#"{"paused":true,"activeExecutions":0,"consumedCount":1,"failedCount":0,"connected":true,"partitions":8}"#;
    let server = Server::new(vec![
        Reply::json("200 OK", r#"{"taskId":"t","messageId":"m1"}"#),
        Reply::json("200 OK", &format!(r#"{{"items":[{letter}],"nextCursor":null}}"#)),
        Reply::json("200 OK", letter),
        Reply::json("200 OK", r#"{"id":"a b.3","messageId":"m2","task":null}"#),
        Reply::json("200 OK", consumer),
    ]);
    let client = Client::new(&server.url).unwrap();
    let request = PublishRequest { deadline: Some("10m".into()) };
    assert_eq!(client.publish(&TaskId::parse("t").unwrap(), &request).await.unwrap().message_id, "m1");
    assert_eq!(client.dead_letters(&Paging::default()).await.unwrap().items[0].id, "a b.3");
    assert_eq!(client.dead_letter("a b.3").await.unwrap().failure_reason, "no route");
    let redriven = client.redrive("a b.3", &VerbRequest::default()).await.unwrap();
    assert_eq!(redriven.message_id.as_deref(), Some("m2"));
    assert!(client.pause_consumer().await.unwrap().paused);
    let asked = server.asked();
    let lines: Vec<&str> = asked.iter().map(|asked| asked.line.as_str()).collect();
    assert_eq!(
        lines,
        [
            "POST /api/v1/tasks/t/publish HTTP/1.1",
            "GET /api/v1/dead-letters HTTP/1.1",
            "GET /api/v1/dead-letters/a%20b.3 HTTP/1.1",
            "POST /api/v1/dead-letters/a%20b.3/redrive HTTP/1.1",
            "POST /api/v1/consumer/pause HTTP/1.1",
        ]
    );
    assert!(asked[0].body.contains(r#""deadline":"10m""#), "{}", asked[0].body);
}
