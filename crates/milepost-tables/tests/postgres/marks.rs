//! Whose a copy is, and how far it has got.

use milepost_tables::{Begun, How, MarkState, TableError, Value};

use crate::loading::{Loading, batch, column};
use crate::server::{Schema, int, is_there};

async fn numbers(schema: &Schema) -> Loading {
    Loading::of(&schema.database().await, "numbers", vec![column("id", int())], &[0])
}

fn rows(ids: &[i64]) -> milepost_tables::Batch {
    let rows: Vec<[Value; 1]> = ids.iter().map(|id| [Value::Int(*id)]).collect();
    batch(&rows.iter().map(<[Value; 1]>::as_slice).collect::<Vec<_>>())
}

#[tokio::test]
async fn a_copy_goes_on_from_the_last_batch_that_was_committed() {
    if !is_there("a_copy_goes_on_from_the_last_batch_that_was_committed") {
        return;
    }
    let schema = Schema::new().await;
    let first = numbers(&schema).await;
    assert_eq!(first.database.mark(&first.load.copy, &first.load.into).await.unwrap(), None);
    assert_eq!(first.begin(true).await.unwrap(), Begun::default());
    let mut writer = first.writer(false).await;
    writer.write(&rows(&[1, 2])).await.unwrap();
    writer.commit(Some(vec![Value::Int(2)]), 3).await.unwrap();
    writer.write(&rows(&[3])).await.unwrap();
    drop(writer);
    let mark = first.mark().await;
    assert_eq!(
        (mark.state, mark.rows, mark.rejected, mark.after),
        (MarkState::Loading, 2, 3, Some(vec![Value::Int(2)]))
    );

    let second = first.again();
    let begun = second.begin(true).await.unwrap();
    assert_eq!(begun, Begun { rows: 2, rejected: 3, after: Some(vec![Value::Int(2)]) });
    let mut writer = second.writer(false).await;
    writer.write(&rows(&[3, 4])).await.unwrap();
    writer.commit(Some(vec![Value::Int(4)]), 0).await.unwrap();
    second.finish(How::Replace).await.unwrap();
    assert_eq!(schema.ask("SELECT id FROM numbers ORDER BY id").await, ["1", "2", "3", "4"]);
    let mark = second.mark().await;
    assert_eq!((mark.state, mark.own, mark.rows, mark.rejected), (MarkState::Done, true, 4, 3));

    // What is done is not gone on with; and it stays the copy's own while it is loaded anew.
    let third = second.again();
    assert_eq!(third.begin(true).await.unwrap(), Begun::default());
    let mark = third.mark().await;
    assert_eq!((mark.state, mark.own, mark.rows), (MarkState::Loading, true, 0));
    // Only within its run.
    let next = third.in_another_run();
    assert_eq!(next.begin(false).await.unwrap(), Begun::default());
    let mark = next.mark().await;
    assert_eq!((mark.run, mark.own), (2, false));
    assert!(matches!(third.finish(How::Replace).await, Err(TableError::Fenced { .. })));
    schema.remove().await;
}

#[tokio::test]
async fn an_attempt_that_another_has_followed_writes_nothing_more() {
    if !is_there("an_attempt_that_another_has_followed_writes_nothing_more") {
        return;
    }
    let schema = Schema::new().await;
    let first = numbers(&schema).await;
    first.begin(false).await.unwrap();
    let mut slow = first.writer(false).await;
    slow.write(&rows(&[1])).await.unwrap();
    slow.commit(None, 0).await.unwrap();

    let second = first.again();
    second.load(&rows(&[7])).await;

    slow.write(&rows(&[2])).await.unwrap();
    let error = slow.commit(None, 0).await.unwrap_err();
    assert!(matches!(error, TableError::Fenced { .. }), "{error}");
    let error = first.finish(How::Replace).await.unwrap_err();
    assert!(matches!(error, TableError::Fenced { .. }), "{error}");
    first.database.discard(&first.load).await.unwrap();
    second.finish(How::Replace).await.unwrap();
    assert_eq!(schema.ask("SELECT id FROM numbers").await, ["7"]);
    schema.remove().await;
}

#[tokio::test]
async fn an_attempt_that_hangs_does_not_hold_up_the_next() {
    if !is_there("an_attempt_that_hangs_does_not_hold_up_the_next") {
        return;
    }
    let schema = Schema::new().await;
    let first = numbers(&schema).await;
    first.begin(false).await.unwrap();
    let mut hanging = first.writer(false).await;
    hanging.write(&rows(&[1])).await.unwrap();
    // Its transaction is open, and holds the table; without more ado this would wait for it.
    let second = first.again();
    second.load(&rows(&[2])).await;
    let error = hanging.commit(None, 0).await.unwrap_err();
    assert!(matches!(error, TableError::Away { .. }), "{error}");
    second.finish(How::Replace).await.unwrap();
    assert_eq!(schema.ask("SELECT id FROM numbers").await, ["2"]);
    schema.remove().await;
}

#[tokio::test]
async fn what_is_discarded_leaves_a_mark_that_says_so() {
    if !is_there("what_is_discarded_leaves_a_mark_that_says_so") {
        return;
    }
    let schema = Schema::new().await;
    let loading = numbers(&schema).await;
    loading.load(&rows(&[1])).await;
    loading.database.discard(&loading.load).await.unwrap();
    assert_eq!(schema.one("SELECT to_regclass('numbers__mp_0123456789')").await, "NULL");
    assert_eq!(loading.mark().await.rows, 0);
    let again = loading.again();
    assert_eq!(again.begin(true).await.unwrap(), Begun::default(), "there is nothing to go on with");
    schema.remove().await;
}

#[tokio::test]
async fn copies_that_begin_at_once_do_not_collide() {
    if !is_there("copies_that_begin_at_once_do_not_collide") {
        return;
    }
    let schema = Schema::new().await;
    let database = schema.database().await;
    let begins = (0..8).map(|number| {
        let loading = Loading::of(&database, &format!("t{number}"), vec![column("id", int())], &[0]);
        async move {
            loading.load(&rows(&[number])).await;
            loading.finish(How::Replace).await.unwrap();
        }
    });
    futures::future::join_all(begins).await;
    assert_eq!(schema.one("SELECT count(*) FROM milepost_copies WHERE state = 'done'").await, "8");
    schema.remove().await;
}
