//! Every table of the data set, from every database to every other and to itself, compared by somebody else.

#[allow(dead_code, reason = "each test uses its part of it")]
mod support;

use std::sync::Arc;

use milepost_tables::Dialect::{self, Mysql, Postgres, Sqlite};
use milepost_tables::{Copied, Copy, Database, OnRowError, TableError, TableName};
use support::comparer::Comparison;
use support::copying::{job, run};
use support::data::{fill, prepare};
use support::home::Home;
use support::refusals::{assert_refused, refusals, rejected};

/// Copies all tables, and has each compared twice: by the copy itself, and by `dev/compare-tables`.
async fn copies_are_equal(from: Dialect, to: Dialect) {
    let (Some(source), Some(target)) = (Home::create(from).await, Home::create(to).await) else { return };
    let tables = fill(&source).await;
    prepare(&target, from).await;
    let (source_database, target_database) = (source.database().await, target.database().await);
    let mut comparison = Comparison::of(&tables);
    for table in &tables {
        let file = target.folder.path().join("rejected");
        let into = short_enough(&source_database, &target_database, table, &mut comparison).await;
        let copy = Copy {
            into: TableName::new(into),
            on_row_error: OnRowError::Skip,
            rejected_file: Some(file.clone()),
            ..job(source_database.clone(), target_database.clone(), table)
        };
        let rows = source_database.count(&TableName::new(*table), None).await.unwrap();
        let copied = run(copy).await.unwrap_or_else(|error| panic!("{from} to {to}, {table}: {error}"));
        let found = rejected(&file);
        let expected = if *table == "every_type" { refusals(from, to) } else { Vec::new() };
        assert_refused(&found, &expected, &format!("{from} to {to}, {table}"));
        let Copied { rows: written, rejected, already, .. } = copied;
        assert_eq!((written, rejected, already), (rows - found.len() as u64, found.len() as u64, false), "{table}");
        comparison.missing.extend(found.iter().map(|row| ((*table).to_owned(), format!("[{}]", row.id))));
        let _ = std::fs::remove_file(&file);
    }
    match comparison.run(&source, &target).await {
        Ok(said) => assert_eq!(said.lines().count(), tables.len(), "{said}"),
        Err(differences) => panic!("{from} to {to}:\n{differences}"),
    }
    assert_eq!(target.unfinished().await, 0, "no table that is not whole is left behind");
}

/// What PostgreSQL would cut off is refused by it, and goes by another name.
async fn short_enough<'a>(
    from: &Arc<dyn Database>,
    to: &Arc<dyn Database>,
    table: &'a str,
    comparison: &mut Comparison,
) -> &'a str {
    if to.dialect() != Postgres || table.len() <= 63 {
        return table;
    }
    let outcome = run(job(from.clone(), to.clone(), table)).await;
    assert!(matches!(&outcome, Err(TableError::Refused(reason)) if reason.contains("at most 63 bytes")), "{outcome:?}");
    let pair = comparison.tables.iter_mut().find(|(name, _)| name == table).unwrap();
    pair.1 = table[..63].to_owned();
    &table[..63]
}

/// One test for each direction, so that they run side by side and are named when they fail.
macro_rules! directions {
    ($($name:ident: $from:ident to $to:ident,)*) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            copies_are_equal($from, $to).await;
        })*
    };
}

directions! {
    sqlite_to_sqlite: Sqlite to Sqlite,
    sqlite_to_postgres: Sqlite to Postgres,
    sqlite_to_mysql: Sqlite to Mysql,
    postgres_to_sqlite: Postgres to Sqlite,
    postgres_to_postgres: Postgres to Postgres,
    postgres_to_mysql: Postgres to Mysql,
    mysql_to_sqlite: Mysql to Sqlite,
    mysql_to_postgres: Mysql to Postgres,
    mysql_to_mysql: Mysql to Mysql,
}
