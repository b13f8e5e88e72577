//! Names and values as they are written in a statement.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::batch::Value;
use crate::error::TableError;
use crate::table::TableName;

/// The server cuts off what is longer, in bytes.
pub(super) const LONGEST_NAME: usize = 63;

pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `"a", "b"`.
pub(super) fn quoted_list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(quoted).collect::<Vec<_>>().join(", ")
}

/// A text as a constant; `standard_conforming_strings` is on in every session.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A value as a constant, to be followed by a cast.
pub(super) fn value(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Bool(value) => format!("'{}'", i32::from(*value)),
        Value::Int(value) => format!("'{value}'"),
        Value::Uint(value) => format!("'{value}'"),
        Value::Float(value) => format!("'{}'", float(*value)),
        Value::Text(text) => literal(text),
        Value::Bytes(bytes) => {
            let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
            format!("'\\x{hex}'")
        }
    }
}

/// The shortest that means this very number.
pub(super) fn float(value: f64) -> String {
    if value.is_finite() {
        format!("{value:?}")
    } else if value.is_nan() {
        "NaN".to_owned()
    } else if value > 0.0 {
        "Infinity".to_owned()
    } else {
        "-Infinity".to_owned()
    }
}

/// A table in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) schema: String,
    pub(super) name: String,
}

impl Place {
    pub(super) fn beside(&self, name: impl Into<String>) -> Self {
        Self { schema: self.schema.clone(), name: name.into() }
    }

    pub(super) fn sql(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&self.name))
    }

    /// For people.
    pub(super) fn shown(&self) -> String {
        TableName { schema: Some(self.schema.clone()), name: self.name.clone() }.to_string()
    }

    /// Names that are too long would be cut off, and then be another table's.
    pub(super) fn checked(self) -> Result<Self, TableError> {
        if self.name.len() > LONGEST_NAME {
            return Err(TableError::Refused(format!(
                "`{}` is no name for a table of PostgreSQL, which has at most {LONGEST_NAME} bytes; give it another with `into`",
                self.name
            )));
        }
        Ok(self)
    }
}

/// The name of something that belongs to a table that is not in its place yet; no other table's has it.
pub(super) fn temporary(staging: &str, part: &str) -> String {
    let digest = Sha256::digest(staging);
    let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{}{hash}_{part}", crate::database::UNFINISHED)
}

/// `table_part`, cut in its first half if it is too long.
pub(super) fn joined(table: &str, part: &str) -> String {
    let part = cut(part, LONGEST_NAME / 2);
    let table = cut(table, LONGEST_NAME - 1 - part.len());
    format!("{table}_{part}")
}

/// No more than so many bytes, and only whole characters.
pub(super) fn cut(name: &str, bytes: usize) -> &str {
    let mut end = name.len().min(bytes);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_end_where_they_end() {
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
        assert_eq!(literal("it's \\ so"), "'it''s \\ so'");
        assert_eq!(value(&Value::Bytes(vec![0, 255])), "'\\x00ff'");
        assert_eq!(value(&Value::Float(f64::NEG_INFINITY)), "'-Infinity'");
    }

    #[test]
    fn a_joined_name_is_never_too_long() {
        let name = joined(&"ö".repeat(60), &"ä".repeat(60));
        assert!(name.len() <= LONGEST_NAME, "{name}");
        assert_eq!(joined("orders", "pkey"), "orders_pkey");
    }
}
