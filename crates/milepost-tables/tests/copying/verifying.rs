//! Both sides are compared by reading them.

use milepost_tables::{Copy, IfExists, OnRowError, Verify};
use rusqlite::Connection;

use crate::support::{Tampered, Watcher, World, refused, run, watched};

/// A target in which this happens as soon as the rows have appeared.
async fn tampered(world: &World, sql: &'static str) -> Copy {
    let path = world.path("target.db");
    let tampers = move || {
        Connection::open(&path).and_then(|target| target.execute_batch(sql)).unwrap();
        Ok(())
    };
    Copy { to: Tampered::new(world.database("target.db").await, tampers), ..world.job().await }
}

#[tokio::test]
async fn every_value_is_compared_in_ranges_of_the_key() {
    let world = World::new(95);
    let copied = run(Copy { verify: Verify::Checksums, ..world.job().await }).await.unwrap();
    assert_eq!(copied.ranges, Some(3), "of forty rows each");
    let world = World::new(0);
    assert_eq!(run(Copy { verify: Verify::Checksums, ..world.job().await }).await.unwrap().ranges, Some(1));
}

#[tokio::test]
async fn a_row_that_is_missing_is_found_by_counting() {
    let world = World::new(95);
    let job = tampered(&world, "DELETE FROM people WHERE id = 50").await;
    let reason = refused(run(job.clone()).await);
    assert!(reason.contains("has 95 rows") && reason.contains("has 94"), "{reason}");
    assert_eq!(world.count("people"), 94, "the table stays for inspection");
    run(Copy { verify: Verify::None, ..job }).await.unwrap();
}

#[tokio::test]
async fn a_row_that_was_changed_is_found_and_named() {
    let world = World::new(95);
    let job = tampered(&world, "UPDATE people SET age = age + 1 WHERE id = 50").await;
    run(job.clone()).await.expect("as many rows as there should be");
    let reason = refused(run(Copy { verify: Verify::Checksums, ..job }).await);
    assert!(reason.contains("after id 40 and up to id 80, the row with id 50 differs"), "{reason}");
}

#[tokio::test]
async fn rows_that_are_missing_or_too_many_are_named() {
    let world = World::new(95);
    let sql = "DELETE FROM people WHERE id = 3; INSERT INTO people VALUES (0, 'x', 1)";
    let job = Copy { verify: Verify::Checksums, ..tampered(&world, sql).await };
    let reason = refused(run(job).await);
    for word in ["up to id 40", "id 3 is missing", "id 0 is too many"] {
        assert!(reason.contains(word), "{reason}");
    }
}

#[tokio::test]
async fn a_table_without_a_key_of_integers_is_compared_as_a_whole() {
    let world = World::new(0);
    world.source.execute_batch("CREATE TABLE words (word TEXT); INSERT INTO words VALUES ('a'), ('b'), ('b')").unwrap();
    let words = |job: Copy| Copy { table: "words".parse().unwrap(), into: "words".parse().unwrap(), ..job };
    let job = Copy { verify: Verify::Checksums, ..words(world.job().await) };
    assert_eq!(run(job).await.unwrap().ranges, Some(1));
    let job = tampered(&world, "UPDATE words SET word = 'a' WHERE rowid = 2").await;
    let reason = refused(run(Copy { verify: Verify::Checksums, ..words(job) }).await);
    assert!(reason.contains("both have 3 rows"), "{reason}");
}

#[tokio::test]
async fn rejected_rows_are_not_missed_and_no_others_may_be_missing() {
    let world = World::new(95);
    let strict = "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, age INTEGER NOT NULL)";
    world.target.execute_batch(strict).unwrap();
    world
        .source
        .execute_batch("UPDATE people SET age = 'old' WHERE id = 5; UPDATE people SET age = NULL WHERE id = 60")
        .unwrap();
    let asked = |job: Copy| Copy {
        verify: Verify::Checksums,
        if_exists: IfExists::Truncate,
        on_row_error: OnRowError::Skip,
        ..job
    };
    let watcher = Watcher::default();
    let copied = watched(asked(world.job().await), &watcher).await.unwrap();
    assert_eq!((copied.rows, copied.rejected, copied.ranges), (93, 2, Some(3)));
    assert!(watcher.said().contains("2 rows of `people` were rejected"), "{}", watcher.said());
    let reason = refused(run(asked(tampered(&world, "DELETE FROM people WHERE id = 61").await)).await);
    assert!(reason.contains("3 rows are missing in the target, and 2 were rejected"), "{reason}");
}

#[tokio::test]
async fn rows_that_are_added_are_compared_before_they_are() {
    let world = World::new(45);
    let there =
        "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, age INTEGER); INSERT INTO people VALUES (900, 'x', 1)";
    world.target.execute_batch(there).unwrap();
    for (if_exists, name) in [(IfExists::Append, "one/copy"), (IfExists::Upsert, "two/copy")] {
        let job = Copy { if_exists, verify: Verify::Checksums, name: name.into(), ..world.job().await };
        let copied = run(job).await.unwrap();
        assert_eq!((copied.ranges, world.count("people")), (Some(2), 46));
    }
}
