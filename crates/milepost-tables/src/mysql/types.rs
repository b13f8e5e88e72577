//! MySQL's own types, and the kind that each of them is.

use crate::table::{Digits, Kind};

/// A type as the catalogue describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Native {
    Int {
        bits: u8,
        unsigned: bool,
    },
    /// TINYINT(1), which everybody uses for a boolean.
    Flag,
    Year,
    Bits {
        width: u8,
    },
    Decimal(Digits),
    Float {
        bits: u8,
    },
    Text(TextType),
    Bytes {
        /// BINARY(n), which fills up with zeros.
        fixed: bool,
        length: u64,
    },
    Date,
    Time {
        fraction: u8,
    },
    DateTime {
        fraction: u8,
    },
    Timestamp {
        fraction: u8,
    },
    Enum {
        values: Vec<String>,
    },
    Set {
        values: Vec<String>,
    },
    Json,
    /// MariaDB's.
    Uuid,
    /// GEOMETRY and its like, as the bytes that the server itself stores.
    Space,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TextType {
    /// CHAR(n), which forgets spaces at the end.
    pub(super) fixed: bool,
    /// None: only bytes are limited.
    pub(super) characters: Option<u32>,
    pub(super) bytes: u64,
    pub(super) encoding: Encoding,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// Takes every character there is, as it is sent.
    Utf8,
    /// The same, of up to three bytes.
    Utf8OfThree,
    /// In some other way, mostly of one byte.
    Other,
}

/// A row of `information_schema.COLUMNS`, as far as it says something of the type.
#[derive(Debug, Default)]
pub(super) struct Described {
    /// `varchar`
    pub(super) data_type: String,
    /// `varchar(20)`
    pub(super) column_type: String,
    pub(super) length: Option<u64>,
    pub(super) octets: Option<u64>,
    pub(super) precision: Option<u32>,
    pub(super) scale: Option<u32>,
    pub(super) fraction: Option<u8>,
    pub(super) character_set: Option<String>,
    pub(super) collation: Option<String>,
}

impl Described {
    pub(super) fn native(&self) -> Native {
        let unsigned = self.column_type.contains(" unsigned");
        let fraction = self.fraction.unwrap_or(0);
        match self.data_type.as_str() {
            "tinyint" if self.column_type == "tinyint(1)" => Native::Flag,
            "tinyint" => Native::Int { bits: 8, unsigned },
            "smallint" => Native::Int { bits: 16, unsigned },
            "mediumint" => Native::Int { bits: 24, unsigned },
            "int" => Native::Int { bits: 32, unsigned },
            "bigint" => Native::Int { bits: 64, unsigned },
            "year" => Native::Year,
            "bit" => Native::Bits { width: self.precision.unwrap_or(1) as u8 },
            "decimal" => {
                Native::Decimal(Digits { precision: self.precision.unwrap_or(10), scale: self.scale.unwrap_or(0) })
            }
            "float" => Native::Float { bits: 32 },
            "double" => Native::Float { bits: 64 },
            "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" => Native::Text(TextType {
                fixed: self.data_type == "char",
                characters: self.data_type.ends_with("char").then(|| self.length.unwrap_or(0) as u32),
                bytes: self.octets.unwrap_or(u64::MAX),
                encoding: match self.character_set.as_deref() {
                    Some("utf8mb4") => Encoding::Utf8,
                    Some("utf8" | "utf8mb3") => Encoding::Utf8OfThree,
                    _ => Encoding::Other,
                },
            }),
            "binary" => Native::Bytes { fixed: true, length: self.octets.unwrap_or(0) },
            "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => {
                Native::Bytes { fixed: false, length: self.octets.unwrap_or(u64::MAX) }
            }
            "date" => Native::Date,
            "time" => Native::Time { fraction },
            "datetime" => Native::DateTime { fraction },
            "timestamp" => Native::Timestamp { fraction },
            "enum" => Native::Enum { values: listed(&self.column_type) },
            "set" => Native::Set { values: listed(&self.column_type) },
            "json" => Native::Json,
            "uuid" => Native::Uuid,
            "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring" | "multipolygon"
            | "geometrycollection" | "geomcollection" => Native::Space,
            _ => Native::Unknown,
        }
    }

    /// As one writes it to get the same again.
    pub(super) fn spelled(&self) -> String {
        match (&self.character_set, &self.collation) {
            (Some(set), Some(collation)) => format!("{} CHARACTER SET {set} COLLATE {collation}", self.column_type),
            _ => self.column_type.clone(),
        }
    }
}

impl Native {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Native::Int { bits, unsigned } => Kind::Int { bits: *bits, unsigned: *unsigned },
            Native::Flag | Native::Bits { width: 1 } => Kind::Bool,
            Native::Year => Kind::Int { bits: 16, unsigned: true },
            Native::Bits { .. } => Kind::Int { bits: 64, unsigned: true },
            Native::Decimal(digits) => Kind::Decimal { digits: Some(*digits) },
            Native::Float { bits } => Kind::Float { bits: *bits },
            Native::Text(text) => Kind::Text { length: text.characters },
            // A SET is a text of its members with commas between.
            Native::Set { .. } => Kind::Text { length: None },
            // Types of BLOB end where TEXT does, and mean no length.
            Native::Bytes { length, .. } => Kind::Bytes { length: u32::try_from(*length).ok().filter(is_declared) },
            Native::Space => Kind::Bytes { length: None },
            Native::Date => Kind::Date,
            Native::Time { fraction } => Kind::Time { fraction: *fraction },
            Native::DateTime { fraction } => Kind::DateTime { fraction: *fraction },
            Native::Timestamp { fraction } => Kind::Instant { fraction: *fraction },
            Native::Enum { values } => Kind::Enum { values: values.clone() },
            Native::Json => Kind::Json,
            Native::Uuid => Kind::Uuid,
            Native::Unknown => Kind::Other,
        }
    }
}

/// The limits of BLOB and MEDIUMBLOB are no lengths that somebody has chosen; LONGBLOB's is no longer one of `u32`'s.
fn is_declared(length: &u32) -> bool {
    !matches!(*length, 65_535 | 16_777_215 | u32::MAX)
}

/// What stands between the brackets of `enum('a','it''s')`.
fn listed(column_type: &str) -> Vec<String> {
    let mut values = Vec::new();
    let mut rest = column_type.split_once('(').map_or("", |(_, rest)| rest);
    while let Some(quoted) = rest.strip_prefix('\'') {
        let (value, after) = unquoted(quoted);
        values.push(value);
        rest = after.strip_prefix(',').unwrap_or("");
    }
    values
}

/// The text up to its closing quote, and what comes after that.
fn unquoted(quoted: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '\'' if quoted[at + 1..].starts_with('\'') => {
                chars.next();
                value.push('\'');
            }
            '\'' => return (value, &quoted[at + 1..]),
            '\\' => match chars.next() {
                Some((_, '0')) => value.push('\0'),
                Some((_, 'n')) => value.push('\n'),
                Some((_, 'r')) => value.push('\r'),
                Some((_, other)) => value.push(other),
                None => {}
            },
            other => value.push(other),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_an_enum_are_what_they_were_declared_as() {
        assert_eq!(
            listed("enum('a','it''s','a,b','x)','back\\\\slash','')"),
            ["a", "it's", "a,b", "x)", "back\\slash", ""]
        );
    }
}
