//! How a copy ends before its end, and how another goes on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use milepost_tables::{Copy, IfExists, Limits, Resume, TableError};
use rusqlite::Connection;

use crate::support::{Tampered, Watcher, World, broken_off, refused, run, watched};

#[tokio::test]
async fn a_cancelled_copy_ends_within_a_batch_and_leaves_no_table() {
    let world = World::new(1000);
    let cancelled = broken_off(world.job().await, 30).await;
    assert!(matches!(cancelled, Err(TableError::Cancelled)), "{cancelled:?}");
    assert_eq!(world.tables(), ["milepost_copies"]);
    let rows: u32 = crate::support::ask(&world.target, "SELECT \"rows\" FROM milepost_copies");
    assert_eq!(rows, 0, "and says that nothing is loaded");
}

#[tokio::test]
async fn a_copy_that_goes_on_copies_only_the_rest() {
    let world = World::new(100);
    let job = Copy { resume: Resume::Chunk, ..world.job().await };
    assert!(matches!(broken_off(job.clone(), 40).await, Err(TableError::Cancelled)));
    assert_eq!(world.tables().len(), 2, "what is loaded waits: {:?}", world.tables());
    let watcher = Watcher::default();
    let copied = watched(job, &watcher).await.unwrap();
    assert_eq!((copied.rows, world.count("people")), (100, 100));
    let done: Vec<u64> = watcher.progress().iter().map(|(done, _)| *done).collect();
    assert_eq!(done, [40, 50, 60, 70, 80, 90, 100, 100], "from where it was, batch by batch, and the end");
    assert!(watcher.said().contains("goes on after 40 rows"), "{}", watcher.said());
    let (source, target) = world.both();
    assert_eq!(source, target);
}

#[tokio::test]
async fn a_copy_of_something_else_begins_anew() {
    let world = World::new(100);
    let job = Copy { resume: Resume::Chunk, ..world.job().await };
    assert!(broken_off(job.clone(), 40).await.is_err());
    world.source.execute_batch("ALTER TABLE people ADD COLUMN height INTEGER").unwrap();
    let watcher = Watcher::default();
    watched(job, &watcher).await.unwrap();
    assert_eq!(watcher.progress()[0], (0, 100));
    assert_eq!(world.count("people"), 100);
}

#[tokio::test]
async fn a_copy_by_table_begins_anew_after_a_crash() {
    let world = World::new(100);
    let killed = Tampered::forgetful(world.database("target.db").await);
    assert!(broken_off(Copy { to: killed, ..world.job().await }, 40).await.is_err());
    assert_eq!(world.tables().len(), 2, "a table is left: {:?}", world.tables());
    let watcher = Watcher::default();
    watched(world.job().await, &watcher).await.unwrap();
    assert_eq!(watcher.progress()[0], (0, 100));
    assert_eq!(world.tables(), ["milepost_copies", "people"]);
}

#[tokio::test]
async fn a_source_that_changes_its_shape_under_way_is_refused_and_nothing_appears() {
    let world = World::new(100);
    let path = world.path("source.db");
    let watcher = Watcher::acting(move |done| {
        if done == 50 {
            let change = "ALTER TABLE people ADD COLUMN height INTEGER; ALTER TABLE people RENAME COLUMN age TO years";
            Connection::open(&path).and_then(|source| source.execute_batch(change)).unwrap();
        }
    });
    let reason = refused(watched(world.job().await, &watcher).await);
    for word in ["`people` was changed", "`age` is gone", "`height` is new", "`years` is new"] {
        assert!(reason.contains(word), "{reason}");
    }
    assert_eq!(world.tables(), ["milepost_copies"]);
}

#[tokio::test]
async fn nobody_sees_a_half_copied_table() {
    let world = World::new(200);
    world.target.execute_batch("CREATE TABLE people (x); INSERT INTO people VALUES (1), (2), (3)").unwrap();
    let path = world.path("target.db");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let watcher = Watcher::acting(move |_| {
        let target = Connection::open(&path).unwrap();
        let rows: u32 = crate::support::ask(&target, "SELECT count(*) FROM people");
        noted.lock().unwrap().push(rows);
    });
    watched(Copy { if_exists: IfExists::Drop, ..world.job().await }, &watcher).await.unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.len() >= 21 && seen.iter().all(|rows| *rows == 3), "{seen:?}");
    assert_eq!(world.count("people"), 200);
}

#[tokio::test]
async fn progress_never_goes_back_and_a_total_is_never_too_small() {
    let world = World::new(55);
    let watcher = Watcher::default();
    watched(world.job().await, &watcher).await.unwrap();
    let progress = watcher.progress();
    assert_eq!(progress[0], (0, 55));
    assert_eq!(progress.len(), 8, "the beginning, six batches, the end");
    assert!(progress.is_sorted_by_key(|(done, _)| *done) && progress.iter().all(|(done, total)| done <= total));
    assert_eq!(progress.last(), Some(&(55, 55)));
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_no_faster_than_asked() {
    let world = World::new(100);
    let limits = Limits { rows_per_second: Some(10), bytes_per_second: None };
    let began = tokio::time::Instant::now();
    run(Copy { limits, ..world.job().await }).await.unwrap();
    let seconds = began.elapsed();
    assert!(seconds >= Duration::from_secs(9) && seconds < Duration::from_secs(10), "{seconds:?}");
    assert_eq!(world.count("people"), 100);
}
