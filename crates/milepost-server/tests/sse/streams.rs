//! What a stream begins with, what is in it, and how it ends.

use serde_json::Value;

use crate::support::{World, bounded, states};

const GATED: &str = "{plan: p, stages: [{name: a, uses: noop}, {name: b, uses: gate}], tasks: [{id: t}, {id: u}]}";

#[tokio::test]
async fn a_stream_begins_with_a_snapshot_and_ends_with_the_plan() {
    let world = World::new().await;
    world.submit(GATED).await;
    let response = world.ask("plans/p", None).await;
    let headers = response.headers().clone();
    assert_eq!(headers["content-type"], "text/event-stream");
    assert_eq!(
        (&headers["cache-control"], &headers["x-accel-buffering"]),
        (&"no-cache".parse().unwrap(), &"no".parse().unwrap())
    );
    drop(response);
    let mut client = world.watch("plans/p").await;
    let first = client.next().await.unwrap();
    assert_eq!((first.name.as_str(), &first.data["plan"]["planId"]), ("snapshot", &Value::from("p")));
    assert!(first.id.is_some(), "a client that saw nothing else can resume from it");
    world.gate.open();
    let rest = client.rest().await;
    let last = rest.last().unwrap();
    assert_eq!((last.name.as_str(), &last.data["planStatus"]), ("end", &Value::from("COMPLETED")));
    let counts = rest.iter().rfind(|event| event.name == "progress" && event.data["tasks"].is_object()).unwrap();
    assert_eq!((&counts.data["tasks"]["completed"], &counts.data["percent"]), (&2.into(), &100.0.into()));
    world.close().await;
}

#[tokio::test]
async fn a_stream_of_what_has_ended_says_so_and_closes() {
    let world = World::new().await;
    world.gate.open();
    world.submit(GATED).await;
    world.ended("p").await;
    for path in ["plans/p", "tasks/p", "tasks/t"] {
        let events = world.watch(path).await.rest().await;
        let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names, ["snapshot", "end"], "{path}");
    }
    world.close().await;
}

#[tokio::test]
async fn a_tasks_own_stream_has_what_is_about_it_alone_and_ends_with_it() {
    let world = World::new().await;
    world.submit(GATED).await;
    let mut client = world.watch("tasks/t").await;
    let snapshot = client.next().await.unwrap();
    assert_eq!(snapshot.data["tasks"].as_array().unwrap().len(), 1);
    world.gate.open();
    let rest = client.rest().await;
    assert!(rest.iter().all(|event| event.data["taskId"] == "t" || event.data["task"]["taskId"] == "t"), "{rest:?}");
    assert_eq!(rest.last().unwrap().data["taskStatus"], "COMPLETED");
    world.close().await;
}

#[tokio::test]
async fn a_cancelled_plans_stream_ends_when_its_last_task_has() {
    let world = World::new().await;
    world.submit(GATED).await;
    let mut client = world.watch("plans/p").await;
    client.next().await.unwrap();
    world.cancel("p").await;
    let rest = client.rest().await;
    let last = rest.last().unwrap();
    assert_eq!((last.name.as_str(), &last.data["planStatus"]), ("end", &Value::from("CANCELLED")));
    let cancelled = rest.iter().filter(|event| {
        event.data["events"].as_array().is_some_and(|events| events.iter().any(|e| e["eventType"] == "TASK_CANCELLED"))
    });
    assert_eq!(cancelled.count(), 2);
    world.close().await;
}

#[tokio::test]
async fn what_is_not_there_and_positions_that_are_none_are_refused_as_problems() {
    let world = World::new().await;
    world.submit(GATED).await;
    for (path, last, status) in [
        ("plans/nobody", None, 404),
        ("tasks/nobody", None, 404),
        ("tasks/t", Some("yesterday"), 400),
        ("plans/p", Some("-1"), 400),
        ("plans/p", Some("99999999"), 400),
        ("plans/p", Some(""), 200),
        ("plans/p", Some("0"), 200),
    ] {
        let response = world.ask(path, last).await;
        assert_eq!(response.status(), status, "{path} {last:?}");
        if status != 200 {
            assert_eq!(response.headers()["content-type"], "application/problem+json");
        }
    }
    world.close().await;
}

#[tokio::test]
async fn a_server_that_leaves_ends_its_streams_without_claiming_that_the_plan_has_ended() {
    let world = World::new().await;
    world.submit(GATED).await;
    let mut client = world.watch("plans/p").await;
    client.next().await.unwrap();
    world.app.closing().cancel();
    let rest = bounded("the stream's end", client.rest()).await;
    assert!(rest.iter().all(|event| event.name != "end"), "{rest:?}");
    assert!(states(&rest).len() <= 4);
    world.close().await;
}
