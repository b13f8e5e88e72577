//! Rows in the order of their key, as they were when reading began.

use milepost_tables::{Scan, TableError, Value};

use crate::lab::{Lab, TEXT, UNSIGNED, batches, foreign, put, scan, table, text, values};

fn numbers(count: u32) -> String {
    format!(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT);
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
         INSERT INTO t SELECT i, 'name ' || i FROM n"
    )
}

#[tokio::test]
async fn every_row_is_read_once_in_batches_of_the_size_that_is_asked_for() {
    let lab = Lab::new();
    let database = lab.made("db", &numbers(1_000)).await;
    let table = table(&database, "t").await;
    for (batch_rows, expected) in [(1, 1_000), (300, 4), (1_000, 1), (5_000, 1)] {
        let batches = batches(&database, Scan { batch_rows, ..scan(&table) }).await;
        assert_eq!(batches.len(), expected);
        assert!(batches.iter().all(|batch| batch.rows() <= batch_rows));
        assert_eq!(batches.iter().map(|batch| batch.rows()).sum::<usize>(), 1_000);
    }
    let empty = Scan { filter: Some("id < 0 -- nothing".into()), ..scan(&table) };
    assert!(batches(&database, empty).await.is_empty());
}

/// Whatever the size of a page, going on behind its last key misses nothing and repeats nothing.
async fn pages_are_whole(database: &std::sync::Arc<dyn milepost_tables::Database>, whole: Scan) {
    let expected = values(database, whole.clone()).await;
    for batch_rows in 1..=expected.len() {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = Scan { batch_rows, after: after.clone(), ..whole.clone() };
            let mut rows = database.read(page).await.unwrap();
            let Some(batch) = rows.next().await.unwrap() else { break };
            after = Some(batch.last.clone().expect("a batch that is read by key says where it ends"));
            found.extend(batch.iter().map(|row| row.iter().map(|cell| batch.value(*cell)).collect::<Vec<_>>()));
        }
        assert_eq!(found, expected, "pages of {batch_rows}");
    }
}

#[tokio::test]
async fn a_scan_goes_on_behind_any_key() {
    let lab = Lab::new();
    let cases = [
        "CREATE TABLE t0 (a INT, b TEXT, c, PRIMARY KEY (b, a)); INSERT INTO t0 VALUES (2, 'a', 1), (1, 'b', 2), (1, 'a', 3), (9, '', 4)",
        "CREATE TABLE t1 (a TEXT PRIMARY KEY COLLATE NOCASE); INSERT INTO t1 VALUES ('b'), ('A'), ('C'), ('É'), ('')",
        "CREATE TABLE t2 (a DECIMAL TEXT(10,2) PRIMARY KEY, b) WITHOUT ROWID; INSERT INTO t2 VALUES ('9', 1), ('10.5', 2), ('1', 3)",
        "CREATE TABLE t3 (a TIMESTAMPTZ PRIMARY KEY); INSERT INTO t3 VALUES ('2024-01-01T10:00:00Z'), ('2024-01-01 09:00:00+02:00'), ('2024-01-01T12:00:00.500+02:00')",
        "CREATE TABLE t4 (a BLOB NOT NULL, b REAL NOT NULL); CREATE UNIQUE INDEX i4 ON t4 (a, b); INSERT INTO t4 VALUES (x'00', 1.5), (x'', 2), (x'00', -1e300)",
        "CREATE TABLE t5 (a UUID PRIMARY KEY); INSERT INTO t5 VALUES ('A0EEBC999C0B4EF8BB6D6BB9BD380A11'), ('00000000-0000-0000-0000-000000000000')",
    ];
    for (number, sql) in cases.into_iter().enumerate() {
        let database = lab.made("db", sql).await;
        let table = table(&database, &format!("t{number}")).await;
        assert!(!table.paging_key().is_empty());
        pages_are_whole(&database, scan(&table)).await;
    }
}

#[tokio::test]
async fn a_range_holds_its_last_key_and_not_its_first() {
    let lab = Lab::new();
    let database = lab.made("db", &numbers(10)).await;
    let table = table(&database, "t").await;
    let range = Scan { after: Some(vec![Value::Int(3)]), until: Some(vec![Value::Int(6)]), ..scan(&table) };
    let ids: Vec<_> = values(&database, range).await.into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(ids, [Value::Int(4), Value::Int(5), Value::Int(6)]);
    let odd = Scan { filter: Some("id % 2 = 1 OR id = 2".into()), after: Some(vec![Value::Int(2)]), ..scan(&table) };
    assert_eq!(values(&database, odd).await.len(), 4, "a condition is one, whatever it is made of");
    assert_eq!(database.count(&table.name, Some("id > 7")).await.unwrap(), 3);
}

#[tokio::test]
async fn integers_beyond_those_of_sqlite_are_in_their_order() {
    let lab = Lab::new();
    let to = lab.database("db").await;
    let table = foreign("t", &[UNSIGNED, TEXT]);
    let keys =
        [0, 9, 10, 1 << 62, (1 << 63) - 1, 1 << 63, 9_999_999_999_999_999_999, 10_000_000_000_000_000_000, u64::MAX];
    let value = |key: u64| i64::try_from(key).map_or(Value::Uint(key), Value::Int);
    let rows: Vec<_> = keys.iter().map(|key| vec![value(*key), text(&key.to_string())]).collect();
    let mut shuffled = rows.clone();
    shuffled.reverse();
    put(&to, &table, &shuffled).await;
    assert_eq!(values(&to, scan(&table)).await, rows);
    pages_are_whole(&to, scan(&table)).await;
    let range = Scan { after: Some(vec![value(10)]), until: Some(vec![value(1 << 63)]), ..scan(&table) };
    assert_eq!(values(&to, range).await, rows[3..6]);
}

#[tokio::test]
async fn a_table_without_a_key_is_read_in_one_pass() {
    let lab = Lab::new();
    let database = lab.made("db", "CREATE TABLE t (a TEXT); INSERT INTO t VALUES ('b'), ('a'), ('b')").await;
    let table = table(&database, "t").await;
    assert!(table.paging_key().is_empty());
    assert_eq!(values(&database, scan(&table)).await, [[text("b")], [text("a")], [text("b")]]);
}

#[tokio::test]
async fn a_key_that_is_null_spoils_its_row_alone() {
    let lab = Lab::new();
    let sql = "CREATE TABLE t (a TEXT PRIMARY KEY, b INT); INSERT INTO t VALUES (NULL, 1), (NULL, 2), ('x', 3), ('y', 'four')";
    let database = lab.made("db", sql).await;
    let table = table(&database, "t").await;
    let batch = batches(&database, scan(&table)).await.remove(0);
    assert_eq!((batch.rows(), batch.spoilt.len()), (1, 3));
    assert!(batch.spoilt[0].reason.contains("column \"a\" is NULL"), "{:?}", batch.spoilt);
    assert_eq!(batch.spoilt[2].row["b"], "four");
    assert_eq!(batch.last, Some(vec![text("y")]), "a spoilt row has been dealt with as well");
}

#[tokio::test]
async fn what_is_written_after_reading_began_is_not_read() {
    let lab = Lab::new();
    for journal in ["wal", "delete"] {
        let name = format!("{journal}.db");
        let database = lab.made(&name, &format!("PRAGMA journal_mode = {journal}; {}", numbers(100))).await;
        let table = table(&database, "t").await;
        let mut rows = database.read(Scan { batch_rows: 10, ..scan(&table) }).await.unwrap();
        if journal == "wal" {
            lab.connection(&name)
                .execute_batch("DELETE FROM t WHERE id > 5; INSERT INTO t VALUES (101, 'late')")
                .unwrap();
        } else {
            let other = lab.connection(&name);
            other.busy_timeout(std::time::Duration::ZERO).unwrap();
            let error = other.execute_batch("DELETE FROM t").unwrap_err();
            assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy), "such a writer waits");
        }
        let mut count = 0;
        while let Some(batch) = rows.next().await.unwrap() {
            count += batch.rows();
        }
        assert_eq!(count, 100, "{journal}");
        assert!(rows.next().await.unwrap().is_none(), "the end stays the end");
    }
}

#[tokio::test]
async fn long_values_make_small_batches() {
    let lab = Lab::new();
    let sql = "CREATE TABLE t (id INTEGER PRIMARY KEY, x BLOB);
        WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40)
        INSERT INTO t SELECT i, randomblob(100000) FROM n";
    let database = lab.made("db", sql).await;
    let table = table(&database, "t").await;
    let batches = batches(&database, Scan { batch_bytes: 250_000, ..scan(&table) }).await;
    assert_eq!(batches.iter().map(|batch| batch.rows()).sum::<usize>(), 40);
    assert!(batches.iter().all(|batch| batch.size() < 350_000), "no more than one row beyond");
}

#[tokio::test]
async fn a_scan_that_is_given_up_lets_the_file_go() {
    let lab = Lab::new();
    let database = lab.made("db", &numbers(5_000)).await;
    let table = table(&database, "t").await;
    let mut rows = database.read(Scan { batch_rows: 10, ..scan(&table) }).await.unwrap();
    rows.next().await.unwrap();
    drop(rows);
    // Waits for a signal of SQLite's own: its lock.
    lab.connection("db").execute_batch("BEGIN EXCLUSIVE; DELETE FROM t; COMMIT").unwrap();
}

#[tokio::test]
async fn what_is_not_there_to_be_read_is_named() {
    let lab = Lab::new();
    let database = lab.made("db", &numbers(1)).await;
    let whole = scan(&table(&database, "t").await);
    let cases = [
        (Scan { columns: vec![("surname".into(), TEXT)], key: vec![], ..whole.clone() }, "surname"),
        (Scan { table: milepost_tables::TableName::new("u"), ..whole.clone() }, "`u`"),
        (Scan { filter: Some("no_such_column > 1".into()), ..whole.clone() }, "no_such_column"),
        (Scan { after: Some(vec![]), ..whole }, "key"),
    ];
    for (scan, expected) in cases {
        let error = match database.read(scan).await {
            Err(error) => error,
            Ok(mut rows) => rows.next().await.unwrap_err(),
        };
        assert!(matches!(&error, TableError::Refused(reason) if reason.contains(expected)), "{error}");
    }
}
