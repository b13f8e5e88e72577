//! How rows appear in the target: all at once, or not at all.

use milepost_tables::{Dialect, Finish, How, Index, MarkState, Shape, Table, TableError, Value};

use crate::lab::{
    INTEGER, Lab, TEXT, batch, begin, copy, finish, foreign, load, put, scan, table, text, values, writer_to_new,
};

const TARGET: &str = "CREATE TABLE t (c0 INTEGER PRIMARY KEY, c1 TEXT, c2 TEXT DEFAULT 'kept');
    INSERT INTO t VALUES (1, 'old', 'mine'), (2, 'old', 'mine')";

/// Two rows beside a target that has two of its own, one of them with the same key.
async fn loaded(lab: &Lab, name: &str) -> (std::sync::Arc<dyn milepost_tables::Database>, milepost_tables::Load) {
    let to = lab.made(name, TARGET).await;
    let table = foreign("t", &[INTEGER, TEXT]);
    let load = load(&table, "token");
    let begun = begin(&to, &load, Shape::LikeTarget, false).await;
    let mut writer = to.writer(&load, &begun, false).await.unwrap();
    let rows = [vec![Value::Int(2), text("new")], vec![Value::Int(3), text("new")]];
    writer.write(&batch(&rows)).await.unwrap();
    writer.commit(None, 0).await.unwrap();
    (to, load)
}

#[tokio::test]
async fn rows_get_into_a_target_that_stays_in_each_of_the_ways() {
    let lab = Lab::new();
    let cases = [
        (How::Truncate, vec!["2|'new'|'kept'", "3|'new'|'kept'"]),
        (How::Upsert { key: vec!["c0".into()] }, vec!["1|'old'|'mine'", "2|'new'|'mine'", "3|'new'|'kept'"]),
    ];
    for (number, (how, expected)) in cases.into_iter().enumerate() {
        let name = format!("{number}.db");
        let (to, load) = loaded(&lab, &name).await;
        finish(&to, &load, how).await;
        assert_eq!(lab.rows(&name, "SELECT * FROM t ORDER BY c0"), expected);
        assert_eq!(to.mark(&load.copy, &load.into).await.unwrap().unwrap().state, MarkState::Done);
        assert_eq!(to.tables().await.unwrap().len(), 1);
        assert_eq!(lab.rows(&name, "SELECT name FROM sqlite_schema WHERE name LIKE '%mp_1'"), Vec::<String>::new());
    }
    let (to, load) = loaded(&lab, "append.db").await;
    lab.connection("append.db").execute("DELETE FROM t WHERE c0 = 2", []).unwrap();
    finish(&to, &load, How::Append).await;
    assert_eq!(lab.rows("append.db", "SELECT c0 FROM t ORDER BY c0"), ["1", "2", "3"]);
}

#[tokio::test]
async fn a_target_that_cannot_take_all_rows_takes_none() {
    let lab = Lab::new();
    let (to, load) = loaded(&lab, "db").await;
    let before = lab.rows("db", "SELECT * FROM t ORDER BY c0");
    let error = to.finish(Finish { load: &load, how: How::Append, indexes: &[] }).await.unwrap_err();
    assert!(
        matches!(&error, TableError::Refused(reason) if reason.contains("`t`") && reason.contains("UNIQUE")),
        "{error}"
    );
    assert_eq!(lab.rows("db", "SELECT * FROM t ORDER BY c0"), before);
    assert_eq!(to.mark(&load.copy, &load.into).await.unwrap().unwrap().state, MarkState::Loading);
    let keyless = How::Upsert { key: vec!["c1".into()] };
    let error = to.finish(Finish { load: &load, how: keyless, indexes: &[] }).await.unwrap_err();
    assert!(matches!(error, TableError::Refused(_)), "{error}");
    assert_eq!(lab.rows("db", "SELECT * FROM t ORDER BY c0"), before);
}

#[tokio::test]
async fn whoever_looks_sees_the_old_table_or_the_new_one() {
    let lab = Lab::new();
    let to =
        lab.made("db", "PRAGMA journal_mode = wal; CREATE TABLE t (c0, c1); INSERT INTO t VALUES (0, 'old')").await;
    let table = foreign("t", &[INTEGER, TEXT]);
    let load = load(&table, "token");
    let mut writer = writer_to_new(&to, &table, &load, false).await;
    writer.write(&batch(&[vec![Value::Int(1), text("new")]])).await.unwrap();
    writer.commit(None, 0).await.unwrap();
    drop(writer);
    let reader = lab.connection("db");
    reader.execute_batch("BEGIN; SELECT * FROM t").unwrap();
    let seen = |reader: &rusqlite::Connection| reader.query_row("SELECT c1 FROM t", [], |row| row.get::<_, String>(0));
    assert_eq!(seen(&reader).unwrap(), "old");
    finish(&to, &load, How::Replace).await;
    assert_eq!(seen(&reader).unwrap(), "old", "in its transaction nothing has happened");
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(seen(&reader).unwrap(), "new");
}

#[tokio::test]
async fn what_refers_to_a_table_by_name_refers_to_the_one_in_its_place() {
    let lab = Lab::new();
    let sql = "CREATE TABLE t (c0 INTEGER PRIMARY KEY, c1 TEXT); CREATE VIEW shown AS SELECT c1 FROM t;
        CREATE TABLE lines (t INT REFERENCES t (c0)); INSERT INTO t VALUES (1, 'old'); INSERT INTO lines VALUES (1);
        CREATE TABLE log (at); CREATE TRIGGER other AFTER INSERT ON lines BEGIN INSERT INTO log SELECT c1 FROM t; END";
    let to = lab.made("db", sql).await;
    put(&to, &foreign("t", &[INTEGER, TEXT]), &[vec![Value::Int(1), text("new")]]).await;
    assert_eq!(lab.rows("db", "SELECT * FROM shown"), ["'new'"]);
    assert_eq!(lab.rows("db", "SELECT \"table\" FROM pragma_foreign_key_list('lines')"), ["'t'"]);
    lab.connection("db").execute("INSERT INTO lines VALUES (1)", []).unwrap();
    assert_eq!(lab.rows("db", "SELECT * FROM log"), ["'new'"]);
    assert_eq!(lab.rows("db", "SELECT count(*) FROM lines"), ["2"], "rows of other tables stay");
}

fn indexed(name: &str, indexes: &[(&str, bool)]) -> Table {
    let index = |(name, unique): &(&str, bool)| Index { name: (*name).into(), unique: *unique, columns: vec![1] };
    Table { indexes: indexes.iter().map(index).collect(), ..foreign(name, &[INTEGER, TEXT]) }
}

/// Whatever names its indexes have.
async fn replace(lab: &Lab, table: &Table, rows: &[Vec<Value>]) -> Result<(), TableError> {
    let to = lab.database("db").await;
    let load = load(table, "token");
    let mut writer = writer_to_new(&to, table, &load, false).await;
    writer.write(&batch(rows)).await?;
    writer.commit(None, 0).await?;
    drop(writer);
    to.add_indexes(&load, table).await?;
    to.add_indexes(&load, table).await?;
    to.finish(Finish { load: &load, how: How::Replace, indexes: &table.indexes }).await
}

#[tokio::test]
async fn indexes_have_their_names_however_often_a_table_is_replaced() {
    let lab = Lab::new();
    let named = "SELECT tbl_name, name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL ORDER BY 1, 2";
    for _ in 0..3 {
        replace(&lab, &indexed("t", &[("by_name", true), ("sqlite_odd", false)]), &[vec![Value::Int(1), text("a")]])
            .await
            .unwrap();
        assert_eq!(lab.rows("db", named), ["'t'|'by_name'", "'t'|'t_sqlite_odd'"]);
    }
    replace(&lab, &indexed("u", &[("by_name", false), ("t", false)]), &[vec![Value::Int(1), text("a")]]).await.unwrap();
    let expected = ["'t'|'by_name'", "'t'|'t_sqlite_odd'", "'u'|'u_by_name'", "'u'|'u_t'"];
    assert_eq!(lab.rows("db", named), expected, "a name that is another table's is not taken from it");
}

#[tokio::test]
async fn an_index_that_cannot_be_built_is_named_and_the_target_stays() {
    let lab = Lab::new();
    let rows = [vec![Value::Int(1), text("a")], vec![Value::Int(2), text("a")]];
    replace(&lab, &indexed("t", &[]), &rows).await.unwrap();
    let error = replace(&lab, &indexed("t", &[("only_one", true)]), &rows).await.unwrap_err();
    assert!(matches!(&error, TableError::Refused(reason) if reason.contains("`only_one`")), "{error}");
    assert_eq!(lab.rows("db", "SELECT count(*) FROM t"), ["2"]);
}

#[tokio::test]
async fn keys_are_those_of_the_source() {
    let lab = Lab::new();
    let sql =
        "CREATE TABLE pair (a TEXT, b INT, c, PRIMARY KEY (b, a)) WITHOUT ROWID; INSERT INTO pair VALUES ('x', 1, 2);
        CREATE TABLE plain (id INT PRIMARY KEY); CREATE TABLE counted (id INTEGER PRIMARY KEY)";
    let from = lab.made("from.db", sql).await;
    let to = lab.database("to.db").await;
    for name in ["pair", "plain", "counted"] {
        copy(&from, &to, name).await;
        let (here, there) = (table(&from, name).await, table(&to, name).await);
        assert_eq!((&here.columns, &here.primary), (&there.columns, &there.primary));
        assert_eq!(values(&from, scan(&here)).await, values(&to, scan(&there)).await);
    }
    let table = foreign("elsewhere", &[INTEGER, TEXT]);
    begin(&to, &load(&table, "token"), Shape::Of { table: &table, from: Dialect::Mysql }, false).await;
    assert_eq!(
        lab.rows("to.db", "SELECT sql FROM sqlite_schema WHERE name = 'elsewhere__mp_1'"),
        ["'CREATE TABLE \"elsewhere__mp_1\" (\"c0\" INTEGER PRIMARY KEY, \"c1\" TEXT)'"]
    );
}
