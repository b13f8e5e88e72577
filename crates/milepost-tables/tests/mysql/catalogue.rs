//! What a table looks like.

use milepost_tables::{Digits, Index, Kind, TableError, TableName};

use super::support::{place, table};

#[tokio::test]
async fn a_catalogue_lists_the_tables_of_people_only() {
    let Some(place) = place().await else { return };
    place
        .run(&[
            "CREATE TABLE b (id INT)",
            "CREATE TABLE a (id INT)",
            "CREATE TABLE milepost_copies (id INT)",
            "CREATE TABLE a__mp_1234 (id INT)",
            "CREATE VIEW v AS SELECT 1 AS one",
        ])
        .await;
    let database = place.open().await;
    let names: Vec<String> = database.tables().await.unwrap().into_iter().map(|listed| listed.name.name).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(database.tables().await.unwrap()[0].bytes.is_some());
    assert_eq!(database.table(&TableName::new("nobody")).await.unwrap(), None);
    let error = database.table(&TableName::new("v")).await.unwrap_err();
    assert!(matches!(&error, TableError::Refused(reason) if reason.contains("is a view")), "{error}");
    assert_eq!(database.count(&TableName::new("a"), None).await.unwrap(), 0);
}

#[tokio::test]
async fn a_table_is_described_with_its_keys_and_with_what_is_left_out() {
    let Some(place) = place().await else { return };
    place
        .run(&[
            "CREATE TABLE parent (id INT PRIMARY KEY)",
            "CREATE TABLE t (
                b INT, a VARCHAR(10) CHARACTER SET latin1 COLLATE latin1_bin, id BIGINT NOT NULL AUTO_INCREMENT,
                amount DECIMAL(12,3) NOT NULL DEFAULT 7, doc JSON, parent INT, words TEXT, sum INT AS (b + 1) STORED,
                PRIMARY KEY (a, b), UNIQUE KEY by_id (id), KEY by_amount (amount, id), KEY by_words (words(10)),
                FULLTEXT KEY full_words (words), CONSTRAINT to_parent FOREIGN KEY (parent) REFERENCES parent (id),
                CONSTRAINT more CHECK (b > 0))",
            "CREATE TRIGGER watch BEFORE INSERT ON t FOR EACH ROW SET NEW.b = NEW.b",
        ])
        .await;
    let database = place.open().await;
    let found = table(&*database, "t").await;
    let kinds: Vec<&Kind> = found.columns.iter().map(|column| &column.kind).collect();
    assert_eq!(
        kinds,
        [
            &Kind::Int { bits: 32, unsigned: false },
            &Kind::Text { length: Some(10) },
            &Kind::Int { bits: 64, unsigned: false },
            &Kind::Decimal { digits: Some(Digits { precision: 12, scale: 3 }) },
            &Kind::Json,
            &Kind::Int { bits: 32, unsigned: false },
            &Kind::Text { length: None },
            &Kind::Int { bits: 32, unsigned: false },
        ]
    );
    assert_eq!(found.columns[1].native, "varchar(10) CHARACTER SET latin1 COLLATE latin1_bin");
    assert_eq!(found.primary, [1, 0]);
    let column = |name: &str| found.columns.iter().find(|column| column.name == name).unwrap();
    assert!(column("id").counts_up && !column("b").counts_up);
    assert!(column("sum").generated && !column("amount").generated);
    assert!(column("amount").default && !column("b").default);
    assert!(column("doc").nullable && !column("amount").nullable);
    let index = |name: &str, unique, columns: &[usize]| Index { name: name.into(), unique, columns: columns.to_vec() };
    for expected in [index("by_id", true, &[2]), index("by_amount", false, &[3, 2])] {
        assert!(found.indexes.contains(&expected), "{expected:?} in {:?}", found.indexes);
    }
    for expected in [
        "foreign key to_parent",
        "trigger watch",
        "check more",
        "index by_words",
        "index full_words",
        "default of column amount",
    ] {
        assert!(found.left_out.iter().any(|left_out| left_out == expected), "{expected} in {:?}", found.left_out);
    }
    assert!(!found.left_out.iter().any(|left_out| left_out.contains("doc")), "{:?}", found.left_out);
}

#[tokio::test]
async fn an_address_that_nobody_answers_at_is_away_and_shows_no_password() {
    let database = milepost_tables::open(&"mysql://ann:s3cret@127.0.0.1:1/shop".parse().unwrap()).await.unwrap();
    let error = database.tables().await.unwrap_err();
    assert!(matches!(error, TableError::Away { .. }), "{error}");
    assert!(!error.to_string().contains("s3cret"), "{error}");
    let error = milepost_tables::open(&"mysql://ann:s3cret@127.0.0.1:1".parse().unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("names no database"), "{error}");
}
