//! Targets that do not take every row.

use milepost_tables::Dialect::{self, Mysql, Postgres, Sqlite};
use milepost_tables::{Copy, IfExists, OnRowError, TableError};

use crate::support::copying::{job, run};
use crate::support::data::numbered;
use crate::support::home::Home;
use crate::support::refusals::rejected;

/// 300 rows, of which three are not what the target checks; one row that is there already.
async fn given(dialect: Dialect) -> Option<(Home, Home, Copy)> {
    let (source, target) = (Home::create(Sqlite).await?, Home::create(dialect).await?);
    source.execute(&numbered("t", 300)).await;
    source.execute("UPDATE t SET word = 'bad' WHERE id IN (1, 150, 300)").await;
    target
        .execute(
            "CREATE TABLE t (id INTEGER NOT NULL PRIMARY KEY, word VARCHAR(40) NOT NULL, amount DECIMAL(10, 2), \
             CONSTRAINT no_bad_words CHECK (word <> 'bad'));
             INSERT INTO t VALUES (1000, 'there', 1);",
        )
        .await;
    let job = job(source.database().await, target.database().await, "t");
    Some((source, target, job))
}

const MODES: [IfExists; 3] = [IfExists::Append, IfExists::Truncate, IfExists::Upsert];

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_the_target_checks_away_stops_the_copy_and_changes_nothing() {
    for dialect in [Sqlite, Postgres, Mysql] {
        for if_exists in MODES {
            let Some((_source, target, job)) = given(dialect).await else { continue };
            let outcome = run(Copy { if_exists, ..job }).await;
            let Err(TableError::Row(row)) = &outcome else { panic!("{if_exists:?} on {dialect}: {outcome:?}") };
            assert!(row.reason.contains("no_bad_words") || row.reason.contains("CHECK"), "{dialect}: {row}");
            assert_eq!(row.values["id"], 1, "{dialect}: {row}");
            assert_eq!(target.number("SELECT sum(id) FROM t").await, 1000, "{if_exists:?} on {dialect}");
            assert_eq!(target.unfinished().await, 0, "{if_exists:?} on {dialect}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_the_target_checks_away_are_left_out_and_no_others() {
    for dialect in [Sqlite, Postgres, Mysql] {
        for if_exists in MODES {
            let Some((_source, target, job)) = given(dialect).await else { continue };
            let file = target.folder.path().join("rejected");
            let on_row_error = OnRowError::Skip;
            let job = Copy { if_exists, on_row_error, rejected_file: Some(file.clone()), ..job };
            let copied = run(job).await.unwrap_or_else(|error| panic!("{if_exists:?} on {dialect}: {error}"));
            assert_eq!((copied.rows, copied.rejected), (297, 3), "{if_exists:?} on {dialect}");
            assert_eq!(rejected(&file).iter().map(|row| row.id).collect::<Vec<_>>(), [1, 150, 300]);
            let there = if if_exists == IfExists::Truncate { 0 } else { 1000 };
            let sum = 300 * 301 / 2 - (1 + 150 + 300) + there;
            assert_eq!(target.number("SELECT sum(id) FROM t").await, sum, "{if_exists:?} on {dialect}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_there_already_refuses_an_append_and_is_replaced_by_an_upsert() {
    for dialect in [Sqlite, Postgres, Mysql] {
        let Some((source, target, job)) = given(dialect).await else { continue };
        source.execute("UPDATE t SET word = 'good' WHERE word = 'bad'; UPDATE t SET id = 1000 WHERE id = 300").await;
        let append = Copy { if_exists: IfExists::Append, name: "task/append".into(), ..job.clone() };
        let outcome = run(append).await;
        let refused = matches!(outcome, Err(TableError::Refused(_) | TableError::Row(_)));
        assert!(refused, "{dialect}: {outcome:?}");
        assert_eq!(target.number("SELECT count(*) FROM t").await, 1, "{dialect}");
        assert_eq!(target.number("SELECT count(*) FROM t WHERE word = 'there'").await, 1, "{dialect}");

        let upsert = Copy { if_exists: IfExists::Upsert, name: "task/upsert".into(), ..job };
        run(upsert).await.unwrap_or_else(|error| panic!("{dialect}: {error}"));
        assert_eq!(target.number("SELECT count(*) FROM t").await, 300, "{dialect}");
        assert_eq!(target.number("SELECT count(*) FROM t WHERE word = 'good' AND id = 1000").await, 1, "{dialect}");
    }
}
