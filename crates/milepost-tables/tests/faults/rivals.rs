//! Two nodes that both think a copy is theirs.

use milepost_tables::Dialect::{Mysql, Postgres, Sqlite};
use milepost_tables::{Copy, IfExists, Resume, TableError};

use crate::support::comparer::assert_equal;
use crate::support::copying::{job, run, start_to};
use crate::support::data::numbered;
use crate::support::home::Home;

const ROWS: usize = 1000;

/// A first one is stopped for a while, a second one does it all, and the first wakes up again.
async fn the_first_wakes_up(if_exists: IfExists, resume: Resume) {
    for dialect in [Sqlite, Postgres, Mysql] {
        let (Some(source), Some(target)) = (Home::create(Sqlite).await, Home::create(dialect).await) else { continue };
        source.execute(&numbered("t", ROWS)).await;
        if if_exists != IfExists::Fail {
            target.execute(&numbered("t", 0)).await;
        }
        let copy =
            || async { Copy { if_exists, resume, ..job(source.database().await, target.database().await, "t") } };
        let (mut keeper, first) = start_to(300, copy().await);
        keeper.reached().await;
        run(copy().await).await.unwrap_or_else(|error| panic!("{dialect}: {error}"));
        keeper.open();
        let outcome = first.await.unwrap();
        assert!(matches!(outcome, Err(TableError::Fenced { .. })), "{if_exists:?} on {dialect}: {outcome:?}");
        assert_equal("t", &source, &target).await;
        assert_eq!(target.unfinished().await, 0, "{dialect}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_copies_of_one_name_the_first_is_fenced_and_the_table_is_right() {
    the_first_wakes_up(IfExists::Fail, Resume::Table).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_copy_that_goes_on_from_chunks_adds_nothing() {
    the_first_wakes_up(IfExists::Fail, Resume::Chunk).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_append_adds_nothing() {
    the_first_wakes_up(IfExists::Append, Resume::Table).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_wakes_up_while_the_next_is_on_its_way_does_not_disturb_it() {
    for dialect in [Sqlite, Postgres, Mysql] {
        let (Some(source), Some(target)) = (Home::create(Sqlite).await, Home::create(dialect).await) else { continue };
        source.execute(&numbered("t", ROWS)).await;
        let copy = || async { job(source.database().await, target.database().await, "t") };
        let (mut first, first_running) = start_to(300, copy().await);
        first.reached().await;
        let (mut second, second_running) = start_to(300, copy().await);
        second.reached().await;
        first.open();
        let outcome = first_running.await.unwrap();
        assert!(matches!(outcome, Err(TableError::Fenced { .. })), "{dialect}: {outcome:?}");
        second.open();
        second_running.await.unwrap().unwrap_or_else(|error| panic!("{dialect}: {error}"));
        assert_equal("t", &source, &target).await;
        assert_eq!(target.unfinished().await, 0, "{dialect}");
    }
}
