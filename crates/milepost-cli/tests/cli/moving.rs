//! `store migrate`: everything arrives, nothing is done by halves, and what was under way goes on.

use milepost_core::time::{Millis, Timestamp};
use milepost_store::sqlite::SqliteStore;
use milepost_store::{Book, BookChange, Entry, EntryQuery, Store};
use serde_json::{Value, json};

use crate::support::{World, failing, gated};

/// A store with a plan that ended, one that failed, and one whose node was killed in the middle; and a token.
pub(crate) fn full(world: &World) {
    world.file(
        "done.yaml",
        "plan: done\nstages: [{ name: one, run: 'printf \"a\\0b\"' }]\ntasks: [{ id: d1 }, { id: d2 }]\n",
    );
    world.good(&["run", "done.yaml", "-q"]);
    world.file("failed.yaml", &failing("failed"));
    world.milepost(&["run", "failed.yaml", "-q"]).must_exit(1);
    world.file("cut.yaml", &gated("cut", &["c1", "c2"]));
    let run = world.start(&["run", "cut.yaml", "-q"]);
    world.wait_for_file("started-c1");
    world.wait_for_file("started-c2");
    drop(run);
    world.good(&["token", "create", "ops", "--scope", "read", "-q"]);
}

/// What `status`, `events`, `logs` and `checkpoint` say of all there is.
pub(crate) fn everything(world: &World, store: &str) -> Vec<Value> {
    let ask = |args: &[&str]| world.json(&[args, &["--store", store]].concat());
    let mut answers = vec![ask(&["status"]), ask(&["token", "list"])];
    for plan in ["done", "failed", "cut"] {
        answers.push(ask(&["status", plan]));
    }
    for task in ["d1", "d2", "t", "c1", "c2"] {
        for question in ["status", "events", "checkpoint"] {
            answers.push(ask(&[question, task]));
        }
        answers.push(json!(world.good(&["logs", task, "--store", store]).stdout));
    }
    answers
}

#[test]
fn everything_arrives_is_counted_and_goes_on_where_it_was() {
    let world = World::new();
    full(&world);
    let before = everything(&world, "sqlite:milepost.db");
    let moved = world.json(&["store", "migrate", "sqlite:milepost.db", "sqlite:new.db"]);
    assert_eq!((&moved["plans"], &moved["tasks"], &moved["tokens"]), (&json!(3), &json!(5), &json!(1)));
    assert!(moved["events"].as_u64().unwrap() > 20 && moved["outputBytes"].as_u64().unwrap() > 5, "{moved}");
    assert_eq!(everything(&world, "sqlite:new.db"), before);
    // The original is as it was.
    assert_eq!(everything(&world, "sqlite:milepost.db"), before);

    world.file("go", "");
    world.file("mended", "");
    world.good(&["run", "cut.yaml", "-q", "--store", "sqlite:new.db"]);
    world.good(&["run", "failed.yaml", "-q", "--retry-failed", "--store", "sqlite:new.db"]);
    world.good(&["run", "done.yaml", "-q", "--store", "sqlite:new.db"]);
    assert_eq!(world.read("finished").lines().count(), 2);
    assert_eq!(world.read("ran").lines().collect::<Vec<_>>(), ["first", "second", "second"], "from its checkpoint");
}

/// Of the file in a test's folder, while no command has it.
struct Books(SqliteStore);

impl Books {
    fn of(world: &World, file: &str) -> Self {
        Self(SqliteStore::open(world.path().join(file)).unwrap())
    }

    async fn keep(&self, keep: Vec<Entry>) {
        self.0.change_books(BookChange { keep, strike: Vec::new() }).await.unwrap();
    }

    async fn all(&self) -> Vec<Entry> {
        let mut all = Vec::new();
        for book in Book::ALL {
            let query = EntryQuery { book, after: None, limit: 10_000, now: now() };
            all.extend(self.0.entries(query).await.unwrap().items);
        }
        all
    }
}

fn now() -> Timestamp {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap())
}

fn entry(book: Book, key: impl Into<String>) -> Entry {
    Entry { book, key: key.into(), at: now(), until: None, body: "{\"of\":\"租户\"}".to_owned() }
}

/// More than are read at once, not in the order of their names; of each book some.
fn entries() -> Vec<Entry> {
    let until = Some(now() + Millis::from_secs(3600));
    let messages = (0..1100).map(|number| Entry { until, ..entry(Book::Messages, format!("m-{}", number * 7 % 1100)) });
    let others = [entry(Book::Outbox, "said-2"), entry(Book::Outbox, "said-1"), entry(Book::DeadLetters, "t.4")];
    messages.chain(others).collect()
}

#[tokio::test]
async fn what_was_heard_is_to_be_said_and_was_given_up_moves_along_in_its_order() {
    let world = World::new();
    let (books, written) = (Books::of(&world, "milepost.db"), entries());
    books.keep(written.clone()).await;
    books.keep(vec![entry(Book::Turns, "relay"), Entry { until: Some(now()), ..entry(Book::Messages, "over") }]).await;
    drop(books);
    let moved = world.json(&["store", "migrate", "sqlite:milepost.db", "sqlite:new.db"]);
    assert_eq!(moved["bookLines"], json!(1103));
    assert_eq!(Books::of(&world, "new.db").all().await, written, "and nobody's turn");
    // As if it had been cut off: what is still there is the beginning.
    let file = rusqlite::Connection::open(world.path().join("new.db")).unwrap();
    assert!(file.execute("DELETE FROM entries WHERE book > 1 OR no > 500", []).unwrap() > 600);
    drop(file);
    world.good(&["store", "migrate", "sqlite:milepost.db", "sqlite:new.db"]).must_say(&["1103 lines of the books"]);
    assert_eq!(Books::of(&world, "new.db").all().await, written);
}

#[tokio::test]
async fn a_store_is_not_moved_into_one_that_has_heard_something_of_its_own() {
    let world = World::new();
    Books::of(&world, "milepost.db").keep(vec![entry(Book::Messages, "m-1"), entry(Book::Messages, "m-2")]).await;
    Books::of(&world, "new.db").keep(vec![entry(Book::Messages, "m-2")]).await;
    let refused = world.milepost(&["store", "migrate", "sqlite:milepost.db", "sqlite:new.db"]);
    refused.must_exit(5).must_say(&["is not empty: `m-2` in its book of messages is its own, or out of place"]);
}

#[test]
fn a_move_that_was_cut_off_is_gone_on_with_and_one_that_is_done_is_only_compared() {
    let world = World::new();
    full(&world);
    let first = world.json(&["store", "migrate", "sqlite:milepost.db", "sqlite:new.db"]);
    // As if it had been cut off before the newest plan and the token.
    let file = rusqlite::Connection::open(world.path().join("new.db")).unwrap();
    for sql in [
        "DELETE FROM task_runtimes WHERE plan = 3",
        "DELETE FROM events WHERE task IN (SELECT no FROM task_configs WHERE plan = 3)",
        "DELETE FROM logs WHERE task IN (SELECT no FROM task_configs WHERE plan = 3)",
        "DELETE FROM task_configs WHERE plan = 3",
        "DELETE FROM plans WHERE no = 3",
        "DELETE FROM tokens",
    ] {
        file.execute(sql, []).unwrap();
    }
    drop(file);
    let second = world.json(&["store", "migrate", "sqlite:milepost.db", "sqlite:new.db"]);
    assert_eq!((&second["alreadyThere"], &second["digest"]), (&json!(2), &first["digest"]));
    world.good(&["store", "migrate", "sqlite:milepost.db", "sqlite:new.db"]).must_say(&[
        "moved 3 plans, 5 tasks",
        "3 of the plans had arrived before",
        "read back and found the same",
    ]);
    assert_eq!(everything(&world, "sqlite:new.db"), everything(&world, "sqlite:milepost.db"));
}

#[test]
fn a_store_is_not_moved_into_one_that_has_something_of_its_own() {
    let world = World::new();
    full(&world);
    world.file("other.yaml", "plan: other\nstages: [{ name: one, run: 'true' }]\ntasks: [{ id: o1 }]\n");
    world.good(&["run", "other.yaml", "-q", "--store", "sqlite:other.db"]);
    let refused = world.milepost(&["store", "migrate", "sqlite:milepost.db", "sqlite:other.db"]);
    refused.must_exit(5).must_say(&["is not empty: it has a plan other of its own", "name another, or empty this one"]);
    // A copy that has gone on is another store by now.
    world.good(&["store", "migrate", "sqlite:milepost.db", "sqlite:new.db"]);
    world.good(&["cancel", "cut", "--store", "sqlite:new.db"]);
    let refused = world.milepost(&["store", "migrate", "sqlite:milepost.db", "sqlite:new.db"]);
    refused.must_exit(5).must_say(&["its plan cut is another, or has gone on since"]);
}

#[test]
fn a_store_in_use_is_not_moved_in_either_direction() {
    let world = World::new();
    world.file("cut.yaml", &gated("cut", &["c1"]));
    let run = world.start(&["run", "cut.yaml", "-q"]);
    world.wait_for_file("started-c1");
    for (from, to) in [("sqlite:milepost.db", "sqlite:new.db"), ("sqlite:old.db", "sqlite:milepost.db")] {
        world.file("other.yaml", "plan: other\nstages: [{ name: one, run: 'true' }]\ntasks: [{ id: o1 }]\n");
        world.good(&["run", "other.yaml", "-q", "--store", "sqlite:old.db"]);
        let refused = world.milepost(&["store", "migrate", from, to]).must_exit(3);
        refused.must_say(&["is in use by process", "stores are moved while both are stopped"]);
    }
    world.file("go", "");
    run.end().must_exit(0);
}

#[test]
fn a_store_that_is_not_there_or_is_the_same_is_not_moved() {
    let world = World::new();
    world
        .milepost(&["store", "migrate", "sqlite:no.db", "sqlite:new.db"])
        .must_exit(3)
        .must_say(&["there is no store"]);
    assert!(!world.exists("new.db"));
    world.milepost(&["store", "migrate", "sqlite:a.db", "sqlite:./a.db"]).must_exit(2).must_say(&["to itself"]);
    world
        .milepost(&["store", "migrate", "env:NO_SUCH", "sqlite:a.db"])
        .must_exit(2)
        .must_say(&["no variable `NO_SUCH`"]);
}

#[test]
fn a_damaged_task_stops_the_move_and_is_named() {
    let world = World::new();
    full(&world);
    let file = rusqlite::Connection::open(world.path().join("milepost.db")).unwrap();
    let sql = "UPDATE events SET body = replace(body, 'StageCompleted', 'StageCompletee') || ' ' \
               WHERE task = (SELECT no FROM task_configs WHERE id = 'd2')";
    assert!(file.execute(sql, []).unwrap() > 0);
    drop(file);
    let stopped = world.milepost(&["store", "migrate", "sqlite:milepost.db", "sqlite:new.db"]);
    stopped.must_exit(3).must_say(&["task d2", "damaged", "nothing was changed there"]);
}
