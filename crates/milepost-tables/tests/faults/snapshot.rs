//! A source that people go on working with.

use milepost_tables::Dialect::{Mysql, Postgres, Sqlite};
use milepost_tables::{Copy, Resume, Verify};

use crate::support::comparer::Comparison;
use crate::support::copying::{job, run, start_to};
use crate::support::data::numbered;
use crate::support::home::Home;

const ROWS: usize = 2000;
/// Rows that are read already, rows that are not, and rows that were never there.
const CHANGES: &str = "DELETE FROM t WHERE id IN (1, 1999); UPDATE t SET word = 'changed' WHERE id IN (2, 1998);
    UPDATE t SET id = 5000 WHERE id = 3; UPDATE t SET id = 0 WHERE id = 1997; INSERT INTO t VALUES (6000, 'new', 1)";

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_of_one_moment_whatever_is_written_meanwhile() {
    for dialect in [Sqlite, Postgres, Mysql] {
        let (Some(source), Some(target)) = (Home::create(dialect).await, Home::create(Sqlite).await) else { continue };
        if dialect == Sqlite {
            source.execute("PRAGMA journal_mode = WAL").await;
        }
        source.execute(&numbered("t", ROWS)).await;
        source.execute(&numbered("earlier", ROWS)).await;
        let job = Copy { verify: Verify::None, ..job(source.database().await, target.database().await, "t") };
        let (mut keeper, running) = start_to(300, job);
        keeper.reached().await;
        source.execute(CHANGES).await;
        keeper.open();
        running.await.unwrap().unwrap_or_else(|error| panic!("{dialect}: {error}"));
        let comparison = Comparison { tables: vec![("earlier".into(), "t".into())], ..Comparison::default() };
        comparison.run(&source, &target).await.unwrap_or_else(|differences| panic!("{dialect}: {differences}"));
    }
}

/// Going on from a chunk means two moments; what was read before the break is not read again.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_goes_on_reads_only_what_comes_after_the_break() {
    for dialect in [Sqlite, Postgres, Mysql] {
        let (Some(source), Some(target)) = (Home::create(Sqlite).await, Home::create(dialect).await) else { continue };
        source.execute(&numbered("t", ROWS)).await;
        let resume = Resume::Chunk;
        let job = Copy { resume, verify: Verify::None, ..job(source.database().await, target.database().await, "t") };
        let (mut keeper, running) = start_to(500, job.clone());
        keeper.reached().await;
        running.abort();
        keeper.open();
        assert!(running.await.unwrap_err().is_cancelled());
        source.execute("UPDATE t SET word = 'second'").await;
        run(job).await.unwrap_or_else(|error| panic!("{dialect}: {error}"));
        let first = target.number("SELECT count(*) FROM t WHERE word <> 'second'").await;
        assert!((500..ROWS as i64).contains(&first), "{dialect}: {first} rows of the first attempt");
        let last =
            "SELECT count(*) FROM t AS a JOIN t AS b ON a.id < b.id WHERE a.word = 'second' AND b.word <> 'second'";
        assert_eq!(target.number(last).await, 0, "{dialect}: the rows of the second come after those of the first");
        assert_eq!(target.number("SELECT count(*) FROM t").await, ROWS as i64, "{dialect}");
    }
}
