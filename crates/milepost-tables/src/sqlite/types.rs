//! What a declared type means, and which type is declared for what comes from elsewhere.

use crate::table::{Digits, Kind};

/// What SQLite does to a value on its way into a column: its rules, by the declared type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Affinity {
    /// Numbers become text.
    Text,
    /// Text that reads as a number becomes one.
    Numeric,
    Integer,
    Real,
    /// Everything stays what it is.
    Nothing,
}

/// Digits of a second where a type says nothing: as many as other databases keep.
const FRACTION: u8 = 6;

/// A declared type may carry its collation or that it never counts a number twice; see `catalogue`.
pub(super) const COLLATE: &str = " COLLATE ";
pub(super) const AUTOINCREMENT: &str = " AUTOINCREMENT";

/// How a column without a type is spelled, so that it differs from one whose type is not known.
pub(super) const UNTYPED: &str = "no type";

/// The type alone, as SQLite has it.
pub(super) fn bare(native: &str) -> &str {
    let native = native.strip_suffix(AUTOINCREMENT).unwrap_or(native);
    let native = native.rfind(COLLATE).map_or(native, |at| &native[..at]);
    if native == UNTYPED { "" } else { native }
}

pub(super) fn affinity(native: &str) -> Affinity {
    let name = bare(native).to_ascii_uppercase();
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    if has(&["INT"]) {
        Affinity::Integer
    } else if has(&["CHAR", "CLOB", "TEXT"]) {
        Affinity::Text
    } else if name.is_empty() || has(&["BLOB"]) {
        Affinity::Nothing
    } else if has(&["REAL", "FLOA", "DOUB"]) {
        Affinity::Real
    } else {
        Affinity::Numeric
    }
}

/// By name, as far as it is known; else by what SQLite makes of it. `Other` for a type that says nothing.
pub(super) fn kind(native: &str) -> Kind {
    let upper = bare(native).to_ascii_uppercase();
    let (name, rest) = upper.split_once('(').unwrap_or((&upper, ""));
    let arguments: Vec<u32> =
        rest.trim_end_matches(')').split(',').filter_map(|part| part.trim().parse().ok()).collect();
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    let length = arguments.first().copied();
    let fraction = length.map_or(FRACTION, |digits| digits.min(u32::from(FRACTION)) as u8);
    if let Some(kind) = integer(&name) {
        return kind;
    }
    match name.as_str() {
        "BOOL" | "BOOLEAN" => Kind::Bool,
        "FLOAT4" => Kind::Float { bits: 32 },
        "REAL" | "DOUBLE" | "DOUBLE PRECISION" | "FLOAT" | "FLOAT8" => Kind::Float { bits: 64 },
        "DECIMAL" | "NUMERIC" | "DEC" | "NUM" | "NUMBER" | "DECIMAL TEXT" => {
            let scale = arguments.get(1).copied().unwrap_or(0);
            Kind::Decimal { digits: length.map(|precision| Digits { precision, scale }) }
        }
        "CHAR" | "CHARACTER" | "NCHAR" | "VARCHAR" | "NVARCHAR" | "VARCHAR2" | "CHARACTER VARYING"
        | "VARYING CHARACTER" | "NATIVE CHARACTER" => Kind::Text { length },
        "BLOB" | "BINARY" | "VARBINARY" | "BINARY VARYING" | "BYTEA" => Kind::Bytes { length },
        "DATE" => Kind::Date,
        "TIME" | "TIME WITHOUT TIME ZONE" => Kind::Time { fraction },
        "DATETIME" | "TIMESTAMP" | "TIMESTAMP WITHOUT TIME ZONE" => Kind::DateTime { fraction },
        "TIMESTAMPTZ" | "TIMESTAMP WITH TIME ZONE" | "DATETIMEOFFSET" => Kind::Instant { fraction },
        "JSON" | "JSONB" | "JSON TEXT" => Kind::Json,
        "UUID" | "GUID" | "UNIQUEIDENTIFIER" | "UUID TEXT" => Kind::Uuid,
        _ => match affinity(native) {
            Affinity::Text => Kind::Text { length: None },
            Affinity::Real => Kind::Float { bits: 64 },
            Affinity::Nothing if !name.is_empty() => Kind::Bytes { length: None },
            Affinity::Nothing | Affinity::Numeric | Affinity::Integer => Kind::Other,
        },
    }
}

/// Names that mean more than 32 bits elsewhere, or nothing certain, are 64: that is what SQLite holds in any of them.
fn integer(name: &str) -> Option<Kind> {
    if name == UNSIGNED_64 {
        return Some(Kind::Int { bits: 64, unsigned: true });
    }
    let (name, unsigned) = match (name.strip_suffix(" UNSIGNED"), name.strip_prefix("UNSIGNED ")) {
        (Some(name), _) | (None, Some(name)) => (name, true),
        (None, None) => (name, false),
    };
    let bits = match name {
        "TINYINT" => 8,
        "SMALLINT" | "INT2" => 16,
        "MEDIUMINT" => 24,
        "INT4" => 32,
        "INT" | "INTEGER" | "BIGINT" | "BIG INT" | "INT8" => 64,
        _ => return None,
    };
    Some(Kind::Int { bits, unsigned: unsigned && bits < 64 })
}

/// SQLite's integers end where half of these begin. With this name it changes no value on its way in: those that fit are
/// integers, in their order, and the others are text.
const UNSIGNED_64: &str = "UNSIGNED BIG BLOB";

/// For a column that comes from another kind of database. Decimals, JSON and UUIDs are TEXT to SQLite, which would make
/// numbers of them else, and round them.
pub(super) fn declared(kind: &Kind) -> String {
    let fraction = |name: &str, fraction: u8| {
        if fraction == FRACTION { name.to_owned() } else { format!("{name}({fraction})") }
    };
    match kind {
        Kind::Bool => "BOOLEAN".into(),
        Kind::Int { bits: 64, unsigned: true } => UNSIGNED_64.into(),
        Kind::Int { bits, unsigned } => {
            let name = match bits {
                8 => "TINYINT",
                16 => "SMALLINT",
                24 => "MEDIUMINT",
                32 => "INT4",
                _ => "INTEGER",
            };
            if *unsigned { format!("{name} UNSIGNED") } else { name.into() }
        }
        Kind::Float { bits: 32 } => "FLOAT4".into(),
        Kind::Float { .. } => "REAL".into(),
        Kind::Decimal { digits: Some(Digits { precision, scale }) } => format!("DECIMAL TEXT({precision},{scale})"),
        Kind::Decimal { digits: None } => "DECIMAL TEXT".into(),
        Kind::Text { length: Some(length) } => format!("VARCHAR({length})"),
        Kind::Text { length: None } | Kind::Enum { .. } | Kind::Other => "TEXT".into(),
        Kind::Bytes { length: Some(length) } => format!("BLOB({length})"),
        Kind::Bytes { length: None } => "BLOB".into(),
        Kind::Date => "DATE".into(),
        Kind::Time { fraction: digits } => fraction("TIME", *digits),
        Kind::DateTime { fraction: digits } => fraction("DATETIME", *digits),
        Kind::Instant { fraction: digits } => fraction("TIMESTAMPTZ", *digits),
        Kind::Json => "JSON TEXT".into(),
        Kind::Uuid => "UUID TEXT".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_is_declared_for_a_kind_is_read_as_that_kind_again() {
        let kinds = [
            Kind::Bool,
            Kind::Int { bits: 8, unsigned: false },
            Kind::Int { bits: 16, unsigned: true },
            Kind::Int { bits: 24, unsigned: true },
            Kind::Int { bits: 32, unsigned: true },
            Kind::Int { bits: 32, unsigned: false },
            Kind::Int { bits: 64, unsigned: false },
            Kind::Int { bits: 64, unsigned: true },
            Kind::Float { bits: 32 },
            Kind::Float { bits: 64 },
            Kind::Decimal { digits: Some(Digits { precision: 30, scale: 10 }) },
            Kind::Decimal { digits: None },
            Kind::Text { length: Some(20) },
            Kind::Text { length: None },
            Kind::Bytes { length: Some(16) },
            Kind::Bytes { length: None },
            Kind::Date,
            Kind::Time { fraction: 0 },
            Kind::DateTime { fraction: 3 },
            Kind::Instant { fraction: 6 },
            Kind::Json,
            Kind::Uuid,
        ];
        for expected in kinds {
            assert_eq!(kind(&declared(&expected)), expected, "{}", declared(&expected));
        }
    }

    #[test]
    fn what_must_stay_text_is_text_to_sqlite() {
        for kind in [Kind::Decimal { digits: None }, Kind::Json, Kind::Uuid, Kind::Other] {
            assert_eq!(affinity(&declared(&kind)), Affinity::Text, "{kind:?}");
        }
        assert_eq!(affinity(&declared(&Kind::Int { bits: 64, unsigned: true })), Affinity::Nothing);
    }

    #[test]
    fn well_known_names_are_what_they_say() {
        let cases = [
            ("integer", Kind::Int { bits: 64, unsigned: false }),
            ("INT UNSIGNED", Kind::Int { bits: 64, unsigned: false }),
            ("UNSIGNED BIG INT", Kind::Int { bits: 64, unsigned: false }),
            ("VARYING  CHARACTER (255)", Kind::Text { length: Some(255) }),
            ("DECIMAL(10)", Kind::Decimal { digits: Some(Digits { precision: 10, scale: 0 }) }),
            ("numeric(12, 4)", Kind::Decimal { digits: Some(Digits { precision: 12, scale: 4 }) }),
            ("timestamp with time zone", Kind::Instant { fraction: 6 }),
            ("DATETIME(3)", Kind::DateTime { fraction: 3 }),
            ("TEXT COLLATE NOCASE", Kind::Text { length: None }),
            ("LONGTEXT", Kind::Text { length: None }),
            (UNTYPED, Kind::Other),
            ("GEOPOINT", Kind::Other),
            ("MONEY", Kind::Other),
        ];
        for (native, expected) in cases {
            assert_eq!(kind(native), expected, "{native}");
        }
    }
}
