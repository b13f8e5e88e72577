//! What a database cannot hold of the others' values: exactly these rows are rejected, each with its column and a reason.

use std::path::Path;

use milepost_tables::Dialect::{self, Mysql, Postgres, Sqlite};

/// A row of the file of rejected rows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rejected {
    pub(crate) id: i64,
    /// By itself, or in the words of the reason.
    column: Option<String>,
    reason: String,
}

/// The row's `id`, its column, and words of the reason.
type Refusal = (i64, &'static str, &'static str);

/// In the file that a copy leaves; none if it leaves none.
pub(crate) fn rejected(file: &Path) -> Vec<Rejected> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let parsed = text.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        Rejected {
            id: line["row"]["id"].as_i64().unwrap_or_else(|| panic!("no id in {line}")),
            column: line["column"].as_str().map(str::to_owned),
            reason: line["reason"].as_str().unwrap().to_owned(),
        }
    });
    let mut all: Vec<Rejected> = parsed.collect();
    all.sort();
    all
}

pub(crate) fn assert_refused(found: &[Rejected], expected: &[Refusal], context: &str) {
    let mut problems = Vec::new();
    for row in found {
        match expected.iter().find(|(id, _, _)| *id == row.id) {
            None => problems.push(format!("should have been copied: {row:?}")),
            Some((_, column, words)) => {
                let named = row.column.as_deref().unwrap_or(&row.reason);
                if !named.contains(column) || !row.reason.contains(words) {
                    problems.push(format!("should name {column} and say {words:?}: {row:?}"));
                }
            }
        }
    }
    for (id, column, words) in expected {
        if !found.iter().any(|row| row.id == *id) {
            problems.push(format!("should have been rejected: {id}, {column}, {words:?}"));
        }
    }
    assert!(problems.is_empty(), "{context}:\n{}", problems.join("\n"));
}

/// Of the table `every_type`.
pub(crate) fn refusals(from: Dialect, to: Dialect) -> Vec<Refusal> {
    let lists: &[&[Refusal]] = match (from, to) {
        (Sqlite, Sqlite) => &[NOT_TEXT],
        (Sqlite, Postgres) => &[NOT_TEXT, NOT_WHAT_IS_DECLARED, SQLITE_TO_POSTGRES],
        (Sqlite, Mysql) => &[NOT_TEXT, NOT_WHAT_IS_DECLARED, SQLITE_TO_MYSQL],
        (Postgres, Sqlite) => &[POSTGRES_TO_SQLITE],
        (Postgres, Postgres) => &[],
        (Postgres, Mysql) => &[POSTGRES_TO_MYSQL],
        (Mysql, Sqlite) => &[NO_BOOLEANS],
        (Mysql, Postgres) => &[NO_BOOLEANS, MYSQL_TO_POSTGRES],
        (Mysql, Mysql) => &[MYSQL_TO_MYSQL],
    };
    lists.concat()
}

/// SQLite takes any bytes for text.
const NOT_TEXT: &[Refusal] = &[(101, "a_text", "not UTF-8")];

/// SQLite takes any value in any column, and only another SQLite takes it from there.
const NOT_WHAT_IS_DECLARED: &[Refusal] = &[
    (102, "a_text", "holds bytes"),
    (106, "a_double", "no floating-point number"),
    (107, "an_int", "\"a text\", which is no integer"),
    (108, "an_int", "1.5, which is no integer"),
    (109, "an_int", "holds bytes"),
    (110, "a_date", "\"soon\", which is no date"),
    (112, "a_date", "20240229, which is no date"),
    (115, "a_datetime", "1709210096, which is no date with time"),
    (116, "a_datetime", "at most 6 digits"),
    (118, "a_time", "at most 6 digits"),
    (119, "a_boolean", "2, which is no boolean"),
    (120, "a_boolean", "\"true\", which is no boolean"),
    (121, "a_decimal", "\"a text\", which is no decimal(10,5)"),
    (122, "a_decimal", "which is no decimal(10,5)"),
    (123, "a_uuid", "\"no uuid\", which is no UUID"),
    (126, "a_tinyint", "no integer of 8 bits"),
    (127, "a_thing", "it has no type"),
    (128, "a_thing", "it has no type"),
    (129, "a_thing", "holds bytes"),
];

const SQLITE_TO_POSTGRES: &[Refusal] = &[
    (100, "a_text", "the character 0"),
    (103, "a_json", "invalid input syntax for type json"),
    (111, "a_date", "out of range"),
    (114, "a_datetime", "no date with a time"),
    (117, "a_time", "no time of day"),
    (125, "a_varchar", "51 characters, and the column takes 20"),
];

/// SQLite makes NULL of it.
const POSTGRES_TO_SQLITE: &[Refusal] = &[(100, "a_double", "NaN"), (103, "a_real", "NaN")];

const SQLITE_TO_MYSQL: &[Refusal] = &[
    (103, "a_json", "failed"),
    (104, "a_double", "no number for"),
    (105, "a_double", "no number for"),
    (111, "a_date", "Incorrect date"),
    (113, "a_date", "no date of MySQL's"),
    (114, "a_datetime", "Incorrect datetime"),
    (125, "a_varchar", "51 characters, and the target's column takes 20"),
];

const POSTGRES_TO_MYSQL: &[Refusal] = &[
    (100, "a_double", "NaN"),
    (101, "a_double", "no number for"),
    (102, "a_double", "no number for"),
    (103, "a_real", "NaN"),
    (104, "a_real", "no number for"),
    (105, "a_numeric", "NaN"),
    (106, "a_numeric", "Infinity"),
    (107, "a_numeric", "more than 35 digits before the point"),
    (108, "a_numeric", "more than 30 digits after the point"),
    (109, "a_numeric", "more than 35 digits before the point"),
    (110, "a_date", "infinity"),
    (111, "a_date", "BC"),
    (112, "a_date", "10000-01-01"),
    (113, "a_date", "-infinity"),
    (114, "a_timestamp", "infinity"),
    (115, "a_timestamp", "10000-01-01"),
    (116, "a_timestamptz", "-infinity"),
    (117, "a_timestamptz", "10000-01-01"),
    (118, "a_timestamptz", "BC"),
];

/// BOOL of MySQL is a number of one byte.
const NO_BOOLEANS: &[Refusal] =
    &[(122, "a_bool", "5, which is no boolean"), (123, "a_bool", "-1, which is no boolean")];

const MYSQL_TO_POSTGRES: &[Refusal] = &[
    (100, "a_text", "the character 0"),
    (110, "a_date", "0000-00-00"),
    (111, "a_date", "2024-00-00"),
    (112, "a_date", "2024-02-30"),
    (113, "a_date", "0000-01-01"),
    (114, "a_datetime", "0000-00-00 00:00:00"),
    (115, "a_datetime", "2024-06-31"),
    (116, "a_timestamp", "0000-00-00 00:00:00"),
    (117, "a_time", "no time of day"),
    (118, "a_time", "no time of day"),
    (120, "a_time", "no time of day"),
    (121, "a_time", "no time of day"),
    (124, "an_enum", "check constraint"),
];

/// Only a session that allows days that are none, and values that an ENUM does not list, can write them again.
const MYSQL_TO_MYSQL: &[Refusal] =
    &[(112, "a_date", "2024-02-30"), (115, "a_datetime", "2024-06-31"), (124, "an_enum", "truncated")];
