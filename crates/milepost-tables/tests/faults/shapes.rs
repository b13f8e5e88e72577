//! Tables that change while they are copied.

use std::time::Duration;

use milepost_tables::Dialect::{self, Mysql, Postgres, Sqlite};
use milepost_tables::{TableError, TableName};

use crate::support::comparer::assert_equal;
use crate::support::copying::{job, run, start_to};
use crate::support::data::numbered;
use crate::support::home::Home;

/// Nothing here takes so long, unless two wait for each other.
const PATIENCE: Duration = Duration::from_secs(600);

/// Changes the source after some batches. PostgreSQL and MySQL let a change wait until the rows are read, so that it comes
/// before or after the second look; SQLite lets it through at once. Either the copy is refused and nothing is there, or it
/// was over before the change.
async fn changed_under_way(dialect: Dialect, change: &str, words: &str) {
    let (Some(source), Some(target)) = (Home::create(dialect).await, Home::create(Sqlite).await) else { return };
    if dialect == Sqlite {
        source.execute("PRAGMA journal_mode = WAL").await;
    }
    source.execute(&numbered("t", 2000)).await;
    let job = job(source.database().await, target.database().await, "t");
    let (mut keeper, running) = start_to(300, job.clone());
    keeper.reached().await;
    let changing = async {
        source.execute(change).await;
    };
    let copying = async {
        keeper.open();
        running.await.unwrap()
    };
    let outcome = if dialect == Sqlite {
        changing.await;
        tokio::time::timeout(PATIENCE, copying).await
    } else {
        tokio::time::timeout(PATIENCE, async { tokio::join!(changing, copying).1 }).await
    };
    let is_there = target.database().await.table(&TableName::new("t")).await.unwrap().is_some();
    match outcome.expect("nobody waits for another") {
        Ok(copied) => {
            assert!(dialect != Sqlite, "{change} was not noticed");
            assert_eq!(copied.rows, 2000);
            assert!(is_there);
        }
        Err(TableError::Refused(reason)) => {
            assert!(reason.contains(words), "{change} on {dialect}: {reason}");
            assert!(!is_there || dialect != Sqlite, "{change} on {dialect}");
        }
        Err(error) => panic!("{change} on {dialect}: {error}"),
    }
    assert_eq!(target.unfinished().await, 0, "{change} on {dialect}");
    let still_there = source.database().await.table(&TableName::new("t")).await.unwrap().is_some();
    let again = run(job).await;
    if still_there {
        again.unwrap();
        assert_equal("t", &source, &target).await;
    } else {
        assert!(matches!(again, Err(TableError::Refused(_))), "{again:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_is_added_under_way_is_noticed() {
    for dialect in [Sqlite, Postgres, Mysql] {
        changed_under_way(dialect, "ALTER TABLE t ADD COLUMN more INTEGER", "more").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_is_dropped_under_way_is_noticed() {
    for dialect in [Sqlite, Postgres, Mysql] {
        changed_under_way(dialect, "ALTER TABLE t DROP COLUMN amount", "amount").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_whose_type_changes_under_way_is_noticed() {
    let sqlite =
        "ALTER TABLE t RENAME TO old; CREATE TABLE t (id INTEGER NOT NULL PRIMARY KEY, word TEXT, amount TEXT);
                  INSERT INTO t SELECT * FROM old; DROP TABLE old";
    changed_under_way(Sqlite, sqlite, "word").await;
    changed_under_way(Postgres, "ALTER TABLE t ALTER COLUMN word TYPE text", "word").await;
    changed_under_way(Mysql, "ALTER TABLE t MODIFY COLUMN word TEXT", "word").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_dropped_under_way_is_noticed() {
    for dialect in [Sqlite, Postgres, Mysql] {
        changed_under_way(dialect, "DROP TABLE t", "").await;
    }
}
