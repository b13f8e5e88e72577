//! What is kept beside tasks: whole changes, in order, and each until its time is over.

use std::sync::Arc;

use milepost_core::time::{Millis, Timestamp};

use crate::books::{Book, BookChange, Entry, EntryQuery};
use crate::error::StoreError;
use crate::identity::{store_id, store_id_to_move};
use crate::model::{RequestKey, Resubmit, Start, Submission};
use crate::store::Store;

use super::Harness;
use super::given::{PlanBuilder, Scene, plan, plan_id};

pub(super) async fn all_entries(store: &dyn Store, book: Book, now: Timestamp) -> Vec<Entry> {
    in_pages(store, book, now, 1000).await
}

/// All of a book, asked for so many at a time.
pub(super) async fn in_pages(store: &dyn Store, book: Book, now: Timestamp, limit: usize) -> Vec<Entry> {
    let (mut whole, mut after) = (Vec::new(), None);
    loop {
        let page = store.entries(EntryQuery { book, after, limit, now }).await.unwrap();
        assert!(page.items.len() <= limit && (page.next.is_none() || page.items.len() == limit), "{page:?}");
        whole.extend(page.items);
        match page.next {
            Some(next) => assert!(after.replace(next).is_none_or(|before| before < next)),
            None => return whole,
        }
    }
}

fn entry(book: Book, key: &str, now: Timestamp) -> Entry {
    Entry { book, key: key.to_owned(), at: now, until: None, body: format!("{{\"of\":\"{key}\"}}") }
}

async fn keys(scene: &Scene<'_>, book: Book) -> Vec<String> {
    all_entries(&*scene.store, book, scene.now).await.into_iter().map(|entry| entry.key).collect()
}

async fn keep(scene: &Scene<'_>, entries: Vec<Entry>) -> Result<(), StoreError> {
    scene.store.change_books(BookChange { keep: entries, strike: Vec::new() }).await
}

async fn strike(scene: &Scene<'_>, book: Book, keys: &[&str]) {
    let strike = keys.iter().map(|key| (book, (*key).to_owned())).collect();
    scene.store.change_books(BookChange { keep: Vec::new(), strike }).await.unwrap();
}

fn is_kept(answer: Result<(), StoreError>, book: Book, key: &str) -> bool {
    matches!(answer, Err(StoreError::Kept { book: found, key: of }) if found == book && of == key)
}

pub(super) async fn a_store_keeps_the_id_that_it_was_given_first(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    let now = scene.now;
    assert_eq!(store_id_to_move(&*scene.store, now).await.unwrap(), None, "nothing has run here");
    assert_eq!(&*store_id(&*scene.store, "one", now).await.unwrap(), "one");
    assert_eq!(&*store_id(&*scene.store, "two", now).await.unwrap(), "one");
    scene.crash().await;
    assert_eq!(&*store_id(&*scene.store, "three", now).await.unwrap(), "one");
    let change = store_id_to_move(&*scene.store, now).await.unwrap().unwrap();
    scene.store.change_books(change).await.unwrap();
    assert_eq!(&*store_id(&*scene.store, "four", now).await.unwrap(), "one", "it can be given again");
}

pub(super) async fn an_entry_reads_back_as_it_was_written(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    // Names that differ by little are different names, and those of messages may be long.
    let long = "文".repeat(256);
    let names = ["a", "A", "a ", "á", "a'%_\\\"", "", long.as_str()];
    let mut written = Vec::new();
    for name in names {
        let body = format!("{{\"of\":\"租户 {name}\",\"emoji\":\"🦀\"}}");
        written.push(Entry {
            until: Some(scene.now + Millis::from_secs(9)),
            body,
            ..entry(Book::Turns, name, scene.now)
        });
    }
    keep(&scene, written.clone()).await.unwrap();
    for _ in 0..2 {
        assert_eq!(all_entries(&*scene.store, Book::Turns, scene.now).await, written);
        for entry in &written {
            let found = scene.store.entry(Book::Turns, &entry.key, scene.now).await.unwrap();
            assert_eq!(found.as_ref(), Some(entry));
            assert_eq!(scene.store.entry(Book::Outbox, &entry.key, scene.now).await.unwrap(), None);
        }
        scene.crash().await;
    }
    strike(&scene, Book::Turns, &["A", "a "]).await;
    assert_eq!(keys(&scene, Book::Turns).await, ["a", "á", "a'%_\\\"", "", long.as_str()]);
}

pub(super) async fn a_change_of_the_books_is_made_whole_or_not_at_all(harness: &dyn Harness) {
    let scene = Scene::new(harness).await;
    let now = scene.now;
    keep(&scene, vec![entry(Book::Turns, "there", now), entry(Book::Outbox, "other", now)]).await.unwrap();
    let change = BookChange {
        keep: vec![entry(Book::Outbox, "new", now), entry(Book::Turns, "new", now), entry(Book::Turns, "there", now)],
        strike: vec![(Book::Outbox, "other".to_owned())],
    };
    assert!(is_kept(scene.store.change_books(change).await, Book::Turns, "there"));
    assert_eq!(
        (keys(&scene, Book::Turns).await, keys(&scene, Book::Outbox).await),
        (vec!["there".into()], vec!["other".into()])
    );
    // A key is a key of one book.
    keep(&scene, vec![entry(Book::Outbox, "there", now), entry(Book::DeadLetters, "there", now)]).await.unwrap();
    assert_eq!(keys(&scene, Book::Outbox).await, ["other", "there"]);
    let twice = vec![entry(Book::Turns, "x", now), entry(Book::Turns, "x", now)];
    assert!(is_kept(keep(&scene, twice).await, Book::Turns, "x"));
    assert_eq!(keys(&scene, Book::Turns).await, ["there"]);
}

pub(super) async fn what_is_not_there_can_be_struck_out(harness: &dyn Harness) {
    let scene = Scene::new(harness).await;
    strike(&scene, Book::Outbox, &["never", "was"]).await;
    keep(&scene, vec![entry(Book::Outbox, "is", scene.now)]).await.unwrap();
    strike(&scene, Book::Outbox, &["never", "is", "is"]).await;
    strike(&scene, Book::Outbox, &["is"]).await;
    assert_eq!(keys(&scene, Book::Outbox).await, [""; 0]);
    scene.store.change_books(BookChange::default()).await.unwrap();
    keep(&scene, vec![entry(Book::Outbox, "is", scene.now)]).await.unwrap();
}

pub(super) async fn one_change_can_put_an_entry_in_the_place_of_another(harness: &dyn Harness) {
    let scene = Scene::new(harness).await;
    keep(&scene, vec![entry(Book::Turns, "a", scene.now), entry(Book::Turns, "b", scene.now)]).await.unwrap();
    let other = Entry { body: "{\"of\":\"somebody else\"}".to_owned(), ..entry(Book::Turns, "a", scene.now) };
    let change = BookChange { keep: vec![other.clone()], strike: vec![(Book::Turns, "a".to_owned())] };
    scene.store.change_books(change).await.unwrap();
    assert_eq!(scene.store.entry(Book::Turns, "a", scene.now).await.unwrap(), Some(other));
    assert_eq!(keys(&scene, Book::Turns).await, ["b", "a"]);
}

pub(super) async fn entries_come_in_order_and_in_pages_also_after_a_restart(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    // Not in the order of their names, and among those of other books.
    let name = |number: u32| format!("{:02}-{number}", (number * 7) % 25);
    for number in 0..25 {
        let now = scene.now;
        keep(&scene, vec![entry(Book::Outbox, &name(number), now), entry(Book::Messages, &name(number), now)])
            .await
            .unwrap();
    }
    let gone: Vec<String> = (0..25).filter(|number| number % 4 == 1).map(name).collect();
    strike(&scene, Book::Outbox, &gone.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut left: Vec<String> = (0..25).filter(|number| number % 4 != 1).map(name).collect();
    let first = scene.store.entries(EntryQuery { book: Book::Outbox, after: None, limit: 5, now: scene.now }).await;
    let first = first.unwrap();
    scene.crash().await;
    for limit in [1, 4, 19, 100] {
        let entries = in_pages(&*scene.store, Book::Outbox, scene.now, limit).await;
        assert_eq!(entries.iter().map(|entry| &entry.key).collect::<Vec<_>>(), left.iter().collect::<Vec<_>>());
    }
    // Where somebody stopped to read, they go on, whatever was struck out and written meanwhile.
    strike(&scene, Book::Outbox, &left.drain(..5).collect::<Vec<_>>().iter().map(String::as_str).collect::<Vec<_>>())
        .await;
    keep(&scene, vec![entry(Book::Outbox, "00-last", scene.now)]).await.unwrap();
    left.push("00-last".to_owned());
    let rest = EntryQuery { book: Book::Outbox, after: first.next, limit: 100, now: scene.now };
    let rest = scene.store.entries(rest).await.unwrap();
    assert_eq!(rest.items.into_iter().map(|entry| entry.key).collect::<Vec<_>>(), left);
    assert_eq!(rest.next, None);
    // Nor is a place given again when everything is gone.
    for book in [Book::Outbox, Book::Messages] {
        let all = keys(&scene, book).await;
        strike(&scene, book, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
    scene.crash().await;
    keep(&scene, vec![entry(Book::Outbox, "again", scene.now)]).await.unwrap();
    let again = EntryQuery { book: Book::Outbox, after: first.next, limit: 100, now: scene.now };
    assert_eq!(scene.store.entries(again).await.unwrap().items.len(), 1);
}

pub(super) async fn an_entry_is_gone_when_its_time_is_over(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    let until = Some(scene.now + Millis::from_secs(5));
    let mine = Entry { until, ..entry(Book::Turns, "turn", scene.now) };
    keep(&scene, vec![mine.clone(), entry(Book::Turns, "for-ever", scene.now)]).await.unwrap();
    scene.later(Millis::new(4999));
    assert_eq!(scene.store.entry(Book::Turns, "turn", scene.now).await.unwrap(), Some(mine));
    assert!(is_kept(keep(&scene, vec![entry(Book::Turns, "turn", scene.now)]).await, Book::Turns, "turn"));
    scene.later(Millis::new(1));
    assert_eq!(scene.store.entry(Book::Turns, "turn", scene.now).await.unwrap(), None);
    assert_eq!(keys(&scene, Book::Turns).await, ["for-ever"]);
    // Somebody else's from here on, and it comes last.
    keep(&scene, vec![entry(Book::Turns, "turn", scene.now)]).await.unwrap();
    assert_eq!(keys(&scene, Book::Turns).await, ["for-ever", "turn"]);
    scene.later(Millis::from_secs(3600));
    assert!(is_kept(keep(&scene, vec![entry(Book::Turns, "turn", scene.now)]).await, Book::Turns, "turn"));
}

pub(super) async fn what_is_over_leaves_the_lists_and_takes_nothing_else_along(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    let batch = |name: &str, now: Timestamp| -> Vec<Entry> {
        let until = Some(now + Millis::from_secs(10));
        (0..400).map(|number| Entry { until, ..entry(Book::Messages, &format!("{name}-{number}"), now) }).collect()
    };
    keep(&scene, batch("old", scene.now)).await.unwrap();
    keep(&scene, vec![entry(Book::Messages, "stays", scene.now)]).await.unwrap();
    scene.later(Millis::from_secs(6));
    let young = batch("young", scene.now);
    keep(&scene, young.clone()).await.unwrap();
    scene.later(Millis::from_secs(6));
    for number in 0..4 {
        keep(&scene, vec![entry(Book::Messages, &format!("new-{number}"), scene.now)]).await.unwrap();
        let entries = in_pages(&*scene.store, Book::Messages, scene.now, 100).await;
        assert_eq!(entries.len(), 1 + young.len() + number + 1);
        assert_eq!((entries[0].key.as_str(), &entries[1..=young.len()]), ("stays", &young[..]));
    }
    scene.crash().await;
    assert_eq!(all_entries(&*scene.store, Book::Messages, scene.now).await.len(), 405);
}

pub(super) async fn of_many_who_want_one_key_at_once_one_gets_it(harness: &dyn Harness) {
    let scene = Scene::new(harness).await;
    let sent = (0..8).map(|number| {
        let (store, now) = (scene.store.clone(), scene.now);
        let own = entry(Book::Turns, &format!("own-{number}"), now);
        let change = BookChange { keep: vec![own, entry(Book::Turns, "turn", now)], strike: Vec::new() };
        tokio::spawn(async move { store.change_books(change).await })
    });
    let mut taken = 0;
    for answer in sent.collect::<Vec<_>>() {
        match answer.await.unwrap() {
            Ok(()) => taken += 1,
            Err(error) => assert!(matches!(error, StoreError::Kept { .. }), "{error:?}"),
        }
    }
    assert_eq!((taken, keys(&scene, Book::Turns).await.len()), (1, 2));
}

fn submission(scene: &Scene<'_>, plan: PlanBuilder, entries: &[&str]) -> Submission {
    Submission {
        plan: Arc::new(plan.0),
        start: Start::AtOnce,
        resubmit: Resubmit::Same,
        request: None,
        entries: entries.iter().map(|key| entry(Book::Outbox, key, scene.now)).collect(),
        now: scene.now,
    }
}

pub(super) async fn a_plan_is_stored_with_its_entries_or_not_at_all(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    scene.store.submit(submission(&scene, plan("p").task("a"), &["x", "y"])).await.unwrap();
    assert_eq!(keys(&scene, Book::Outbox).await, ["x", "y"]);
    let newest = scene.store.newest().await.unwrap();
    let refused = scene.store.submit(submission(&scene, plan("q").task("b"), &["z", "y"])).await;
    assert!(is_kept(refused.map(|_| ()), Book::Outbox, "y"));
    assert_eq!((scene.store.plan(&plan_id("q")).await.unwrap(), scene.store.newest().await.unwrap()), (None, newest));
    // A plan that is refused leaves no entries either.
    let clash = scene.store.submit(submission(&scene, plan("q").task("a"), &["z"])).await;
    assert!(matches!(clash, Err(StoreError::Clash(_))), "{clash:?}");
    assert_eq!(keys(&scene, Book::Outbox).await, ["x", "y"]);
    scene.crash().await;
    assert_eq!(keys(&scene, Book::Outbox).await, ["x", "y"]);
    assert_eq!(scene.claim().await.tasks.len(), 1);
}

pub(super) async fn what_was_heard_before_is_said_before_any_clash(harness: &dyn Harness) {
    let scene = Scene::new(harness).await;
    scene.store.submit(submission(&scene, plan("p").task("a"), &["x"])).await.unwrap();
    for again in [plan("p").task("a"), plan("p").task("other"), plan("q").task("a")] {
        let refused = scene.store.submit(submission(&scene, again, &["x"])).await;
        assert!(is_kept(refused.map(|_| ()), Book::Outbox, "x"));
    }
    // The same plan again, for another reason.
    let again = scene.store.submit(submission(&scene, plan("p").task("a"), &["y"])).await.unwrap();
    assert!(!again.created);
    assert_eq!(keys(&scene, Book::Outbox).await, ["x", "y"]);
}

pub(super) async fn a_request_sent_again_writes_its_entries_once(harness: &dyn Harness) {
    let scene = Scene::new(harness).await;
    let request = Some(RequestKey { key: "k".to_owned(), digest: [1; 32] });
    let submission = Submission { request, ..submission(&scene, plan("p").task("a"), &["x"]) };
    assert!(!scene.store.submit(submission.clone()).await.unwrap().replayed);
    assert!(scene.store.submit(submission.clone()).await.unwrap().replayed);
    strike(&scene, Book::Outbox, &["x"]).await;
    assert!(scene.store.submit(submission).await.unwrap().replayed);
    assert_eq!(keys(&scene, Book::Outbox).await, [""; 0]);
}
