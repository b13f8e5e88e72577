//! Rows that cannot be.

use milepost_tables::{Digits, How, Kind, TableError, Value};

use crate::loading::{Loading, batch, column, t};
use crate::server::{Schema, int, is_there, text};

/// A table with a number, a short text, an amount, and a word of a list.
async fn strict(schema: &Schema) -> Loading {
    let digits = Some(Digits { precision: 5, scale: 2 });
    let mut columns = vec![
        column("id", Kind::Int { bits: 16, unsigned: false }),
        column("name", Kind::Text { length: Some(4) }),
        column("price", Kind::Decimal { digits }),
        column("size", Kind::Enum { values: vec!["s".into(), "l".into()] }),
    ];
    columns[0].nullable = false;
    Loading::of(&schema.database().await, "goods", columns, &[0])
}

fn good(id: i64) -> Vec<Value> {
    vec![Value::Int(id), t("four"), t("1.50"), t("s")]
}

#[tokio::test]
async fn exactly_the_bad_rows_are_left_out_and_each_says_why() {
    if !is_there("exactly_the_bad_rows_are_left_out_and_each_says_why") {
        return;
    }
    let schema = Schema::new().await;
    let loading = strict(&schema).await;
    let mut rows: Vec<Vec<Value>> = (0..500).map(good).collect();
    let bad: [(usize, usize, Value, &str); 8] = [
        (0, 2, t("12345.00"), "overflow"),
        (1, 1, t("a\0b"), "character 0"),
        (17, 1, t("fives"), "5 characters"),
        (18, 3, t("xl"), "goods"),
        (100, 0, Value::Int(40_000), "smallint"),
        (101, 0, Value::Null, "null value"),
        (300, 2, t("1.505"), "2 digits"),
        (499, 2, t("no number"), "numeric"),
    ];
    for (row, column, value, _) in &bad {
        rows[*row][*column] = value.clone();
    }
    let rows: Vec<&[Value]> = rows.iter().map(Vec::as_slice).collect();
    loading.begin(false).await.unwrap();
    let mut writer = loading.writer(true).await;
    let rejected = writer.write(&batch(&rows)).await.unwrap();
    assert_eq!(rejected.iter().map(|bad| bad.row).collect::<Vec<_>>(), bad.clone().map(|(row, ..)| row));
    for (rejected, (_, column, _, word)) in rejected.iter().zip(&bad) {
        assert!(rejected.reason.contains(word), "{word}: {}", rejected.reason);
        let name = ["id", "name", "price", "size"][*column];
        // A check is of the table, and names no column.
        assert!(rejected.column.as_deref() == Some(name) || name == "size", "{rejected:?}");
    }
    writer.commit(Some(vec![Value::Int(499)]), 8).await.unwrap();
    loading.finish(How::Replace).await.unwrap();
    assert_eq!(
        schema.one("SELECT count(*), sum(id) FROM goods").await,
        format!("492|{}", 124_750 - 1 - 17 - 18 - 100 - 101 - 300 - 499)
    );
    let mark = loading.mark().await;
    assert_eq!((mark.rows, mark.rejected), (492, 8));
    schema.remove().await;
}

#[tokio::test]
async fn the_first_bad_row_ends_a_copy_that_may_leave_none_out() {
    if !is_there("the_first_bad_row_ends_a_copy_that_may_leave_none_out") {
        return;
    }
    let schema = Schema::new().await;
    let loading = strict(&schema).await;
    loading.begin(false).await.unwrap();
    // Which of them is first does not depend on who finds it: the server, or we before anything is sent.
    for (first, second, column) in [(t("x"), t("1.999"), "price"), (t("1.999"), t("x"), "price")] {
        let mut rows: Vec<Vec<Value>> = (0..50).map(good).collect();
        rows[20][2] = first;
        rows[30][2] = second;
        let rows: Vec<&[Value]> = rows.iter().map(Vec::as_slice).collect();
        let mut writer = loading.writer(false).await;
        let error = writer.write(&batch(&rows)).await.unwrap_err();
        let TableError::Row(row) = error else { panic!("{error}") };
        assert_eq!((row.row, row.column.as_deref()), (20, Some(column)));
        assert_eq!(row.values["id"], 20);
    }
    assert_eq!(schema.one("SELECT count(*) FROM goods__mp_0123456789").await, "0");
    schema.remove().await;
}

#[tokio::test]
async fn a_batch_of_bad_rows_alone_is_left_out_whole() {
    if !is_there("a_batch_of_bad_rows_alone_is_left_out_whole") {
        return;
    }
    let schema = Schema::new().await;
    let loading = strict(&schema).await;
    let bad = vec![Value::Int(1), t("ok"), t("x"), t("s")];
    let rows: Vec<&[Value]> = (0..300).map(|_| bad.as_slice()).collect();
    loading.begin(false).await.unwrap();
    let mut writer = loading.writer(true).await;
    assert_eq!(writer.write(&batch(&rows)).await.unwrap().len(), 300);
    writer.commit(None, 300).await.unwrap();
    assert_eq!(loading.mark().await.rejected, 300);
    schema.remove().await;
}

#[tokio::test]
async fn a_table_that_is_there_takes_nothing_that_it_would_change() {
    if !is_there("a_table_that_is_there_takes_nothing_that_it_would_change") {
        return;
    }
    let schema = Schema::new().await;
    schema
        .run("CREATE TABLE t (f real, d double precision, ts timestamp(0), day date, c char(3), b bytea, ok boolean CHECK (ok), own int DEFAULT 7 NOT NULL)")
        .await;
    let columns = vec![
        ("f".to_owned(), Kind::Float { bits: 64 }),
        ("d".to_owned(), int()),
        ("ts".to_owned(), Kind::DateTime { fraction: 6 }),
        ("day".to_owned(), text()),
        ("c".to_owned(), text()),
        ("b".to_owned(), text()),
        ("ok".to_owned(), int()),
    ];
    let fine = vec![
        Value::Float(0.5),
        Value::Int(1),
        t("2024-01-01 00:00:00"),
        t("2024-01-01"),
        t("ab"),
        t("\\x"),
        Value::Int(1),
    ];
    let changes: [(usize, Value); 8] = [
        (0, Value::Float(0.1)),
        (1, Value::Int((1 << 53) + 1)),
        (2, t("2024-01-01 00:00:00.4")),
        (2, t("now")),
        (3, t("2024-01-01 10:00:00")),
        (4, t("ab ")),
        (6, Value::Int(2)),
        (6, Value::Int(0)),
    ];
    let loading = Loading::into(&schema.database().await, "t", columns);
    loading.begin(false).await.unwrap();
    let mut writer = loading.writer(true).await;
    for (column, value) in changes {
        let mut row = fine.clone();
        row[column] = value;
        let rejected = writer.write(&batch(&[&row])).await.unwrap();
        assert_eq!(rejected.len(), 1, "{row:?} was taken");
    }
    assert_eq!(writer.write(&batch(&[&fine])).await.unwrap(), []);
    writer.commit(None, 8).await.unwrap();
    loading.finish(How::Append).await.unwrap();
    // Bytes of a text, not what the server makes of a text that looks like bytes.
    assert_eq!(schema.one("SELECT encode(b, 'escape'), own FROM t").await, "\\\\x|7");
    schema.remove().await;
}
