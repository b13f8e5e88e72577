//! Several nodes on one Redis and its books: what one has heard, said or written down, the others know.

#[path = "support/patience.rs"]
mod patience;
mod redis_server;

use std::time::Duration;

use milepost_core::task::{Command, TaskStatus};
use milepost_core::time::Millis;
use milepost_store::{Book, BookChange, Commit, Entry, EntryQuery, Holder, RedisStore, Store, StoreError};
use patience::PATIENCE;
use redis_server::given::{
    by_message, claim, claim_one, decision, does, message, now, operator, plan, submit, submit_with, success, task_id,
};
use redis_server::{Place, is_missing};

async fn entries(store: &RedisStore, book: Book) -> Vec<Entry> {
    store.entries(EntryQuery { book, after: None, limit: 100, now: now() }).await.unwrap().items
}

async fn receive(store: &RedisStore, task: &str, id: &str) -> Result<(), StoreError> {
    operator(store, task, Command::Receive(message(id))).await.map(|_| ())
}

#[tokio::test]
async fn a_message_that_one_node_has_heard_starts_nothing_on_another() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let (a, b) = (place.node("a").await, place.node("b").await);
    submit(&a, by_message(plan("p", &[("t", None), ("u", None), ("v", None)]))).await;
    receive(&a, "t", "m-1").await.unwrap();
    // On their way together, so that they go in one group.
    let (again, other) = tokio::join!(receive(&b, "u", "m-1"), receive(&b, "v", "m-2"));
    assert!(matches!(again, Err(StoreError::Kept { book: Book::Messages, key }) if key == "m-1"));
    other.unwrap();
    let refused = a.task(&task_id("u")).await.unwrap().unwrap().task;
    assert!(refused.awaits_message() && refused.version() == 1);
    let mut claimed: Vec<String> = claim(&a, 10).await.iter().map(|task| task.key.id.to_string()).collect();
    claimed.sort();
    assert_eq!(claimed, ["t", "v"]);
}

#[tokio::test]
async fn a_plan_whose_message_was_heard_elsewhere_is_not_stored() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let (a, b) = (place.node("a").await, place.node("b").await);
    let made_by = |id: &str, task: &str, heard: &str| {
        let mut plan = by_message(plan(id, &[(task, None)]));
        plan.tasks[0].message = Some(message(heard));
        plan
    };
    let heard = |id: &str| {
        let until = Some(message(id).remembered_until);
        vec![Entry { book: Book::Messages, key: id.to_owned(), at: now(), until, body: "{}".to_owned() }]
    };
    submit_with(&a, made_by("p", "t", "m"), heard("m")).await.unwrap();
    let again = submit_with(&b, made_by("q", "u", "m"), heard("m")).await;
    assert!(matches!(again, Err(StoreError::Kept { .. })), "{again:?}");
    assert!(b.task(&task_id("u")).await.unwrap().is_none());
    assert_eq!(claim_one(&b).await.key.id, task_id("t"));
}

#[tokio::test]
async fn what_one_node_has_to_say_another_reads_says_and_strikes_out() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let (a, b) = (place.node("a").await, place.node("b").await);
    submit(&a, by_message(plan("p", &[("t", None)]))).await;
    receive(&a, "t", "m").await.unwrap();
    let held = claim_one(&a).await;
    let held = does(&a, &held, success(0)).await;
    assert!(entries(&b, Book::Outbox).await.is_empty());
    assert_eq!(does(&a, &held, success(1)).await.task.status(), TaskStatus::Completed);
    let said = entries(&b, Book::Outbox).await;
    assert_eq!(said.len(), 1);
    assert!(said[0].body.contains("\"messageId\":\"m\""), "{}", said[0].body);
    let strike = vec![(Book::Outbox, said[0].key.clone())];
    b.change_books(BookChange { keep: Vec::new(), strike }).await.unwrap();
    assert!(entries(&a, Book::Outbox).await.is_empty());
    assert_eq!(entries(&a, Book::Messages).await.len(), 1, "who was heard is still known");
}

#[tokio::test]
async fn no_other_node_is_called_for_a_message_and_any_finds_its_task_when_it_looks() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let (a, b) = (place.node("a").await, place.node("b").await);
    b.called().await;
    submit(&a, by_message(plan("p", &[("t", None)]))).await;
    assert!(claim(&b, 10).await.is_empty());
    receive(&a, "t", "m").await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(200), b.called()).await.is_err());
    assert_eq!(claim_one(&b).await.key.id, task_id("t"));
    submit(&a, plan("q", &[("u", None)])).await;
    tokio::time::timeout(PATIENCE, b.called()).await.expect("for other work b is called");
}

#[tokio::test]
async fn what_a_commit_means_for_the_books_costs_no_call_of_its_own() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let a = place.node("a").await;
    submit(&a, by_message(plan("p", &[("t", None)]))).await;
    submit(&a, plan("q", &[("u", None)])).await;
    let awaiting = a.task(&task_id("t")).await.unwrap().unwrap();
    let before = a.stats().round_trips;
    let commit = decision(&awaiting, Command::Receive(message("m")));
    a.commit(Commit { holder: Holder::Operator, ..commit }).await.unwrap();
    assert_eq!(a.stats().round_trips - before, 1);
    let (mut held, before) = (claim(&a, 2).await, a.stats().round_trips);
    for task in &mut held {
        *task = does(&a, task, success(0)).await;
        *task = does(&a, task, success(1)).await;
    }
    assert_eq!(a.stats().round_trips - before, 4, "two commits each, with or without an outcome to publish");
    assert_eq!(entries(&a, Book::Outbox).await.len(), 1);
}

#[tokio::test]
async fn what_is_over_is_removed_by_later_writes_some_at_a_time() {
    if is_missing() {
        return;
    }
    let place = Place::new();
    let a = place.node("a").await;
    let keep = |entries: Vec<Entry>| a.change_books(BookChange { keep: entries, strike: Vec::new() });
    let at = now();
    let entry = |key: String, until| Entry { book: Book::Messages, key, at, until, body: "{}".to_owned() };
    let soon = Some(at + Millis::new(1));
    keep((0..400).map(|number| entry(format!("old-{number}"), soon)).collect()).await.unwrap();
    let size = |key: &'static str, question: &'static str| {
        let key = place.key(&format!("mp:{key}:messages"));
        async { place.ask::<i64>(redis::cmd(question).arg(key)).await }
    };
    let later = |key: &str| vec![Entry { at: at + Millis::new(1), ..entry(key.to_owned(), None) }];
    keep(later("new-1")).await.unwrap();
    assert_eq!(size("book", "HLEN").await, 101, "not all at once: others wait while a script runs");
    keep(later("new-2")).await.unwrap();
    assert_eq!(size("book", "HLEN").await, 2);
    assert_eq!((size("book-numbers", "ZCARD").await, size("book-ends", "ZCARD").await), (2, 0));
}
