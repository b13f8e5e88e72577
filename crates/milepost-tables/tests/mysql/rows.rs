//! Writing: exactly the rows that are as they were, and exactly the bad ones left out.

use milepost_tables::{Batch, Cell, Dialect, Index, Kind, Shape, TableError, Value};

use super::support::{batch, begin, copy, finish, load, load_of, people, place, read, scan, shape, table, text, write};

const WHOLE: Kind = Kind::Int { bits: 64, unsigned: false };
const WORD: Kind = Kind::Text { length: None };

#[tokio::test]
async fn exactly_the_bad_rows_are_left_out() {
    let Some(place) = place().await else { return };
    place.run(&["CREATE TABLE target (id TINYINT PRIMARY KEY, name VARCHAR(20), UNIQUE KEY by_name (name))"]).await;
    let database = place.open().await;
    let load = load("copy", "token", "target", &[("id", WHOLE), ("name", WORD)]);
    let rows: Vec<(i64, String)> =
        (1..=200).map(|id| (id, if id % 50 == 7 { "same".into() } else { format!("n{id}") })).collect();
    let rows: Vec<(i64, &str)> = rows.iter().map(|(id, name)| (*id, name.as_str())).collect();
    let rejected = write(&*database, &load, Shape::LikeTarget, &[batch(&rows), batch(&[(3, "again"), (0, "zero")])])
        .await
        .unwrap();
    // Too large for TINYINT; the same name twice; the same id twice.
    let too_large = 127 - 1..200;
    let mut expected: Vec<usize> = vec![56, 106];
    expected.extend(too_large.skip(1));
    expected.push(0);
    assert_eq!(rejected.iter().map(|rejected| rejected.row).collect::<Vec<_>>(), expected);
    assert_eq!(rejected[0].values["name"], "same");
    assert!(rejected[0].reason.contains("Duplicate entry 'same'"), "{}", rejected[0].reason);
    assert_eq!(rejected[2].column.as_deref(), Some("id"));
    assert_eq!(rejected[2].reason, "Out of range value for column 'id'");
    let staged: Vec<(u64, i64)> = place.ask("SELECT COUNT(*), MIN(id) FROM target__mp_4").await;
    assert_eq!(staged, [(126, 0)], "0 stays 0");
    let mark = database.mark("copy", &load.into).await.unwrap().unwrap();
    assert_eq!((mark.rows, mark.rejected), (126, expected.len() as u64));
}

#[tokio::test]
async fn a_batch_of_nothing_but_bad_rows_is_left_out_as_a_whole() {
    let Some(place) = place().await else { return };
    place.run(&["CREATE TABLE target (id TINYINT PRIMARY KEY, name VARCHAR(20))"]).await;
    let database = place.open().await;
    let load = load("copy", "token", "target", &[("id", WHOLE), ("name", WORD)]);
    let same: Vec<(i64, &str)> = (0..1000).map(|_| (1, "same")).collect();
    let large: Vec<(i64, &str)> = (1000..2000).map(|id| (id, "large")).collect();
    let batches = [batch(&same), batch(&large), batch(&[(2, "fine")])];
    let rejected = write(&*database, &load, Shape::LikeTarget, &batches).await.unwrap();
    assert_eq!(rejected.len(), 1999);
    assert_eq!(place.ask::<i64>("SELECT id FROM target__mp_4 ORDER BY id").await, [1, 2]);
}

#[tokio::test]
async fn if_no_row_may_be_left_out_the_first_bad_one_is_the_error() {
    let Some(place) = place().await else { return };
    place.run(&["CREATE TABLE target (id TINYINT PRIMARY KEY, name VARCHAR(5))"]).await;
    let database = place.open().await;
    let load = load("copy", "token", "target", &[("id", WHOLE), ("name", WORD)]);
    let begun = begin(&*database, &load, Shape::LikeTarget).await.unwrap();
    let cases = [
        (batch(&[(1, "a"), (2, "too long"), (1000, "b")]), "too long"),
        (batch(&[(1, "a"), (1000, "b"), (2, "too long")]), "Out of range"),
        (batch(&[(1, "a"), (1, "b"), (2, "too long")]), "Duplicate entry '1'"),
    ];
    for (batch, expected) in cases {
        let mut writer = database.writer(&load, &begun, false).await.unwrap();
        match writer.write(&batch).await {
            Err(TableError::Row(row)) => assert!(row.to_string().contains(expected), "{row} is not about {expected}"),
            other => panic!("{expected}: {other:?}"),
        }
    }
    let staged: Vec<u64> = place.ask("SELECT COUNT(*) FROM target__mp_4").await;
    assert_eq!(staged, [0], "nothing was committed");
}

#[tokio::test]
async fn a_row_longer_than_a_packet_is_rejected_and_the_others_are_not() {
    let Some(place) = place().await else { return };
    let packet = place.ask::<usize>("SELECT @@max_allowed_packet").await[0];
    let database = place.open().await;
    for (declared, kind) in [("LONGBLOB", Kind::Bytes { length: None }), ("BIT(3)", WHOLE)] {
        let columns = format!("id INT PRIMARY KEY, v LONGBLOB, w {declared}");
        place.run(&["DROP TABLE IF EXISTS target", &format!("CREATE TABLE target ({columns})")]).await;
        let load = load("copy", "token", "target", &[("id", WHOLE), ("v", Kind::Bytes { length: None }), ("w", kind)]);
        let mut batch = Batch::new(3);
        for (id, length) in [(1, 10), (2, packet + 1), (3, packet / 2), (4, 0)] {
            batch.push(Cell::Int(id));
            batch.push_bytes(&vec![b'x'; length]);
            batch.push(Cell::Null);
        }
        let rejected = write(&*database, &load, Shape::LikeTarget, &[batch]).await.unwrap();
        assert_eq!(rejected.iter().map(|rejected| rejected.row).collect::<Vec<_>>(), [1], "{declared}");
        assert!(rejected[0].reason.contains("max_allowed_packet"), "{}", rejected[0].reason);
        let staged: Vec<(i64, usize)> = place.ask("SELECT id, LENGTH(v) FROM target__mp_4 ORDER BY id").await;
        assert_eq!(staged, [(1, 10), (3, packet / 2), (4, 0)]);
    }
}

#[tokio::test]
async fn text_keys_that_differ_stay_apart() {
    let Some(place) = place().await else { return };
    let database = place.open().await;
    let mut source = people();
    source.columns[1].kind = Kind::Text { length: None };
    source.primary = vec![1];
    source.indexes = vec![Index { name: "by_id".into(), unique: false, columns: vec![0, 1] }];
    let keys = ["a", "A", "a ", "á", "ａ", "", " ", "ß", "ss", "\u{1F600}", "x\0"];
    let rows: Vec<(i64, &str)> = keys.iter().zip(1..).map(|(key, id)| (id, *key)).collect();
    let load = load_of("token", &source, "target");
    let rejected = write(&*database, &load, shape(&source, Dialect::Sqlite), &[batch(&rows)]).await.unwrap();
    assert_eq!(rejected, []);
    database.add_indexes(&load, &source).await.unwrap();
    finish(&*database, &load, milepost_tables::How::Replace).await.unwrap();
    let target = table(&*database, "target").await;
    assert_eq!(target.primary, [1]);
    let mut found: Vec<Value> = read(&*database, scan(&target)).await.into_iter().map(|row| row[1].clone()).collect();
    found.sort_by_key(|value| format!("{value:?}"));
    let mut expected: Vec<Value> = keys.iter().map(|key| text(key)).collect();
    expected.sort_by_key(|value| format!("{value:?}"));
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_long_text_in_a_key_is_rejected_and_in_an_index_is_not() {
    let Some(place) = place().await else { return };
    let database = place.open().await;
    let mut source = people();
    source.columns[1].kind = Kind::Text { length: None };
    let long = "x".repeat(2000);
    for (unique, rejects) in [(true, 1), (false, 0)] {
        source.indexes = vec![Index { name: "by_name".into(), unique, columns: vec![1] }];
        let load = load_of("token", &source, "target");
        let batch = batch(&[(1, "short"), (2, &long)]);
        let rejected = write(&*database, &load, shape(&source, Dialect::Postgres), &[batch]).await.unwrap();
        assert_eq!(rejected.len(), rejects);
        database.add_indexes(&load, &source).await.unwrap();
        let indexes: Vec<(String, bool)> = place
            .ask(
                "SELECT INDEX_NAME, NON_UNIQUE FROM information_schema.STATISTICS \
                       WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'target__mp_4' AND INDEX_NAME <> 'PRIMARY'",
            )
            .await;
        assert_eq!(indexes, [("by_name".to_owned(), !unique)]);
    }
}

#[tokio::test]
async fn an_index_that_cannot_be_built_is_refused_by_name() {
    let Some(place) = place().await else { return };
    let database = place.open().await;
    let mut source = people();
    let load = load_of("token", &source, "target");
    write(&*database, &load, shape(&source, Dialect::Sqlite), &[batch(&[(1, "same"), (2, "same")])]).await.unwrap();
    source.indexes = vec![
        Index { name: "by_id".into(), unique: false, columns: vec![0] },
        Index { name: "by_name".into(), unique: true, columns: vec![1] },
    ];
    let error = database.add_indexes(&load, &source).await.unwrap_err();
    assert!(matches!(&error, TableError::Refused(reason) if reason.contains("index by_name of target")), "{error}");
}

#[tokio::test]
async fn a_table_wider_than_a_row_is_made_all_the_same() {
    let Some(place) = place().await else { return };
    let database = place.open().await;
    let mut source = people();
    let column = source.columns[1].clone();
    for at in 0..20 {
        let kind = Kind::Text { length: Some(4000) };
        source.columns.push(milepost_tables::Column { name: format!("wide{at}"), kind, ..column.clone() });
    }
    let load = load_of("token", &source, "target");
    begin(&*database, &load, shape(&source, Dialect::Postgres)).await.unwrap();
    finish(&*database, &load, milepost_tables::How::Replace).await.unwrap();
    assert_eq!(table(&*database, "target").await.columns.len(), 22);
}

#[tokio::test]
async fn a_copied_table_counts_on_after_its_last_row() {
    let Some(place) = place().await else { return };
    place
        .run(&[
            "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)",
            "INSERT INTO t VALUES (0, 1), (41, 1)",
            // Counts up as the first of another key than the primary one.
            "CREATE TABLE u (a INT, id INT NOT NULL AUTO_INCREMENT, PRIMARY KEY (a), KEY by_id (id))",
            "INSERT INTO u VALUES (1, 41)",
        ])
        .await;
    let database = place.open().await;
    for from in [Dialect::Mysql, Dialect::Sqlite] {
        assert_eq!(copy(&*database, &table(&*database, "t").await, "target", from).await, []);
        place.run(&["INSERT INTO target (v) VALUES (2)"]).await;
        assert_eq!(place.ask::<i64>("SELECT id FROM target ORDER BY id").await, [0, 41, 42]);
        copy(&*database, &table(&*database, "u").await, "target", from).await;
        place.run(&["INSERT INTO target (a) VALUES (2)"]).await;
        assert_eq!(place.ask::<i64>("SELECT id FROM target ORDER BY id").await, [41, 42]);
    }
}

#[tokio::test]
async fn a_column_that_cannot_hold_what_comes_is_refused_before_the_first_row() {
    let Some(place) = place().await else { return };
    place.run(&["CREATE TABLE target (id INT PRIMARY KEY, v INT)"]).await;
    let database = place.open().await;
    let load = load("copy", "token", "target", &[("id", WHOLE), ("v", WORD)]);
    let begun = begin(&*database, &load, Shape::LikeTarget).await.unwrap();
    let Err(error) = database.writer(&load, &begun, true).await else { panic!("a text is no number") };
    assert!(matches!(&error, TableError::Refused(reason) if reason.contains("column v of target")), "{error}");
}
