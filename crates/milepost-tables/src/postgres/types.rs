//! PostgreSQL's types: what each of them holds, and which of them holds what another database has.

use crate::table::{Column, Digits, Kind};

use super::names::{literal, quoted};

/// What a type is at bottom, below domains and modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    Bool,
    Int {
        bits: u8,
    },
    Oid,
    Real,
    Double,
    Numeric,
    Money,
    Text,
    /// `char(n)`: blanks at its end are no part of a value.
    Padded,
    Bytes,
    Date,
    Time,
    Timestamp,
    TimestampTz,
    Json,
    Uuid,
    Enum,
    Other,
}

/// The type of one column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Native {
    pub(super) base: Base,
    /// As the catalogue has it: length, digits; -1: none.
    pub(super) modifier: i32,
    /// As it is written in a cast.
    pub(super) sql: String,
    /// Of an enumeration.
    pub(super) labels: Vec<String>,
}

impl Base {
    /// Of a type that is no domain, by its name; `own`: it is the server's own. `class`: `e` is an enumeration.
    pub(super) fn of(name: &str, own: bool, class: &str) -> Self {
        match name {
            _ if class == "e" => Base::Enum,
            "citext" => Base::Text,
            _ if !own => Base::Other,
            "bool" => Base::Bool,
            "int2" => Base::Int { bits: 16 },
            "int4" => Base::Int { bits: 32 },
            "int8" => Base::Int { bits: 64 },
            "oid" => Base::Oid,
            "float4" => Base::Real,
            "float8" => Base::Double,
            "numeric" => Base::Numeric,
            "money" => Base::Money,
            "text" | "varchar" | "name" => Base::Text,
            "bpchar" => Base::Padded,
            "bytea" => Base::Bytes,
            "date" => Base::Date,
            "time" => Base::Time,
            "timestamp" => Base::Timestamp,
            "timestamptz" => Base::TimestampTz,
            "json" | "jsonb" => Base::Json,
            "uuid" => Base::Uuid,
            _ => Base::Other,
        }
    }
}

impl Native {
    pub(super) fn kind(&self) -> Kind {
        match self.base {
            Base::Bool => Kind::Bool,
            Base::Int { bits } => Kind::Int { bits, unsigned: false },
            Base::Oid => Kind::Int { bits: 32, unsigned: true },
            Base::Real => Kind::Float { bits: 32 },
            Base::Double => Kind::Float { bits: 64 },
            Base::Numeric => Kind::Decimal { digits: self.digits() },
            Base::Money => Kind::Decimal { digits: None },
            Base::Text | Base::Padded => Kind::Text { length: self.length() },
            Base::Bytes => Kind::Bytes { length: None },
            Base::Date => Kind::Date,
            Base::Time => Kind::Time { fraction: self.fraction() },
            Base::Timestamp => Kind::DateTime { fraction: self.fraction() },
            Base::TimestampTz => Kind::Instant { fraction: self.fraction() },
            Base::Json => Kind::Json,
            Base::Uuid => Kind::Uuid,
            Base::Enum => Kind::Enum { values: self.labels.clone() },
            Base::Other => Kind::Other,
        }
    }

    /// Of a text, in characters.
    pub(super) fn length(&self) -> Option<u32> {
        u32::try_from(self.modifier - 4).ok().filter(|_| matches!(self.base, Base::Text | Base::Padded))
    }

    /// Of a number; none as well if it is rounded before its point.
    pub(super) fn digits(&self) -> Option<Digits> {
        let packed = u32::try_from(self.modifier.checked_sub(4)?).ok()?;
        // Eleven bits, the highest of them the sign.
        let scale = ((packed & 0x7ff) ^ 0x400).checked_sub(0x400);
        scale.map(|scale| Digits { precision: packed >> 16, scale })
    }

    /// Digits before a number's point that are rounded away: three of `numeric(6,-3)`.
    pub(super) fn rounded(&self) -> Option<usize> {
        let packed = u32::try_from(self.modifier.checked_sub(4)?).ok()?;
        0x400_u32.checked_sub((packed & 0x7ff) ^ 0x400).map(|zeros| zeros as usize).filter(|zeros| *zeros > 0)
    }

    /// Digits after a second.
    pub(super) fn fraction(&self) -> u8 {
        u8::try_from(self.modifier).unwrap_or(6)
    }

    /// What is selected, so that the value's spelling does not depend on a locale or on padding.
    pub(super) fn selected(&self, column: &str) -> String {
        match self.base {
            Base::Money => format!("{column}::numeric"),
            Base::Padded => format!("{column}::text"),
            _ => column.to_owned(),
        }
    }

    /// A constant of this type, from a text that `selected` or a reader has spelled.
    pub(super) fn constant(&self, quoted: &str) -> String {
        match self.base {
            Base::Money => format!("{quoted}::numeric::{}", self.sql),
            _ => format!("{quoted}::{}", self.sql),
        }
    }
}

/// The type of a new column for what another database has, and a check where the type alone says too little.
pub(super) fn declaration(column: &Column) -> String {
    match &column.kind {
        Kind::Bool => "boolean".to_owned(),
        Kind::Int { bits: 8, .. } | Kind::Int { bits: 16, unsigned: false } => "smallint".to_owned(),
        Kind::Int { bits: 16 | 24, .. } | Kind::Int { bits: 32, unsigned: false } => "integer".to_owned(),
        // What is counted up never gets beyond a bigint, and only a bigint can be counted up here.
        Kind::Int { bits: 64, unsigned: true } if !column.counts_up => "numeric(20)".to_owned(),
        Kind::Int { .. } => "bigint".to_owned(),
        Kind::Float { bits: 32 } => "real".to_owned(),
        Kind::Float { .. } => "double precision".to_owned(),
        Kind::Decimal { digits: Some(Digits { precision: precision @ 1..=1000, scale }) } if scale <= precision => {
            format!("numeric({precision},{scale})")
        }
        Kind::Decimal { .. } => "numeric".to_owned(),
        Kind::Text { length: Some(length @ 1..=10_485_760) } => format!("varchar({length})"),
        Kind::Text { .. } | Kind::Other => "text".to_owned(),
        Kind::Bytes { .. } => "bytea".to_owned(),
        Kind::Date => "date".to_owned(),
        Kind::Time { fraction } => format!("time({})", fraction.min(&6)),
        Kind::DateTime { fraction } => format!("timestamp({})", fraction.min(&6)),
        Kind::Instant { fraction } => format!("timestamptz({})", fraction.min(&6)),
        // Not jsonb, which drops doubled keys and the spelling: what is read back would not be what was written.
        Kind::Json => "json".to_owned(),
        Kind::Uuid => "uuid".to_owned(),
        Kind::Enum { values } => {
            let values = values.iter().map(|value| literal(value)).collect::<Vec<_>>().join(", ");
            if values.is_empty() {
                "text".to_owned()
            } else {
                format!("text CHECK ({} IN ({values}))", quoted(&column.name))
            }
        }
    }
}

/// How people make a type that is missing, where that is known.
pub(super) fn creation(native: &str, kind: &Kind) -> String {
    match kind {
        Kind::Enum { values } => {
            let values = values.iter().map(|value| literal(value)).collect::<Vec<_>>().join(", ");
            format!(" (CREATE TYPE {native} AS ENUM ({values}))")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numeric(modifier: i32) -> Native {
        Native { base: Base::Numeric, modifier, sql: "numeric".into(), labels: Vec::new() }
    }

    #[test]
    fn the_digits_of_a_number_are_taken_out_of_its_modifier() {
        assert_eq!(numeric(-1).digits(), None);
        assert_eq!(numeric((10 << 16 | 2) + 4).digits(), Some(Digits { precision: 10, scale: 2 }));
        // numeric(5,-2)
        let rounding = numeric((5 << 16 | 0x7fe) + 4);
        assert_eq!((rounding.digits(), rounding.rounded()), (None, Some(2)));
        assert_eq!(numeric((10 << 16 | 2) + 4).rounded(), None);
    }

    #[test]
    fn an_integer_gets_the_smallest_type_that_holds_all_of_its_kind() {
        let declared = |bits, unsigned, counts_up| {
            let kind = Kind::Int { bits, unsigned };
            let (name, native) = ("id".into(), String::new());
            declaration(&Column { name, kind, native, nullable: false, counts_up, generated: false, default: false })
        };
        assert_eq!(declared(8, true, false), "smallint");
        assert_eq!(declared(16, true, false), "integer");
        assert_eq!(declared(32, true, false), "bigint");
        assert_eq!(declared(64, true, false), "numeric(20)");
        assert_eq!(declared(64, true, true), "bigint");
    }
}
