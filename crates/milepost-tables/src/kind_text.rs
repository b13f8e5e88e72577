//! Kinds as people write and read them: `decimal(10,2)`, `int32`, `text`.

use std::fmt;
use std::str::FromStr;

use crate::table::{Digits, Kind};

/// Of a time, when nothing else is said: microseconds, which every database has.
const FRACTION: u8 = 6;

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Bool => f.write_str("bool"),
            Kind::Int { bits, unsigned: false } => write!(f, "int{bits}"),
            Kind::Int { bits, unsigned: true } => write!(f, "uint{bits}"),
            Kind::Float { bits } => write!(f, "float{bits}"),
            Kind::Decimal { digits: None } => f.write_str("decimal"),
            Kind::Decimal { digits: Some(digits) } => write!(f, "decimal({},{})", digits.precision, digits.scale),
            Kind::Text { length: None } => f.write_str("text"),
            Kind::Text { length: Some(length) } => write!(f, "text({length})"),
            Kind::Bytes { length: None } => f.write_str("bytes"),
            Kind::Bytes { length: Some(length) } => write!(f, "bytes({length})"),
            Kind::Date => f.write_str("date"),
            Kind::Time { fraction } => write!(f, "time({fraction})"),
            Kind::DateTime { fraction } => write!(f, "datetime({fraction})"),
            Kind::Instant { fraction } => write!(f, "instant({fraction})"),
            Kind::Json => f.write_str("json"),
            Kind::Uuid => f.write_str("uuid"),
            Kind::Enum { values } => write!(f, "enum({})", values.join(",")),
            Kind::Other => f.write_str("a type of its own"),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).ok_or_else(|| {
            format!(
                "`{text}` is no type; write bool, int8 to int64, uint8 to uint64, float32, float64, decimal, decimal(10,2), \
                 text, text(100), bytes, date, time, datetime, instant, json or uuid"
            )
        })
    }
}

fn parse(text: &str) -> Option<Kind> {
    let text = text.trim().to_ascii_lowercase();
    let (name, given) = match text.split_once('(') {
        Some((name, rest)) => (name.trim(), Some(rest.strip_suffix(')')?)),
        None => (text.as_str(), None),
    };
    let fraction = || match given {
        None => Some(FRACTION),
        Some(given) => given.trim().parse().ok().filter(|fraction| *fraction <= 9),
    };
    let length = || match given {
        None => Some(None),
        Some(given) => given.trim().parse().ok().filter(|length| *length > 0).map(Some),
    };
    let kind = match name {
        "decimal" => Kind::Decimal { digits: given.map(digits).map_or(Some(None), |digits| digits.map(Some))? },
        "text" => Kind::Text { length: length()? },
        "bytes" => Kind::Bytes { length: length()? },
        "time" => Kind::Time { fraction: fraction()? },
        "datetime" => Kind::DateTime { fraction: fraction()? },
        "instant" => Kind::Instant { fraction: fraction()? },
        _ if given.is_some() => return None,
        "bool" => Kind::Bool,
        "date" => Kind::Date,
        "json" => Kind::Json,
        "uuid" => Kind::Uuid,
        "float" | "float64" => Kind::Float { bits: 64 },
        "float32" => Kind::Float { bits: 32 },
        "int" => Kind::Int { bits: 64, unsigned: false },
        "uint" => Kind::Int { bits: 64, unsigned: true },
        sized => {
            let (unsigned, bits) = match sized.strip_prefix("uint") {
                Some(bits) => (true, bits),
                None => (false, sized.strip_prefix("int")?),
            };
            Kind::Int { bits: bits.parse().ok().filter(|bits| [8, 16, 24, 32, 64].contains(bits))?, unsigned }
        }
    };
    Some(kind)
}

fn digits(given: &str) -> Option<Digits> {
    let (precision, scale) = given.split_once(',').unwrap_or((given, "0"));
    let digits = Digits { precision: precision.trim().parse().ok()?, scale: scale.trim().parse().ok()? };
    (digits.precision > 0 && digits.scale <= digits.precision).then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_written_as_it_is_read() {
        for text in ["bool", "int24", "uint64", "float32", "decimal", "decimal(10,2)", "text", "text(9)", "bytes"] {
            assert_eq!(text.parse::<Kind>().unwrap().to_string(), text);
        }
        for text in ["date", "time(0)", "datetime(3)", "instant(6)", "json", "uuid"] {
            assert_eq!(text.parse::<Kind>().unwrap().to_string(), text);
        }
        assert_eq!("Instant".parse(), Ok(Kind::Instant { fraction: 6 }));
        assert_eq!("decimal( 12 )".parse(), Ok(Kind::Decimal { digits: Some(Digits { precision: 12, scale: 0 }) }));
    }

    #[test]
    fn what_is_no_type_is_refused() {
        for text in ["", "int7", "date(3)", "decimal(2,3)", "text(0)", "text(", "varchar(10)", "time(10)", "enum(a)"] {
            assert!(text.parse::<Kind>().is_err(), "{text}");
        }
    }
}
