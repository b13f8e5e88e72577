//! Rows as numbers that can be compared across databases.
//!
//! A row's number is half of the SHA-256 of its values in one spelling, and the number of many rows is the sum of theirs,
//! whatever their order. SHA-256 because it is here already, leaves no doubt that different rows differ, and is faster
//! than any database hands out rows.

use std::borrow::Cow;

use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use crate::batch::{Batch, Cell};
use crate::table::Kind;

/// Of some rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) rows: u64,
    total: u128,
}

impl Sum {
    pub(super) fn add(&mut self, row: u128) {
        self.rows += 1;
        self.total = self.total.wrapping_add(row);
    }
}

/// The number of one row.
pub(super) fn number(kinds: &[Kind], batch: &Batch, row: &[Cell], buffer: &mut Vec<u8>) -> u128 {
    buffer.clear();
    for (cell, kind) in row.iter().zip(kinds) {
        spell(*cell, kind, batch, buffer);
    }
    let digest = Sha256::digest(&buffer);
    u128::from_le_bytes(digest[..16].try_into().expect("a SHA-256 has 32 bytes"))
}

/// Each value begins with what it is, and those of any length with their length: no two rows are spelled alike.
fn spell(cell: Cell, kind: &Kind, batch: &Batch, to: &mut Vec<u8>) {
    let mut bytes = |tag: u8, bytes: &[u8]| {
        to.push(tag);
        to.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        to.extend_from_slice(bytes);
    };
    match cell {
        Cell::Null => to.push(0),
        Cell::Bool(value) => to.extend([1, u8::from(value)]),
        Cell::Int(value) => bytes(2, &i128::from(value).to_le_bytes()),
        Cell::Uint(value) => bytes(2, &i128::from(value).to_le_bytes()),
        Cell::Float(value) => bytes(3, &float(value, kind).to_le_bytes()),
        Cell::Bytes(span) => bytes(4, batch.bytes(span)),
        Cell::Text(span) => match kind {
            Kind::Decimal { .. } => bytes(5, decimal(batch.text(span)).as_bytes()),
            Kind::Json => bytes(5, json(batch.text(span)).as_bytes()),
            _ => bytes(5, batch.bytes(span)),
        },
    }
}

/// SQLite has no zero below zero, and there are many spellings of NaN.
fn float(value: f64, kind: &Kind) -> u64 {
    if value == 0.0 {
        0
    } else if value.is_nan() {
        f64::NAN.to_bits()
    } else if *kind == (Kind::Float { bits: 32 }) {
        f64::from(value as f32).to_bits()
    } else {
        value.to_bits()
    }
}

/// Without zeros that say nothing: `-0012.50` is `-12.5`.
fn decimal(text: &str) -> Cow<'_, str> {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("-", digits));
    if !digits.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.') {
        return Cow::Borrowed(text);
    }
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    match (whole, fraction) {
        ("", "") => Cow::Borrowed("0"),
        (whole, "") => Cow::Owned(format!("{sign}{whole}")),
        (whole, fraction) => Cow::Owned(format!("{sign}{whole}.{fraction}")),
    }
}

/// Databases keep the members of objects in orders of their own, and numbers in spellings of their own.
fn json(text: &str) -> Cow<'_, str> {
    match serde_json::from_str::<Json>(text) {
        Ok(value) => Cow::Owned(sorted(value).to_string()),
        Err(_) => Cow::Borrowed(text),
    }
}

fn sorted(value: Json) -> Json {
    match value {
        Json::Array(items) => Json::Array(items.into_iter().map(sorted).collect()),
        Json::Object(members) => {
            let mut members: Vec<_> = members.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            members.sort_by(|(a, _), (b, _)| a.cmp(b));
            Json::Object(members.into_iter().collect())
        }
        Json::Number(number) => match number.as_f64() {
            // 1 and 1.0 are one number in JSON; beyond this a float does not have all integers.
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 9e15 => Json::from(float as i64),
            Some(_) | None => Json::Number(number),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: Kind, fill: impl FnOnce(&mut Batch)) -> u128 {
        let mut batch = Batch::new(1);
        fill(&mut batch);
        number(&[kind], &batch, batch.row(0), &mut Vec::new())
    }

    fn text(kind: &str, text: &str) -> u128 {
        of(kind.parse().unwrap(), |batch| batch.push_text(text))
    }

    #[test]
    fn one_value_in_two_spellings_is_one_value() {
        let same = [
            ("decimal", "12.50", "12.5"),
            ("decimal", "-0.00", "0"),
            ("decimal", "007", "7.0"),
            ("decimal", "0.5", ".5"),
            ("json", r#"{"b": [1, 2.0], "a": null}"#, r#"{"a":null,"b":[1.0,2]}"#),
        ];
        for (kind, one, other) in same {
            assert_eq!(text(kind, one), text(kind, other), "{one} and {other}");
        }
        let float = |bits, value| of(Kind::Float { bits }, |batch| batch.push(Cell::Float(value)));
        assert_eq!(float(64, 0.0), float(64, -0.0));
        assert_eq!(float(32, 0.1), float(32, f64::from(0.1_f32)));
        let int = |cell| of(Kind::Int { bits: 64, unsigned: true }, |batch| batch.push(cell));
        assert_eq!(int(Cell::Int(7)), int(Cell::Uint(7)));
    }

    #[test]
    fn values_that_differ_are_not_one() {
        let differ = [
            ("decimal", "12.5", "125"),
            ("decimal", "10", "1"),
            ("decimal", "-1", "1"),
            ("decimal", "NaN", "0"),
            ("text", "a", "a "),
            ("text", "12.50", "12.5"),
            ("json", "[1,2]", "[2,1]"),
            ("json", r#""1""#, "1"),
        ];
        for (kind, one, other) in differ {
            assert_ne!(text(kind, one), text(kind, other), "{one} and {other}");
        }
        let null = of(Kind::Json, |batch| batch.push(Cell::Null));
        assert_ne!(null, text("json", "null"));
        assert_ne!(of(Kind::Bytes { length: None }, |batch| batch.push_bytes(b"a")), text("text", "a"));
    }

    #[test]
    fn a_border_between_two_values_is_part_of_a_row() {
        let kinds = [Kind::Text { length: None }, Kind::Text { length: None }];
        let of = |one: &str, other: &str| {
            let mut batch = Batch::new(2);
            batch.push_text(one);
            batch.push_text(other);
            number(&kinds, &batch, batch.row(0), &mut Vec::new())
        };
        assert_ne!(of("ab", "c"), of("a", "bc"));
    }
}
