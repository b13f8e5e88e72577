//! A program that owns its SQLite file, and another process that tells its workflows something.

use milepost::{Context, Failure, Milepost};
use milepost_core::api::Reason;
use milepost_core::id::{IdempotencyKey, StageName, TaskId};
use milepost_core::task::By;
use milepost_engine::Verb;
use milepost_engine::owner::{Answer, Name, Request, SignalOrder, call};
use serde_json::json;

#[milepost::workflow]
async fn waits(ctx: &mut Context) -> Result<String, Failure> {
    ctx.signal("go").await
}

fn task_id(id: &str) -> TaskId {
    TaskId::parse(id).expect("an id")
}

#[tokio::test]
async fn a_programs_workflow_is_signalled_and_paused_by_way_of_the_socket_beside_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("app.db");
    let engine = Milepost::open(&format!("sqlite:{}", file.display())).await.expect("a store");
    let engine = engine.workflow(waits).start().await.expect("an engine");
    let run = engine.run(waits, ()).id("w").spawn().await.expect("a run");
    let by = || By::new("ann@elsewhere");

    for verb in [Verb::Pause, Verb::Resume] {
        let answer = call(&file, &Request::new(Name::Id("w".into()), verb, by())).await.expect("an owner");
        assert!(matches!(answer, Answer::Done(_)), "{answer:?}");
    }
    let order = |task: &str| {
        let (name, key) = (StageName::parse("go").expect("a name"), IdempotencyKey::parse("k").expect("a key"));
        SignalOrder::new(task_id(task), name, json!("went"), by(), key)
    };
    let answer: Answer = call(&file, &order("nobody")).await.expect("an owner");
    assert!(matches!(answer, Answer::NotFound { .. }), "{answer:?}");
    let answer: Answer = call(&file, &order("w")).await.expect("an owner");
    assert!(matches!(answer, Answer::Done(_)), "{answer:?}");
    assert_eq!(run.result().await.expect("a result"), "went");
    engine.stop().await;
    assert!(call::<Answer>(&file, &order("w")).await.is_err(), "nobody listens after the end");
}

#[milepost::workflow]
async fn sleeps(ctx: &mut Context) -> Result<(), Failure> {
    ctx.sleep("long", milepost::days(1)).await
}

#[milepost::workflow]
async fn has_a_child(ctx: &mut Context) -> Result<(), Failure> {
    ctx.child("nap", sleeps, ()).await
}

#[milepost::workflow(version = 7)]
async fn known_to_nobody(ctx: &mut Context) -> Result<(), Failure> {
    ctx.sleep("long", milepost::days(1)).await
}

#[tokio::test]
async fn a_workflow_that_waits_says_what_for_and_what_can_be_done_about_it() {
    let engine = Milepost::open("memory:").await.expect("a store");
    let engine = engine.workflow(waits).workflow(sleeps).workflow(has_a_child).start().await.expect("an engine");
    engine.run(waits, ()).id("w").spawn().await.expect("a run");
    engine.run(sleeps, ()).id("s").spawn().await.expect("a run");
    engine.run(has_a_child, ()).id("p").spawn().await.expect("a run");
    engine.run(known_to_nobody, ()).id("n").spawn().await.expect("a run");
    let (store, clock) = (engine.inner().store(), engine.inner().clock());
    for (id, reason, words) in [
        ("w", Reason::AwaitingSignal, "its workflow waits for the signal `go`"),
        ("s", Reason::Sleeping, "its workflow sleeps in long, until "),
        ("p", Reason::AwaitingChild, "its workflow waits for the workflow p.nap"),
        ("n", Reason::NoNodeKnows, "it waits for a node that knows the workflow known_to_nobody (version 7)"),
    ] {
        let mut feed = engine.inner().feed().subscribe();
        loop {
            let said = milepost_engine::explain(&**store, &task_id(id), clock.now(), Default::default()).await;
            let said = said.expect("a store").expect("a task");
            if said.reason == reason {
                assert!(said.message.starts_with(words), "{}", said.message);
                break;
            }
            // It has not come so far yet.
            let _ = feed.recv().await;
        }
    }
    engine.stop().await;
}
