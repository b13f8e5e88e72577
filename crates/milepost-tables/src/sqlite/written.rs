//! A cell on its way into a column: bound as it is, or refused if SQLite would make something else of it.

use rusqlite::Statement;

use super::numbers::{exact_integer, is_number, real_text};
use super::types::Affinity;
use crate::batch::{Batch, Cell};
use crate::canonical;
use crate::table::Kind;

/// A column that is written.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) affinity: Affinity,
    /// The row's own number: SQLite invents one where none is given.
    pub(super) numbers_rows: bool,
}

/// Why a cell was not bound.
pub(super) enum Unbound {
    Reason(String),
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for Unbound {
    fn from(error: rusqlite::Error) -> Self {
        Unbound::Sql(error)
    }
}

impl Target {
    pub(super) fn bind(
        &self,
        statement: &mut Statement<'_>,
        place: usize,
        batch: &Batch,
        cell: Cell,
    ) -> Result<(), Unbound> {
        match cell {
            Cell::Null if self.numbers_rows => return Err(self.reason("is NULL, and the primary key".into())),
            Cell::Null => statement.raw_bind_parameter(place, rusqlite::types::Null)?,
            Cell::Bool(value) => statement.raw_bind_parameter(place, value)?,
            Cell::Int(value) if self.affinity == Affinity::Real && exact_integer(value as f64) != Some(value) => {
                return Err(self.reason(format!("is {value}, which no floating-point number is")));
            }
            Cell::Int(value) => statement.raw_bind_parameter(place, value)?,
            Cell::Uint(value) => match self.affinity {
                Affinity::Text | Affinity::Nothing => statement.raw_bind_parameter(place, value.to_string())?,
                Affinity::Numeric | Affinity::Integer | Affinity::Real => {
                    let most = i64::MAX;
                    return Err(self.reason(format!("is {value}, and {most} is the most that SQLite's integers hold")));
                }
            },
            Cell::Float(value) if value.is_nan() => {
                return Err(self.reason("is NaN, which SQLite takes for NULL".into()));
            }
            Cell::Float(value) if self.affinity == Affinity::Text => {
                statement.raw_bind_parameter(place, real_text(value))?;
            }
            Cell::Float(value) => statement.raw_bind_parameter(place, value)?,
            Cell::Text(span) => {
                let text = batch.text(span);
                if !self.stays(text) {
                    return Err(self.reason(format!(
                        "is {text:?}, which SQLite would turn into another number in a column of this type"
                    )));
                }
                statement.raw_bind_parameter(place, text)?;
            }
            Cell::Bytes(span) => statement.raw_bind_parameter(place, batch.bytes(span))?,
        }
        Ok(())
    }

    /// True if a text that becomes a number is the same when that number is told as text again.
    fn stays(&self, text: &str) -> bool {
        let spaces = [' ', '\t', '\n', '\u{b}', '\u{c}', '\r'];
        if matches!(self.affinity, Affinity::Text | Affinity::Nothing) || !is_number(text.trim_matches(spaces)) {
            return true;
        }
        if text.parse::<i64>().is_ok_and(|value| value.to_string() == text) && self.affinity != Affinity::Real {
            return true;
        }
        let Ok(value) = text.parse::<f64>() else { return false };
        if !value.is_finite() {
            return false;
        }
        match self.kind {
            Kind::Decimal { .. } => same_number(&canonical::decimal(text), &value.to_string()),
            _ => real_text(value) == text && exact_integer(value).is_none(),
        }
    }

    fn reason(&self, what: String) -> Unbound {
        Unbound::Reason(format!("column \"{}\" {what}", self.name))
    }
}

/// Without zeros that say nothing.
fn same_number(one: &str, other: &str) -> bool {
    fn bare(text: &str) -> (bool, &str, &str) {
        let (negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        (negative, whole.trim_start_matches('0'), fraction.trim_end_matches('0'))
    }
    bare(one) == bare(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stays(kind: Kind, affinity: Affinity, text: &str) -> bool {
        Target { name: "a".into(), kind, affinity, numbers_rows: false }.stays(text)
    }

    #[test]
    fn a_decimal_may_become_a_number_that_is_the_same() {
        let decimal = Kind::Decimal { digits: None };
        for (text, expected) in [
            ("12.50", true),
            ("-0.1", true),
            ("9223372036854775807", true),
            ("9223372036854775808.1", false),
            ("0.1234567890123456789", false),
            ("NaN", true),
        ] {
            assert_eq!(stays(decimal.clone(), Affinity::Numeric, text), expected, "{text}");
        }
    }

    #[test]
    fn a_text_may_not_become_a_number_that_reads_otherwise() {
        let text = Kind::Text { length: None };
        for (given, expected) in [
            ("007", false),
            ("7", true),
            ("1e3", false),
            (" 1", false),
            ("\u{a0}1", true),
            ("1e999999999", false),
            ("1.0", false),
            ("1.5", true),
            ("seven", true),
            ("2024-01-01", true),
            ("", true),
        ] {
            assert_eq!(stays(text.clone(), Affinity::Numeric, given), expected, "{given}");
            assert!(stays(text.clone(), Affinity::Text, given), "{given}");
        }
    }
}
