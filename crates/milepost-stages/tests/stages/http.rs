//! `http:`: what is sent, what each answer means, where requests may not go, and what a failure never tells.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use milepost_core::failure::{ErrorType, Failure};
use milepost_core::time::Millis;
use milepost_engine::stage::{Outcome, StageCall, StageKind};
use milepost_stages::{HttpKind, builtin};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::support::server::{Answer, Server, json as json_reply, reply};
use crate::support::{PATIENCE, Seen, call, eventually, failure, outputs, within};

async fn send(with: Value) -> Outcome {
    send_by(&HttpKind::new(), with).await
}

async fn send_by(kind: &HttpKind, with: Value) -> Outcome {
    within(kind.run(StageCall { with, ..call(&Arc::new(Seen::default())) })).await
}

/// The failure that one answer leads to.
async fn failed_by(answer: impl Fn() -> Answer + Send + Sync + 'static) -> Failure {
    let server = Server::start(move |_| answer()).await;
    failure(send(json!({"url": server.url("/x")})).await)
}

#[tokio::test]
async fn a_request_is_sent_as_the_plan_says_with_its_idempotency_key_and_trace() {
    let server = Server::start(|_| reply("200 OK", "", "")).await;
    let with = json!({
        "method": "post",
        "url": server.url("/orders?dry=1"),
        "headers": {"X-Version": 3, "authorization": "Bearer abc"},
        "body": {"order": 17},
    });
    let kind = HttpKind::new();
    for attempt in [1, 2] {
        let call = StageCall { attempt, with: with.clone(), ..call(&Arc::new(Seen::default())) };
        outputs(within(kind.run(call)).await);
    }
    let received = server.received();
    let first = &received[0];
    assert_eq!((first.method.as_str(), first.target.as_str()), ("POST", "/orders?dry=1"));
    assert_eq!(first.body, r#"{"order":17}"#);
    for (name, value) in [
        ("content-type", "application/json"),
        ("x-version", "3"),
        ("authorization", "Bearer abc"),
        ("idempotency-key", "task-1/stage-1/origin.1"),
    ] {
        assert_eq!(first.headers[name], value, "{name}");
    }
    let parts = |n: usize| received[n].headers["traceparent"].split('-').map(str::to_owned).collect::<Vec<_>>();
    let (one, two) = (parts(0), parts(1));
    assert_eq!((one[0].as_str(), one[1].len(), one[2].len(), one[3].as_str()), ("00", 32, 16, "01"));
    assert_eq!(one[1], two[1], "attempts of one task share a trace");
    assert_ne!(one[2], two[2], "each attempt is a span of its own");
    assert_eq!(received[1].headers["milepost-fence"], "7");
    assert_eq!(received[1].headers["idempotency-key"], "task-1/stage-1/origin.1", "the same for every attempt");
}

#[tokio::test]
async fn a_rollback_has_an_idempotency_key_of_its_own() {
    let server = Server::start(|_| reply("200 OK", "", "")).await;
    let with = json!({"url": server.url("/")});
    let call = StageCall { rollback: true, with, ..call(&Arc::new(Seen::default())) };
    outputs(within(HttpKind::new().run(call)).await);
    assert_eq!(server.received()[0].headers["idempotency-key"], "task-1/stage-1/origin.1/rollback");
}

#[tokio::test]
async fn a_body_of_text_is_sent_as_it_is() {
    let server = Server::start(|_| reply("200 OK", "", "")).await;
    outputs(send(json!({"method": "PUT", "url": server.url("/"), "body": "plain ü"})).await);
    outputs(
        send(json!({"method": "PUT", "url": server.url("/"), "body": "<a/>", "headers": {"content-type": "text/xml"}}))
            .await,
    );
    let received = server.received();
    assert_eq!(
        (received[0].body.as_str(), received[0].headers["content-type"].as_str()),
        ("plain ü", "text/plain; charset=utf-8")
    );
    assert_eq!(received[1].headers["content-type"], "text/xml");
}

#[tokio::test]
async fn attempts_share_connections() {
    let server = Server::start(|_| reply("200 OK", "", "ok")).await;
    let kind = HttpKind::new();
    for _ in 0..5 {
        outputs(send_by(&kind, json!({"url": server.url("/")})).await);
    }
    assert_eq!((server.received().len(), server.connections()), (5, 1));
}

#[tokio::test]
async fn any_2xx_is_success_and_the_reply_becomes_the_outputs() {
    for (answer, expected) in [
        ("200 OK", json!({"status": 200, "body": {"rows": 12}})),
        ("201 Created", json!({"status": 201, "body": {"rows": 12}})),
    ] {
        let server = Server::start(move |_| json_reply(answer, &json!({"rows": 12}))).await;
        assert_eq!(Value::Object(outputs(send(json!({"url": server.url("/")})).await)), expected);
    }
    let server = Server::start(|_| reply("200 OK", "Content-Type: text/plain\r\n", r#"{"result":"failure"}"#)).await;
    let text = outputs(send(json!({"url": server.url("/")})).await);
    assert_eq!(Value::Object(text), json!({"status": 200, "body": "{\"result\":\"failure\"}"}));
    let server = Server::start(|_| Answer::Reply("HTTP/1.1 204 No Content\r\n\r\n".to_owned())).await;
    assert_eq!(Value::Object(outputs(send(json!({"url": server.url("/")})).await)), json!({"status": 204, "body": ""}));
}

#[tokio::test]
async fn with_expected_statuses_only_those_are_success() {
    let server = Server::start(|received| reply(&format!("{} Status", &received.target[1..]), "", "")).await;
    let kind = HttpKind::new();
    let ask = |status: u16, expect: Value| {
        send_by(&kind, json!({"url": server.url(&format!("/{status}")), "expect": {"status": expect}}))
    };
    assert_eq!(outputs(ask(404, json!(404)).await)["status"], 404);
    assert_eq!(outputs(ask(503, json!([200, 503])).await)["status"], 503);
    assert_eq!(outputs(ask(302, json!("302")).await)["status"], 302);
    let unexpected = failure(ask(200, json!([201, 202])).await);
    assert!(
        !unexpected.retryable && unexpected.reason.contains("200 OK: expected [201, 202]"),
        "{}",
        unexpected.reason
    );
    assert!(failure(ask(503, json!(200)).await).retryable);
}

#[tokio::test]
async fn a_reply_with_a_result_is_obeyed() {
    let answer = |body: Value| async move {
        let server = Server::start(move |_| json_reply("200 OK", &body)).await;
        send(json!({"url": server.url("/")})).await
    };
    let success = answer(json!({"result": "success", "outputs": {"a": [1]}, "reason": "", "retryable": false})).await;
    assert_eq!(Value::Object(outputs(success)), json!({"a": [1]}));
    assert_eq!(answer(json!({"result": "success"})).await, Outcome::success());
    assert_eq!(
        answer(json!({"result": "skip", "reason": "up to date"})).await,
        Outcome::Skip { reason: "up to date".into() }
    );
    for (reply, retryable) in [
        (json!({"result": "failure", "reason": "no such order"}), false),
        (json!({"result": "failure", "reason": "no such order", "retryable": false}), false),
        (json!({"result": "failure", "reason": "no such order", "retryable": true}), true),
    ] {
        let failed = failure(answer(reply).await);
        assert_eq!((failed.error_type, failed.retryable), (ErrorType::Business, retryable));
        assert_eq!(failed.reason, "no such order");
    }
    assert_eq!(failure(answer(json!({"result": "success", "outputs": 5})).await).error_type, ErrorType::Validation);
    // Not one of the three words: a reply like any other.
    assert_eq!(outputs(answer(json!({"result": "ok"})).await)["body"]["result"], "ok");
}

#[tokio::test]
async fn statuses_decide_what_is_retried() {
    for (status, error_type, retryable) in [
        ("408 Request Timeout", ErrorType::Timeout, true),
        ("425 Too Early", ErrorType::Unavailable, true),
        ("429 Too Many Requests", ErrorType::Unavailable, true),
        ("500 Internal Server Error", ErrorType::Unavailable, true),
        ("503 Service Unavailable", ErrorType::Unavailable, true),
        ("400 Bad Request", ErrorType::Business, false),
        ("404 Not Found", ErrorType::Business, false),
        ("409 Conflict", ErrorType::Business, false),
    ] {
        let failed =
            failed_by(move || json_reply(status, &json!({"result": "success", "detail": "the\nreason"}))).await;
        assert_eq!((failed.error_type, failed.retryable), (error_type, retryable), "{status}");
        assert!(failed.reason.ends_with(&format!("/x: {status}: the reason")), "{}", failed.reason);
    }
}

#[tokio::test]
async fn retry_after_is_respected() {
    for (status, header, expected) in [
        ("429 Too Many Requests", "Retry-After: 7\r\n", Some(7)),
        (
            "503 Service Unavailable",
            "Date: Sun, 06 Nov 1994 08:49:07 GMT\r\nRetry-After: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
            Some(30),
        ),
        ("503 Service Unavailable", "", None),
        ("404 Not Found", "Retry-After: 7\r\n", None),
    ] {
        let failed = failed_by(move || reply(status, header, "")).await;
        assert_eq!(failed.retry_after, expected.map(Millis::from_secs), "{status}");
    }
}

#[tokio::test]
async fn connection_errors_are_retried() {
    // Nobody listens on a port that was just given back.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let refused = failure(send(json!({"url": format!("http://127.0.0.1:{port}/")})).await);
    assert_eq!((refused.error_type, refused.retryable), (ErrorType::Network, true));
    assert!(refused.reason.contains("could not connect: Connection refused"), "{}", refused.reason);

    let closed = failed_by(|| Answer::ReplyAndClose(String::new())).await;
    assert_eq!((closed.error_type, closed.retryable), (ErrorType::Network, true), "{}", closed.reason);

    let cut_off =
        failed_by(|| Answer::ReplyAndClose("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf".to_owned())).await;
    assert_eq!((cut_off.error_type, cut_off.retryable), (ErrorType::Network, true), "{}", cut_off.reason);

    let nameless = HttpKind::new().resolve_with(|_| async { Err(std::io::Error::other("no such name")) });
    let unresolved = failure(send_by(&nameless, json!({"url": "http://nowhere.test/"})).await);
    assert_eq!((unresolved.error_type, unresolved.retryable), (ErrorType::Network, true), "{}", unresolved.reason);
    assert!(unresolved.reason.contains("no such name"), "{}", unresolved.reason);
}

#[tokio::test]
async fn a_redirect_is_not_followed_but_named() {
    let target = Server::start(|_| reply("200 OK", "", "")).await;
    let to = target.url("/there?token=hidden");
    let failed = failed_by(move || reply("302 Found", &format!("Location: {to}\r\n"), "")).await;
    assert_eq!((failed.error_type, failed.retryable), (ErrorType::Business, false));
    assert!(failed.reason.contains(&format!("points to {};", target.url("/there"))), "{}", failed.reason);
    assert!(!failed.reason.contains("hidden"));
    assert_eq!(target.connections(), 0);
}

#[tokio::test]
async fn a_reply_larger_than_the_limit_is_refused_without_buffering_it() {
    let told =
        failed_by(|| Answer::ReplyEndlessly("HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n".to_owned())).await;
    assert_eq!((told.error_type, told.retryable), (ErrorType::Persistence, false));
    assert!(told.reason.contains("pass a reference"), "{}", told.reason);

    let server = Server::start(|_| Answer::ReplyEndlessly("HTTP/1.1 200 OK\r\n\r\n".to_owned())).await;
    let endless = failure(send(json!({"url": server.url("/")})).await);
    assert_eq!((endless.error_type, endless.retryable), (ErrorType::Persistence, false));
    // The server notices that nobody listens; what it sent until then went into the buffers of the two sockets.
    eventually("closing the connection", || (server.closed() == 1).then_some(())).await;
    assert!(server.sent_endlessly() < 32 * 1024 * 1024, "{}", server.sent_endlessly());

    let exact = "x".repeat(1024 * 1024);
    let server = Server::start(move |_| reply("200 OK", "", &exact)).await;
    assert_eq!(outputs(send(json!({"url": server.url("/")})).await)["body"].as_str().map(str::len), Some(1024 * 1024));
}

#[tokio::test]
async fn an_endless_error_page_does_not_keep_the_stage_running() {
    let head = "HTTP/1.1 500 Oops\r\nContent-Type: application/json\r\n\r\n";
    let failed = failed_by(move || Answer::ReplyEndlessly(head.to_owned())).await;
    assert_eq!((failed.error_type, failed.retryable), (ErrorType::Unavailable, true));
}

#[tokio::test]
async fn cancelling_aborts_the_request() {
    let server = Server::start(|_| Answer::Silence).await;
    let call = StageCall { with: json!({"url": server.url("/")}), ..call(&Arc::new(Seen::default())) };
    let cancel = call.cancel.clone();
    let attempt = tokio::spawn(async move { HttpKind::new().run(call).await });
    eventually("the request", || (server.received().len() == 1).then_some(())).await;
    cancel.cancel();
    let failed = failure(within(attempt).await.unwrap());
    assert_eq!((failed.error_type, failed.retryable), (ErrorType::Timeout, true));
    eventually("closing the connection", || (server.closed() == 1).then_some(())).await;
}

#[tokio::test]
async fn link_local_addresses_are_refused() {
    for url in [
        "http://169.254.169.254/latest/meta-data",
        "http://0xA9FEA9FE/",
        "http://[::ffff:169.254.169.254]/",
        "http://[fe80::1]/",
    ] {
        let failed = failure(send(json!({ "url": url })).await);
        assert_eq!((failed.error_type, failed.retryable), (ErrorType::Validation, false), "{url}: {}", failed.reason);
        assert!(HttpKind::new().check(&json!({ "url": url })).is_err(), "{url}");
        assert!(HttpKind::new().allow_link_local().check(&json!({ "url": url })).is_ok(), "{url}");
    }
}

#[tokio::test]
async fn a_name_that_leads_to_a_link_local_address_is_refused() {
    let metadata = IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254));
    let rebound = HttpKind::new().resolve_with(move |_| async move { Ok(vec![metadata]) });
    let failed = failure(send_by(&rebound, json!({"url": "http://harmless.test/"})).await);
    assert_eq!((failed.error_type, failed.retryable), (ErrorType::Validation, false), "{}", failed.reason);
    assert!(failed.reason.contains("169.254.169.254"), "{}", failed.reason);

    // Beside an allowed address, the refused one is never tried.
    let server = Server::start(|_| reply("200 OK", "", "")).await;
    let both = HttpKind::new().resolve_with(move |_| async move { Ok(vec![metadata, Ipv4Addr::LOCALHOST.into()]) });
    outputs(send_by(&both, json!({"url": format!("http://harmless.test:{}/", server.port)})).await);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_failure_tells_no_secrets() {
    let canaries = ["canary-header", "canary-user", "canary-password", "canary-query"];
    // The server says all of them back.
    let all = canaries.join(" ");
    let server = Server::start(move |received| match received.target.as_str() {
        target if target.starts_with("/close") => Answer::ReplyAndClose(String::new()),
        target if target.starts_with("/obeyed") => json_reply("200 OK", &json!({"result": "failure", "reason": all})),
        _ => json_reply("400 Bad Request", &json!({ "message": all })),
    })
    .await;
    for path in ["/close", "/obeyed", "/bad"] {
        let url = format!("http://canary-user:canary-password@127.0.0.1:{}{path}?q=canary-query", server.port);
        let with = json!({"url": url, "headers": {"Authorization": "Bearer canary-header"}});
        let failed = failure(send(with).await);
        assert!(canaries.iter().all(|canary| !failed.reason.contains(canary)), "{}", failed.reason);
    }
    for with in [
        json!({"url": "http://canary-user:canary-password@127.0.0.1:99999/?q=canary-query"}),
        json!({"url": "http://127.0.0.1/", "headers": {"Authorization": "canary-header\n"}}),
    ] {
        let failed = failure(send(with).await);
        assert_eq!((failed.error_type, failed.retryable), (ErrorType::Validation, false));
        assert!(!failed.reason.contains("canary"), "{}", failed.reason);
    }
}

#[tokio::test]
async fn https_to_a_server_without_tls_is_a_connection_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    });
    let failed = failure(send(json!({"url": format!("https://127.0.0.1:{port}/")})).await);
    assert_eq!((failed.error_type, failed.retryable), (ErrorType::Network, true), "{}", failed.reason);
    within(server).await.unwrap();
}

#[tokio::test]
async fn the_environment_cannot_redirect_requests_through_a_proxy() {
    // Set for a run of this very test, as a program's own environment is no place to change anything in.
    const PLAYING: &str = "TEST_BEHIND_A_PROXY";
    if std::env::var_os(PLAYING).is_some() {
        let server = Server::start(|_| reply("200 OK", "", "direct")).await;
        assert_eq!(outputs(send(json!({"url": server.url("/")})).await)["body"], "direct");
        return;
    }
    let status = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "http::the_environment_cannot_redirect_requests_through_a_proxy"])
        .env(PLAYING, "1")
        .env("http_proxy", "http://127.0.0.1:9")
        .env("ALL_PROXY", "http://127.0.0.1:9")
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .stdout(std::process::Stdio::null())
        .status();
    assert!(tokio::time::timeout(PATIENCE, status).await.unwrap().unwrap().success());
}

#[tokio::test]
async fn the_built_in_kinds_have_the_names_that_plan_files_use() {
    let kinds = builtin();
    let names: Vec<&str> = kinds.iter().map(|(name, _)| *name).collect();
    let files = ["file.checksum", "file.copy", "file.rename", "image.thumbnail"];
    assert_eq!(names, [&["run", "http", "noop"], files.as_slice(), &["copy-table"]].concat());
    let (_, noop) = &kinds[2];
    let call = StageCall { with: json!({"outputs": {"a": 1}}), ..call(&Arc::new(Seen::default())) };
    assert_eq!(Value::Object(outputs(within(noop.run(call)).await)), json!({"a": 1}));
}
