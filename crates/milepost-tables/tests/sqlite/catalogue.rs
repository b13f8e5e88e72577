//! What a database says of its tables.

use milepost_tables::{Dialect, Index, Kind, TableError, TableName};

use crate::lab::{INTEGER, Lab, TEXT, copy, put, table, text};

#[tokio::test]
async fn only_tables_that_people_may_want_to_copy_are_listed() {
    let lab = Lab::new();
    let sql =
        "CREATE TABLE \"b c\" (a INTEGER PRIMARY KEY AUTOINCREMENT); CREATE TABLE a (x); INSERT INTO a VALUES (1), (2);
        CREATE TABLE milepost_copies (copy TEXT); CREATE TABLE a__mp_12 (x); CREATE VIEW v AS SELECT * FROM a;
        CREATE VIRTUAL TABLE f USING fts5(t);";
    let database = lab.made("db", sql).await;
    let listed = database.tables().await.unwrap();
    let names: Vec<_> = listed.iter().map(|listed| (listed.name.to_string(), listed.rows)).collect();
    assert_eq!(names, [("a".into(), Some(2)), ("b c".into(), Some(0))]);
    assert_eq!(database.dialect(), Dialect::Sqlite);
}

#[tokio::test]
async fn a_table_is_described_with_all_that_is_copied_and_all_that_is_not() {
    let lab = Lab::new();
    let sql = "CREATE TABLE customers (id INTEGER PRIMARY KEY);
        CREATE TABLE Orders (number INT NOT NULL, year SMALLINT, customer INT REFERENCES customers, sum DECIMAL(10,2) DEFAULT 0,
            twice GENERATED ALWAYS AS (sum * 2), name VARCHAR(20) COLLATE NOCASE UNIQUE, PRIMARY KEY (year, number));
        CREATE INDEX by_customer ON orders (customer, year);
        CREATE INDEX large ON orders (sum) WHERE sum > 100;
        CREATE INDEX lower_name ON orders (lower(name));
        CREATE TRIGGER audit AFTER INSERT ON orders BEGIN SELECT 1; END;";
    let database = lab.made("db", sql).await;
    let table = table(&database, "ORDERS").await;
    assert_eq!(table.name, TableName::new("Orders"), "as it spells itself");
    let columns: Vec<_> = table.columns.iter().map(|c| (c.name.as_str(), c.native.as_str(), c.nullable)).collect();
    let expected = [
        ("number", "INT", false),
        ("year", "SMALLINT", false),
        ("customer", "INT", true),
        ("sum", "DECIMAL(10,2)", true),
        ("twice", "no type", true),
        ("name", "VARCHAR(20) COLLATE NOCASE", true),
    ];
    assert_eq!(columns, expected);
    assert_eq!(table.primary, [1, 0]);
    assert!(table.columns[4].generated && table.columns[3].default && !table.columns[2].default);
    let index = |name: &str, unique, columns: &[usize]| Index { name: name.into(), unique, columns: columns.to_vec() };
    assert_eq!(table.indexes, [index("Orders_name_key", true, &[5]), index("by_customer", false, &[2, 1])]);
    let mut left_out = table.left_out.clone();
    left_out.sort();
    let expected = [
        "default of column sum",
        "foreign key (customer) to customers",
        "index lower_name of an expression",
        "partial index large",
        "trigger audit",
    ];
    assert_eq!(left_out, expected);
    assert_eq!(database.table(&TableName::new("nothing")).await.unwrap(), None);
}

#[tokio::test]
async fn a_view_is_refused_by_its_name() {
    let lab = Lab::new();
    let database = lab.made("db", "CREATE TABLE t (a); CREATE VIEW shown AS SELECT * FROM t").await;
    let error = database.table(&TableName::new("shown")).await.unwrap_err();
    assert!(matches!(&error, TableError::Refused(reason) if reason.contains("`shown` is a view")), "{error}");
    let schema = TableName { schema: Some("sales".into()), name: "t".into() };
    let error = database.table(&schema).await.unwrap_err();
    assert!(matches!(&error, TableError::Refused(reason) if reason.contains("no schemas")), "{error}");
}

#[tokio::test]
async fn a_column_without_a_type_is_what_all_of_its_values_are() {
    let lab = Lab::new();
    let sql = "CREATE TABLE t (i, r, s, b, mixed, void, u UUID);
        INSERT INTO t VALUES (1, 1.5, 'a', x'00', 1, NULL, x'00112233445566778899aabbccddeeff'),
        (2, 2.5, 'b', x'01', 'one', NULL, NULL)";
    let from = lab.made("db", sql).await;
    let kinds: Vec<_> = table(&from, "t").await.columns.into_iter().map(|column| column.kind).collect();
    let bytes = Kind::Bytes { length: None };
    let expected = [INTEGER, Kind::Float { bits: 64 }, TEXT, bytes.clone(), Kind::Other, Kind::Other, bytes];
    assert_eq!(kinds, expected);

    lab.connection("db").execute_batch("UPDATE t SET mixed = 'none'").unwrap();
    let to = lab.database("to.db").await;
    copy(&from, &to, "t").await;
    assert_eq!(lab.rows("to.db", "SELECT * FROM t"), lab.rows("db", "SELECT * FROM t"));
    assert_eq!(
        lab.rows("to.db", "SELECT type FROM pragma_table_info('t')"),
        ["''", "''", "''", "''", "''", "''", "'UUID'"]
    );
}

#[tokio::test]
async fn a_source_that_is_missing_is_refused_by_its_path() {
    let lab = Lab::new();
    let database = lab.database("nowhere.db").await;
    let error = database.tables().await.unwrap_err().to_string();
    assert!(error.contains("no SQLite database at") && error.contains("nowhere.db"), "{error}");
    assert!(!lab.path("nowhere.db").exists(), "looking makes no file");
    assert_eq!(database.table(&TableName::new("t")).await.unwrap(), None);
    assert_eq!(database.mark("copy", &TableName::new("t")).await.unwrap(), None);
}

#[tokio::test]
async fn a_target_that_is_missing_is_made_and_one_that_is_there_keeps_its_journal() {
    let lab = Lab::new();
    let new = lab.database("new.db").await;
    let table = crate::lab::foreign("t", &[INTEGER, TEXT]);
    put(&new, &table, &[vec![milepost_tables::Value::Int(1), text("a")]]).await;
    assert_eq!(lab.rows("new.db", "PRAGMA journal_mode"), ["'wal'"]);
    let old = lab.made("old.db", "CREATE TABLE other (a)").await;
    put(&old, &table, &[vec![milepost_tables::Value::Int(1), text("a")]]).await;
    assert_eq!(lab.rows("old.db", "PRAGMA journal_mode"), ["'delete'"]);
    assert_eq!(lab.rows("old.db", "SELECT * FROM t"), ["1|'a'"]);
}

#[tokio::test]
async fn a_database_in_memory_is_refused() {
    let error = milepost_tables::open(&"sqlite::memory:".parse().unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("path of a file"), "{error}");
}
