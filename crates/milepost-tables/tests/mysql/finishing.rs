//! The end of a copy: everything at once, or nothing; and what a crash in between leaves.

use std::sync::Arc;

use milepost_tables::{Database, Dialect, How, Load, MarkState, Shape, TableError};
use mysql_async::prelude::Queryable;

use super::support::{Place, batch, begin, finish, load_of, people, place, shape, write};

const TARGET: &str = "CREATE TABLE target (id BIGINT PRIMARY KEY, name VARCHAR(20), extra INT DEFAULT 7)";

async fn rows(place: &Place) -> Vec<(i64, String)> {
    place.ask("SELECT id, name FROM target ORDER BY id").await
}

fn expected(rows: &[(i64, &str)]) -> Vec<(i64, String)> {
    rows.iter().map(|(id, name)| (*id, (*name).to_owned())).collect()
}

/// A target with rows 1 and 2, and rows 2 and 3 beside it.
async fn loaded(place: &Place, like_target: bool) -> (Arc<dyn Database>, Load) {
    place.run(&[TARGET, "INSERT INTO target (id, name) VALUES (1, 'old'), (2, 'old')"]).await;
    let database = place.open().await;
    let source = people();
    let load = load_of("token", &source, "target");
    let shape = if like_target { Shape::LikeTarget } else { shape(&source, Dialect::Postgres) };
    write(&*database, &load, shape, &[batch(&[(2, "new"), (3, "new")])]).await.unwrap();
    (database, load)
}

#[tokio::test]
async fn a_table_that_replaces_another_leaves_nothing_of_it() {
    let Some(place) = place().await else { return };
    let (database, load) = loaded(&place, false).await;
    assert_eq!(rows(&place).await, expected(&[(1, "old"), (2, "old")]), "until then it is as it was");
    finish(&*database, &load, How::Replace).await.unwrap();
    assert_eq!(rows(&place).await, expected(&[(2, "new"), (3, "new")]));
    assert_eq!(place.tables().await, ["milepost_copies", "target"]);
    finish(&*database, &load, How::Replace).await.expect("an answer that was lost may be asked for again");
    assert_eq!(rows(&place).await.len(), 2);
}

#[tokio::test]
async fn rows_are_added_once() {
    let Some(place) = place().await else { return };
    let (database, load) = loaded(&place, true).await;
    let error = finish(&*database, &load, How::Append).await.unwrap_err();
    assert!(matches!(&error, TableError::Refused(reason) if reason.contains("Duplicate entry '2'")), "{error}");
    assert_eq!(rows(&place).await, expected(&[(1, "old"), (2, "old")]), "none without all");
    assert_eq!(database.mark("copy", &load.into).await.unwrap().unwrap().state, MarkState::Loading);
    place.run(&["DELETE FROM target WHERE id = 2"]).await;
    finish(&*database, &load, How::Append).await.unwrap();
    assert_eq!(rows(&place).await, expected(&[(1, "old"), (2, "new"), (3, "new")]));
    assert_eq!(place.ask::<i32>("SELECT DISTINCT extra FROM target").await, [7]);
    finish(&*database, &load, How::Append).await.unwrap();
    assert_eq!(rows(&place).await.len(), 3);
    assert_eq!(place.tables().await, ["milepost_copies", "target"]);
}

#[tokio::test]
async fn rows_are_replaced_in_the_same_table() {
    let Some(place) = place().await else { return };
    let (database, load) = loaded(&place, true).await;
    finish(&*database, &load, How::Truncate).await.unwrap();
    assert_eq!(rows(&place).await, expected(&[(2, "new"), (3, "new")]));
    assert_eq!(place.ask::<i32>("SELECT DISTINCT extra FROM target").await, [7]);
}

#[tokio::test]
async fn rows_are_merged_by_the_key_that_is_given() {
    let Some(place) = place().await else { return };
    let (database, load) = loaded(&place, true).await;
    let error = finish(&*database, &load, How::Upsert { key: vec!["name".into()] }).await.unwrap_err();
    assert!(matches!(&error, TableError::Refused(reason) if reason.contains("no unique index on (name)")), "{error}");
    place.run(&["UPDATE target SET extra = 1 WHERE id = 2"]).await;
    finish(&*database, &load, How::Upsert { key: vec!["id".into()] }).await.unwrap();
    assert_eq!(rows(&place).await, expected(&[(1, "old"), (2, "new"), (3, "new")]));
    assert_eq!(place.ask::<i32>("SELECT extra FROM target ORDER BY id").await, [7, 1, 7], "what is not copied stays");
}

#[tokio::test]
async fn a_row_that_is_another_by_a_second_unique_index_is_not_merged_into_it() {
    let Some(place) = place().await else { return };
    let (database, load) = loaded(&place, true).await;
    place.run(&["UPDATE target SET name = 'mine' WHERE id = 2", "ALTER TABLE target ADD UNIQUE (name)"]).await;
    let error = finish(&*database, &load, How::Upsert { key: vec!["id".into()] }).await.unwrap_err();
    assert!(matches!(&error, TableError::Refused(_)), "{error}");
    assert_eq!(rows(&place).await, expected(&[(1, "old"), (2, "mine")]));
}

#[tokio::test]
async fn a_table_that_others_refer_to_is_not_replaced_and_keeps_what_they_refer_to() {
    let Some(place) = place().await else { return };
    place
        .run(&[
            TARGET,
            "INSERT INTO target (id, name) VALUES (1, 'old'), (2, 'old')",
            "CREATE TABLE child (id INT PRIMARY KEY, target BIGINT, \
             CONSTRAINT to_target FOREIGN KEY (target) REFERENCES target (id) ON DELETE CASCADE)",
            "INSERT INTO child VALUES (1, 2), (2, NULL)",
        ])
        .await;
    let database = place.open().await;
    let source = people();
    let load = load_of("token", &source, "target");
    let error = begin(&*database, &load, shape(&source, Dialect::Postgres)).await.unwrap_err();
    assert!(error.to_string().contains("to_target") && error.to_string().contains("`if_exists: truncate`"), "{error}");
    write(&*database, &load, Shape::LikeTarget, &[batch(&[(2, "new")])]).await.unwrap();
    finish(&*database, &load, How::Truncate).await.unwrap();
    assert_eq!(rows(&place).await, expected(&[(2, "new")]));
    assert_eq!(place.ask::<u64>("SELECT COUNT(*) FROM child").await, [2], "no row that refers to it goes with it");
    write(&*database, &load, Shape::LikeTarget, &[batch(&[(3, "new")])]).await.unwrap();
    let error = finish(&*database, &load, How::Truncate).await.unwrap_err();
    assert!(error.to_string().contains("would no longer be there"), "{error}");
    assert_eq!(rows(&place).await, expected(&[(2, "new")]));
}

#[tokio::test]
async fn a_table_without_transactions_is_only_replaced() {
    let Some(place) = place().await else { return };
    place.run(&["CREATE TABLE target (id BIGINT PRIMARY KEY, name VARCHAR(20)) ENGINE = MyISAM"]).await;
    let database = place.open().await;
    let source = people();
    let load = load_of("token", &source, "target");
    let error = begin(&*database, &load, Shape::LikeTarget).await.unwrap_err();
    assert!(error.to_string().contains("`if_exists: drop`"), "{error}");
    write(&*database, &load, shape(&source, Dialect::Postgres), &[batch(&[(1, "new")])]).await.unwrap();
    finish(&*database, &load, How::Replace).await.unwrap();
    assert_eq!(rows(&place).await, expected(&[(1, "new")]));
}

/// The steps of a swap, done by hand up to one of them: the process died after it.
#[tokio::test]
async fn a_crash_between_the_steps_of_a_swap_is_understood() {
    let Some(place) = place().await else { return };
    let (database, load) = loaded(&place, false).await;
    let mark = || async { database.mark("copy", &load.into).await.unwrap().unwrap() };

    // The mark says that it is about to happen, and it has not.
    place.run(&["UPDATE milepost_copies SET state = 'swapping'"]).await;
    let before = mark().await;
    assert_eq!((before.state, before.own), (MarkState::Loading, false));
    assert_eq!(rows(&place).await, expected(&[(1, "old"), (2, "old")]));
    let source = people();
    let next = load_of("next", &source, "target");
    let begun = super::support::go_on(&*database, &next, shape(&source, Dialect::Postgres)).await;
    assert_eq!(begun.rows, 2, "all is loaded, and stays so");

    // It has happened, and the mark does not say so yet.
    place
        .run(&[
            "UPDATE milepost_copies SET state = 'swapping'",
            "RENAME TABLE target TO __mp_old_by_hand, target__mp_4 TO target",
        ])
        .await;
    let after = mark().await;
    assert_eq!((after.state, after.own, after.rows), (MarkState::Done, true, 2));
    assert_eq!(rows(&place).await, expected(&[(2, "new"), (3, "new")]));
    finish(&*database, &next, How::Replace).await.expect("whoever was about to do it finds it done");
    assert_eq!(rows(&place).await, expected(&[(2, "new"), (3, "new")]));
}

#[tokio::test]
async fn a_swap_that_waits_for_a_reader_lets_the_others_pass() {
    let Some(place) = place().await else { return };
    let (database, load) = loaded(&place, false).await;
    let mut reader = place.connect().await;
    reader.query_drop("START TRANSACTION").await.unwrap();
    reader.query_drop("SELECT * FROM target").await.unwrap();
    let swapping = tokio::spawn(async move { finish(&*database, &load, How::Replace).await });
    let waits = "SELECT 1 FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'RENAME TABLE%'";
    while place.ask::<u8>(waits).await.is_empty() {
        tokio::task::yield_now().await;
    }
    let passed = tokio::time::timeout(std::time::Duration::from_secs(600), rows(&place)).await;
    assert_eq!(passed.expect("nobody waits for long"), expected(&[(1, "old"), (2, "old")]));
    reader.query_drop("COMMIT").await.unwrap();
    swapping.await.unwrap().unwrap();
    assert_eq!(rows(&place).await, expected(&[(2, "new"), (3, "new")]));
}

#[tokio::test]
async fn what_a_swap_left_over_is_swept_away() {
    let Some(place) = place().await else { return };
    let (database, load) = loaded(&place, false).await;
    // The names as the swap itself chooses them are found by letting it run into a reader, which holds it up.
    let mut reader = place.connect().await;
    reader.query_drop("START TRANSACTION").await.unwrap();
    reader.query_drop("SELECT * FROM target").await.unwrap();
    let swapping = tokio::spawn({
        let (database, load) = (database.clone(), load.clone());
        async move { finish(&*database, &load, How::Replace).await }
    });
    let waits = "SELECT info FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'RENAME TABLE%'";
    let statement = loop {
        if let Some(statement) = place.ask::<String>(waits).await.pop() {
            break statement;
        }
        tokio::task::yield_now().await;
    };
    let state: Vec<String> = place.ask("SELECT state FROM milepost_copies").await;
    assert_eq!(state, ["swapping"]);
    swapping.abort();
    let _ = swapping.await;
    // Another node takes over; the statement that still waits must not happen after that.
    let source = people();
    let next = load_of("next", &source, "target");
    begin(&*database, &next, shape(&source, Dialect::Postgres)).await.unwrap();
    reader.query_drop("COMMIT").await.unwrap();
    assert_eq!(place.ask::<String>(waits).await, [""; 0]);
    assert_eq!(rows(&place).await, expected(&[(1, "old"), (2, "old")]), "an empty table has not taken its place");

    // The process died after the swap and before the old table was dropped.
    write(&*database, &next, shape(&source, Dialect::Postgres), &[batch(&[(4, "new")])]).await.unwrap();
    place.run(&["UPDATE milepost_copies SET state = 'swapping'", &statement]).await;
    assert_eq!(place.tables().await.len(), 3);
    assert_eq!(database.mark("copy", &next.into).await.unwrap().unwrap().state, MarkState::Done);
    assert_eq!(place.tables().await, ["milepost_copies", "target"]);
    assert_eq!(rows(&place).await, expected(&[(4, "new")]));

    // The same, and the copy begins anew at once.
    write(&*database, &next, shape(&source, Dialect::Postgres), &[batch(&[(5, "new")])]).await.unwrap();
    place.run(&["UPDATE milepost_copies SET state = 'swapping'", &statement]).await;
    begin(&*database, &next, shape(&source, Dialect::Postgres)).await.unwrap();
    let mark = database.mark("copy", &next.into).await.unwrap().unwrap();
    assert_eq!((mark.state, mark.own), (MarkState::Loading, true));
    assert_eq!(place.tables().await, ["milepost_copies", "target", "target__mp_4"]);
    assert_eq!(rows(&place).await, expected(&[(5, "new")]));
}
