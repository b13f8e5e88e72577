//! Rows on their way into the table beside the target.

use std::time::Duration;

use milepost_tables::{How, Kind, Shape, TableError, Value};

use crate::lab::{INTEGER, Lab, TEXT, batch, begin, finish, foreign, load, text, writer_to_new};

fn row(id: i64, name: &str) -> Vec<Value> {
    vec![Value::Int(id), text(name)]
}

#[tokio::test]
async fn exactly_the_bad_rows_are_left_out_if_that_is_asked_for() {
    let lab = Lab::new();
    let to = lab.database("db").await;
    let mut table = foreign("t", &[INTEGER, TEXT]);
    table.columns[1].nullable = false;
    let load = load(&table, "token");
    let mut writer = writer_to_new(&to, &table, &load, true).await;
    let rows = [row(1, "a"), vec![Value::Int(2), Value::Null], row(1, "again"), row(3, "c")];
    let rejected = writer.write(&batch(&rows)).await.unwrap();
    let found: Vec<_> = rejected.iter().map(|rejected| (rejected.row, rejected.column.as_deref())).collect();
    assert_eq!(found, [(1, Some("c1")), (2, Some("c0"))]);
    assert!(rejected[1].reason.contains("UNIQUE"), "{}", rejected[1]);
    assert_eq!(rejected[1].values["c1"], "again");
    writer.commit(None, 2).await.unwrap();
    drop(writer);
    finish(&to, &load, How::Replace).await;
    assert_eq!(lab.rows("db", "SELECT * FROM t"), ["1|'a'", "3|'c'"]);
    let mark = to.mark(&load.copy, &load.into).await.unwrap().unwrap();
    assert_eq!((mark.rows, mark.rejected), (2, 2));
}

#[tokio::test]
async fn the_first_bad_row_ends_a_copy_that_may_leave_out_none() {
    let lab = Lab::new();
    let to = lab.database("db").await;
    let table = foreign("t", &[INTEGER, TEXT]);
    let load = load(&table, "token");
    let mut writer = writer_to_new(&to, &table, &load, false).await;
    writer.write(&batch(&[row(1, "a")])).await.unwrap();
    writer.commit(None, 0).await.unwrap();
    let error = writer.write(&batch(&[row(2, "b"), row(1, "c"), row(2, "d")])).await.unwrap_err();
    assert!(matches!(&error, TableError::Row(rejected) if rejected.row == 1), "{error}");
    assert!(error.to_string().contains("\"c1\":\"c\""), "{error}");
    assert_eq!(lab.rows("db", "SELECT * FROM t__mp_1"), ["1|'a'"], "nothing of the batch is there");
    let error = writer.commit(None, 0).await.unwrap_err();
    assert!(matches!(error, TableError::Away { .. }), "a writer that failed is over: {error}");
}

#[tokio::test]
async fn what_is_not_committed_is_gone_with_its_writer() {
    let lab = Lab::new();
    let to = lab.database("db").await;
    let table = foreign("t", &[INTEGER, TEXT]);
    let load = load(&table, "token");
    let mut writer = writer_to_new(&to, &table, &load, false).await;
    writer.write(&batch(&[row(1, "a")])).await.unwrap();
    writer.commit(Some(vec![Value::Int(1)]), 0).await.unwrap();
    writer.write(&batch(&[row(2, "b")])).await.unwrap();
    drop(writer);
    assert_eq!(lab.rows("db", "SELECT * FROM t__mp_1"), ["1|'a'"]);
    let mark = to.mark(&load.copy, &load.into).await.unwrap().unwrap();
    assert_eq!((mark.rows, mark.after), (1, Some(vec![Value::Int(1)])), "the mark says what is there, and no more");
}

#[tokio::test]
async fn a_text_is_not_turned_into_another_number_by_the_columns_that_are_there() {
    let lab = Lab::new();
    let to = lab.made("db", "CREATE TABLE t (c0 INTEGER PRIMARY KEY, c1 NUMERIC, c2 REAL)").await;
    let table = foreign("t", &[INTEGER, Kind::Decimal { digits: None }, INTEGER]);
    let load = load(&table, "token");
    let begun = begin(&to, &load, Shape::LikeTarget, false).await;
    let mut writer = to.writer(&load, &begun, true).await.unwrap();
    let rows = [
        vec![Value::Int(1), text("1.50"), Value::Int(1 << 53)],
        vec![Value::Int(2), text("0.12345678901234567890"), Value::Null],
        vec![Value::Int(3), Value::Null, Value::Int((1 << 53) + 1)],
    ];
    let rejected = writer.write(&batch(&rows)).await.unwrap();
    let found: Vec<_> = rejected.iter().map(|rejected| (rejected.row, rejected.column.as_deref())).collect();
    assert_eq!(found, [(1, Some("c1")), (2, Some("c2"))]);
}

#[tokio::test]
async fn rules_of_a_target_that_is_there_hold_for_each_row() {
    let lab = Lab::new();
    let sql =
        "CREATE TABLE \"t\" (c0 INTEGER PRIMARY KEY, c1 TEXT CHECK (length(c1) < 3), c2 TEXT UNIQUE, c3 INT DEFAULT 7)";
    let to = lab.made("db", sql).await;
    let table = foreign("t", &[INTEGER, TEXT, TEXT]);
    let load = load(&table, "token");
    let begun = begin(&to, &load, Shape::LikeTarget, false).await;
    let mut writer = to.writer(&load, &begun, true).await.unwrap();
    let full = |id, short: &str, unique: &str| vec![Value::Int(id), text(short), text(unique)];
    let rows = [full(1, "ab", "x"), full(2, "abc", "y"), full(3, "a", "x"), full(4, "", "z")];
    let rejected = writer.write(&batch(&rows)).await.unwrap();
    assert_eq!(rejected.iter().map(|rejected| rejected.row).collect::<Vec<_>>(), [1, 2]);
    writer.commit(None, 2).await.unwrap();
    drop(writer);
    finish(&to, &load, How::Append).await;
    assert_eq!(lab.rows("db", "SELECT * FROM t"), ["1|'ab'|'x'|7", "4|''|'z'|7"]);
}

/// Ten copies into one file, and somebody else who writes to it all the while.
#[tokio::test(flavor = "multi_thread")]
async fn writers_of_one_file_take_turns() {
    let lab = Lab::new();
    let to = lab.made("db", "PRAGMA journal_mode = wal; CREATE TABLE visits (at TEXT)").await;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let visitor = {
        let (connection, stop) = (lab.connection("db"), stop.clone());
        std::thread::spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                connection.execute("INSERT INTO visits VALUES (datetime())", []).unwrap();
                std::thread::yield_now();
            }
        })
    };
    let copies = (0..10).map(|number| {
        // Each by a connection of its own, as two plans would.
        let address = milepost_tables::Address::Sqlite(lab.path("db"));
        tokio::spawn(async move {
            let to = milepost_tables::open(&address).await.unwrap();
            let table = foreign(&format!("t{number}"), &[INTEGER, TEXT]);
            let load = load(&table, "token");
            let mut writer = writer_to_new(&to, &table, &load, false).await;
            for step in 0..20 {
                let rows: Vec<_> = (0..50).map(|id| row(step * 50 + id, "some text")).collect();
                writer.write(&batch(&rows)).await.unwrap();
                tokio::task::yield_now().await;
                writer.commit(None, 0).await.unwrap();
            }
            drop(writer);
            finish(&to, &load, How::Replace).await;
        })
    });
    let copies: Vec<_> = copies.collect();
    for copy in copies {
        tokio::time::timeout(Duration::from_secs(600), copy).await.expect("each has its turn").unwrap();
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    visitor.join().unwrap();
    for number in 0..10 {
        assert_eq!(lab.rows("db", &format!("SELECT count(*) FROM t{number}")), ["1000"]);
    }
    assert_eq!(to.tables().await.unwrap().len(), 11);
}

#[tokio::test]
async fn writers_get_their_turn_in_the_order_in_which_they_came() {
    let lab = Lab::new();
    let to = lab.database("db").await;
    let first = foreign("first", &[INTEGER, TEXT]);
    let mut writer = writer_to_new(&to, &first, &load(&first, "token"), false).await;
    let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..8 {
        let table = foreign(&format!("t{number}"), &[INTEGER, TEXT]);
        waiting.push((number, writer_to_new(&to, &table, &load(&table, "token"), false).await));
    }
    writer.write(&batch(&[row(1, "a")])).await.unwrap();
    let mut tasks = Vec::new();
    for (number, mut writer) in waiting {
        let order = order.clone();
        tasks.push(tokio::spawn(async move {
            writer.write(&batch(&[row(1, "b")])).await.unwrap();
            order.lock().unwrap().push(number);
            writer.commit(None, 0).await.unwrap();
        }));
        // On one thread: it runs until it waits.
        tokio::task::yield_now().await;
    }
    assert!(order.lock().unwrap().is_empty(), "the file is another's");
    drop(writer);
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(lab.rows("db", "SELECT * FROM t7__mp_1"), ["1|'b'"]);
    assert_eq!(lab.rows("db", "SELECT count(*) FROM first__mp_1"), ["0"], "what was given up is gone");
}
