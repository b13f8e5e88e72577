//! Watching a plan over a connection that does not always hold.

use futures::StreamExt;
use milepost::{Client, ClientError, WatchEvent};
use milepost_core::id::PlanId;
use milepost_core::task::PlanStatus;

use crate::server::{PLAN, Reply, Server};

fn snapshot() -> String {
    format!("event: snapshot\nid: 10\ndata: {{\"plan\":{{{PLAN}}},\"tasks\":[]}}\n\n")
}

fn state(id: u32, status: &str) -> String {
    format!("event: state\nid: {id}\ndata: {{\"planId\":\"p\",\"planStatus\":\"{status}\"}}\n\n")
}

fn end() -> String {
    "event: end\nid: 99\ndata: {\"planId\":\"p\",\"planStatus\":\"COMPLETED\"}\n\n".to_owned()
}

async fn watch(server: &Server) -> Vec<Result<WatchEvent, ClientError>> {
    let client = Client::new(&server.url).unwrap();
    client.watch(&PlanId::parse("p").unwrap()).collect().await
}

#[tokio::test]
async fn a_broken_stream_goes_on_behind_the_last_event_that_came() {
    let server = Server::new(vec![
        // The last event is cut off in its middle: it did not come.
        Reply::stream(&format!(": hello\n\n{}{}event: state\nid: 12\ndata: {{\"pla", snapshot(), state(11, "PAUSED"))),
        Reply::HangUp,
        Reply::problem(503, "store-out-of-reach", "the store is away"),
        Reply::stream(&format!("{}{}", state(12, "RUNNING"), end())),
    ]);
    let seen: Vec<WatchEvent> = watch(&server).await.into_iter().map(Result::unwrap).collect();
    let [WatchEvent::Snapshot(first), WatchEvent::State(paused), WatchEvent::Reconnected, rest @ ..] = &seen[..] else {
        panic!("{seen:?}")
    };
    assert_eq!((first.plan.status, paused.plan_status), (PlanStatus::Running, Some(PlanStatus::Paused)));
    let [WatchEvent::State(running), WatchEvent::End(end)] = rest else { panic!("{seen:?}") };
    assert_eq!((running.plan_status, end.plan_status), (Some(PlanStatus::Running), Some(PlanStatus::Completed)));
    let asked = server.asked();
    assert_eq!(asked[0].line, "GET /api/v1/plans/p/progress/stream HTTP/1.1");
    assert_eq!(asked[0].header("last-event-id"), None);
    assert!(asked[1..].iter().all(|asked| asked.header("last-event-id") == Some("11")), "{asked:?}");
}

#[tokio::test]
async fn what_a_newer_server_says_besides_is_passed_over() {
    let stream = format!("event: weather\ndata: sunny\n\nid: 4\n\n{}", end());
    let seen = watch(&Server::new(vec![Reply::stream(&stream)])).await;
    assert!(matches!(&seen[..], [Ok(WatchEvent::End(_))]), "{seen:?}");
}

#[tokio::test]
async fn trouble_of_the_server_is_told_and_does_not_end_the_stream() {
    let stream = format!("event: error\ndata: {{\"detail\":\"the store is away\"}}\n\n{}", end());
    let seen = watch(&Server::new(vec![Reply::stream(&stream)])).await;
    let [Ok(WatchEvent::Error { message }), Ok(WatchEvent::End(_))] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(message, "the store is away");
}

#[tokio::test]
async fn a_plan_that_is_not_there_ends_the_stream_before_it_begins() {
    let seen = watch(&Server::new(vec![Reply::problem(404, "not-found", "there is no plan `p`")])).await;
    assert!(matches!(&seen[..], [Err(error)] if error.is_not_found()), "{seen:?}");
}

#[tokio::test]
async fn a_plan_that_is_gone_when_the_connection_stands_again_ends_the_stream() {
    let server = Server::new(vec![Reply::stream(&snapshot()), Reply::problem(404, "not-found", "gone")]);
    let seen = watch(&server).await;
    assert!(matches!(&seen[..], [Ok(WatchEvent::Snapshot(_)), Err(error)] if error.is_not_found()), "{seen:?}");
}

#[tokio::test]
async fn nonsense_ends_the_stream() {
    for reply in [Reply::json("200 OK", "{}"), Reply::stream("event: state\ndata: {}\n\n")] {
        let seen = watch(&Server::new(vec![reply])).await;
        assert!(matches!(&seen[..], [Err(ClientError::Protocol { .. })]), "{seen:?}");
    }
}

#[test]
fn an_event_is_one_json_object_that_says_which_it_is() {
    let event = WatchEvent::Error { message: "x".into() };
    assert_eq!(serde_json::to_string(&event).unwrap(), r#"{"event":"error","message":"x"}"#);
    assert_eq!(serde_json::to_string(&WatchEvent::Reconnected).unwrap(), r#"{"event":"reconnected"}"#);
}
