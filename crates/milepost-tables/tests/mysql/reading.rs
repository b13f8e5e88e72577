//! Reading: in one snapshot, in the order of the key, in batches that have an end.

use milepost_tables::{Kind, TableError, TableName, Value};
use mysql_async::prelude::Queryable;

use super::support::{all, place, read, scan, table, text, values};

#[tokio::test]
async fn pages_follow_keys_of_every_type_and_leave_nothing_out() {
    let Some(place) = place().await else { return };
    let tables = [
        (
            "ints",
            "a INT, b BIGINT UNSIGNED",
            "(1, 18446744073709551615), (1, 0), (-1, 5), (2, 1), (1, 7), (2, 0), (0, 0)",
        ),
        (
            "texts",
            "a VARCHAR(20), b CHAR(5)",
            "('', ''), ('b', 'é'), ('A', 'x'), ('ä', 'y'), ('it''s', '\\\\'), ('ß', ''), ('Z', '')",
        ),
        (
            "bytes",
            "a VARBINARY(9), b BINARY(2)",
            "('', x'0000'), (x'00', x'ffff'), (x'ff', x'0000'), (x'00ff', x'2720'), (x'5c', x'5c27')",
        ),
        (
            "decimals",
            "a DECIMAL(40,20), b DOUBLE",
            "(1.00000000000000000001, 1), (1.00000000000000000002, 1), \
            (12345678901234567890.00000000000000000001, 0.1), (12345678901234567890.00000000000000000002, 5e-324), (-1, 0)",
        ),
        ("floats", "a FLOAT, b YEAR", "(0.1, 2000), (0.2, 2001), (16777216, 0), (-3.4e38, 1901), (0.3, 2155)"),
        (
            "dates",
            "a DATE, b DATETIME(6)",
            "('0000-00-00', '0000-00-00'), ('2024-01-01', '2024-01-01 00:00:00.000001'), \
            ('2024-01-01', '2024-01-01 00:00:00.000002'), ('9999-12-31', '9999-12-31'), ('2024-01-01', '2024-01-01')",
        ),
        (
            "times",
            "a TIME(3), b TIMESTAMP(3) DEFAULT '2024-01-01'",
            "('-838:59:59', '2024-01-01'), ('-00:00:00.001', '2024-01-01'), \
            ('00:00:00', '2024-01-01 00:00:00.5'), ('838:59:59', '2024-01-01'), ('00:00:00', '2024-01-01')",
        ),
        // In the order of their declaration, which is not that of the alphabet.
        (
            "words",
            "a ENUM('z', 'm', 'a'), b SET('z', 'm', 'a')",
            "('z', ''), ('z', 'a'), ('z', 'z,m'), ('m', 'm'), ('a', 'z'), ('a', 'z,m,a')",
        ),
        ("bits", "a BIT(20), b TINYINT(1)", "(0, 0), (1, 0), (1, 1), (65535, 1), (1048575, 0), (39, 0)"),
        (
            "uuids",
            "a UUID, b INT",
            "('00000000-0000-0000-0000-000000000001', 1), ('ffffffff-ffff-ffff-ffff-ffffffffffff', 1), \
            ('00000001-0000-1000-8000-000000000000', 1), ('00000000-0001-1000-8000-000000000000', 1), ('00000000-0000-0000-0000-000000000001', 2)",
        ),
    ];
    let database = place.open().await;
    for (name, columns, rows) in tables {
        let create = format!("CREATE TABLE {name} ({columns}, PRIMARY KEY (a, b))");
        place.run(&[&create, &format!("INSERT INTO {name} VALUES {rows}")]).await;
        let source = table(&*database, name).await;
        let mut whole = scan(&source);
        whole.batch_rows = 1000;
        let whole = read(&*database, whole).await;
        assert_eq!(whole.len() as u64, place.ask::<u64>(&format!("SELECT COUNT(*) FROM {name}")).await[0], "{name}");
        for batch_rows in [1, 2] {
            let mut pages = scan(&source);
            pages.batch_rows = batch_rows;
            assert_eq!(read(&*database, pages).await, whole, "{name} by {batch_rows}");
        }
        for (at, row) in whole.iter().enumerate() {
            let mut rest = scan(&source);
            rest.after = Some(row.clone());
            assert_eq!(read(&*database, rest).await, whole[at + 1..], "{name} after {row:?}");
            let mut first = scan(&source);
            first.until = Some(row.clone());
            assert_eq!(read(&*database, first).await, whole[..=at], "{name} until {row:?}");
        }
    }
}

#[tokio::test]
async fn a_page_is_found_by_the_index_and_not_by_sorting() {
    let Some(place) = place().await else { return };
    place
        .run(&[
            "CREATE TABLE t (a INT, b INT, c INT, PRIMARY KEY (a, b))",
            "INSERT INTO t SELECT 1, seq, seq FROM seq_1_to_20000",
        ])
        .await;
    let database = place.open().await;
    let mut some = scan(&table(&*database, "t").await);
    some.batch_rows = 100;
    some.after = Some(vec![Value::Int(1), Value::Int(15_000)]);
    let mut rows = database.read(some).await.unwrap();
    let first = rows.next().await.unwrap().unwrap();
    assert_eq!(values(&first)[0][1], Value::Int(15_001));
    let plan: Vec<mysql_async::Row> = place
        .ask("EXPLAIN SELECT a, b, c FROM t FORCE INDEX (PRIMARY) WHERE ((a > 1) OR (a = 1 AND b > 15000)) ORDER BY a, b LIMIT 100")
        .await;
    let (kind, extra): (String, String) = (plan[0].get("type").unwrap(), plan[0].get("Extra").unwrap());
    assert_eq!(kind, "range");
    assert!(!extra.contains("filesort"), "{extra}");
}

#[tokio::test]
async fn a_scan_sees_the_table_as_it_was_when_it_began() {
    let Some(place) = place().await else { return };
    place.run(&["CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t SELECT seq, 0 FROM seq_1_to_10"]).await;
    let database = place.open().await;
    let mut rows = database.read(scan(&table(&*database, "t").await)).await.unwrap();
    place.run(&["UPDATE t SET v = 1", "DELETE FROM t WHERE id > 5", "INSERT INTO t VALUES (100, 1)"]).await;
    let read: Vec<Vec<Value>> = all(rows.as_mut()).await.iter().flat_map(values).collect();
    let expected: Vec<Vec<Value>> = (1..=10).map(|id| vec![Value::Int(id), Value::Int(0)]).collect();
    assert_eq!(read, expected);
}

#[tokio::test]
async fn without_a_key_a_table_is_read_in_one_pass() {
    let Some(place) = place().await else { return };
    place.run(&["CREATE TABLE t (v INT)", "INSERT INTO t SELECT seq DIV 2 FROM seq_1_to_10"]).await;
    let database = place.open().await;
    let source = table(&*database, "t").await;
    assert_eq!(scan(&source).key, [0; 0]);
    let mut rows = database.read(scan(&source)).await.unwrap();
    let batches = all(rows.as_mut()).await;
    assert!(batches.iter().all(|batch| batch.rows() <= 3), "no batch is longer than asked for");
    let mut read: Vec<Value> = batches.iter().flat_map(values).flatten().collect();
    read.sort_by_key(|value| if let Value::Int(value) = value { *value } else { -1 });
    assert_eq!(read, [0, 1, 1, 2, 2, 3, 3, 4, 4, 5].map(Value::Int));
}

#[tokio::test]
async fn a_batch_of_long_values_is_handed_over_before_it_is_full() {
    let Some(place) = place().await else { return };
    place
        .run(&[
            "CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB)",
            "INSERT INTO t SELECT seq, REPEAT('x', 100000) FROM seq_1_to_20",
        ])
        .await;
    let database = place.open().await;
    let mut asked = scan(&table(&*database, "t").await);
    (asked.batch_rows, asked.batch_bytes) = (1000, 250_000);
    let mut rows = database.read(asked).await.unwrap();
    let batches = all(rows.as_mut()).await;
    assert_eq!(batches.iter().map(milepost_tables::Batch::rows).sum::<usize>(), 20);
    assert!(batches.iter().all(|batch| batch.size() < 360_000), "one row beyond the limit at most");
    assert_eq!(batches.len(), 7);
}

#[tokio::test]
async fn a_filter_is_one_condition_whatever_is_in_it() {
    let Some(place) = place().await else { return };
    place.run(&["CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t SELECT seq FROM seq_1_to_10"]).await;
    let database = place.open().await;
    let filter = "id = 9 OR id < 3 OR id = 7";
    let mut asked = scan(&table(&*database, "t").await);
    asked.batch_rows = 1;
    asked.filter = Some(filter.to_owned());
    let read = read(&*database, asked).await;
    assert_eq!(read, [1, 2, 7, 9].map(|id| vec![Value::Int(id)]));
    assert_eq!(database.count(&TableName::new("t"), Some(filter)).await.unwrap(), 4);
}

#[tokio::test]
async fn after_a_spoilt_row_reading_goes_on_and_its_key_is_known() {
    let Some(place) = place().await else { return };
    place
        .run(&[
            "CREATE TABLE t (id VARCHAR(5) PRIMARY KEY, flag TINYINT(1))",
            "INSERT INTO t VALUES ('a', 1), ('b', 5), ('c', 0)",
        ])
        .await;
    let database = place.open().await;
    let mut asked = scan(&table(&*database, "t").await);
    asked.batch_rows = 2;
    let mut rows = database.read(asked.clone()).await.unwrap();
    let first = rows.next().await.unwrap().unwrap();
    assert_eq!((first.rows(), first.spoilt.len()), (1, 1));
    assert_eq!(first.last, Some(vec![text("b")]));
    let rest = rows.next().await.unwrap().unwrap();
    assert_eq!(values(&rest), [[text("c"), Value::Bool(false)]]);
    asked.after = first.last;
    assert_eq!(read(&*database, asked).await.len(), 1);
}

#[tokio::test]
async fn a_reader_whose_connection_is_killed_is_away() {
    let Some(place) = place().await else { return };
    place.run(&["CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t SELECT seq FROM seq_1_to_10"]).await;
    let database = place.open().await;
    let mut rows = database.read(scan(&table(&*database, "t").await)).await.unwrap();
    rows.next().await.unwrap().unwrap();
    let connections =
        format!("SELECT id FROM information_schema.processlist WHERE db = '{}' AND id <> CONNECTION_ID()", place.name);
    let mut conn = place.connect().await;
    for id in conn.query::<u64, _>(connections).await.unwrap() {
        conn.query_drop(format!("KILL {id}")).await.unwrap();
    }
    let error = loop {
        match rows.next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a connection that is gone has no end of the table to tell of"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, TableError::Away { .. }), "{error}");
}

#[tokio::test]
async fn a_reader_that_is_dropped_in_the_middle_ends_its_connection() {
    let Some(place) = place().await else { return };
    place.run(&["CREATE TABLE t (v LONGTEXT)", "INSERT INTO t SELECT REPEAT('x', 20000) FROM seq_1_to_600"]).await;
    let database = place.open().await;
    let mut slow = scan(&table(&*database, "t").await);
    slow.filter = Some("SLEEP(0.3) = 0".to_owned());
    let mut rows = database.read(slow).await.unwrap();
    rows.next().await.unwrap().unwrap();
    drop(rows);
    let open = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '{}' AND id <> CONNECTION_ID()",
        place.name
    );
    let gone = async {
        while place.ask::<u64>(&open).await != [0] {
            tokio::task::yield_now().await;
        }
    };
    // All rows would take three minutes.
    tokio::time::timeout(std::time::Duration::from_secs(120), gone).await.expect("the connection ends soon");
}

#[tokio::test]
async fn binary_uuids_may_be_read_as_uuids() {
    let Some(place) = place().await else { return };
    place
        .run(&[
            "CREATE TABLE t (id BINARY(16) PRIMARY KEY)",
            "INSERT INTO t VALUES (x'00112233445566778899aabbccddeeff'), (x'00')",
        ])
        .await;
    let database = place.open().await;
    let mut asked = scan(&table(&*database, "t").await);
    asked.columns[0].1 = Kind::Uuid;
    asked.after = Some(vec![text("00000000-0000-0000-0000-000000000000")]);
    assert_eq!(read(&*database, asked).await, [[text("00112233-4455-6677-8899-aabbccddeeff")]]);
}
