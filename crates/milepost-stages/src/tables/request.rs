//! What `with:` asks for. Before a plan is accepted only what holds no template can be judged; the rest when it runs.

use std::collections::BTreeMap;

use milepost_tables::{IfExists, Kind, Limits, OnRowError, Resume, TableName, Verify};
use serde_json::{Map, Value, json};

use super::databases::Word;
use crate::parameters::{holds_template, only_keys};

const KEYS: [&str; 16] = [
    "from",
    "to",
    "table",
    "into",
    "columns",
    "where",
    "types",
    "batch_size",
    "if_exists",
    "on_row_error",
    "rejected",
    "resume",
    "verify",
    "indexes",
    "rows_per_second",
    "bytes_per_second",
];
const BATCH_ROWS: usize = 2500;

#[derive(Debug)]
pub(super) struct Request {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) table: TableName,
    pub(super) into: TableName,
    pub(super) columns: Option<Vec<String>>,
    pub(super) filter: Option<String>,
    pub(super) types: BTreeMap<String, Kind>,
    pub(super) batch_rows: usize,
    pub(super) if_exists: IfExists,
    pub(super) on_row_error: OnRowError,
    pub(super) rejected: Option<String>,
    pub(super) resume: Resume,
    pub(super) verify: Verify,
    pub(super) indexes: bool,
    pub(super) limits: Limits,
}

/// What is not known yet stands for something that would do.
pub(super) fn check(with: &Value) -> Result<(), String> {
    let mut with = with.clone();
    for (key, value) in with.as_object_mut().into_iter().flatten() {
        if holds_template(value) {
            *value = match key.as_str() {
                "from" | "to" | "table" => json!("name"),
                _ => Value::Null,
            };
        }
    }
    parse(&with).map(|_| ())
}

pub(super) fn parse(with: &Value) -> Result<Request, String> {
    let nothing = Map::new();
    let given = Given(only_keys("copy-table", with, &KEYS)?.unwrap_or(&nothing));
    let database = |key: &str| -> Result<String, String> {
        let text = given.text(key)?.ok_or_else(|| format!("`{key}` is missing: the database to copy {key}"))?;
        Word::parse(text).map_err(|error| format!("`{key}`: {error}"))?;
        Ok(text.to_owned())
    };
    let name = |key: &str| -> Result<Option<TableName>, String> {
        given.text(key)?.map(|text| text.parse().map_err(|error| format!("`{key}`: {error}"))).transpose()
    };
    let table = name("table")?.ok_or("`table` is missing: the table to copy")?;
    Ok(Request {
        from: database("from")?,
        to: database("to")?,
        into: name("into")?.unwrap_or_else(|| table.clone()),
        table,
        columns: given.names("columns")?,
        filter: given.text("where")?.map(str::to_owned),
        types: given.types()?,
        batch_rows: given.number("batch_size", 100..=10_000)?.map_or(BATCH_ROWS, |rows| rows as usize),
        if_exists: given.choice("if_exists", &["fail", "drop", "truncate", "append", "upsert"])?,
        on_row_error: given.choice("on_row_error", &["stop", "skip"])?,
        rejected: given.text("rejected")?.map(str::to_owned),
        resume: given.choice("resume", &["table", "chunk"])?,
        verify: given.choice("verify", &["none", "counts", "checksums"])?,
        indexes: given.flag("indexes")?.unwrap_or(true),
        limits: Limits {
            rows_per_second: given.number("rows_per_second", 1..=u64::MAX)?,
            bytes_per_second: given.number("bytes_per_second", 1..=u64::MAX)?,
        },
    })
}

/// The parameters, each as what it has to be. None: it is not there. A template renders to text, so numbers and flags may
/// be text as well.
struct Given<'a>(&'a Map<String, Value>);

impl<'a> Given<'a> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(Some(text)),
            Some(Value::String(_)) => Err(format!("`{key}` is empty")),
            Some(_) => Err(format!("`{key}` must be text")),
        }
    }

    fn number(&self, key: &str, range: std::ops::RangeInclusive<u64>) -> Result<Option<u64>, String> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = value.as_u64().or_else(|| value.as_str()?.trim().parse().ok());
        match number.filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None if *range.end() == u64::MAX => Err(format!("`{key}` must be a whole number from {}", range.start())),
            None => Err(format!("`{key}` must be a whole number from {} to {}", range.start(), range.end())),
        }
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, String> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(value) => match value.as_str() {
                Some("true") => Ok(Some(true)),
                Some("false") => Ok(Some(false)),
                Some(_) | None => Err(format!("`{key}` is `true` or `false`")),
            },
        }
    }

    /// One of these words.
    fn choice<T: Default + serde::de::DeserializeOwned>(&self, key: &str, words: &[&str]) -> Result<T, String> {
        let Some(value) = self.get(key) else { return Ok(T::default()) };
        serde_json::from_value(value.clone()).map_err(|_| {
            let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
            format!("`{key}` is {value}; it has to be one of {}", words.join(", "))
        })
    }

    fn names(&self, key: &str) -> Result<Option<Vec<String>>, String> {
        let bad = || format!("`{key}` must be a list of names");
        let Some(value) = self.get(key) else { return Ok(None) };
        let names = value.as_array().filter(|names| !names.is_empty()).ok_or_else(bad)?;
        names.iter().map(|name| name.as_str().map(str::to_owned).ok_or_else(bad)).collect::<Result<_, _>>().map(Some)
    }

    fn types(&self) -> Result<BTreeMap<String, Kind>, String> {
        let bad = || "`types` must name a type for each of some columns, such as { paid: bool }".to_owned();
        let Some(value) = self.get("types") else { return Ok(BTreeMap::new()) };
        let kind = |(column, kind): (&String, &Value)| {
            let kind = kind.as_str().ok_or_else(bad)?.parse();
            kind.map(|kind| (column.clone(), kind)).map_err(|error| format!("`types.{column}`: {error}"))
        };
        value.as_object().ok_or_else(bad)?.iter().map(kind).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(more: Value) -> Value {
        let mut with = json!({"from": "sqlite:a.db", "to": "env:TARGET", "table": "orders"});
        with.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        with
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let request = parse(&with(json!({}))).unwrap();
        assert_eq!((request.into, request.batch_rows), (TableName::new("orders"), 2500));
        assert_eq!((request.if_exists, request.on_row_error), (IfExists::Fail, OnRowError::Stop));
        assert_eq!((request.resume, request.verify), (Resume::Table, Verify::Counts));
        assert_eq!((request.indexes, request.limits), (true, Limits::default()));
    }

    #[test]
    fn what_holds_no_template_is_checked_before_the_plan_is_accepted() {
        for good in [
            json!({}),
            json!({"from": "warehouse", "into": "sales.\"a.b\"", "columns": ["a"], "where": "a > 1"}),
            json!({"types": {"a": "decimal(10,2)"}, "batch_size": 100, "if_exists": "upsert", "verify": "checksums"}),
            json!({"batch_size": "10000", "indexes": "false", "rows_per_second": 1, "bytes_per_second": "5"}),
            json!({"from": "{{ input.from }}", "table": "{{ input.table }}", "batch_size": "{{ input.rows }}"}),
            json!({"columns": ["{{ input.column }}"], "types": {"a": "{{ input.kind }}"}, "if_exists": "{{ input.if }}"}),
        ] {
            assert_eq!(check(&with(good.clone())), Ok(()), "{good}");
        }
        for bad in [
            json!({"from": null}),
            json!({"from": "oracle:x"}),
            json!({"to": 5}),
            json!({"to": "env:"}),
            json!({"table": ""}),
            json!({"table": "a.b.c"}),
            json!({"tables": "a"}),
            json!({"columns": []}),
            json!({"columns": "a"}),
            json!({"where": 1}),
            json!({"types": {"a": "varchar"}}),
            json!({"types": ["a"]}),
            json!({"batch_size": 99}),
            json!({"batch_size": 10_001}),
            json!({"batch_size": 2.5}),
            json!({"if_exists": "replace"}),
            json!({"on_row_error": true}),
            json!({"resume": "row"}),
            json!({"verify": "all"}),
            json!({"indexes": "yes"}),
            json!({"rows_per_second": 0}),
            json!({"bytes_per_second": -1}),
        ] {
            assert!(check(&with(bad.clone())).is_err(), "{bad}");
            assert!(parse(&with(bad.clone())).is_err(), "{bad}");
        }
        for bad in [json!(null), json!("x"), json!({"from": "a", "to": "b"})] {
            assert!(check(&bad).is_err(), "{bad}");
        }
    }
}
