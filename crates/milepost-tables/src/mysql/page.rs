//! The statement for one page of a table: the rows after a key, in its order.

use mysql_async::Value;

use crate::batch;
use crate::table::Kind;

use super::decode::{self, Reads};
use super::spell::spell;
use super::sql;
use super::types::Native;

/// What stays the same from page to page.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) columns: Vec<Reads>,
    /// Positions in `columns`.
    pub(super) key: Vec<usize>,
    /// `FROM`, with the index to be used.
    pub(super) from: String,
    pub(super) conditions: Vec<String>,
    pub(super) limit: usize,
}

impl Pages {
    pub(super) fn statement(&self, after: Option<&[String]>) -> String {
        let names = sql::names(self.columns.iter().map(|column| column.name.as_str()));
        let after = after.map(|after| self.beyond(after, "> "));
        let conditions: Vec<&str> = self.conditions.iter().chain(&after).map(String::as_str).collect();
        let mut statement = format!("SELECT {names} FROM {}", self.from);
        if !conditions.is_empty() {
            statement.push_str(" WHERE ");
            statement.push_str(&conditions.join(" AND "));
        }
        if !self.key.is_empty() {
            let key = sql::names(self.key.iter().map(|column| self.columns[*column].name.as_str()));
            statement.push_str(&format!(" ORDER BY {key} LIMIT {}", self.limit));
        }
        statement
    }

    /// `(a > 1 OR (a = 1 AND b > 2))`: MySQL finds its way in an index by this, and not by `(a, b) > (1, 2)`.
    pub(super) fn beyond(&self, key: &[String], last: &str) -> String {
        let strict = &last[..1];
        let name = |part: usize| sql::name(&self.columns[self.key[part]].name);
        let clause = |depth: usize| {
            let same = (0..depth).map(|part| format!("{} = {}", name(part), key[part]));
            let sign = if depth + 1 == key.len() { last.trim_end() } else { strict };
            let parts: Vec<String> = same.chain([format!("{} {sign} {}", name(depth), key[depth])]).collect();
            format!("({})", parts.join(" AND "))
        };
        let clauses: Vec<String> = (0..key.len()).map(clause).collect();
        format!("({})", clauses.join(" OR "))
    }

    /// The key of a row, as literals.
    pub(super) fn key_of(&self, row: &[Value]) -> Vec<String> {
        self.key.iter().map(|column| literal(&self.columns[*column].native, &row[*column])).collect()
    }

    /// The key of a row, as `key_from` takes it.
    pub(super) fn values_of(&self, row: &[Value]) -> Vec<batch::Value> {
        self.key.iter().map(|column| kept_value(&self.columns[*column].native, &row[*column])).collect()
    }

    /// A key that comes from outside, as literals. None: it is none of this table.
    pub(super) fn key_from(&self, key: &[batch::Value]) -> Option<Vec<String>> {
        let columns = self.key.iter().map(|column| &self.columns[*column]);
        if key.len() != self.key.len() {
            return None;
        }
        columns.zip(key).map(|(column, value)| Some(literal(&column.native, &native_value(column, value)?))).collect()
    }
}

fn native_value(column: &Reads, value: &batch::Value) -> Option<Value> {
    Some(match value {
        batch::Value::Null => return None,
        batch::Value::Bool(value) => Value::Int(i64::from(*value)),
        batch::Value::Int(value) => Value::Int(*value),
        batch::Value::Uint(value) => Value::UInt(*value),
        batch::Value::Float(value) => Value::Double(*value),
        batch::Value::Text(text) => match (&column.native, &column.kind) {
            (Native::Bytes { .. }, Kind::Uuid) => Value::Bytes(uuid::Uuid::parse_str(text).ok()?.as_bytes().to_vec()),
            _ => Value::Bytes(text.clone().into_bytes()),
        },
        batch::Value::Bytes(bytes) => Value::Bytes(bytes.clone()),
    })
}

fn kept_value(native: &Native, value: &Value) -> batch::Value {
    match value {
        Value::NULL => batch::Value::Null,
        Value::Int(value) => batch::Value::Int(*value),
        Value::UInt(value) => batch::Value::Uint(*value),
        Value::Float(value) => batch::Value::Float(f64::from(*value)),
        Value::Double(value) => batch::Value::Float(*value),
        Value::Date(..) | Value::Time(..) => {
            let mut text = String::new();
            spell(&mut text, value, *native == Native::Date);
            batch::Value::Text(text)
        }
        Value::Bytes(bytes) => match (native, std::str::from_utf8(bytes)) {
            (Native::Bits { .. }, _) => batch::Value::Uint(decode::bits(bytes)),
            (Native::Bytes { .. }, _) | (_, Err(_)) => batch::Value::Bytes(bytes.clone()),
            (_, Ok(text)) => batch::Value::Text(text.to_owned()),
        },
    }
}

/// A value such that the column compares to it as it compares to its own values: numbers as numbers, and those of ENUM and
/// SET, which are in the order of their declaration, by their number as well.
fn literal(native: &Native, value: &Value) -> String {
    let mut sql = Vec::new();
    match value {
        Value::NULL => sql.extend_from_slice(b"NULL"),
        Value::Int(value) => sql::push_integer(&mut sql, *value),
        Value::UInt(value) => sql::push_digits(&mut sql, *value),
        Value::Float(value) => sql::push_float(&mut sql, f64::from(*value)),
        Value::Double(value) => sql::push_float(&mut sql, *value),
        Value::Date(..) | Value::Time(..) => {
            let mut text = String::new();
            spell(&mut text, value, *native == Native::Date);
            sql::push_quoted(&mut sql, text.as_bytes());
        }
        Value::Bytes(bytes) => match (native, std::str::from_utf8(bytes)) {
            (Native::Bits { .. }, _) => sql::push_digits(&mut sql, decode::bits(bytes)),
            (
                Native::Int { .. } | Native::Flag | Native::Year | Native::Float { .. } | Native::Decimal(_),
                Ok(text),
            ) if text.parse::<f64>().is_ok() => {
                sql.extend_from_slice(text.as_bytes());
            }
            (Native::Enum { values }, Ok(text)) => {
                let number = values.iter().position(|value| value == text).map_or(0, |at| at as u64 + 1);
                sql::push_digits(&mut sql, number);
            }
            (Native::Set { values }, Ok(text)) => {
                let bit = |member: &str| values.iter().position(|value| value == member).map_or(0, |at| 1_u64 << at);
                sql::push_digits(&mut sql, text.split(',').map(bit).sum());
            }
            (Native::Bytes { .. }, _) | (_, Err(_)) => {
                sql.extend_from_slice(b"x'");
                sql.extend(bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()));
                sql.push(b'\'');
            }
            (_, Ok(_)) => sql::push_quoted(&mut sql, bytes),
        },
    }
    String::from_utf8(sql).expect("bytes that are no text are written as digits")
}
