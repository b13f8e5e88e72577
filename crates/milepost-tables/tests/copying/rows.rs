//! Rows that cannot be copied.

use milepost_tables::{Copy, IfExists, Kind, OnRowError, Resume, TableError};

use crate::support::{World, broken_off, run};

/// Ids 7, 8 and 23 have ages that are none.
fn with_spoilt_rows() -> World {
    let world = World::new(40);
    world.source.execute_batch("UPDATE people SET age = 'old' WHERE id IN (7, 8, 23)").unwrap();
    world
}

/// Ages have to be numbers: a table that is new in another SQLite would take any value.
async fn job_with_ages(world: &World) -> Copy {
    let number = Kind::Int { bits: 64, unsigned: false };
    Copy { types: [("age".to_owned(), number)].into(), ..world.job().await }
}

#[tokio::test]
async fn a_row_that_cannot_be_read_stops_the_copy_and_is_named() {
    let world = with_spoilt_rows();
    match run(job_with_ages(&world).await).await {
        Err(error @ TableError::Row(_)) => {
            let reason = error.to_string();
            for word in ["`people`", "age", "old", "\"id\":7"] {
                assert!(reason.contains(word), "{reason}");
            }
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(world.tables(), ["milepost_copies"]);
    assert!(!world.path("rejected.ndjson").exists());
}

#[tokio::test]
async fn rows_that_cannot_be_read_are_left_out_and_kept_in_the_file() {
    let world = with_spoilt_rows();
    let copied = run(Copy { on_row_error: OnRowError::Skip, ..job_with_ages(&world).await }).await.unwrap();
    assert_eq!((copied.rows, copied.rejected, world.count("people")), (37, 3, 37));
    let rejected = world.rejected();
    assert_eq!(rejected.iter().map(|line| line["row"]["id"].clone()).collect::<Vec<_>>(), [7, 8, 23]);
    assert!(rejected.iter().all(|line| line["table"] == "people" && line["reason"].as_str().unwrap().contains("age")));
}

#[tokio::test]
async fn a_row_that_the_target_refuses_stops_the_copy_or_is_left_out() {
    let world = World::new(40);
    let strict = "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, age INTEGER NOT NULL)";
    world.target.execute_batch(strict).unwrap();
    world.source.execute_batch("UPDATE people SET age = NULL WHERE id = 11").unwrap();
    let job = Copy { if_exists: IfExists::Append, ..world.job().await };
    match run(job.clone()).await {
        Err(error @ TableError::Row(_)) => {
            let reason = error.to_string();
            assert!(reason.contains("`people`") && reason.contains("age") && reason.contains("\"id\":11"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(world.count("people"), 0);
    let copied = run(Copy { on_row_error: OnRowError::Skip, ..job }).await.unwrap();
    assert_eq!((copied.rows, copied.rejected, world.count("people")), (39, 1, 39));
    let rejected = world.rejected();
    assert_eq!((rejected.len(), &rejected[0]["column"], &rejected[0]["row"]["id"]), (1, &"age".into(), &11.into()));
}

#[tokio::test]
async fn a_copy_that_goes_on_rejects_no_row_twice() {
    let world = with_spoilt_rows();
    // The last rows of a batch: what comes after them has to begin behind them.
    world.source.execute_batch("UPDATE people SET age = 'old' WHERE id IN (9, 10)").unwrap();
    let job = Copy { on_row_error: OnRowError::Skip, resume: Resume::Chunk, ..job_with_ages(&world).await };
    assert!(matches!(broken_off(job.clone(), 10).await, Err(TableError::Cancelled)));
    assert_eq!(world.rejected().len(), 4);
    let copied = run(job).await.unwrap();
    assert_eq!((copied.rows, copied.rejected, world.count("people")), (35, 5, 35));
    let ids: Vec<_> = world.rejected().iter().map(|line| line["row"]["id"].clone()).collect();
    assert_eq!(ids, [7, 8, 9, 10, 23]);
}

#[tokio::test]
async fn a_new_table_in_another_sqlite_takes_every_value_as_it_is() {
    let world = with_spoilt_rows();
    let copied = run(world.job().await).await.unwrap();
    assert_eq!((copied.rows, copied.rejected, world.count("people")), (40, 0, 40));
    let old: i64 = crate::support::ask(&world.target, "SELECT count(*) FROM people WHERE age = 'old'");
    assert_eq!(old, 3);
}
