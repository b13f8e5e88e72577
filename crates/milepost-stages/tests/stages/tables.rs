//! `copy-table` between SQLite files: what a plan says, what it may reach, and what comes of it.

use std::path::PathBuf;
use std::sync::Arc;

use milepost_core::failure::ErrorType;
use milepost_engine::stage::{StageCall, StageKind};
use milepost_stages::{CopyTableKind, Databases, DiskAccess};
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Seen, call, failure, outputs, within};

struct World {
    dir: TempDir,
    seen: Arc<Seen>,
}

impl World {
    /// With a table of so many rows.
    fn new(rows: u32) -> Self {
        let world = Self { dir: tempfile::tempdir().unwrap(), seen: Arc::default() };
        let source = world.open("source.db");
        source.execute_batch("CREATE TABLE people (id INTEGER PRIMARY KEY, age INTEGER); BEGIN").unwrap();
        for id in 1..=rows {
            source.execute("INSERT INTO people VALUES (?1, ?1)", [id]).unwrap();
        }
        source.execute_batch("COMMIT; PRAGMA journal_mode = WAL").unwrap();
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn url(&self, name: &str) -> String {
        format!("sqlite:{}", self.path(name).display())
    }

    fn open(&self, name: &str) -> Connection {
        Connection::open(self.path(name)).unwrap()
    }

    fn count(&self, table: &str) -> u32 {
        let sql = format!("SELECT count(*) FROM {table}");
        self.open("target.db").query_row(&sql, [], |row| row.get(0)).unwrap()
    }

    fn kind(&self, disk: DiskAccess) -> CopyTableKind {
        let named = [("shop", "source.db"), ("warehouse", "target.db")];
        CopyTableKind::new(Databases::new(named.map(|(name, file)| (name.to_owned(), self.url(file))).into(), disk))
    }

    fn call(&self, more: Value) -> StageCall {
        let mut with = json!({"from": self.url("source.db"), "to": self.url("target.db"), "table": "people"});
        with.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        StageCall { with, ..call(&self.seen) }
    }

    async fn run(&self, more: Value) -> milepost_engine::stage::Outcome {
        within(self.kind(DiskAccess::Everywhere).run(self.call(more))).await
    }
}

#[tokio::test]
async fn a_table_is_copied_and_people_see_how_far_it_is() {
    let world = World::new(1000);
    world.open("source.db").execute_batch("CREATE TRIGGER noisy AFTER DELETE ON people BEGIN SELECT 1; END").unwrap();
    let outputs = outputs(world.run(json!({"into": "folk", "batch_size": 400, "verify": "checksums"})).await);
    assert_eq!((world.count("folk"), &outputs["rows"], &outputs["rejected"]), (1000, &json!(1000), &json!(0)));
    assert_eq!(
        (&outputs["table"], &outputs["into"], &outputs["already"]),
        (&json!("people"), &json!("folk"), &json!(false))
    );
    for number in ["bytes", "seconds", "rowsPerSecond", "ranges"] {
        assert!(outputs[number].as_f64().unwrap() > 0.0, "{number}: {outputs:?}");
    }
    let progress = world.seen.progress.lock().unwrap().clone();
    assert_eq!(progress, [(0, 1000), (400, 1000), (800, 1000), (1000, 1000), (1000, 1000)]);
    assert!(world.seen.text().contains("noisy"), "what is not copied is said: {}", world.seen.text());
    assert!(world.kind(DiskAccess::Everywhere).interruptible(&Value::Null));
}

#[tokio::test]
async fn a_database_may_be_named_and_an_attempt_after_a_success_finds_its_own_table() {
    let world = World::new(10);
    let named = json!({"from": "shop", "to": "warehouse"});
    for _ in 0..2 {
        outputs(world.run(named.clone()).await);
    }
    let stranger = milepost_core::id::TaskId::parse("task-2").unwrap();
    let call = StageCall { task: stranger, ..world.call(named) };
    let refused = failure(within(world.kind(DiskAccess::Everywhere).run(call)).await);
    assert_eq!((refused.error_type, refused.retryable), (ErrorType::Business, false));
    assert!(refused.reason.contains("if_exists"), "{refused}");
}

#[tokio::test]
async fn rejected_rows_are_in_the_file_that_the_plan_names() {
    let world = World::new(10);
    world.open("source.db").execute_batch("UPDATE people SET age = 'old' WHERE id = 3").unwrap();
    let exact = json!({"age": "int64"});
    let stopped = failure(world.run(json!({"types": exact})).await);
    assert_eq!((stopped.error_type, stopped.retryable), (ErrorType::Business, false));
    assert!(stopped.reason.contains("people") && stopped.reason.contains("age"), "{stopped}");
    let file = world.path("deep/down.ndjson");
    let outputs = outputs(world.run(json!({"types": exact, "on_row_error": "skip", "rejected": file})).await);
    assert_eq!((&outputs["rows"], &outputs["rejected"]), (&json!(9), &json!(1)));
    assert_eq!(std::fs::read_to_string(file).unwrap().lines().count(), 1);
}

#[tokio::test]
async fn a_cancelled_attempt_leaves_nothing_behind() {
    let world = World::new(5000);
    let call = world.call(json!({"batch_size": 100, "rows_per_second": 100}));
    let cancel = call.cancel.clone();
    let (kind, seen) = (world.kind(DiskAccess::Everywhere), world.seen.clone());
    let running = tokio::spawn(async move { kind.run(call).await });
    crate::support::eventually("the first batch", || {
        seen.progress.lock().unwrap().iter().any(|(done, _)| *done > 0).then_some(())
    })
    .await;
    cancel.cancel();
    let cancelled = failure(within(running).await.unwrap());
    assert_eq!((cancelled.error_type, cancelled.retryable), (ErrorType::Timeout, true));
    assert_eq!(world.count("sqlite_schema WHERE type = 'table' AND name <> 'milepost_copies'"), 0);
}

#[tokio::test]
async fn plans_from_elsewhere_reach_only_what_they_may() {
    let world = World::new(10);
    std::fs::create_dir(world.path("open")).unwrap();
    std::fs::copy(world.path("source.db"), world.path("open/source.db")).unwrap();
    let kind = world.kind(DiskAccess::Below(vec![world.path("open")]));
    let target = world.url("open/target.db");
    let tries = [
        (json!({"to": target}), false),
        (json!({"from": "postgres://localhost/x", "to": target}), false),
        (json!({"from": "env:HOME", "to": target}), false),
        (json!({"from": "shop", "to": target, "on_row_error": "skip"}), false),
        (json!({"from": "shop", "to": target, "on_row_error": "skip", "rejected": world.path("open/no")}), true),
        (json!({"from": world.url("open/source.db"), "to": target, "into": "second"}), true),
    ];
    for (with, may) in tries {
        let outcome = within(kind.run(world.call(with.clone()))).await;
        if may {
            outputs(outcome);
        } else {
            let refused = failure(outcome);
            assert_eq!((refused.error_type, refused.retryable), (ErrorType::Validation, false), "{with}: {refused}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_is_said_in_words() {
    let world = World::new(1);
    let unknown = failure(world.run(json!({"from": "nowhere"})).await);
    assert!(unknown.reason.contains("shop, warehouse"), "{unknown}");
    let missing = failure(world.run(json!({"from": world.url("no.db")})).await);
    assert!(missing.reason.contains("no.db"), "{missing}");
    assert!(!world.path("no.db").exists());
    let itself = failure(world.run(json!({"to": world.url("source.db"), "if_exists": "append"})).await);
    assert!(itself.reason.contains("into itself"), "{itself}");
}
