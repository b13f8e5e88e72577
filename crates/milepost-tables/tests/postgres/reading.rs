//! Pages, batches, and one moment.

use milepost_tables::{Batch, Cell, Database, Kind, Rows, Scan, Value};

use crate::server::{Schema, int, is_there, scan, text};

async fn all(rows: &mut dyn Rows) -> Vec<Batch> {
    let mut batches = Vec::new();
    while let Some(batch) = rows.next().await.unwrap() {
        batches.push(batch);
    }
    batches
}

fn values(batches: &[Batch]) -> Vec<Vec<Value>> {
    let rows = batches.iter().flat_map(|batch| batch.iter().map(move |row| (batch, row)));
    rows.map(|(batch, row)| row.iter().map(|cell| batch.value(*cell)).collect()).collect()
}

async fn read(database: &dyn Database, scan: Scan) -> Vec<Vec<Value>> {
    values(&all(database.read(scan).await.unwrap().as_mut()).await)
}

#[tokio::test]
async fn every_row_comes_once_in_the_order_of_its_key_over_many_pages() {
    if !is_there("every_row_comes_once_in_the_order_of_its_key_over_many_pages") {
        return;
    }
    let schema = Schema::new().await;
    // More than two pages of each; texts that a careless statement would end at.
    schema
        .run(
            "CREATE TABLE ints (id bigint PRIMARY KEY); INSERT INTO ints SELECT x * 3 FROM generate_series(-60000, 60000) x;
             CREATE TABLE texts (a varchar(30), b char(4), PRIMARY KEY (b, a));
             INSERT INTO texts SELECT 'it''s \\ ' || chr(9) || x, 'k' || x % 3 FROM generate_series(1, 110000) x;
             CREATE TABLE ids (id uuid PRIMARY KEY, at timestamptz);
             INSERT INTO ids SELECT md5(x::text)::uuid, now() FROM generate_series(1, 101000) x",
        )
        .await;
    let database = schema.database().await;
    for (table, order, rows) in [("ints", "id", 120_001), ("texts", "b, a", 110_000), ("ids", "id", 101_000)] {
        let found = read(database.as_ref(), scan(database.as_ref(), table).await).await;
        assert_eq!(found.len(), rows, "{table}");
        let first = |row: &[Value]| match &row[0] {
            Value::Int(value) => value.to_string(),
            Value::Text(value) => value.clone(),
            other => panic!("{other:?}"),
        };
        let column = if table == "texts" { "a" } else { "id" };
        let expected = schema.ask(&format!("SELECT {column} FROM {table} ORDER BY {order}")).await;
        assert!(found.iter().map(|row| first(row)).eq(expected), "{table} is not in the order of its key");
    }
    schema.remove().await;
}

#[tokio::test]
async fn a_batch_is_bounded_by_rows_and_by_bytes() {
    if !is_there("a_batch_is_bounded_by_rows_and_by_bytes") {
        return;
    }
    let schema = Schema::new().await;
    schema
        .run("CREATE TABLE t (id int PRIMARY KEY, x text); INSERT INTO t SELECT x, repeat('y', 100000) FROM generate_series(1, 50) x")
        .await;
    let database = schema.database().await;
    let by_rows = Scan { batch_rows: 7, ..scan(database.as_ref(), "t").await };
    let batches = all(database.read(by_rows).await.unwrap().as_mut()).await;
    assert_eq!(batches.iter().map(Batch::rows).collect::<Vec<_>>(), [7, 7, 7, 7, 7, 7, 7, 1]);
    let by_bytes = Scan { batch_bytes: 250_000, ..scan(database.as_ref(), "t").await };
    let batches = all(database.read(by_bytes).await.unwrap().as_mut()).await;
    assert!(batches.iter().all(|batch| batch.rows() <= 3), "a batch is handed over when it is large enough");
    assert_eq!(values(&batches).len(), 50);
    schema.remove().await;
}

#[tokio::test]
async fn a_reader_sees_one_moment_however_long_it_takes() {
    if !is_there("a_reader_sees_one_moment_however_long_it_takes") {
        return;
    }
    let schema = Schema::new().await;
    schema.run("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 60000)").await;
    let database = schema.database().await;
    let mut rows = database.read(Scan { batch_rows: 100, ..scan(database.as_ref(), "t").await }).await.unwrap();
    schema.run("DELETE FROM t WHERE id % 2 = 0; INSERT INTO t SELECT generate_series(70000, 80000)").await;
    assert_eq!(values(&all(rows.as_mut()).await).len(), 60_000);
    drop(rows);
    schema.remove().await;
}

#[tokio::test]
async fn a_part_is_read_from_after_one_key_up_to_another() {
    if !is_there("a_part_is_read_from_after_one_key_up_to_another") {
        return;
    }
    let schema = Schema::new().await;
    schema
        .run("CREATE TABLE t (a text, b int, PRIMARY KEY (a, b)); INSERT INTO t SELECT chr(96 + x), y FROM generate_series(1, 3) x, generate_series(1, 9) y")
        .await;
    let database = schema.database().await;
    let key = |a: &str, b| Some(vec![Value::Text(a.into()), Value::Int(b)]);
    let part = Scan { after: key("a", 8), until: key("b", 2), ..scan(database.as_ref(), "t").await };
    let found = read(database.as_ref(), part.clone()).await;
    let expected: Vec<_> = [("a", 9), ("b", 1), ("b", 2)].into_iter().filter_map(|(a, b)| key(a, b)).collect();
    assert_eq!(found, expected);
    let filtered = Scan { filter: Some("t.b = 1 OR b = 9 -- the ends".into()), ..part };
    assert_eq!(read(database.as_ref(), filtered).await, expected[..2]);
    schema.remove().await;
}

#[tokio::test]
async fn a_table_without_a_key_is_read_in_one_pass() {
    if !is_there("a_table_without_a_key_is_read_in_one_pass") {
        return;
    }
    let schema = Schema::new().await;
    schema
        .run(
            "CREATE TABLE t (x int, y text); INSERT INTO t SELECT x % 5, NULL FROM generate_series(1, 120000) x;
             CREATE TABLE child (z int) INHERITS (t); INSERT INTO child VALUES (1, 'of the child alone', 2);
             CREATE TABLE empty (x int)",
        )
        .await;
    let database = schema.database().await;
    let scanned = scan(database.as_ref(), "t").await;
    assert!(scanned.key.is_empty());
    assert_eq!(read(database.as_ref(), scanned).await.len(), 120_000);
    assert!(read(database.as_ref(), scan(database.as_ref(), "empty").await).await.is_empty());
    schema.remove().await;
}

#[tokio::test]
async fn values_come_as_the_kind_that_is_asked_for_or_their_row_is_spoilt() {
    if !is_there("values_come_as_the_kind_that_is_asked_for_or_their_row_is_spoilt") {
        return;
    }
    let schema = Schema::new().await;
    schema
        .run(
            "CREATE TABLE t (id int PRIMARY KEY, flag boolean, big numeric(20), word text, at timestamptz);
             INSERT INTO t VALUES (1, true, 18446744073709551615, '12', '2024-02-29 12:00+02'),
                                  (2, false, 7, 'no number', '1999-12-31 23:59:59.5Z')",
        )
        .await;
    let database = schema.database().await;
    let columns = vec![
        ("id".into(), int()),
        ("flag".into(), Kind::Int { bits: 8, unsigned: false }),
        ("big".into(), Kind::Int { bits: 64, unsigned: true }),
        ("word".into(), int()),
        ("at".into(), Kind::DateTime { fraction: 6 }),
    ];
    let asked = Scan { columns, ..scan(database.as_ref(), "t").await };
    let batches = all(database.read(asked).await.unwrap().as_mut()).await;
    let at = Value::Text("2024-02-29 10:00:00".into());
    assert_eq!(values(&batches), [[Value::Int(1), Value::Int(1), Value::Uint(u64::MAX), Value::Int(12), at]]);
    let spoilt = &batches[0].spoilt[0];
    assert_eq!(spoilt.reason, "column \"word\" holds \"no number\", which is no integer");
    assert_eq!(spoilt.row["at"], "1999-12-31 23:59:59.5+00");
    assert_eq!(batches[0].last, Some(vec![Value::Int(2)]), "another attempt goes on after the spoilt row");
    let narrow = Scan { columns: vec![("big".into(), int())], key: vec![], ..scan(database.as_ref(), "t").await };
    let batches = all(database.read(narrow).await.unwrap().as_mut()).await;
    assert_eq!(batches[0].row(0), [Cell::Int(7)]);
    assert_eq!(batches[0].spoilt.len(), 1, "a number that does not fit is not cut off");
    let unknown = Scan { columns: vec![("nobody".into(), text())], ..scan(database.as_ref(), "t").await };
    let error = database.read(unknown).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("no column \"nobody\""), "{error}");
    schema.remove().await;
}
