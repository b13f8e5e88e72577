//! Marks: whose a copy is, and how far.

use milepost_tables::{Dialect, How, MarkState, Shape, TableError, TableName, Value};
use mysql_async::prelude::Queryable;

use super::support::{batch, begin, finish, go_on, load_of, people, place, shape, write};

#[tokio::test]
async fn a_copy_goes_on_after_its_last_commit() {
    let Some(place) = place().await else { return };
    let database = place.open().await;
    let source = people();
    let of = shape(&source, Dialect::Postgres);
    let first = load_of("first", &source, "target");
    assert_eq!(database.mark("copy", &first.into).await.unwrap(), None);
    let begun = begin(&*database, &first, of).await.unwrap();
    let mut writer = database.writer(&first, &begun, false).await.unwrap();
    writer.write(&batch(&[(1, "a"), (2, "b")])).await.unwrap();
    writer.commit(Some(vec![Value::Int(2)]), 3).await.unwrap();
    writer.write(&batch(&[(3, "not committed")])).await.unwrap();
    drop(writer);
    let mark = database.mark("copy", &first.into).await.unwrap().unwrap();
    assert_eq!((mark.state, mark.rows, mark.rejected, mark.own), (MarkState::Loading, 2, 3, false));
    assert_eq!((mark.after, mark.fingerprint.as_str()), (Some(vec![Value::Int(2)]), "f"));

    let second = load_of("second", &source, "target");
    let begun = go_on(&*database, &second, of).await;
    assert_eq!((begun.rows, begun.rejected, &begun.after), (2, 3, &Some(vec![Value::Int(2)])));
    let mut writer = database.writer(&second, &begun, false).await.unwrap();
    writer.write(&batch(&[(3, "c")])).await.unwrap();
    writer.commit(Some(vec![Value::Int(3)]), 0).await.unwrap();
    finish(&*database, &second, How::Replace).await.unwrap();
    let mark = database.mark("copy", &second.into).await.unwrap().unwrap();
    assert_eq!((mark.state, mark.rows, mark.rejected, mark.own), (MarkState::Done, 3, 3, true));
    assert_eq!(place.ask::<String>("SELECT name FROM target ORDER BY id").await, ["a", "b", "c"]);

    // It stays the copy's own while it is loaded anew; but only within its run.
    let third = load_of("third", &source, "target");
    begin(&*database, &third, of).await.unwrap();
    assert!(database.mark("copy", &third.into).await.unwrap().unwrap().own);
    let next = milepost_tables::Load { run: 2, ..load_of("next", &source, "target") };
    begin(&*database, &next, of).await.unwrap();
    let mark = database.mark("copy", &next.into).await.unwrap().unwrap();
    assert_eq!((mark.run, mark.own), (2, false));
    assert!(matches!(finish(&*database, &third, How::Replace).await, Err(TableError::Fenced { .. })));
}

#[tokio::test]
async fn a_copy_begins_from_zero_unless_all_is_as_it_was() {
    let Some(place) = place().await else { return };
    let database = place.open().await;
    let source = people();
    let of = shape(&source, Dialect::Postgres);
    let load = load_of("first", &source, "target");
    let anew = |step: &'static str| {
        let (database, load) = (database.clone(), load.clone());
        async move {
            let begun =
                database.begin(milepost_tables::Begin { load: &load, shape: of, go_on: true, fingerprint: step }).await;
            assert_eq!(begun.unwrap(), milepost_tables::Begun::default(), "{step}");
            assert_eq!(database.count(&load.staging, None).await.unwrap(), 0, "{step}");
        }
    };
    write(&*database, &load, of, &[batch(&[(1, "a")])]).await.unwrap();
    anew("another fingerprint").await;
    write(&*database, &load, of, &[batch(&[(1, "a")])]).await.unwrap();
    place.run(&[&format!("DROP TABLE {}", load.staging.name)]).await;
    anew("f").await;
    // A crash after the mark was made new and before the table was.
    write(&*database, &load, of, &[batch(&[(1, "a")])]).await.unwrap();
    place.run(&["UPDATE milepost_copies SET `rows` = 0, `after` = NULL, fingerprint = ''"]).await;
    anew("f").await;
}

#[tokio::test]
async fn whoever_begins_a_copy_anew_shuts_the_others_out() {
    let Some(place) = place().await else { return };
    let database = place.open().await;
    let source = people();
    let of = shape(&source, Dialect::Postgres);
    let (old, new) = (load_of("old", &source, "target"), load_of("new", &source, "target"));
    let begun = begin(&*database, &old, of).await.unwrap();
    // With an open transaction, which would keep the table from being dropped.
    let mut writer = database.writer(&old, &begun, false).await.unwrap();
    writer.write(&batch(&[(1, "old")])).await.unwrap();
    let begun = begin(&*database, &new, of).await.unwrap();
    let mut newer = database.writer(&new, &begun, false).await.unwrap();
    newer.write(&batch(&[(1, "new")])).await.unwrap();
    for fenced in [
        writer.commit(None, 0).await,
        writer.write(&batch(&[(2, "old")])).await.map(drop),
        database.add_indexes(&old, &source).await,
        finish(&*database, &old, How::Replace).await,
        finish(&*database, &old, How::Append).await,
        database.writer(&old, &begun, false).await.map(drop),
    ] {
        assert!(matches!(fenced, Err(TableError::Fenced { .. })), "{fenced:?}");
    }
    database.discard(&old).await.unwrap();
    newer.commit(None, 0).await.unwrap();
    assert_eq!(place.ask::<String>("SELECT name FROM target__mp_4").await, ["new"]);
    finish(&*database, &new, How::Replace).await.unwrap();
    assert_eq!(place.ask::<String>("SELECT name FROM target").await, ["new"]);
}

#[tokio::test]
async fn what_is_discarded_is_gone_and_the_mark_says_so() {
    let Some(place) = place().await else { return };
    let database = place.open().await;
    let source = people();
    let load = load_of("token", &source, "target");
    write(&*database, &load, shape(&source, Dialect::Postgres), &[batch(&[(1, "a")])]).await.unwrap();
    database.discard(&load).await.unwrap();
    assert_eq!(place.tables().await, ["milepost_copies"]);
    let mark = database.mark("copy", &load.into).await.unwrap().unwrap();
    assert_eq!((mark.state, mark.rows, mark.after), (MarkState::Loading, 0, None));
    assert_eq!(mark.fingerprint, "", "nobody goes on with it");
}

#[tokio::test]
async fn a_table_is_this_copys_own_also_while_it_is_loaded_anew() {
    let Some(place) = place().await else { return };
    let database = place.open().await;
    let source = people();
    let of = shape(&source, Dialect::Postgres);
    let load = load_of("token", &source, "target");
    write(&*database, &load, of, &[batch(&[(1, "a")])]).await.unwrap();
    finish(&*database, &load, How::Replace).await.unwrap();
    begin(&*database, &load, of).await.unwrap();
    let mark = database.mark("copy", &load.into).await.unwrap().unwrap();
    assert_eq!((mark.state, mark.own), (MarkState::Loading, true));
    let elsewhere = load_of("token", &source, "elsewhere");
    begin(&*database, &elsewhere, of).await.unwrap();
    assert!(!database.mark("copy", &load.into).await.unwrap().unwrap().own, "another target is not");
}

#[tokio::test]
async fn a_writer_whose_connection_is_killed_is_away() {
    let Some(place) = place().await else { return };
    let database = place.open().await;
    let source = people();
    let load = load_of("token", &source, "target");
    let begun = begin(&*database, &load, shape(&source, Dialect::Postgres)).await.unwrap();
    let mut writer = database.writer(&load, &begun, false).await.unwrap();
    writer.write(&batch(&[(1, "a")])).await.unwrap();
    let mut conn = place.connect().await;
    let holder = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()";
    for id in conn.query::<u64, _>(holder).await.unwrap() {
        let _ = conn.query_drop(format!("KILL {id}")).await;
    }
    let error = writer.commit(None, 0).await.unwrap_err();
    assert!(matches!(error, TableError::Away { .. }), "{error}");
    assert_eq!(database.count(&load.staging, None).await.unwrap(), 0);
}

#[tokio::test]
async fn marks_live_in_the_schema_of_the_target() {
    let Some(place) = place().await else { return };
    let other = super::support::place().await.unwrap();
    let database = place.open().await;
    let source = people();
    let load = load_of("token", &source, &format!("{}.target", other.name));
    write(&*database, &load, shape(&source, Dialect::Postgres), &[batch(&[(1, "a")])]).await.unwrap();
    database.add_indexes(&load, &source).await.unwrap();
    finish(&*database, &load, How::Replace).await.unwrap();
    assert_eq!(place.tables().await, [""; 0]);
    assert_eq!(other.tables().await, ["milepost_copies", "target"]);
    assert!(database.mark("copy", &load.into).await.unwrap().unwrap().own);
    assert_eq!(database.mark("copy", &TableName::new("target")).await.unwrap(), None);
}

#[tokio::test]
async fn a_target_that_is_not_there_has_no_shape_to_take() {
    let Some(place) = place().await else { return };
    let database = place.open().await;
    let error = begin(&*database, &load_of("token", &people(), "target"), Shape::LikeTarget).await.unwrap_err();
    assert!(matches!(&error, TableError::Refused(reason) if reason.contains("there is no table target")), "{error}");
}
