//! Connections that are cut: at a known moment, and anywhere.

use milepost_tables::Dialect::{self, Mysql, Postgres, Sqlite};
use milepost_tables::{Copy, IfExists, Resume, TableError, TableName};

use crate::support::comparer::assert_equal;
use crate::support::copying::{job, run, start_to};
use crate::support::data::numbered;
use crate::support::home::Home;
use crate::support::proxy::Proxy;

const ROWS: usize = 2000;

/// Which side of a copy is reached by way of the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Target,
}

/// A table in a database, another database, and a way to one of them that can be cut.
struct Given {
    source: Home,
    target: Home,
    proxy: Proxy,
    job: Copy,
}

/// The side that is cut is of the given kind; the other one is a file, which is never cut.
async fn given(dialect: Dialect, side: Side) -> Option<Given> {
    let (from, to) = if side == Side::Source { (dialect, Sqlite) } else { (Sqlite, dialect) };
    let (source, target) = (Home::create(from).await?, Home::create(to).await?);
    source.execute(&numbered("t", ROWS)).await;
    let behind = if side == Side::Source { &source } else { &target };
    let proxy = Proxy::to(behind.port()).await;
    let tampered = behind.database_at(proxy.port).await;
    let (from, to) = match side {
        Side::Source => (tampered, target.database().await),
        Side::Target => (source.database().await, tampered),
    };
    Some(Given { source, target, proxy, job: job(from, to, "t") })
}

async fn is_there(home: &Home) -> bool {
    home.database().await.table(&TableName::new("t")).await.unwrap().is_some()
}

async fn cut_in_mid_table(dialect: Dialect, side: Side) {
    let Some(Given { source, target, proxy, job }) = given(dialect, side).await else { return };
    let (mut keeper, running) = start_to(500, job.clone());
    keeper.reached().await;
    proxy.cut();
    keeper.open();
    let outcome = running.await.unwrap();
    assert!(matches!(outcome, Err(TableError::Away { .. })), "{outcome:?}");
    assert!(!is_there(&target).await, "nothing is visible of a copy that is not whole");

    proxy.mend();
    run(job).await.unwrap();
    assert_equal("t", &source, &target).await;
    assert_eq!(target.unfinished().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_cut_off_in_mid_table_is_away_and_the_next_attempt_is_whole() {
    for dialect in [Postgres, Mysql] {
        cut_in_mid_table(dialect, Side::Source).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_is_cut_off_in_mid_table_is_away_and_the_next_attempt_is_whole() {
    for dialect in [Postgres, Mysql] {
        cut_in_mid_table(dialect, Side::Target).await;
    }
}

/// Cuts the connection after ever more bytes, until an attempt gets through; after each cut the target has either nothing
/// or all of it.
async fn cut_anywhere(dialect: Dialect, side: Side, resume: Resume) {
    let Some(Given { source, target, proxy, job }) = given(dialect, side).await else { return };
    let job = Copy { resume, ..job };
    let (mut bytes, mut cuts) = (300, 0);
    loop {
        proxy.mend();
        proxy.cut_after_bytes(bytes);
        let outcome = run(job.clone()).await;
        if outcome.is_ok() {
            break;
        }
        assert!(matches!(outcome, Err(TableError::Away { .. })), "after {bytes} bytes: {outcome:?}");
        cuts += 1;
        if is_there(&target).await {
            assert_eq!(target.number("SELECT count(*) FROM t").await, ROWS as i64, "after {bytes} bytes");
        }
        // Dense at first, where connections are made and the copy is begun, then by a few batches.
        bytes += (bytes / 3).min(30_000);
    }
    assert!(cuts > 10, "{cuts} cuts");
    proxy.mend();
    run(job).await.unwrap();
    assert_equal("t", &source, &target).await;
    assert_eq!(target.unfinished().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_source_may_be_cut_off_anywhere() {
    cut_anywhere(Postgres, Side::Source, Resume::Table).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysql_source_may_be_cut_off_anywhere() {
    cut_anywhere(Mysql, Side::Source, Resume::Chunk).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_target_may_be_cut_off_anywhere() {
    cut_anywhere(Postgres, Side::Target, Resume::Table).await;
    cut_anywhere(Postgres, Side::Target, Resume::Chunk).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysql_target_may_be_cut_off_anywhere() {
    cut_anywhere(Mysql, Side::Target, Resume::Table).await;
    cut_anywhere(Mysql, Side::Target, Resume::Chunk).await;
}

/// The answer to the last step is lost: the rows are there, and whoever copies does not know.
async fn the_end_is_not_heard(dialect: Dialect, words: &'static str) {
    for if_exists in [IfExists::Fail, IfExists::Append, IfExists::Truncate, IfExists::Upsert] {
        let Some(Given { source, target, proxy, job }) = given(dialect, Side::Target).await else { return };
        if if_exists != IfExists::Fail {
            target.execute(&numbered("t", 0)).await;
        }
        let job = Copy { if_exists, ..job };
        let (mut keeper, running) = start_to(ROWS as u64, job.clone());
        keeper.reached().await;
        // The batches are in; what is left to commit is the end.
        proxy.cut_after(if if_exists == IfExists::Fail { words } else { "INSERT INTO" });
        keeper.open();
        let outcome = running.await.unwrap();
        assert!(proxy.was_cut(), "{if_exists:?} on {dialect}: {outcome:?}");
        assert!(matches!(outcome, Err(TableError::Away { .. })), "{if_exists:?} on {dialect}: {outcome:?}");
        if is_there(&target).await {
            let rows = target.number("SELECT count(*) FROM t").await;
            assert!(rows == 0 || rows == ROWS as i64, "{if_exists:?} on {dialect}: {rows}");
        }
        proxy.mend();
        run(job).await.unwrap_or_else(|error| panic!("{if_exists:?} on {dialect}: {error}"));
        assert_equal("t", &source, &target).await;
        assert_eq!(target.unfinished().await, 0, "{if_exists:?} on {dialect}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_postgres_reached_and_nobody_heard_of_is_the_copys_own() {
    the_end_is_not_heard(Postgres, "RENAME").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_mysql_reached_and_nobody_heard_of_is_the_copys_own() {
    the_end_is_not_heard(Mysql, "RENAME").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_dropped_in_mid_table_leaves_nothing_that_the_next_one_minds() {
    for dialect in [Sqlite, Postgres, Mysql] {
        let (Some(source), Some(target)) = (Home::create(Sqlite).await, Home::create(dialect).await) else { continue };
        source.execute(&numbered("t", ROWS)).await;
        let job = job(source.database().await, target.database().await, "t");
        let (mut keeper, running) = start_to(500, job.clone());
        keeper.reached().await;
        running.abort();
        keeper.open();
        assert!(running.await.unwrap_err().is_cancelled());
        assert!(!is_there(&target).await);
        run(job).await.unwrap_or_else(|error| panic!("{dialect}: {error}"));
        assert_equal("t", &source, &target).await;
        assert_eq!(target.unfinished().await, 0, "{dialect}");
    }
}
