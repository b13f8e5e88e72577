//! Whose a copy is, and where it goes on.

use milepost_tables::{Begin, Begun, Dialect, Finish, How, MarkState, Shape, TableError, Value};

use crate::lab::{INTEGER, Lab, TEXT, batch, begin, finish, foreign, load, text, writer_to_new};

fn row(id: i64) -> Vec<Value> {
    vec![Value::Int(id), text("some text")]
}

#[tokio::test]
async fn a_writer_whose_copy_was_begun_by_another_writes_nothing() {
    let lab = Lab::new();
    let to = lab.database("db").await;
    let table = foreign("t", &[INTEGER, TEXT]);
    let (old, new) = (load(&table, "old"), load(&table, "new"));
    let mut sleeper = writer_to_new(&to, &table, &old, false).await;
    sleeper.write(&batch(&[row(1)])).await.unwrap();
    sleeper.commit(None, 0).await.unwrap();
    let mut writer = writer_to_new(&to, &table, &new, false).await;
    let error = sleeper.write(&batch(&[row(2)])).await.unwrap_err();
    assert!(matches!(&error, TableError::Fenced { copy } if *copy == old.copy), "{error}");
    writer.write(&batch(&[row(3)])).await.unwrap();
    writer.commit(None, 0).await.unwrap();
    drop(writer);
    let error = to.finish(Finish { load: &old, how: How::Replace, indexes: &[] }).await.unwrap_err();
    assert!(matches!(error, TableError::Fenced { .. }), "{error}");
    to.discard(&old).await.unwrap();
    assert_eq!(lab.rows("db", "SELECT c0 FROM t__mp_1"), ["3"], "what is another's is left alone");
    finish(&to, &new, How::Replace).await;
    assert_eq!(lab.rows("db", "SELECT c0 FROM t"), ["3"]);
}

#[tokio::test]
async fn another_run_ends_the_attempt_before_it_and_owns_nothing_that_was_made_before() {
    let lab = Lab::new();
    let to = lab.database("db").await;
    let table = foreign("t", &[INTEGER, TEXT]);
    let first = load(&table, "first");
    drop(writer_to_new(&to, &table, &first, false).await);
    finish(&to, &first, How::Replace).await;
    let mut sleeper = writer_to_new(&to, &table, &load(&table, "sleeper"), false).await;
    let next = milepost_tables::Load { run: 2, ..load(&table, "next") };
    begin(&to, &next, Shape::Of { table: &table, from: Dialect::Mysql }, false).await;
    assert!(matches!(sleeper.write(&batch(&[row(1)])).await, Err(TableError::Fenced { .. })));
    let mark = to.mark(&next.copy, &next.into).await.unwrap().unwrap();
    assert_eq!((mark.run, mark.own), (2, false));
}

#[tokio::test]
async fn a_writer_that_is_overtaken_between_two_batches_cannot_commit() {
    let lab = Lab::new();
    let to = lab.database("db").await;
    let table = foreign("t", &[INTEGER, TEXT]);
    let (old, new) = (load(&table, "old"), load(&table, "new"));
    let mut sleeper = writer_to_new(&to, &table, &old, false).await;
    begin(&to, &new, Shape::Of { table: &table, from: Dialect::Mysql }, false).await;
    let error = sleeper.commit(Some(vec![Value::Int(9)]), 5).await.unwrap_err();
    assert!(matches!(error, TableError::Fenced { .. }), "{error}");
    let mark = to.mark(&new.copy, &new.into).await.unwrap().unwrap();
    assert_eq!((mark.rejected, mark.after), (0, None));
}

#[tokio::test]
async fn a_copy_goes_on_from_its_mark_if_nothing_else_has_changed() {
    let lab = Lab::new();
    let to = lab.database("db").await;
    let table = foreign("t", &[INTEGER, TEXT]);
    let first = load(&table, "first");
    let mut writer = writer_to_new(&to, &table, &first, true).await;
    writer.write(&batch(&[row(1), row(1), row(2)])).await.unwrap();
    writer.commit(Some(vec![Value::Int(2)]), 1).await.unwrap();
    // Rows that were only spoilt are counted, and do not move the key where none is known.
    writer.commit(None, 3).await.unwrap();
    drop(writer);

    let second = load(&table, "second");
    let shape = Shape::Of { table: &table, from: Dialect::Postgres };
    let begun = begin(&to, &second, shape, true).await;
    assert_eq!(begun, Begun { rows: 2, rejected: 4, after: Some(vec![Value::Int(2)]) });
    let mut writer = to.writer(&second, &begun, true).await.unwrap();
    writer.write(&batch(&[row(3)])).await.unwrap();
    writer.commit(Some(vec![Value::Int(3)]), 0).await.unwrap();
    drop(writer);
    assert_eq!(lab.rows("db", "SELECT c0 FROM t__mp_1"), ["1", "2", "3"]);
    assert_eq!(to.mark(&second.copy, &second.into).await.unwrap().unwrap().rows, 3);

    let third = load(&table, "third");
    let other = Begin { load: &third, shape, go_on: true, fingerprint: "of another shape" };
    assert_eq!(to.begin(other).await.unwrap(), Begun::default());
    assert_eq!(lab.rows("db", "SELECT count(*) FROM t__mp_1"), ["0"], "what does not fit is begun anew");
}

#[tokio::test]
async fn a_copy_that_is_discarded_leaves_nothing_to_go_on_with() {
    let lab = Lab::new();
    let to = lab.database("db").await;
    let table = foreign("t", &[INTEGER, TEXT]);
    let first = load(&table, "first");
    let mut writer = writer_to_new(&to, &table, &first, false).await;
    writer.write(&batch(&[row(1)])).await.unwrap();
    writer.commit(Some(vec![Value::Int(1)]), 0).await.unwrap();
    drop(writer);
    to.discard(&first).await.unwrap();
    assert_eq!(lab.rows("db", "SELECT name FROM sqlite_schema WHERE name LIKE '%mp%'"), Vec::<String>::new());
    let mark = to.mark(&first.copy, &first.into).await.unwrap().unwrap();
    assert_eq!((mark.state, mark.rows, mark.after), (MarkState::Loading, 0, None));
    let shape = Shape::Of { table: &table, from: Dialect::Postgres };
    assert_eq!(begin(&to, &load(&table, "second"), shape, true).await, Begun::default());
}

#[tokio::test]
async fn a_table_that_is_loaded_once_more_stays_this_copys_own() {
    let lab = Lab::new();
    let to = lab.database("db").await;
    let table = foreign("t", &[INTEGER, TEXT]);
    crate::lab::put(&to, &table, &[row(1)]).await;
    let state = async || {
        let mark = to.mark("plan/t", &table.name).await.unwrap().unwrap();
        (mark.state, mark.own)
    };
    assert_eq!(state().await, (MarkState::Done, true));
    let again = load(&table, "again");
    let mut writer = writer_to_new(&to, &table, &again, false).await;
    assert_eq!(state().await, (MarkState::Loading, true));
    writer.write(&batch(&[row(2)])).await.unwrap();
    writer.commit(Some(vec![Value::Int(2)]), 0).await.unwrap();
    drop(writer);
    assert_eq!(lab.rows("db", "SELECT c0 FROM t"), ["1"], "until it is whole, the one before stays");
    let shape = Shape::Of { table: &table, from: Dialect::Postgres };
    let last = load(&table, "last");
    assert_eq!(begin(&to, &last, shape, true).await.rows, 1);
    assert_eq!(state().await, (MarkState::Loading, true));
    to.discard(&last).await.unwrap();
    assert_eq!(state().await, (MarkState::Loading, true));

    lab.connection("db").execute_batch("DROP TABLE t").unwrap();
    begin(&to, &load(&table, "new"), shape, false).await;
    assert_eq!(state().await, (MarkState::Loading, false), "a table that is gone is nobody's own");
}

#[tokio::test]
async fn whoever_comes_too_late_to_find_its_table_learns_that_the_copy_is_anothers() {
    let lab = Lab::new();
    let to = lab.database("db").await;
    let table = foreign("t", &[INTEGER, TEXT]);
    let (old, new) = (load(&table, "old"), load(&table, "new"));
    let shape = Shape::Of { table: &table, from: Dialect::Postgres };
    let begun = begin(&to, &old, shape, false).await;
    begin(&to, &new, shape, false).await;
    to.discard(&new).await.unwrap();
    let error = to.writer(&old, &begun, false).await.map(drop).unwrap_err();
    assert!(matches!(error, TableError::Fenced { .. }), "{error}");
    let error = to.add_indexes(&old, &crate::lab::with_index(&table)).await.unwrap_err();
    assert!(matches!(error, TableError::Fenced { .. }), "{error}");
}
