//! Tables that copiers break: of every type (`tests/data`), and of every size and key (here, since all dialects read it).

use std::fmt::Write;

use milepost_tables::Dialect;

use super::home::Home;

/// The tests' batches have so many rows.
pub(crate) const BATCH: usize = 100;

const ODD_NAME: &str = r#"order "by" Größe 'x' `y` %s :a ?"#;

/// Makes the tables, and says which there are.
pub(crate) async fn fill(home: &Home) -> Vec<&'static str> {
    let mut tables = vec!["every_type", "spelled", "long_values", ODD_NAME];
    match home.dialect {
        Dialect::Sqlite => {
            home.execute(include_str!("../data/sqlite.sql")).await;
            tables.push("sorted");
        }
        Dialect::Postgres => {
            home.execute(include_str!("../data/postgres_types.sql")).await;
            home.execute(include_str!("../data/postgres.sql")).await;
            tables.push("a_name_as_long_as_postgresql_allows_it_to_be_is_sixty_three_byt");
        }
        Dialect::Mysql => {
            home.execute(include_str!("../data/mysql.sql")).await;
            tables.extend(["sorted", "a_name_as_long_as_mariadb_allows_it_to_be_is_sixty_four_characte"]);
        }
    }
    for (name, sql) in of_every_size() {
        home.execute(&sql).await;
        tables.push(name);
    }
    tables
}

/// What a target has to have before a table of its own kind can be copied there.
pub(crate) async fn prepare(target: &Home, from: Dialect) {
    if (from, target.dialect) == (Dialect::Postgres, Dialect::Postgres) {
        target.execute(include_str!("../data/postgres_types.sql")).await;
    }
}

/// Names and SQL that SQLite, PostgreSQL and MySQL all understand.
fn of_every_size() -> Vec<(&'static str, String)> {
    vec![
        ("no_rows", numbered("no_rows", 0)),
        ("one_row", numbered("one_row", 1)),
        ("one_batch", numbered("one_batch", BATCH)),
        ("one_batch_and_a_row", numbered("one_batch_and_a_row", BATCH + 1)),
        ("composite", composite()),
        ("no_key", no_key()),
        ("unique_only", unique_only()),
        ("wide", wide()),
    ]
}

/// A table with the given number of rows.
pub(crate) fn numbered(name: &str, rows: usize) -> String {
    let columns = "id INTEGER NOT NULL PRIMARY KEY, word VARCHAR(40) NOT NULL, amount DECIMAL(10, 2)";
    let row = |row| format!("({row}, 'word {row}', {row}.25)");
    created(name, columns, (1..=rows).map(row))
}

/// Its key's order is not that of the columns, and a batch ends amid rows with the same first part.
fn composite() -> String {
    let columns = "amount DECIMAL(10, 2) NOT NULL, part INTEGER NOT NULL, word VARCHAR(20) NOT NULL, note VARCHAR(20), \
                   PRIMARY KEY (word, part, amount)";
    let words = ["", "a", "A", "it''s", "ü"];
    let row = |row: usize| format!("({}.5, {}, '{}', NULL)", row % 7, -(row as i64) / 7, words[row % words.len()]);
    created("composite", columns, (0..=5 * BATCH).map(row))
}

/// With rows that are equal, and rows of nothing.
fn no_key() -> String {
    let row =
        |row: usize| if row.is_multiple_of(10) { "(NULL, NULL)".to_owned() } else { format!("({}, 'x')", row % 20) };
    created("no_key", "a INTEGER, b VARCHAR(20)", (0..2 * BATCH + 50).map(row))
}

fn unique_only() -> String {
    let columns = "a INTEGER NOT NULL, b VARCHAR(20) NOT NULL, c INTEGER";
    let mut sql = created("unique_only", columns, (0..3 * BATCH).map(|row| format!("({row}, 'b{row}', NULL)")));
    sql.push_str("CREATE UNIQUE INDEX unique_only_b_a ON unique_only (b, a);");
    sql.push_str("CREATE UNIQUE INDEX unique_only_c ON unique_only (c);");
    sql.push_str("CREATE INDEX unique_only_a ON unique_only (a);");
    sql
}

fn wide() -> String {
    let columns = (2..=200).fold("c1 INTEGER NOT NULL PRIMARY KEY".to_owned(), |mut columns, column| {
        let kind = ["INTEGER", "VARCHAR(20)", "DOUBLE PRECISION", "DECIMAL(8, 3)"][column % 4];
        write!(columns, ", c{column} {kind}").unwrap();
        columns
    });
    let row = |row: usize| {
        let cells = (2..=200).map(|column| match (column % 4, (row + column) % 5) {
            (_, 0) => "NULL".to_owned(),
            (1, _) => format!("'{row} {column}'"),
            (2 | 3, _) => format!("{row}.5"),
            (_, _) => format!("{}", row * column),
        });
        format!("({row}, {})", cells.collect::<Vec<_>>().join(", "))
    };
    created("wide", &columns, (0..250).map(row))
}

fn created(name: &str, columns: &str, rows: impl Iterator<Item = String>) -> String {
    let rows = rows.collect::<Vec<_>>();
    let mut sql = format!("CREATE TABLE {name} ({columns});");
    for some in rows.chunks(100) {
        write!(sql, "INSERT INTO {name} VALUES {};", some.join(", ")).unwrap();
    }
    sql
}
