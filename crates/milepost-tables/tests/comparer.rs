//! The comparer that proves copies is proved itself: it finds every damage, and nothing in what is whole.

#[allow(dead_code, reason = "each test uses its part of it")]
mod support;

use milepost_tables::Dialect;
use support::comparer::Comparison;
use support::home::Home;

const COLUMNS: &str =
    "(id, a_text, some_bytes, a_number, a_float, a_moment, a_reading, a_day, a_document, a_flag, an_id)";

/// The same two rows in the words of each dialect.
fn precious(dialect: Dialect, name: &str) -> String {
    let (columns, bytes) = match dialect {
        Dialect::Sqlite => (
            "id INTEGER PRIMARY KEY, a_text TEXT, some_bytes BLOB, a_number DECIMAL TEXT(40, 20), a_float DOUBLE, \
             a_moment TIMESTAMPTZ, a_reading DATETIME, a_day DATE, a_document JSON TEXT, a_flag BOOLEAN, an_id UUID TEXT",
            "x'00ff'",
        ),
        Dialect::Postgres => (
            "id integer PRIMARY KEY, a_text text, some_bytes bytea, a_number numeric(40, 20), a_float double precision, \
             a_moment timestamptz, a_reading timestamp, a_day date, a_document json, a_flag boolean, an_id uuid",
            "'\\x00ff'",
        ),
        Dialect::Mysql => (
            "id INT PRIMARY KEY, a_text VARCHAR(50), some_bytes BLOB, a_number DECIMAL(40, 20), a_float DOUBLE, \
             a_moment TIMESTAMP(6) NULL, a_reading DATETIME(6), a_day DATE, a_document JSON, a_flag BOOL, an_id UUID",
            "x'00ff'",
        ),
    };
    let moment = if dialect == Dialect::Postgres { "2024-10-27 00:30:00.5+00" } else { "2024-10-27 00:30:00.5" };
    format!(
        "CREATE TABLE {name} ({columns}); CREATE UNIQUE INDEX {name}_id_day ON {name} (id, a_day);
         INSERT INTO {name} {COLUMNS} VALUES (1, 'a ', {bytes}, '12345678901234567890.12345678901234567891', 0.1,
             '{moment}', '2024-03-31 02:30:00', '2024-02-29', '{{\"a\": [1, \"x\"]}}', true,
             'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11');
         INSERT INTO {name} (id, a_text) VALUES (2, '');"
    )
}

/// Each, with `@` for the table, and what has to be said of it and no more.
const DAMAGES: &[(&str, &str)] = &[
    ("UPDATE @ SET a_text = 'a' WHERE id = 1", "a_text"),
    ("UPDATE @ SET a_text = 'A ' WHERE id = 1", "a_text"),
    ("UPDATE @ SET a_text = NULL WHERE id = 2", "a_text"),
    ("UPDATE @ SET a_document = '{\"a\": [true, \"x\"]}' WHERE id = 1", "a_document"),
    ("UPDATE @ SET a_document = '{\"a\": [1, \"x\", null]}' WHERE id = 1", "a_document"),
    ("UPDATE @ SET a_number = '12345678901234567890.12345678901234567890' WHERE id = 1", "a_number"),
    ("UPDATE @ SET a_number = '0' WHERE id = 2", "a_number"),
    ("UPDATE @ SET a_float = 0.10000000000000002 WHERE id = 1", "a_float"),
    ("UPDATE @ SET a_moment = '2024-10-27 01:30:00.5' WHERE id = 1", "a_moment"),
    ("UPDATE @ SET a_moment = '2024-10-27 00:30:00' WHERE id = 1", "a_moment"),
    ("UPDATE @ SET a_reading = '2024-03-31 03:30:00' WHERE id = 1", "a_reading"),
    ("UPDATE @ SET a_day = '2024-03-01' WHERE id = 1", "a_day"),
    ("UPDATE @ SET a_flag = false WHERE id = 1", "a_flag"),
    ("UPDATE @ SET an_id = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12' WHERE id = 1", "an_id"),
    ("DELETE FROM @ WHERE id = 2", "row '[2]' is not in the copy"),
    ("INSERT INTO @ (id) VALUES (3)", "row '[3]' of the copy is not in the source"),
];

#[tokio::test]
async fn a_damaged_copy_is_found_out() {
    let source = Home::create(Dialect::Sqlite).await.unwrap();
    source.execute(&precious(Dialect::Sqlite, "precious")).await;
    for dialect in [Dialect::Sqlite, Dialect::Postgres, Dialect::Mysql] {
        let Some(target) = Home::create(dialect).await else { continue };
        let bytes = if dialect == Dialect::Postgres { "'\\x00fe'" } else { "x'00fe'" };
        let on_table = if dialect == Dialect::Mysql { " ON @" } else { "" };
        let mut damages = vec![
            ("SELECT 1".to_owned(), "equal, 2 rows of 11 columns"),
            (format!("UPDATE @ SET some_bytes = {bytes} WHERE id = 1"), "column 'some_bytes'"),
            (format!("DROP INDEX @_id_day{on_table}"), "the indexes are"),
        ];
        damages.extend(DAMAGES.iter().map(|&(damage, named)| (damage.to_owned(), named)));
        let (mut comparison, mut sql) = (Comparison::default(), String::new());
        for (number, (damage, _)) in damages.iter().enumerate() {
            let copy = format!("copy_{number}");
            sql.push_str(&format!("{}{};", precious(dialect, &copy), damage.replace('@', &copy)));
            comparison.tables.push(("precious".to_owned(), copy));
        }
        target.execute(&sql).await;
        let found = comparison.run(&source, &target).await.unwrap_err();
        for (number, (damage, named)) in damages.iter().enumerate() {
            let said: Vec<&str> = found.lines().filter(|line| line.starts_with(&format!("copy_{number}: "))).collect();
            assert!(said.len() == 1 && said[0].contains(named), "{damage} on {dialect}: {said:?}");
        }
    }
}

#[tokio::test]
async fn a_copy_of_another_type_is_found_out() {
    let source = Home::create(Dialect::Sqlite).await.unwrap();
    source.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, price DECIMAL(10, 2) NOT NULL)").await;
    let target = Home::create(Dialect::Sqlite).await.unwrap();
    target.execute("CREATE TABLE t (id INTEGER, price DOUBLE)").await;
    let found = Comparison::of(&["t"]).run(&source, &target).await.unwrap_err();
    for said in ["DOUBLE cannot stand for", "'price' is NOT NULL", "the primary key is ['id']"] {
        assert!(found.contains(said), "{said}: {found}");
    }
}
