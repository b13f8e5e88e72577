//! Messages, and what became of those that gave up, as an operator meets them.

use std::sync::Arc;

use milepost_core::id::{PlanId, TaskId};
use milepost_core::message::Arrival;
use milepost_core::time::{Millis, Timestamp};
use milepost_engine::{Clock, Engine, Options, Received, Registry};
use milepost_store::sqlite::SqliteStore;
use milepost_store::{Resubmit, Start};
use serde_json::Value;

use crate::support::World;

/// Its second stage asks somebody who is not there.
const CHAINS: &str = "plan: uploads
trigger: message
stages:
  - { name: one, uses: noop }
  - { name: two, http: { url: 'http://127.0.0.1:1/' }, retry: { max_attempts: 1 } }
tasks: [{ id: a }, { id: b }]
";

/// Submits the plan to a store and does something with it, in this process.
fn with_engine(options: Options, work: impl AsyncFnOnce(&Engine)) -> World {
    let world = World::new();
    world.file("uploads.yaml", CHAINS);
    let work = async {
        let kinds = milepost_stages::builtin().into_iter();
        let registry = kinds.fold(Registry::new(), |registry, (name, kind)| registry.with(name, kind));
        let store = SqliteStore::open(world.path().join("milepost.db")).expect("a store");
        let engine = Engine::new(Arc::new(store), registry, options);
        let plan = Arc::new(engine.registry().read_plan("plan", CHAINS.as_bytes()).expect("a plan"));
        engine.submit(plan, Start::AtOnce, Resubmit::Same).await.expect("an accepted plan");
        work(&engine).await;
        engine.stop().await;
    };
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Runtime::new().expect("a runtime").block_on(work);
    world
}

async fn is_sent_a_message(engine: &Engine, task: &str, deadline: Option<Timestamp>) {
    let remembered_until = engine.clock().now() + Millis::from_secs(3600);
    let (id, text) = (format!("m-{task}").into(), r#"{"seen":"here"}"#.into());
    let message = Arrival { id, deadline, remembered_until, text, origin: None };
    let received = engine.receive(&TaskId::parse(task).expect("an id"), Arc::new(message)).await;
    assert_eq!(received.expect("a store"), Received::Started);
}

/// A store in which both tasks have had their messages and gave up.
fn given_up() -> World {
    with_engine(Options::new("node-1"), async |engine| {
        engine.start();
        is_sent_a_message(engine, "a", None).await;
        is_sent_a_message(engine, "b", None).await;
        let id = PlanId::parse("uploads").expect("an id");
        engine.wait_for_plan(&id, |row| row.ended_at.is_some()).await.expect("a plan");
    })
}

fn ids(world: &World, args: &[&str]) -> Vec<String> {
    let list: Value = world.json(&[&["dead-letters"], args].concat());
    list["items"].as_array().expect("items").iter().map(|letter| letter["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_gave_up_is_listed_shown_and_put_back() {
    let world = given_up();
    let ids = ids(&world, &[]);
    assert_eq!(ids.len(), 2);
    // Which of the two gave up first, nobody can say.
    let of_a = ids.iter().find(|id| id.starts_with("a.")).expect("a letter of task a").as_str();
    world.good(&["dead-letters"]).must_say(&["DEAD LETTER", of_a, "two", "ago"]);
    world.good(&["dead-letters", "show", of_a]).must_say(&["NETWORK", "m-a", r#"{"seen":"here"}"#, "puts it back"]);
    world.good(&["dead-letters", "redrive", of_a, "--reason", "it is back"]).must_say(&["put back: task a PENDING"]);
    assert_eq!(world.status("a").as_deref(), Some("PENDING"));
    world.milepost(&["dead-letters", "redrive", of_a]).must_exit(4).must_say(&["there is no dead letter"]);
    world.milepost(&["dead-letters", "show", of_a]).must_exit(4).must_say(&["dead-letters` lists them"]);
    world.good(&["dead-letters", "redrive", "--all", "--rate", "100"]).must_say(&["1 dead letter put back"]);
    world.good(&["dead-letters"]).must_say(&["no dead letters"]);
    world.milepost(&["dead-letters", "redrive"]).must_exit(2);
}

#[test]
fn a_page_of_dead_letters_says_where_the_next_begins() {
    let world = given_up();
    let first = world.json(&["dead-letters", "--limit", "1"]);
    let cursor = first["nextCursor"].as_str().expect("a cursor").to_owned();
    let second = ids(&world, &["--limit", "1", "--cursor", &cursor]);
    assert_eq!(second.len(), 1);
    assert_ne!(first["items"][0]["id"], second[0].as_str());
    world.milepost(&["dead-letters", "--cursor", "nonsense"]).must_exit(2);
}

#[test]
fn dead_letters_are_put_back_through_a_server_and_run_at_once() {
    let world = given_up();
    let served = world.serve(&[]);
    let server = ["--server", served.url.as_str()];
    let list = ids(&world, &server);
    assert_eq!(list.len(), 2);
    let answers = world.json(&[&["dead-letters", "redrive", "--all"], &server[..]].concat());
    let answers = answers.as_array().expect("answers");
    assert_eq!(answers.len(), 2);
    assert!(answers.iter().all(|answer| answer["messageId"].is_string() && answer["task"].is_object()));
    // They fail again, each under a new letter.
    let again = crate::support::wait_for("both to give up again", || {
        let again = ids(&world, &server);
        (again.len() == 2).then_some(again)
    });
    assert!(again.iter().all(|id| !list.contains(id)));
    let said = served.stop().stderr;
    assert_eq!(said.matches("it is among the dead letters").count(), 2, "{said}");
}

#[test]
fn a_server_warns_once_of_a_message_that_expired_before_its_task_started() {
    let mut long_ago = Options::new("node-1");
    long_ago.clock = Clock::manual(Timestamp::from_millis(1_700_000_000_000));
    let world = with_engine(long_ago, async |engine| {
        let deadline = engine.clock().now() + Millis::from_secs(1);
        is_sent_a_message(engine, "a", Some(deadline)).await;
    });
    let served = world.serve(&[]);
    world.wait_for_status("a", "FAILED");
    let said = served.stop().stderr;
    let warned: Vec<&str> = said.lines().filter(|line| line.contains("message expired")).collect();
    assert_eq!(warned.len(), 1, "{said}");
    assert!(warned[0].contains("WARN") && warned[0].contains("task=a"), "{said}");
}

#[test]
fn a_task_that_waits_for_its_message_says_so_and_is_sent_one() {
    let world = World::new();
    world.file("uploads.yaml", CHAINS);
    let served = world.serve(&[]);
    let server = ["--server", served.url.as_str()];
    let with = |args: &[&str]| world.milepost(&[args, &server[..]].concat());
    with(&["submit", "uploads.yaml", "--no-start"]).must_exit(0).must_say(&["uploads RUNNING, 2 tasks"]);
    with(&["status", "uploads"]).must_exit(0).must_say(&["for its message", "publish a"]);
    with(&["status", "a"]).must_exit(0).must_say(&["waits for its message"]);
    with(&["explain", "a"]).must_exit(0).must_say(&["it waits for its message", "milepost publish a"]);
    with(&["publish", "a", "b", "--deadline", "10m"]).must_exit(0).must_say(&["a published, message", "b published"]);
    with(&["publish", "nobody"]).must_exit(4);
    with(&["publish", "a", "--deadline", "0s"]).must_exit(2);
    with(&["publish", "a", "--deadline", "soon"]).must_exit(2);
    // The same on the store itself, through its owner.
    world.good(&["publish", "a"]).must_say(&["a published, message"]);
    world.file("more.yaml", &CHAINS.replace("uploads", "more").replace("{ id: a }, { id: b }", "{ id: c }"));
    with(&["submit", "more.yaml", "--publish"]).must_exit(0).must_say(&["more RUNNING"]);
    served.stop();
}

#[test]
fn only_a_task_that_waits_for_a_message_is_sent_one() {
    let world = World::new();
    world.file("p.yaml", "plan: p\nstages: [{ name: s, uses: noop }]\ntasks: [{ id: t }]\n");
    world.good(&["run", "p.yaml"]);
    world.milepost(&["publish", "t"]).must_exit(5).must_say(&["does not have `trigger: message`"]);
}

#[test]
fn the_intake_is_a_servers_and_one_without_kafka_says_how_to_have_it() {
    let world = World::new();
    world.milepost(&["consumer"]).must_exit(2).must_say(&["--server URL"]);
    let served = world.serve(&[]);
    let server = ["--server", served.url.as_str()];
    let with = |args: &[&str]| world.milepost(&[args, &server[..]].concat());
    with(&["consumer"]).must_exit(4).must_say(&["milepost serve --kafka"]);
    with(&["consumer", "pause"]).must_exit(5).must_say(&["milepost serve --kafka"]);
    with(&["consumer", "resume"]).must_exit(5);
    served.stop();
}

#[test]
fn run_refuses_a_plan_that_waits_for_messages_and_says_who_receives_them() {
    let world = World::new();
    world.file("uploads.yaml", CHAINS);
    world.milepost(&["run", "uploads.yaml"]).must_exit(2).must_say(&["trigger: message", "milepost serve --kafka"]);
}
