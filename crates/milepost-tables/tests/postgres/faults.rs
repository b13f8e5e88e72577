//! What passes, and what does not.

use milepost_tables::{Address, How, Scan, TableError, TableName, Value, open};

use crate::loading::{Loading, batch, column};
use crate::server::{Schema, int, is_there, scan};

/// Ends every connection to this schema's tables, but for the one that asks.
const END: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE application_name = 'milepost copy' AND query LIKE '%@%'";

#[tokio::test]
async fn a_connection_that_is_ended_while_it_reads_is_away() {
    if !is_there("a_connection_that_is_ended_while_it_reads_is_away") {
        return;
    }
    let schema = Schema::new().await;
    schema.run("CREATE TABLE t (id int PRIMARY KEY, x text); INSERT INTO t SELECT x, repeat('y', 1000) FROM generate_series(1, 60000) x").await;
    let database = schema.database().await;
    let mut rows = database.read(scan(database.as_ref(), "t").await).await.unwrap();
    rows.next().await.unwrap().expect("there are rows");
    assert_eq!(schema.one(END).await, "1");
    let error = loop {
        match rows.next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a table that was not read to its end has ended"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, TableError::Away { .. }), "{error}");
    schema.remove().await;
}

#[tokio::test]
async fn a_connection_that_is_ended_while_it_writes_is_away() {
    if !is_there("a_connection_that_is_ended_while_it_writes_is_away") {
        return;
    }
    let schema = Schema::new().await;
    let loading = Loading::of(&schema.database().await, "t", vec![column("id", int())], &[0]);
    loading.begin(false).await.unwrap();
    let mut writer = loading.writer(false).await;
    writer.write(&batch(&[&[Value::Int(1)]])).await.unwrap();
    assert_eq!(schema.one(END).await, "1");
    let error = writer.write(&batch(&[&[Value::Int(2)]])).await.unwrap_err();
    assert!(matches!(error, TableError::Away { .. }), "{error}");
    assert_eq!(loading.mark().await.rows, 0);
    schema.remove().await;
}

#[tokio::test]
async fn whoever_stops_reading_leaves_nothing_running_on_the_server() {
    if !is_there("whoever_stops_reading_leaves_nothing_running_on_the_server") {
        return;
    }
    let schema = Schema::new().await;
    schema.run("CREATE TABLE t (x text); INSERT INTO t SELECT repeat('y', 10000) FROM generate_series(1, 20000)").await;
    let database = schema.database().await;
    // A quarter of an hour's worth of rows.
    let filter = Some("pg_sleep(0.05)::text = ''".to_owned());
    let slow = Scan { filter, batch_rows: 1, ..scan(database.as_ref(), "t").await };
    let mut rows = database.read(slow).await.unwrap();
    rows.next().await.unwrap().expect("there are rows");
    drop(rows);
    // Waits for the reader's lock, which it keeps for as long as rows are sent, be it to nobody.
    schema.run("DROP TABLE t").await;
    schema.remove().await;
}

#[tokio::test]
async fn a_lock_that_is_not_given_up_is_a_matter_of_time() {
    if !is_there("a_lock_that_is_not_given_up_is_a_matter_of_time") {
        return;
    }
    let schema = Schema::new().await;
    schema.run("CREATE TABLE t (id bigint PRIMARY KEY)").await;
    let database = schema.database_with("%20-c%20lock_timeout%3D300ms").await;
    let loading = Loading::into(&database, "t", vec![("id".into(), int())]);
    loading.load(&batch(&[&[Value::Int(1)]])).await;
    // A reader that holds its snapshot, and so the table.
    let mut reader = database.read(scan(database.as_ref(), "t").await).await.unwrap();
    assert!(reader.next().await.unwrap().is_none());
    let error = loading.finish(How::Truncate).await.unwrap_err();
    assert!(matches!(error, TableError::Away { .. }), "{error}");
    drop(reader);
    let patient = schema.database().await;
    patient.finish(milepost_tables::Finish { load: &loading.load, how: How::Truncate, indexes: &[] }).await.unwrap();
    assert_eq!(schema.ask("SELECT id FROM t").await, ["1"]);
    schema.remove().await;
}

#[tokio::test]
async fn an_error_names_the_server_and_no_password() {
    if !is_there("an_error_names_the_server_and_no_password") {
        return;
    }
    let nobody: Address = "postgres://ann:s3cret@127.0.0.1:1/shop".parse().unwrap();
    let error = open(&nobody).await.unwrap().tables().await.unwrap_err();
    assert!(matches!(error, TableError::Away { .. }), "{error}");
    assert!(error.to_string().contains("ann@127.0.0.1:1/shop") && !error.to_string().contains("s3cret"), "{error}");
    let schema = Schema::new().await;
    let error = schema.database().await.count(&TableName::new("nobody"), None).await.unwrap_err();
    assert!(matches!(&error, TableError::Refused(reason) if reason.contains("no table")), "{error}");
    let lost = schema.database_with("_gone").await.tables().await.unwrap_err();
    assert!(lost.to_string().contains("search_path"), "{lost}");
    schema.remove().await;
}
