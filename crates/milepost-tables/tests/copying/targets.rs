//! What becomes of a target that is there, and whose it is.

use milepost_tables::{Copy, IfExists, Resume, TableError, TableName};

use crate::support::{Tampered, Watcher, World, ask, away, broken_off, refused, run, watched};

#[tokio::test]
async fn a_table_arrives_whole_with_its_key_and_indexes() {
    let world = World::new(95);
    world.source.execute_batch("CREATE UNIQUE INDEX by_name ON people (name)").unwrap();
    let copied = run(world.job().await).await.unwrap();
    assert_eq!((copied.rows, copied.rejected, copied.already), (95, 0, false));
    let (source, target) = world.both();
    assert_eq!(source, target);
    assert_eq!(world.tables(), ["milepost_copies", "people"]);
    let indexes: u32 = ask(&world.target, "SELECT count(*) FROM pragma_index_list('people') WHERE \"unique\"");
    assert_eq!(indexes, 1);
    assert!(world.target.execute("INSERT INTO people VALUES (1, 'x', 1)", []).is_err(), "the key is a key");
    assert!(!world.path("rejected.ndjson").exists(), "without rejected rows there is no file");
}

#[tokio::test]
async fn an_empty_table_is_a_table() {
    let world = World::new(0);
    let watcher = Watcher::default();
    let copied = watched(world.job().await, &watcher).await.unwrap();
    assert_eq!((copied.rows, world.count("people")), (0, 0));
    assert!(watcher.progress().iter().all(|progress| *progress == (0, 0)), "{:?}", watcher.progress());
}

#[tokio::test]
async fn a_table_of_somebody_else_is_left_alone_and_the_ways_out_are_named() {
    let world = World::new(5);
    world.target.execute_batch("CREATE TABLE people (x); INSERT INTO people VALUES (1)").unwrap();
    let reason = refused(run(world.job().await).await);
    for word in ["`people`", "drop", "truncate", "append", "upsert", "into"] {
        assert!(reason.contains(word), "{reason}");
    }
    assert_eq!(world.tables(), ["people"], "nothing was made");
    let copied = run(Copy { if_exists: IfExists::Drop, ..world.job().await }).await.unwrap();
    assert_eq!((copied.rows, world.count("people")), (5, 5));
}

#[tokio::test]
async fn a_table_that_this_copy_swapped_in_before_a_crash_is_its_own() {
    let world = World::new(25);
    let dies = Tampered::new(world.database("target.db").await, || Err(away()));
    let lost = run(Copy { to: dies, ..world.job().await }).await;
    assert!(matches!(lost, Err(TableError::Away { .. })), "{lost:?}");
    assert_eq!(world.count("people"), 25, "the rows are there, and nobody was told");
    world.add_people(26..=30);
    let copied = run(world.job().await).await.unwrap();
    assert_eq!((copied.rows, world.count("people")), (30, 30));
    let other = Copy { name: "other/copy".into(), ..world.job().await };
    assert!(refused(run(other).await).contains("has not made it"));
}

#[tokio::test]
async fn an_own_table_stays_own_while_it_is_copied_anew_and_that_breaks_off() {
    let world = World::new(50);
    run(world.job().await).await.unwrap();
    let killed = Tampered::forgetful(world.database("target.db").await);
    assert!(matches!(broken_off(Copy { to: killed, ..world.job().await }, 20).await, Err(TableError::Cancelled)));
    assert!(matches!(broken_off(world.job().await, 20).await, Err(TableError::Cancelled)));
    assert_eq!(world.count("people"), 50);
    assert_eq!(run(world.job().await).await.unwrap().rows, 50);
    assert_eq!(world.tables(), ["milepost_copies", "people"]);
}

#[tokio::test]
async fn a_table_that_an_earlier_run_has_made_is_not_this_runs_own() {
    let world = World::new(5);
    run(world.job().await).await.unwrap();
    world.target.execute_batch("INSERT INTO people VALUES (100, 'of somebody else', 1)").unwrap();
    let next = Copy { run: 2, ..world.job().await };
    assert!(refused(run(next.clone()).await).contains("this run of the copy has not made it"));
    assert_eq!(world.count("people"), 6, "nothing was taken away");
    world.target.execute_batch("DROP TABLE people").unwrap();
    run(next.clone()).await.unwrap();
    assert_eq!(run(next).await.unwrap().rows, 5, "what it has made itself it may make again");
}

#[tokio::test]
async fn rows_that_an_earlier_run_has_appended_are_appended_again() {
    let world = World::new(5);
    world.target.execute_batch("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, age INTEGER)").unwrap();
    let job = Copy { if_exists: IfExists::Append, ..world.job().await };
    run(job.clone()).await.unwrap();
    world.target.execute_batch("DELETE FROM people").unwrap();
    let next = Copy { run: 2, ..job };
    let copied = run(next.clone()).await.unwrap();
    assert_eq!((copied.already, copied.rows, world.count("people")), (false, 5, 5));
    assert!(run(next).await.unwrap().already, "once in each run");
}

#[tokio::test]
async fn rows_are_appended_once_however_often_the_copy_is_begun() {
    let world = World::new(5);
    world.target.execute_batch("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, age INTEGER)").unwrap();
    world.target.execute_batch("INSERT INTO people VALUES (100, 'old', 1)").unwrap();
    let job = Copy { if_exists: IfExists::Append, ..world.job().await };
    let dies = Tampered::new(world.database("target.db").await, || Err(away()));
    assert!(run(Copy { to: dies, ..job.clone() }).await.is_err());
    assert_eq!(world.count("people"), 6);
    let again = run(job).await.unwrap();
    assert_eq!((again.already, again.rows, world.count("people")), (true, 5, 6));
    assert_eq!(world.tables(), ["milepost_copies", "people"]);
}

#[tokio::test]
async fn truncate_replaces_rows_and_upsert_merges_them_in_a_table_that_stays() {
    let world = World::new(5);
    let old = "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, age INTEGER, note TEXT DEFAULT 'none');
               INSERT INTO people VALUES (1, 'old', 1, 'kept'), (100, 'old', 1, 'kept')";
    world.target.execute_batch(old).unwrap();
    run(Copy { if_exists: IfExists::Upsert, ..world.job().await }).await.unwrap();
    assert_eq!(world.count("people"), 6);
    let merged: String = ask(&world.target, "SELECT name || ' ' || note FROM people WHERE id = 1");
    assert_eq!(merged, "person 1 kept");
    run(Copy { if_exists: IfExists::Truncate, ..world.job().await }).await.unwrap();
    let (source, target) = world.both();
    assert_eq!(source, target);
    let note: String = ask(&world.target, "SELECT note FROM people WHERE id = 1");
    assert_eq!(note, "none", "the table is the one that was there");
}

#[tokio::test]
async fn everything_that_does_not_fit_is_said_before_a_row_is_read() {
    let world = World::new(5);
    world.target.execute_batch("CREATE TABLE people (id INTEGER PRIMARY KEY, name BLOB, must TEXT NOT NULL)").unwrap();
    let watcher = Watcher::default();
    let reason = refused(watched(Copy { if_exists: IfExists::Append, ..world.job().await }, &watcher).await);
    for word in ["`name` is", "no column `age`", "`must` needs a value"] {
        assert!(reason.contains(word), "{reason}");
    }
    assert!(watcher.progress().is_empty());
}

#[tokio::test]
async fn what_cannot_be_copied_is_refused_with_what_may_have_been_meant() {
    let world = World::new(5);
    world.source.execute_batch("CREATE TABLE loose (a INTEGER, b TEXT)").unwrap();
    let named = |name: &str| TableName::new(name);
    let job = world.job().await;
    let reason = refused(run(Copy { table: named("peple"), ..job.clone() }).await);
    assert!(reason.contains("no table `peple`; there is `people`"), "{reason}");
    let reason = refused(run(Copy { columns: Some(vec!["id".into(), "nam".into()]), ..job.clone() }).await);
    assert!(reason.contains("no column `nam`; there is `name`"), "{reason}");
    let reason = refused(run(Copy { to: job.from.clone(), if_exists: IfExists::Append, ..job.clone() }).await);
    assert!(reason.contains("into itself"), "{reason}");
    let reason = refused(run(Copy { table: named("loose"), resume: Resume::Chunk, ..job.clone() }).await);
    assert!(reason.contains("resume: table"), "{reason}");
    let types = [("name".to_owned(), "int64".parse().unwrap())].into();
    let reason = refused(run(Copy { types, columns: Some(vec!["id".into()]), ..job }).await);
    assert!(reason.contains("`name`"), "{reason}");
    assert!(world.tables().is_empty());
}

#[tokio::test]
async fn columns_and_rows_can_be_chosen() {
    let world = World::new(30);
    let columns = Some(vec!["age".to_owned(), "id".to_owned()]);
    let filter = Some("id > 20".to_owned());
    let copied = run(Copy { columns, filter, into: TableName::new("some"), ..world.job().await }).await.unwrap();
    assert_eq!((copied.rows, world.count("some")), (10, 10));
    let names: String = ask(&world.target, "SELECT group_concat(name || pk) FROM pragma_table_info('some')");
    assert_eq!(names, "age0,id1");
}
