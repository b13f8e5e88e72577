//! Rows appear all at once, or not at all.

use milepost_tables::{Column, How, Index, Kind, MarkState, TableError, Value};

use crate::loading::{Loading, batch, column, t};
use crate::server::{Schema, int, is_there, text};

fn columns() -> Vec<Column> {
    vec![column("id", int()), column("name", text())]
}

fn kinds() -> Vec<(String, Kind)> {
    vec![("id".into(), int()), ("name".into(), text())]
}

fn rows() -> milepost_tables::Batch {
    batch(&[&[Value::Int(1), t("one")], &[Value::Int(2), t("two")]])
}

const THERE: &str = "SELECT id, name FROM t ORDER BY id";

#[tokio::test]
async fn a_table_takes_the_place_of_another_with_the_names_of_its_indexes() {
    if !is_there("a_table_takes_the_place_of_another_with_the_names_of_its_indexes") {
        return;
    }
    let schema = Schema::new().await;
    schema
        .run(
            "CREATE TABLE t (id int PRIMARY KEY, old text); CREATE INDEX by_name ON t (old); INSERT INTO t VALUES (9, 'old');
             CREATE TABLE another (x int); CREATE INDEX taken ON another (x)",
        )
        .await;
    let mut new = columns();
    new[0].counts_up = true;
    new.push(column("size", Kind::Enum { values: vec!["s".into()] }));
    let index = |name: &str, unique, columns: &[usize]| Index { name: name.into(), unique, columns: columns.to_vec() };
    let indexes = vec![index("by_name", false, &[1]), index("taken", true, &[1, 0])];
    let loading = Loading::of(&schema.database().await, "t", new, &[0]).with_indexes(indexes);
    loading.load(&batch(&[&[Value::Int(1), t("one"), t("s")], &[Value::Int(20), t("two"), Value::Null]])).await;
    assert_eq!(schema.ask("SELECT * FROM t").await, ["9|old"], "nothing is to be seen before the end");
    loading.finish(How::Replace).await.unwrap();
    assert_eq!(schema.ask(THERE).await, ["1|one", "20|two"]);
    let names =
        schema.ask("SELECT indexname FROM pg_indexes WHERE schemaname = '@' AND tablename = 't' ORDER BY 1").await;
    assert_eq!(names, ["by_name", "t_pkey", "t_taken"]);
    let constraints = schema
        .ask("SELECT conname FROM pg_constraint WHERE conrelid = 't'::regclass AND contype IN ('c', 'p') ORDER BY 1")
        .await;
    assert_eq!(constraints, ["t_pkey", "t_size_check"]);
    assert_eq!(schema.one("SELECT pg_get_serial_sequence('t', 'id')").await, format!("{}.t_id_seq", schema.name));
    assert_eq!(schema.one("INSERT INTO t (name) VALUES ('next') RETURNING id").await, "21");
    assert_eq!(
        schema
            .ask("SELECT relname FROM pg_class WHERE relnamespace = '@'::regnamespace AND relname LIKE '%\\_\\_mp\\_%'")
            .await,
        [""; 0]
    );

    // Once more, over its own.
    let again = loading.again();
    again.load(&batch(&[&[Value::Int(3), t("three"), Value::Null]])).await;
    again.finish(How::Replace).await.unwrap();
    let again =
        schema.ask("SELECT indexname FROM pg_indexes WHERE schemaname = '@' AND tablename = 't' ORDER BY 1").await;
    assert_eq!(again, names);
    schema.remove().await;
}

#[tokio::test]
async fn a_table_that_others_depend_on_is_not_replaced() {
    if !is_there("a_table_that_others_depend_on_is_not_replaced") {
        return;
    }
    let schema = Schema::new().await;
    schema.run("CREATE TABLE t (id int, name text); INSERT INTO t VALUES (9, 'old'); CREATE VIEW report AS SELECT * FROM t").await;
    let loading = Loading::of(&schema.database().await, "t", columns(), &[0]);
    loading.load(&rows()).await;
    let error = loading.finish(How::Replace).await.unwrap_err();
    assert!(matches!(error, TableError::Refused(_)), "{error}");
    for word in ["report", "`if_exists: truncate`"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(schema.ask(THERE).await, ["9|old"]);
    assert_eq!(loading.mark().await.state, MarkState::Loading);
    schema.remove().await;
}

#[tokio::test]
async fn rows_are_added_to_those_that_are_there() {
    if !is_there("rows_are_added_to_those_that_are_there") {
        return;
    }
    let schema = Schema::new().await;
    schema
        .run(
            "CREATE TABLE t (own int GENERATED ALWAYS AS (3) STORED, id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                             name text, extra text NOT NULL DEFAULT 'x');
             INSERT INTO t (id, name) OVERRIDING SYSTEM VALUE VALUES (9, 'old')",
        )
        .await;
    let database = schema.database().await;
    let loading = Loading::into(&database, "t", kinds());
    loading.load(&rows()).await;
    assert_eq!(schema.ask(THERE).await, ["9|old"]);
    loading.finish(How::Append).await.unwrap();
    assert_eq!(schema.ask(THERE).await, ["1|one", "2|two", "9|old"]);
    assert_eq!(schema.one("INSERT INTO t (name) VALUES ('next') RETURNING id").await, "10");
    assert_eq!(loading.mark().await.state, MarkState::Done);

    let again = loading.again();
    again.load(&rows()).await;
    let error = again.finish(How::Append).await.unwrap_err().to_string();
    assert!(error.contains("(id)=(1)") && error.contains("upsert"), "{error}");
    assert_eq!(schema.one("SELECT count(*) FROM t").await, "4");
    schema.remove().await;
}

#[tokio::test]
async fn rows_take_the_place_of_those_that_are_there() {
    if !is_there("rows_take_the_place_of_those_that_are_there") {
        return;
    }
    let schema = Schema::new().await;
    schema.run("CREATE TABLE t (id int, name text); INSERT INTO t VALUES (9, 'old'); CREATE VIEW report AS SELECT * FROM t").await;
    let loading = Loading::into(&schema.database().await, "t", kinds());
    loading.load(&rows()).await;
    loading.finish(How::Truncate).await.unwrap();
    assert_eq!(schema.ask("SELECT * FROM report ORDER BY id").await, ["1|one", "2|two"]);

    schema
        .run(
            "ALTER TABLE t ADD PRIMARY KEY (id); CREATE TABLE child (t int REFERENCES t); INSERT INTO child VALUES (1)",
        )
        .await;
    let again = loading.again();
    again.load(&rows()).await;
    let error = again.finish(How::Truncate).await.unwrap_err().to_string();
    assert!(error.contains("child") && error.contains("upsert"), "{error}");
    assert_eq!(schema.one("SELECT count(*) FROM child").await, "1");
    schema.remove().await;
}

#[tokio::test]
async fn rows_that_are_there_by_their_key_get_new_values() {
    if !is_there("rows_that_are_there_by_their_key_get_new_values") {
        return;
    }
    let schema = Schema::new().await;
    schema.run("CREATE TABLE t (id int PRIMARY KEY, name text); INSERT INTO t VALUES (2, 'old'), (9, 'stays')").await;
    let key = |name: &str| How::Upsert { key: vec![name.into()] };
    let loading = Loading::into(&schema.database().await, "t", kinds());
    loading.load(&rows()).await;
    loading.finish(key("id")).await.unwrap();
    assert_eq!(schema.ask(THERE).await, ["1|one", "2|two", "9|stays"]);

    let again = loading.again();
    again.load(&rows()).await;
    let error = again.finish(key("name")).await.unwrap_err().to_string();
    assert!(error.contains("no unique key"), "{error}");
    again.finish(key("id")).await.unwrap();
    assert_eq!(schema.one("SELECT count(*) FROM t").await, "3");
    schema.remove().await;
}

#[tokio::test]
async fn a_key_that_cannot_be_built_is_refused_by_name() {
    if !is_there("a_key_that_cannot_be_built_is_refused_by_name") {
        return;
    }
    let schema = Schema::new().await;
    let unique = Index { name: "only_once".into(), unique: true, columns: vec![1] };
    let loading = Loading::of(&schema.database().await, "t", columns(), &[0]).with_indexes(vec![unique]);
    loading.load(&batch(&[&[Value::Int(1), t("same")], &[Value::Int(2), t("same")]])).await;
    let error = loading.finish(How::Replace).await.unwrap_err().to_string();
    assert!(error.contains("only_once") && error.contains("same"), "{error}");
    assert_eq!(schema.one("SELECT to_regclass('t')").await, "NULL");
    schema.remove().await;
}
