//! Messages and books on several nodes: what one of them writes, all of them know.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::message::Arrival;
use milepost_core::plan::{Plan, Trigger};
use milepost_core::task::{Command, TaskStatus};
use milepost_core::time::Millis;
use milepost_store::{
    Book, BookChange, Commit, Entry, EntryQuery, Holder, Membership, Resubmit, Start, Store, StoreError, StoredTask,
    Submission, TaskQuery, TasksOf,
};

use crate::plans::{NOW, claim, decided, finish, plan, submit, succeeds, task_id};
use crate::support::{Schema, is_there};
use crate::{node, open, quiet};

fn awaiting(mut plan: Plan) -> Plan {
    plan.definition.settings.trigger = Trigger::Message;
    plan
}

async fn stored(store: &dyn Store, task: &str) -> StoredTask {
    store.task(&task_id(task)).await.unwrap().expect("it was submitted")
}

/// The task hears the message, from whoever took it in.
async fn heard(store: &dyn Store, task: &str, message: &str) -> Commit {
    let (remembered_until, text) = (NOW + Millis::from_secs(3600), "{}".into());
    let arrival = Arrival { id: message.into(), deadline: None, remembered_until, text, origin: None };
    let commit = decided(&stored(store, task).await, Command::Receive(Arc::new(arrival)));
    Commit { holder: Holder::Operator, ..commit }
}

fn is_kept(answer: &Result<impl std::fmt::Debug, StoreError>, key: &str) -> bool {
    matches!(answer, Err(StoreError::Kept { book: Book::Messages, key: kept }) if kept == key)
}

async fn entries(store: &dyn Store, book: Book) -> Vec<Entry> {
    store.entries(EntryQuery { book, after: None, limit: 100, now: NOW }).await.unwrap().items
}

fn strike(entry: &Entry) -> BookChange {
    BookChange { keep: Vec::new(), strike: vec![(entry.book, entry.key.clone())] }
}

async fn claimed(store: &dyn Store, name: &str) -> Vec<String> {
    let claimed = claim(store, name, 10).await.unwrap();
    claimed.tasks.iter().map(|stored| stored.key.id.to_string()).collect()
}

node_tests! {
    async fn a_message_that_one_node_took_in_is_known_to_the_other(schema: &Schema) {
        let (a, b) = (node(schema, "a").await, node(schema, "b").await);
        submit(&*a, awaiting(plan("p", 2, 1))).await;
        a.commit(heard(&*a, "p-0", "m").await).await.unwrap();
        let again = b.commit(heard(&*b, "p-1", "m").await).await;
        assert!(is_kept(&again, "m"), "{again:?}");
        assert!(stored(&*b, "p-1").await.task.awaits_message());
        assert_eq!(claimed(&*b, "b").await, ["p-0"]);
        b.commit(heard(&*b, "p-1", "another").await).await.unwrap();
        assert_eq!(claimed(&*a, "a").await, ["p-1"]);
    }

    async fn what_one_node_has_to_say_another_reads_and_strikes_out(schema: &Schema) {
        let (a, b) = (node(schema, "a").await, node(schema, "b").await);
        submit(&*a, awaiting(plan("p", 1, 1))).await;
        a.commit(heard(&*a, "p-0", "m").await).await.unwrap();
        let held = claim(&*a, "a", 1).await.unwrap().tasks.remove(0);
        assert!(entries(&*b, Book::Outbox).await.is_empty());
        finish(&*a, &held).await.unwrap();
        let said = entries(&*b, Book::Outbox).await;
        assert!(said.len() == 1 && said[0].body.contains("\"COMPLETED\""), "{said:?}");
        assert_eq!(a.entry(Book::Outbox, &said[0].key, NOW).await.unwrap().as_ref(), Some(&said[0]));
        b.change_books(strike(&said[0])).await.unwrap();
        assert!(entries(&*a, Book::Outbox).await.is_empty());
        // Whose session is over may still say what it has published.
        b.change_books(BookChange { keep: said.clone(), strike: Vec::new() }).await.unwrap();
        let _another = open(schema, Membership::node("a", "another boot")).await;
        a.change_books(strike(&said[0])).await.unwrap();
        assert!(entries(&*b, Book::Outbox).await.is_empty());
    }

    async fn of_nodes_that_hear_the_same_at_once_one_is_told_that_it_is_new(schema: &Schema) {
        let nodes = [node(schema, "a").await, node(schema, "b").await];
        submit(&*nodes[0], awaiting(plan("p", 40, 1))).await;
        let mut hearing = tokio::task::JoinSet::new();
        for at in 0..40 {
            // Every fourth message is one that another task hears as well.
            let (node, message) = (nodes[at % 2].clone(), if at % 4 == 0 { "same".to_owned() } else { format!("m{at}") });
            let commit = heard(&*node, &format!("p-{at}"), &message).await;
            hearing.spawn(async move { (message, node.commit(commit).await) });
        }
        let answers = hearing.join_all().await;
        let (taken, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(_, answer)| answer.is_ok());
        assert!(refused.iter().all(|(message, answer)| message == "same" && is_kept(answer, "same")), "{refused:?}");
        assert_eq!((taken.len(), refused.len()), (31, 9));
        assert_eq!(entries(&*nodes[0], Book::Messages).await.len(), 31);
        assert_eq!(claim(&*nodes[1], "b", 100).await.unwrap().tasks.len(), 31);
    }

    async fn a_message_calls_no_other_node(schema: &Schema) {
        let (a, b) = (node(schema, "a").await, node(schema, "b").await);
        quiet(&b).await;
        submit(&*a, awaiting(plan("p", 1, 1))).await;
        a.commit(heard(&*a, "p-0", "m").await).await.unwrap();
        let called = tokio::time::timeout(Duration::from_millis(300), b.called()).await;
        assert!(called.is_err(), "who took it in runs it by preference");
        assert_eq!(claimed(&*b, "b").await, ["p-0"], "and whoever looks finds it");
    }

    async fn the_books_cost_no_round_trip_of_their_own(schema: &Schema) {
        let store = node(schema, "n").await;
        submit(&*store, awaiting(plan("p", 1, 2))).await;
        let hears = heard(&*store, "p-0", "m").await;
        let trips = || store.stats().round_trips;
        let before = trips();
        store.commit(hears).await.unwrap();
        assert_eq!(trips() - before, 1);
        let mut held = claim(&*store, "n", 1).await.unwrap().tasks.remove(0);
        // The first has nothing for the books, the second what is to be said of the end.
        for stage in 0..2 {
            let (before, commit) = (trips(), succeeds(&held, stage));
            held.task = (*commit.task).clone();
            store.commit(commit).await.unwrap();
            assert_eq!(trips() - before, 1);
        }
        assert_eq!(entries(&*store, Book::Outbox).await.len(), 1);
    }

    async fn a_message_may_be_named_with_any_character(schema: &Schema) {
        let store = node(schema, "n").await;
        submit(&*store, awaiting(plan("p", 2, 1))).await;
        let name = "zero \0, quote ', euro \u{20ac}";
        store.commit(heard(&*store, "p-0", name).await).await.unwrap();
        assert!(store.entry(Book::Messages, name, NOW).await.unwrap().is_some());
        let again = store.commit(heard(&*store, "p-1", name).await).await;
        assert!(matches!(again, Err(StoreError::Kept { .. })), "{again:?}");
        assert_eq!(&*stored(&*store, "p-0").await.task.message().unwrap().id, name);
    }

    async fn what_is_over_goes_with_what_comes(schema: &Schema) {
        let store = node(schema, "n").await;
        let entry = |at: i64, until: Option<i64>| Entry {
            book: Book::Messages,
            key: format!("m{at}"),
            at: NOW + Millis::new(at.unsigned_abs()),
            until: until.map(|until| NOW + Millis::new(until.unsigned_abs())),
            body: "{}".to_owned(),
        };
        let keep = |entries: Vec<Entry>| BookChange { keep: entries, strike: Vec::new() };
        store.change_books(keep((0..300).map(|at| entry(at, Some(1000))).collect())).await.unwrap();
        store.change_books(keep(vec![entry(999, None)])).await.unwrap();
        assert_eq!(schema.run("UPDATE @.entries SET at = at").await, 301);
        // Not all at once, so that nobody waits for it.
        store.change_books(keep(vec![entry(1000, None)])).await.unwrap();
        assert_eq!(schema.run("UPDATE @.entries SET at = at").await, 302 - 256);
        store.change_books(keep(vec![entry(1001, None)])).await.unwrap();
        assert_eq!(schema.run("UPDATE @.entries SET at = at").await, 3);
    }

    async fn an_update_puts_tasks_in_line_that_await_no_message_any_more_and_takes_others_out(schema: &Schema) {
        let store = node(schema, "n").await;
        submit(&*store, awaiting(plan("p", 2, 1))).await;
        let update = async |plan: Plan| {
            let (plan, start, resubmit) = (Arc::new(plan), Start::AtOnce, Resubmit::Update);
            let submission = Submission { plan, start, resubmit, request: None, entries: Vec::new(), now: NOW };
            store.submit(submission).await.unwrap();
        };
        let awaits = async || {
            let of = TasksOf::Plan(plan("p", 0, 1).definition.id);
            let rows = store.tasks(TaskQuery { of, statuses: vec![TaskStatus::Pending], after: None, limit: 9 }).await;
            rows.unwrap().items.iter().map(|row| row.awaits_message).collect::<Vec<_>>()
        };
        assert_eq!((awaits().await, claimed(&*store, "n").await.len()), (vec![true, true], 0));
        update(plan("p", 3, 1)).await;
        assert_eq!(awaits().await, [false, false, false]);
        update(awaiting(plan("p", 4, 1))).await;
        assert_eq!((awaits().await, claimed(&*store, "n").await.len()), (vec![true; 4], 0));
        update(plan("p", 4, 1)).await;
        assert_eq!(claimed(&*store, "n").await.len(), 4);
    }
}
