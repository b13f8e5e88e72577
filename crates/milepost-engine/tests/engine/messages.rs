//! Tasks that messages set off: taken in once, few at a time, and put back when they were given up.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::api::Reason;
use milepost_core::failure::ErrorType;
use milepost_core::id::TaskId;
use milepost_core::message::{Arrival, Message, Origin};
use milepost_core::plan::Plan;
use milepost_core::task::{By, Cause, PlanStatus, TaskStatus};
use milepost_core::time::Millis;
use milepost_engine::{Chains, Engine, Received, Registry, Verb, VerbError, explain};
use milepost_store::memory::MemoryStore;
use milepost_store::{
    Addressee, Book, BookChange, Entry, EntryQuery, Parcel, Poison, Resubmit, Start, Store, WrittenAs,
};
use serde_json::{Value, json};

use crate::support::{
    Cluster, DAWN, Flaky, Gate, Journal, Node, World, bounded, error_type, of_plan, of_task, plan, task_id,
};

const HOUR: Millis = Millis::from_secs(3600);

struct Given {
    node: Node,
    gate: Gate,
    flaky: Flaky,
}

/// A node on a store in memory that runs two chains at once.
fn given() -> Given {
    given_with(|_| {})
}

fn given_with(set: impl FnOnce(&mut milepost_engine::Options)) -> Given {
    let (gate, flaky) = (Gate::shut(), Flaky::default());
    let registry = Registry::new().with("gate", gate.kind()).with("flaky", flaky.kind());
    let registry = registry.with("noop", Journal::default().kind());
    let node = World::new().idle_node(Arc::new(MemoryStore::new()), registry, |options| {
        options.chains = 2;
        set(options);
    });
    node.engine.start();
    Given { node, gate, flaky }
}

fn message(id: &str) -> Arc<Arrival> {
    message_by(id, None)
}

fn message_by(id: &str, deadline: Option<milepost_core::time::Timestamp>) -> Arc<Arrival> {
    let (id, remembered_until, text) = (id.into(), DAWN + Millis::from_secs(24 * 3600), "{}".into());
    Arc::new(Arrival { id, deadline, remembered_until, text, origin: None })
}

/// Tasks a to f, each with one stage of this kind.
fn six(kind: &str) -> String {
    let tasks: Vec<String> = "abcdef".chars().map(|id| format!("{{id: {id}}}")).collect();
    format!("{{plan: p, trigger: message, stages: [{{name: s, uses: {kind}}}], tasks: [{}]}}", tasks.join(","))
}

fn one(kind: &str) -> String {
    format!("{{plan: p, trigger: message, stages: [{{name: s, uses: {kind}}}], tasks: [{{id: a}}]}}")
}

impl Given {
    async fn receive(&self, task: &str, id: &str) -> Received {
        self.node.engine.receive(&task_id(task), message(id)).await.expect("a store")
    }

    async fn book(&self, book: Book) -> Vec<Entry> {
        let now = self.node.engine.clock().now();
        let query = EntryQuery { book, after: None, limit: 100, now };
        self.node.engine.store().entries(query).await.expect("a store").items
    }

    async fn parcels(&self) -> Vec<Parcel> {
        let entries = self.book(Book::Outbox).await;
        entries.iter().map(|entry| serde_json::from_str(&entry.body).expect("a parcel")).collect()
    }

    async fn letters(&self) -> Vec<Value> {
        let entries = self.book(Book::DeadLetters).await;
        entries.iter().map(|entry| serde_json::from_str(&entry.body).expect("a letter")).collect()
    }

    /// Until the node has so many chains in hand, and so many of them in line.
    async fn until_chains(&self, active: usize, waiting: usize) {
        bounded(&format!("{active} active and {waiting} waiting"), async {
            while self.node.engine.chains() != (Chains { active, waiting, limit: 2 }) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_with_trigger_message_runs_at_once_and_its_tasks_wait_for_their_messages() {
    let given = given();
    let plan = plan(&six("noop"));
    given.node.engine.submit(plan, Start::Later, Resubmit::Same).await.expect("an accepted plan");
    assert_eq!(given.node.plan("p").await.status, PlanStatus::Running);

    assert_eq!(given.receive("b", "m1").await, Received::Started);
    given.node.until_status("b", TaskStatus::Completed).await;
    assert_eq!(given.node.status("a").await, TaskStatus::Pending);
    assert_eq!(given.node.plan("p").await.status, PlanStatus::Running);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_its_message_says_so_and_how_to_send_one() {
    let given = given();
    given.node.submit(&one("noop")).await;
    let why = explain(&**given.node.engine.store(), &task_id("a"), DAWN, Default::default()).await.unwrap().unwrap();
    assert_eq!((why.reason, why.message.as_str()), (Reason::AwaitingMessage, "it waits for its message"));
    assert_eq!(why.next.as_deref(), Some("milepost publish a"));
}

#[tokio::test(start_paused = true)]
async fn the_same_message_again_changes_nothing_and_another_one_is_not_waited_for() {
    let given = given();
    given.node.submit(&six("noop")).await;
    assert_eq!(given.receive("a", "m1").await, Received::Started);
    assert_eq!(given.receive("a", "m1").await, Received::Seen);
    given.node.until_status("a", TaskStatus::Completed).await;
    assert_eq!(given.receive("a", "m1").await, Received::Seen);
    assert_eq!(given.receive("a", "m2").await, Received::NotWaiting(TaskStatus::Completed));
    // Its id was heard, whatever task it names now.
    assert_eq!(given.receive("b", "m1").await, Received::Seen);
    assert_eq!(given.receive("nobody", "m3").await, Received::Unknown);
    assert_eq!(given.node.count("a", "MESSAGE_RECEIVED").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_while_its_task_is_paused_is_not_lost() {
    let given = given();
    given.node.submit(&one("noop")).await;
    given.node.does(of_task("a"), Verb::Pause).await;
    assert_eq!(given.receive("a", "m1").await, Received::Started);
    given.node.does(of_task("a"), Verb::Resume).await;
    given.node.until_status("a", TaskStatus::Completed).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_after_its_deadline_fails_its_task_and_is_a_dead_letter() {
    let given = given();
    given.node.submit(&one("noop")).await;
    let late = message_by("m1", Some(DAWN - HOUR));
    assert_eq!(given.node.engine.receive(&task_id("a"), late).await.unwrap(), Received::Expired);
    assert_eq!(error_type(&given.node.task("a").await), ErrorType::Expired);
    let letters = given.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!((&letters[0]["taskId"], &letters[0]["errorType"]), (&json!("a"), &json!("EXPIRED")));
}

#[tokio::test(start_paused = true)]
async fn no_more_chains_run_at_once_than_the_node_is_told_and_the_others_come_in_order() {
    let given = given();
    given.node.submit(&six("gate")).await;
    for task in ["a", "b", "c", "d", "e", "f"] {
        given.receive(task, &format!("m-{task}")).await;
        given.node.until_status(task, TaskStatus::Running).await;
    }
    given.until_chains(2, 4).await;
    assert_eq!(given.gate.now_inside(), ["a/s/1", "b/s/1"]);
    for gone in 1..=4 {
        given.gate.let_go(1);
        given.gate.came(2 + gone).await;
    }
    assert_eq!(given.gate.all(), ["a/s/1", "b/s/1", "c/s/1", "d/s/1", "e/s/1", "f/s/1"]);
    given.gate.open();
    assert_eq!(given.node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!(given.gate.peak(), 2);
    given.until_chains(0, 0).await;
}

#[tokio::test(start_paused = true)]
async fn chains_in_line_leave_the_node_to_other_tasks() {
    let given = given_with(|options| options.capacity = 3);
    given.node.submit(&six("gate")).await;
    for task in ["a", "b", "c", "d"] {
        given.receive(task, &format!("m-{task}")).await;
    }
    given.until_chains(2, 2).await;
    let row = given.node.run("{plan: q, stages: [{name: s, uses: noop}], tasks: [{id: x}]}").await;
    assert_eq!(row.status, PlanStatus::Completed);
    given.gate.open();
}

#[tokio::test(start_paused = true)]
async fn a_chain_in_line_can_be_paused_and_cancelled_and_nothing_of_it_runs() {
    let given = given();
    given.node.submit(&six("gate")).await;
    for task in ["a", "b", "c", "d"] {
        given.receive(task, &format!("m-{task}")).await;
        given.node.until_status(task, TaskStatus::Running).await;
    }
    given.until_chains(2, 2).await;
    given.node.does(of_task("c"), Verb::Pause).await;
    assert_eq!(given.node.status("c").await, TaskStatus::Paused);
    given.node.does(of_task("d"), Verb::Cancel).await;
    assert_eq!(given.node.status("d").await, TaskStatus::Cancelled);
    given.until_chains(2, 0).await;
    assert_eq!(given.gate.all(), ["a/s/1", "b/s/1"]);
    given.gate.open();
    given.node.does(of_task("c"), Verb::Resume).await;
    given.node.until_status("c", TaskStatus::Completed).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_gives_back_the_chains_in_line_at_once() {
    let given = given();
    given.node.submit(&six("gate")).await;
    for task in ["a", "b", "c"] {
        given.receive(task, &format!("m-{task}")).await;
        given.node.until_status(task, TaskStatus::Running).await;
    }
    given.until_chains(2, 1).await;
    let stopping = given.node.engine.stop();
    let freed = async {
        given.node.until("c", |task| task.interrupted()).await;
        given.gate.open();
    };
    bounded("the node's stop", async { tokio::join!(stopping, freed) }).await;
    assert_eq!(given.gate.all(), ["a/s/1", "b/s/1"]);
}

#[tokio::test(start_paused = true)]
async fn there_is_room_for_as_many_messages_as_chains_may_run() {
    let given = given();
    let engine = &given.node.engine;
    given.node.submit(&six("gate")).await;
    assert_eq!(engine.room_for_chains().await, 2);
    given.receive("a", "m-a").await;
    assert_eq!(engine.room_for_chains().await, 1);
    given.receive("b", "m-b").await;
    given.until_chains(2, 0).await;
    let room = engine.room_for_chains();
    tokio::pin!(room);
    assert!(futures::poll!(&mut room).is_pending());
    given.gate.let_go(1);
    assert_eq!(bounded("room", room).await, 1);
    given.gate.open();
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_something_else_than_a_place_keeps_no_message_out_for_long() {
    let given = given();
    given.node.submit(&six("gate")).await;
    given.node.does(of_plan("p"), Verb::Pause).await;
    given.receive("a", "m-a").await;
    given.receive("b", "m-b").await;
    let room = given.node.engine.room_for_chains();
    tokio::pin!(room);
    assert!(futures::poll!(&mut room).is_pending());
    assert!(bounded("room", room).await >= 1);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_a_message_makes_is_stored_once_with_the_messages_id() {
    let given = given();
    let made = |id: &str| {
        let plan = plan("{plan: upload-1, trigger: message, stages: [{name: s, uses: noop}], tasks: [{id: upload-1}]}");
        let mut plan = Plan::clone(&plan);
        let arrival = message(id);
        plan.tasks[0].message = Some(arrival.clone());
        (Arc::new(plan), arrival)
    };
    let (plan, arrival) = made("m1");
    assert_eq!(given.node.engine.receive_new(plan, &arrival).await.unwrap(), Received::Started);
    let (plan, arrival) = made("m1");
    assert_eq!(given.node.engine.receive_new(plan, &arrival).await.unwrap(), Received::Seen);
    given.node.until_status("upload-1", TaskStatus::Completed).await;
    assert_eq!(given.node.engine.room_for_chains().await, 2);
    let to: Vec<Addressee> = given.parcels().await.into_iter().map(|parcel| parcel.to).collect();
    assert_eq!(to, [Addressee::Completed]);
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_tasks_name_a_plan_has_is_refused_and_not_lost() {
    let given = given();
    given
        .node
        .submit("{plan: upload-1, trigger: message, stages: [{name: s, uses: noop}], tasks: [{id: other}]}")
        .await;
    let plan = plan("{plan: upload-1, trigger: message, stages: [{name: s, uses: noop}], tasks: [{id: upload-1}]}");
    let arrival = message("m1");
    assert!(given.node.engine.receive_new(plan, &arrival).await.is_err());
    let known = given.node.engine.store().entry(Book::Messages, "m1", DAWN).await.unwrap();
    assert_eq!(known, None, "it may still become a dead letter");
}

#[tokio::test(start_paused = true)]
async fn published_messages_are_in_the_outbox_with_a_deadline() {
    let given = given();
    given.node.submit(&six("noop")).await;
    let ids = given.node.engine.publish(&[task_id("a"), task_id("b")], None).await.unwrap();
    let parcels = given.parcels().await;
    let sent: Vec<Message> =
        parcels.iter().map(|parcel| serde_json::from_value(parcel.body.clone()).unwrap()).collect();
    assert!(parcels.iter().all(|parcel| parcel.to == Addressee::Tasks && parcel.headers.is_empty()));
    assert_eq!(parcels.iter().map(|parcel| parcel.key.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(sent.iter().map(|message| message.message_id.clone()).collect::<Vec<_>>(), ids);
    assert_eq!((sent[0].published_at, sent[0].deadline), (Some(DAWN), Some(DAWN + HOUR)));
    assert_eq!(sent[0].source_node.as_deref(), Some("node-1"));
    // The outbox is not the topic: nothing has arrived.
    assert!(given.node.task("a").await.awaits_message());

    given.node.engine.publish(&[task_id("c")], Some(Millis::from_secs(60))).await.unwrap();
    let last: Message = serde_json::from_value(given.parcels().await[2].body.clone()).unwrap();
    assert_eq!(last.deadline, Some(DAWN + Millis::from_secs(60)));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_does_not_wait_for_a_message_is_sent_none_and_neither_are_those_beside_it() {
    let given = given();
    given.node.submit(&six("gate")).await;
    given.receive("b", "m1").await;
    let publish = |ids: &[&str]| {
        let (engine, ids): (Engine, Vec<TaskId>) =
            (given.node.engine.clone(), ids.iter().map(|id| task_id(id)).collect());
        async move { engine.publish(&ids, None).await.unwrap_err() }
    };
    given.node.until_status("b", TaskStatus::Running).await;
    let words = "task b does not wait for a message: it is RUNNING and has had its message";
    assert_eq!(publish(&["a", "b"]).await.to_string(), words);
    assert!(matches!(publish(&["nobody"]).await, VerbError::NotFound { .. }));
    given.node.submit("{plan: q, stages: [{name: s, uses: gate}], tasks: [{id: x}]}").await;
    let words = "task x does not wait for a message: its plan does not have `trigger: message`";
    assert_eq!(publish(&["x"]).await.to_string(), words);
    assert_eq!(given.parcels().await, []);
    given.gate.open();
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_stored_together_with_the_messages_of_its_tasks() {
    let given = given();
    let engine = &given.node.engine;
    engine.submit_and_publish(plan(&six("noop")), Resubmit::Same, None, None).await.unwrap();
    let keys: Vec<String> = given.parcels().await.into_iter().map(|parcel| parcel.key).collect();
    assert_eq!(keys, ["a", "b", "c", "d", "e", "f"]);
    // Sent again, it is the same plan, and its tasks need no second message.
    engine.submit_and_publish(plan(&six("noop")), Resubmit::Same, None, None).await.unwrap();
    assert_eq!(given.parcels().await.len(), 6);
    let started = plan("{plan: q, stages: [{name: s, uses: noop}], tasks: [{id: x}]}");
    let refused = engine.submit_and_publish(started, Resubmit::Same, None, None).await.unwrap_err();
    assert!(refused.to_string().contains("trigger: message"), "{refused}");
}

/// The task of plan p has failed for good in its second stage.
async fn given_up() -> Given {
    let given = given();
    given.flaky.fail("two", 1);
    let stages = "[{name: one, uses: noop}, {name: two, uses: flaky, retry: {max_attempts: 1}}]";
    given.node.submit(&format!("{{plan: p, trigger: message, stages: {stages}, tasks: [{{id: a}}]}}")).await;
    given.receive("a", "m1").await;
    given.node.ended("p").await;
    given
}

#[tokio::test(start_paused = true)]
async fn a_task_that_gave_up_is_published_as_failed_and_as_a_dead_letter() {
    let given = given_up().await;
    let letters = given.letters().await;
    assert_eq!(letters.len(), 1);
    let letter = &letters[0];
    assert_eq!((&letter["taskId"], &letter["originalMessageId"]), (&json!("a"), &json!("m1")));
    assert_eq!((&letter["failedStage"], &letter["failedStageIndex"]), (&json!("two"), &json!(1)));
    assert_eq!((&letter["failedCallback"], &letter["nodeId"]), (&json!("two"), &json!("node-1")));
    let to: Vec<Addressee> = given.parcels().await.into_iter().map(|parcel| parcel.to).collect();
    assert_eq!(to, [Addressee::Failed, Addressee::DeadLetters]);
}

#[tokio::test(start_paused = true)]
async fn a_redrive_goes_on_from_the_checkpoint_under_a_new_message_and_strikes_the_letter() {
    let given = given_up().await;
    let id = given.letters().await[0]["id"].as_str().unwrap().to_owned();
    let redriven = given.node.engine.redrive(&id, By::new("tester")).await.unwrap();
    assert_eq!(redriven.task, Some((task_id("a"), TaskStatus::Pending)));
    assert!(redriven.message_id.is_some_and(|message| message != "m1"));
    let task = given.node.until_status("a", TaskStatus::Completed).await;
    assert_eq!(task.version(), given.node.records("a").await.len() as u64);
    assert_eq!(given.node.count("a", "STAGE_STARTED one 1").await, 1);
    assert_eq!(given.node.ended("p").await.status, PlanStatus::Completed);
    assert_eq!(given.letters().await, Vec::<Value>::new());
    let again = given.node.engine.redrive(&id, By::new("tester")).await.unwrap_err();
    assert_eq!(again.to_string(), format!("there is no dead letter `{id}`"));
}

#[tokio::test(start_paused = true)]
async fn a_retry_by_hand_strikes_the_letter_as_well() {
    let given = given_up().await;
    given.node.does(of_task("a"), crate::support::RETRY).await;
    given.node.until_status("a", TaskStatus::Completed).await;
    assert_eq!(given.letters().await, Vec::<Value>::new());
}

async fn poison(given: &Given, text: &str, written_as: WrittenAs) -> Result<Vec<Parcel>, VerbError> {
    let origin = Origin { topic: "uploads".into(), partition: 3, offset: 17, timestamp: 1, group: "executor".into() };
    let cause = Cause { error_type: ErrorType::Validation, reason: "it is not a message".to_owned() };
    let poison = Poison {
        id: "uploads-3-17".to_owned(),
        task_id: None,
        message_id: None,
        text: text.to_owned(),
        written_as,
        key: Some("k".to_owned()),
        origin,
        cause,
        at: DAWN,
        node: "node-1".to_owned(),
    };
    let store: &Arc<dyn Store> = given.node.engine.store();
    store.change_books(BookChange { keep: poison.entries().into(), strike: Vec::new() }).await?;
    assert_eq!(given.letters().await.len(), 1);
    given.node.engine.redrive("uploads-3-17", By::new("tester")).await?;
    assert_eq!(given.letters().await, Vec::<Value>::new());
    Ok(given.parcels().await)
}

#[tokio::test(start_paused = true)]
async fn a_message_that_was_of_no_use_goes_back_to_its_topic_under_a_new_id() {
    let given = given();
    let text = r#"{"messageId":"m1","taskId":"later","deadline":"2020-01-01T00:00:00Z","input":{"n":1}}"#;
    let parcels = poison(&given, text, WrittenAs::Text).await.unwrap();
    let [letter, again] = &parcels[..] else { panic!("{parcels:?}") };
    assert_eq!(letter.to, Addressee::DeadLetters);
    assert!(letter.headers.contains(&("kafka_dlt-original-offset".to_owned(), "17".to_owned())));
    assert_eq!(again.to, Addressee::Topic { name: "uploads".to_owned(), written_as: WrittenAs::Text });
    assert_eq!(again.key, "k");
    let message = Message::parse(again.body.as_str().unwrap().as_bytes()).unwrap();
    assert_ne!(message.message_id, "m1");
    assert_eq!((message.task_id.as_str(), message.deadline), ("later", Some(DAWN + HOUR)));
    assert_eq!(message.input, json!({ "n": 1 }));
}

#[tokio::test(start_paused = true)]
async fn what_is_no_message_at_all_goes_back_as_it_was() {
    for (text, written_as) in [("no JSON", WrittenAs::Text), ("AAH/", WrittenAs::Base64)] {
        let parcels = poison(&given(), text, written_as).await.unwrap();
        assert_eq!(parcels[1].to, Addressee::Topic { name: "uploads".to_owned(), written_as });
        assert_eq!(parcels[1].body, json!(text));
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_takes_a_message_in_calls_others_only_if_it_has_no_room() {
    let (cluster, gate) = (Cluster::new(), Gate::shut());
    let registry = Registry::new().with("gate", gate.kind());
    let node = cluster.node_with("one", &registry, |options| options.capacity = 2);
    node.node.submit(&six("gate")).await;
    let receives = async |task: &str| {
        let received = node.node.engine.receive(&task_id(task), message(task)).await.expect("a store");
        assert_eq!(received, Received::Started);
        tokio::time::sleep(Duration::from_secs(2)).await;
        node.line.calls()
    };
    assert_eq!(receives("a").await, 0);
    // The last place is its own.
    receives("b").await;
    let before = node.line.calls();
    assert_eq!(receives("c").await, before + 1);
    gate.open();
}
