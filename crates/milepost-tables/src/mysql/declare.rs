//! A kind of another database as a column of this one.
//!
//! Decimals without limit become DECIMAL(65,30), the widest there is: numbers stay numbers, and those that do not fit are
//! rejected, never rounded. A moment becomes a DATETIME in UTC, since TIMESTAMP ends in 2038 and begins in 1970. A UUID is
//! CHAR(36), which reads the same everywhere. Text gets a collation in which distinct keys stay distinct.

use crate::table::{Digits, Kind};

use super::connect::Facts;
use super::sql;

/// Bytes that a character may take.
pub(super) const CHARACTER: u32 = 4;
/// A longer VARCHAR would be a row by itself.
const LONGEST_VARCHAR: u32 = 16_383;
/// A longer VARBINARY as well.
const LONGEST_VARBINARY: u32 = 65_000;
const DIGITS: Digits = Digits { precision: 65, scale: 30 };

/// How long a text or bytes may be, beyond what the kind itself says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// As the kind says.
    Free,
    /// Part of a key: no longer than these bytes.
    Key(u32),
    /// Outside the row itself, however short it is.
    Outside,
}

/// A type, and what it takes of the 65,535 bytes of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Declared {
    pub(super) sql: String,
    pub(super) row_bytes: u32,
}

pub(super) fn declared(kind: &Kind, room: Room, facts: Facts) -> Declared {
    let of = |sql: &str, row_bytes: u32| Declared { sql: sql.to_owned(), row_bytes };
    match kind {
        Kind::Bool => of("TINYINT(1)", 1),
        Kind::Int { bits, unsigned } => {
            let (name, bytes) = match bits {
                ..=8 => ("TINYINT", 1),
                9..=16 => ("SMALLINT", 2),
                17..=24 => ("MEDIUMINT", 3),
                25..=32 => ("INT", 4),
                _ => ("BIGINT", 8),
            };
            of(&format!("{name}{}", if *unsigned { " UNSIGNED" } else { "" }), bytes)
        }
        Kind::Float { bits: ..=32 } => of("FLOAT", 4),
        Kind::Float { .. } => of("DOUBLE", 8),
        Kind::Decimal { digits } => {
            let Digits { precision, scale } = digits.filter(fits).unwrap_or_else(|| widest(*digits));
            of(&format!("DECIMAL({precision},{scale})"), 32)
        }
        Kind::Text { length } => text(*length, room, facts),
        Kind::Other => text(None, room, facts),
        Kind::Enum { values } => match longest(values) {
            Some(_) => {
                let values: Vec<String> = values.iter().map(|value| sql::text(value)).collect();
                of(&format!("ENUM({}){}", values.join(","), collated(facts)), 2)
            }
            None => text(values.iter().map(|value| value.chars().count() as u32).max(), room, facts),
        },
        Kind::Bytes { length } => bytes(*length, room),
        Kind::Date => of("DATE", 3),
        Kind::Time { fraction } => of(&format!("TIME({})", fraction.min(&6)), 6),
        Kind::DateTime { fraction } | Kind::Instant { fraction } => of(&format!("DATETIME({})", fraction.min(&6)), 8),
        Kind::Json => of("JSON", 12),
        Kind::Uuid => of("CHAR(36) CHARACTER SET ascii COLLATE ascii_bin", 36),
    }
}

/// Bytes in an index; None: has no end.
pub(super) fn key_bytes(kind: &Kind, facts: Facts) -> Option<u32> {
    match kind {
        Kind::Text { length } => length.map(|length| length.saturating_mul(CHARACTER)),
        Kind::Bytes { length } => *length,
        Kind::Other | Kind::Json => None,
        other => Some(declared(other, Room::Free, facts).row_bytes),
    }
}

fn fits(digits: &Digits) -> bool {
    digits.precision <= DIGITS.precision && digits.scale <= DIGITS.scale && digits.scale <= digits.precision
}

/// More than there is: as much as there is, with the digits after the point that were asked for, if there are so many.
fn widest(digits: Option<Digits>) -> Digits {
    Digits { scale: digits.map_or(DIGITS.scale, |digits| digits.scale.min(DIGITS.scale)), ..DIGITS }
}

/// None if ENUM would not keep the values as they are: it forgets spaces at the end, and takes only so many.
fn longest(values: &[String]) -> Option<usize> {
    let sound = values.iter().all(|value| !value.ends_with(' ') && value.chars().count() <= 255);
    (sound && values.len() <= 60_000).then(|| values.iter().map(String::len).max()).flatten()
}

fn collated(facts: Facts) -> String {
    format!(" CHARACTER SET utf8mb4 COLLATE {}", facts.exact_collation())
}

fn text(length: Option<u32>, room: Room, facts: Facts) -> Declared {
    let length = match (length, room) {
        (length, Room::Key(bytes)) => Some(length.unwrap_or(u32::MAX).min(bytes / CHARACTER)),
        (_, Room::Outside) => None,
        (length, Room::Free) => length.filter(|length| *length <= LONGEST_VARCHAR),
    };
    match length.map(|length| length.max(1)) {
        Some(length) => {
            Declared { sql: format!("VARCHAR({length}){}", collated(facts)), row_bytes: length * CHARACTER + 2 }
        }
        None => Declared { sql: format!("LONGTEXT{}", collated(facts)), row_bytes: 12 },
    }
}

fn bytes(length: Option<u32>, room: Room) -> Declared {
    let length = match (length, room) {
        (length, Room::Key(bytes)) => Some(length.unwrap_or(u32::MAX).min(bytes)),
        (_, Room::Outside) => None,
        (length, Room::Free) => length.filter(|length| *length <= LONGEST_VARBINARY),
    };
    match length.map(|length| length.max(1)) {
        Some(length) => Declared { sql: format!("VARBINARY({length})"), row_bytes: length + 2 },
        None => Declared { sql: "LONGBLOB".to_owned(), row_bytes: 12 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARIA: Facts = Facts { maria: true, packet: 1 << 24, local_infile: true };

    fn of(kind: Kind) -> String {
        declared(&kind, Room::Free, MARIA).sql
    }

    #[test]
    fn every_kind_has_a_type_that_holds_it() {
        assert_eq!(of(Kind::Int { bits: 24, unsigned: true }), "MEDIUMINT UNSIGNED");
        assert_eq!(of(Kind::Decimal { digits: None }), "DECIMAL(65,30)");
        assert_eq!(of(Kind::Decimal { digits: Some(Digits { precision: 100, scale: 2 }) }), "DECIMAL(65,2)");
        assert_eq!(of(Kind::Instant { fraction: 6 }), "DATETIME(6)");
        assert_eq!(of(Kind::Text { length: Some(20) }), "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin");
        assert_eq!(of(Kind::Text { length: Some(20_000) }), of(Kind::Text { length: None }));
        assert!(of(Kind::Enum { values: vec!["it's".to_owned()] }).starts_with(r"ENUM('it\'s') "));
    }

    #[test]
    fn an_enum_that_ends_in_a_space_is_a_text() {
        assert!(of(Kind::Enum { values: vec!["a ".to_owned()] }).starts_with("VARCHAR(2) "));
    }

    #[test]
    fn a_text_in_a_key_has_an_end() {
        let kind = Kind::Text { length: None };
        assert!(declared(&kind, Room::Key(3072), MARIA).sql.starts_with("VARCHAR(768) "));
    }
}
