//! Messages over HTTP: published, given up, put back, and the intake of the node that answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use milepost_core::id::TaskId;
use milepost_core::message::{Arrival, Message};
use milepost_core::task::TaskStatus;
use milepost_core::time::{Millis, Timestamp};
use milepost_engine::{Consumer, ConsumerStatus, Received};
use milepost_server::Settings;
use milepost_store::memory::MemoryStore;
use milepost_store::{Book, EntryQuery, Parcel};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::World;

/// Three tasks that fail at their second stage as long as they are told to.
const CHAINS: &str = "{ plan: p, trigger: message,
    stages: [{ name: one, uses: noop }, { name: two, http: { url: 'http://127.0.0.1:1/' }, retry: { max_attempts: 1 } }],
    tasks: [{ id: a, tenant: x }, { id: b }, { id: c }] }";

async fn receive(world: &World, task: &str, id: &str) {
    let remembered_until = world.engine.clock().now() + Millis::from_secs(3600);
    let arrival = Arrival { id: id.into(), deadline: None, remembered_until, text: "{}".into(), origin: None };
    let task = TaskId::parse(task).expect("an id");
    let received = world.engine.receive(&task, Arc::new(arrival)).await.expect("a store");
    assert_eq!(received, Received::Started);
}

async fn sent(world: &World) -> Vec<Message> {
    let query = EntryQuery { book: Book::Outbox, after: None, limit: 100, now: world.engine.clock().now() };
    let entries = world.engine.store().entries(query).await.expect("a store").items;
    let parcels = entries.iter().map(|entry| serde_json::from_str::<Parcel>(&entry.body).expect("a parcel"));
    parcels.filter_map(|parcel| serde_json::from_value(parcel.body).ok()).collect()
}

async fn given_up(world: &World) {
    world.submit("/plans", CHAINS).await;
    for task in ["a", "b", "c"] {
        receive(world, task, &format!("m-{task}")).await;
        world.until_status(task, TaskStatus::Failed).await;
    }
}

#[tokio::test]
async fn a_plan_with_trigger_message_needs_no_start_and_its_tasks_say_what_they_wait_for() {
    let world = World::new().await;
    let accepted = world.submit("/plans", CHAINS).await;
    assert_eq!(accepted["status"], "RUNNING", "{accepted}");
    let task = world.read("/tasks/a").await;
    assert_eq!((&task["status"], &task["awaitsMessage"]), (&json!("PENDING"), &json!(true)));
    let why = world.read("/tasks/a/explain").await;
    assert_eq!((&why["reason"], &why["next"]), (&json!("AWAITING_MESSAGE"), &json!("milepost publish a")));
    world.close().await;
}

#[tokio::test]
async fn a_task_is_sent_its_message_by_way_of_the_outbox() {
    let world = World::new().await;
    world.submit("/plans", CHAINS).await;
    let answer = world.post_json("/tasks/a/publish", &json!({ "deadline": "10m" })).await.expect(StatusCode::OK);
    let messages = sent(&world).await;
    assert_eq!((messages.len(), messages[0].task_id.as_str()), (1, "a"));
    assert_eq!(answer, json!({ "taskId": "a", "messageId": messages[0].message_id }));
    let (from, by) = (messages[0].published_at.expect("a time"), messages[0].deadline.expect("a time"));
    assert_eq!(by.since(from), Millis::from_secs(600));
    world.post("/tasks/b/publish").await.expect(StatusCode::OK);

    for bad in [json!({ "deadline": "soon" }), json!({ "deadline": "0s" }), json!({ "until": "1h" }), json!([])] {
        world.post_json("/tasks/c/publish", &bad).await.problem(422, "invalid-body");
    }
    world.post("/tasks/nobody/publish").await.problem(404, "not-found");
    receive(&world, "c", "m-c").await;
    world.until_status("c", TaskStatus::Failed).await;
    let reason = world.post("/tasks/c/publish").await.problem(409, "refused");
    assert_eq!(reason, "task c does not wait for a message: it is FAILED and has had its message");
    world.close().await;
}

#[tokio::test]
async fn a_plan_is_handed_in_together_with_its_messages_once() {
    let world = World::new().await;
    for status in [StatusCode::CREATED, StatusCode::OK] {
        world.post_text("/plans?publish=true", "application/yaml", CHAINS).await.expect(status);
        let tasks: Vec<String> = sent(&world).await.iter().map(|message| message.task_id.to_string()).collect();
        assert_eq!(tasks, ["a", "b", "c"]);
    }
    let started = "{ plan: q, stages: [{ name: s, uses: noop }], tasks: [{ id: t }] }";
    let reply = world.post_text("/plans?publish=true", "application/yaml", started).await;
    assert!(reply.problem(422, "invalid-plan").contains("trigger: message"));
    world.close().await;
}

#[tokio::test]
async fn what_gave_up_is_listed_oldest_first_page_by_page_and_looked_at_by_its_id() {
    let world = World::new().await;
    given_up(&world).await;
    let first = world.read("/dead-letters?limit=2").await;
    let tasks = |page: &Value| -> Vec<String> {
        page["items"].as_array().expect("items").iter().map(|letter| letter["taskId"].to_string()).collect()
    };
    assert_eq!(tasks(&first), ["\"a\"", "\"b\""]);
    let cursor = first["nextCursor"].as_str().expect("a cursor");
    let second = world.read(&format!("/dead-letters?limit=2&cursor={cursor}")).await;
    assert_eq!((tasks(&second), &second["nextCursor"]), (vec!["\"c\"".to_owned()], &Value::Null));

    let letter = &first["items"][0];
    let same = world.read(&format!("/dead-letters/{}", letter["id"].as_str().expect("an id"))).await;
    assert_eq!(&same, letter);
    let told = ["planId", "originalMessageId", "failedStage", "failedCallback", "failedStageIndex", "errorType"];
    let told: Vec<&Value> = told.iter().map(|name| &letter[*name]).collect();
    let expected = [json!("p"), json!("m-a"), json!("two"), json!("two"), json!(1), json!("NETWORK")];
    assert_eq!(told, expected.iter().collect::<Vec<_>>());
    assert!(letter["failedAt"].as_str().is_some_and(|at| at.parse::<Timestamp>().is_ok()));
    world.get("/dead-letters/nobody.1").await.problem(404, "not-found");
    world.close().await;
}

#[tokio::test]
async fn a_redrive_goes_on_under_a_new_message_and_its_reason_is_in_the_log() {
    let world = World::new().await;
    given_up(&world).await;
    let letters = world.read("/dead-letters").await;
    let id = letters["items"][0]["id"].as_str().expect("an id").to_owned();
    let answer = world.post_json(&format!("/dead-letters/{id}/redrive"), &json!({ "reason": "fixed" })).await;
    let answer = answer.expect(StatusCode::OK);
    assert_eq!((&answer["id"], &answer["task"]["id"]), (&json!(id), &json!("a")));
    assert!(answer["messageId"].as_str().is_some_and(|message| message != "m-a"));
    world.get(&format!("/dead-letters/{id}")).await.problem(404, "not-found");
    let events = world.read("/tasks/a/events").await;
    let retried = events["items"].as_array().expect("events").iter();
    let retried: Vec<&Value> = retried.filter(|event| event["eventType"] == "TASK_RETRIED").collect();
    assert_eq!((retried.len(), &retried[0]["payload"]["by"]["why"]), (1, &json!("fixed")));
    world.post(&format!("/dead-letters/{id}/redrive")).await.problem(404, "not-found");
    world.close().await;
}

#[tokio::test]
async fn no_more_dead_letters_are_put_back_a_second_than_the_server_is_told() {
    let settings = Settings { redrive_limit: Some(1), ..Settings::default() };
    let world = World::with(Arc::new(MemoryStore::new()), settings).await;
    given_up(&world).await;
    let letters = world.read("/dead-letters").await;
    let redrive = |place: usize| format!("/dead-letters/{}/redrive", letters["items"][place]["id"].as_str().unwrap());
    world.post(&redrive(0)).await.expect(StatusCode::OK);
    let second = world.post(&redrive(1)).await;
    second.problem(429, "too-many-requests");
    assert_eq!(second.header("retry-after"), Some("1"));
    assert_eq!(world.read("/tasks/b").await["status"], "FAILED");
    world.close().await;
}

#[derive(Debug, Default)]
struct Intake {
    paused: AtomicBool,
    heard: Mutex<Vec<&'static str>>,
}

impl Consumer for Intake {
    fn status(&self) -> ConsumerStatus {
        let paused = self.paused.load(Ordering::Acquire);
        let (consumed_count, lag) = (17, Some(3));
        ConsumerStatus { paused, consumed_count, lag, connected: true, ..ConsumerStatus::default() }
    }

    fn pause(&self) {
        self.paused.store(true, Ordering::Release);
        self.heard.lock().unwrap().push("pause");
    }

    fn resume(&self) {
        self.paused.store(false, Ordering::Release);
        self.heard.lock().unwrap().push("resume");
    }
}

#[tokio::test]
async fn without_an_intake_the_node_says_how_to_have_one() {
    let world = World::new().await;
    let words = world.get("/consumer").await.problem(404, "no-consumer");
    assert!(words.contains("milepost serve --kafka"), "{words}");
    world.post("/consumer/pause").await.problem(409, "no-consumer");
    world.post("/consumer/resume").await.problem(409, "no-consumer");
    world.close().await;
}

#[tokio::test]
async fn the_intake_is_paused_and_resumed_and_measured() {
    let world = World::new().await;
    let intake = Arc::new(Intake::default());
    world.app.set_consumer(intake.clone());
    let status = world.read("/consumer").await;
    assert_eq!((&status["paused"], &status["consumedCount"], &status["lag"]), (&json!(false), &json!(17), &json!(3)));
    assert_eq!((&status["activeExecutions"], &status["failedCount"]), (&json!(0), &json!(0)));
    assert_eq!(world.post("/consumer/pause").await.expect(StatusCode::OK)["paused"], true);
    let metrics = world.send(world.request(reqwest::Method::GET, "/metrics")).await.text;
    for line in
        ["milepost_consumer_paused 1", "milepost_consumer_consumed_total 17", "milepost_consumer_lag_messages 3"]
    {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    assert_eq!(world.post("/consumer/resume").await.expect(StatusCode::OK)["paused"], false);
    assert_eq!(*intake.heard.lock().unwrap(), ["pause", "resume"]);
    world.close().await;
}

#[tokio::test]
async fn dead_letters_and_what_waits_in_the_outbox_are_measured() {
    let world = World::new().await;
    let metrics = || async { world.send(world.request(reqwest::Method::GET, "/metrics")).await.text };
    let before = metrics().await;
    assert!(before.contains("milepost_dead_letters 0") && before.contains("milepost_outbox_oldest_seconds 0"));
    assert!(!before.contains("milepost_consumer_"));
    given_up(&world).await;
    assert!(metrics().await.contains("milepost_dead_letters 3"));
    world.close().await;
}
