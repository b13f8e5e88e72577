//! How the server's texts become cells of the kinds that were asked for.

use std::borrow::Cow;

use crate::batch::{Batch, Cell};
use crate::canonical;
use crate::table::Kind;

use super::shapes;
use super::types::{Base, Native};

/// How the texts of one column become cells.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Way {
    /// The server spells it as it is wanted.
    Text,
    Bool,
    Int {
        bits: u8,
        unsigned: bool,
    },
    /// From a type of 32 or of 64 bits, into one.
    Float {
        from: u8,
        to: u8,
    },
    /// From a number that may be no float.
    ExactFloat {
        to: u8,
    },
    Decimal,
    Hex,
    BytesOfText,
    Date,
    Time {
        fraction: u8,
    },
    Moment {
        fraction: u8,
    },
    Json,
    Uuid,
    Enum {
        values: Vec<String>,
    },
}

impl Way {
    pub(super) fn new(kind: &Kind, native: &Native) -> Self {
        match (kind, native.base) {
            (Kind::Bool, _) => Way::Bool,
            (Kind::Int { bits, unsigned }, _) => Way::Int { bits: *bits, unsigned: *unsigned },
            (Kind::Float { bits }, Base::Real) => Way::Float { from: 32, to: *bits },
            (Kind::Float { bits }, Base::Double) => Way::Float { from: 64, to: *bits },
            (Kind::Float { bits }, _) => Way::ExactFloat { to: *bits },
            (Kind::Decimal { .. }, Base::Numeric | Base::Money | Base::Int { .. } | Base::Oid) => Way::Text,
            (Kind::Decimal { .. }, _) => Way::Decimal,
            (Kind::Text { .. } | Kind::Other, _) => Way::Text,
            (Kind::Bytes { .. }, Base::Bytes) => Way::Hex,
            (Kind::Bytes { .. }, _) => Way::BytesOfText,
            (Kind::Date, Base::Date) => Way::Text,
            (Kind::Date, _) => Way::Date,
            (Kind::Time { fraction }, Base::Time) if *fraction >= native.fraction() => Way::Text,
            (Kind::Time { fraction }, _) => Way::Time { fraction: *fraction },
            (Kind::DateTime { fraction } | Kind::Instant { fraction }, Base::Timestamp)
                if *fraction >= native.fraction() =>
            {
                Way::Text
            }
            (Kind::DateTime { fraction } | Kind::Instant { fraction }, _) => Way::Moment { fraction: *fraction },
            (Kind::Json, Base::Json) | (Kind::Uuid, Base::Uuid) | (Kind::Enum { .. }, Base::Enum) => Way::Text,
            (Kind::Json, _) => Way::Json,
            (Kind::Uuid, _) => Way::Uuid,
            (Kind::Enum { values }, _) => Way::Enum { values: values.clone() },
        }
    }

    /// Pushes one cell; or says what the text is not.
    pub(super) fn push(&self, batch: &mut Batch, text: &str, scratch: &mut Vec<u8>) -> Result<(), &'static str> {
        match self {
            Way::Text => batch.push_text(text),
            Way::Bool => batch.push(Cell::Bool(truth(text).ok_or("boolean")?)),
            Way::Int { bits, unsigned } => batch.push(integer(text, *bits, *unsigned)?),
            Way::Float { from: 32, .. } => {
                batch.push(Cell::Float(f64::from(text.parse::<f32>().map_err(|_| "number")?)));
            }
            Way::Float { to, .. } => batch.push(Cell::Float(narrowed(text.parse().map_err(|_| "number")?, *to)?)),
            Way::ExactFloat { to } => batch
                .push(Cell::Float(narrowed(shapes::exact_float(text).ok_or("number that a float has exactly")?, *to)?)),
            Way::Decimal => batch.push_text(&decimal(text)?),
            Way::Hex => {
                scratch.clear();
                unhex(text, scratch).ok_or("bytes")?;
                batch.push_bytes(scratch);
            }
            Way::BytesOfText => batch.push_bytes(text.as_bytes()),
            Way::Date => batch.push_text(date(text)?),
            Way::Time { fraction } => batch.push_text(time(text, *fraction)?),
            Way::Moment { fraction } => batch.push_text(&moment(text, *fraction)?),
            Way::Json => {
                serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|_| "JSON")?;
                batch.push_text(text);
            }
            Way::Uuid => {
                let id = uuid::Uuid::parse_str(text).map_err(|_| "UUID")?;
                batch.push_text(id.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()));
            }
            Way::Enum { values } => {
                values.iter().any(|value| value == text).then_some(()).ok_or("value of its list")?;
                batch.push_text(text);
            }
        }
        Ok(())
    }
}

fn truth(text: &str) -> Option<bool> {
    match text {
        "t" | "true" | "1" => Some(true),
        "f" | "false" | "0" => Some(false),
        _ => None,
    }
}

fn integer(text: &str, bits: u8, unsigned: bool) -> Result<Cell, &'static str> {
    let (low, high) = match (bits, unsigned) {
        (64, false) => (i128::from(i64::MIN), i128::from(i64::MAX)),
        (bits, false) => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        (bits, true) => (0, (1 << bits) - 1),
    };
    let value = match text.parse::<i64>() {
        Ok(value) => i128::from(value),
        Err(_) => match truth(text) {
            Some(value) => i128::from(value),
            None => whole(text).ok_or("integer")?,
        },
    };
    if value < low || value > high {
        return Err("integer of its size");
    }
    Ok(i64::try_from(value).map_or(Cell::Uint(value as u64), Cell::Int))
}

/// A number with nothing behind its point.
fn whole(text: &str) -> Option<i128> {
    shapes::is_decimal(text).then(|| shapes::trimmed(text).parse().ok()).flatten()
}

fn narrowed(value: f64, bits: u8) -> Result<f64, &'static str> {
    let exact = bits != 32 || value.is_nan() || f64::from(value as f32) == value;
    exact.then_some(value).ok_or("number of 32 bits")
}

fn decimal(text: &str) -> Result<Cow<'_, str>, &'static str> {
    let decimal = canonical::decimal(text);
    let known = shapes::is_decimal(&decimal) || matches!(text, "NaN" | "Infinity" | "-Infinity");
    known.then_some(decimal).ok_or("decimal number")
}

fn date(text: &str) -> Result<&str, &'static str> {
    let day = text.strip_suffix("+00").unwrap_or(text);
    let day = day.strip_suffix(" 00:00:00").unwrap_or(day);
    shapes::is_date(day).then_some(day).ok_or("date")
}

fn time(text: &str, fraction: u8) -> Result<&str, &'static str> {
    let time = canonical::time(text);
    if !shapes::is_time(time) {
        return Err("time of day");
    }
    fits(time, fraction)
}

/// A date with a time, in UTC where there is a zone; a date by itself is its midnight.
fn moment(text: &str, fraction: u8) -> Result<Cow<'_, str>, &'static str> {
    let text = match text.strip_suffix("+00") {
        Some(text) => Cow::Borrowed(text),
        None => match text.strip_suffix("+00 BC") {
            Some(text) => Cow::Owned(format!("{text} BC")),
            None if shapes::is_date(text) && !text.ends_with("infinity") && !text.ends_with(" BC") => {
                Cow::Owned(format!("{text} 00:00:00"))
            }
            None => Cow::Borrowed(text),
        },
    };
    if !shapes::is_date_time(&text) {
        return Err("date with a time");
    }
    fits(&text, fraction)?;
    Ok(text)
}

fn fits(text: &str, fraction: u8) -> Result<&str, &'static str> {
    (shapes::fraction(text) <= usize::from(fraction)).then_some(text).ok_or("time with so few digits after the second")
}

fn unhex(text: &str, into: &mut Vec<u8>) -> Option<()> {
    let digits = text.strip_prefix("\\x")?.as_bytes();
    if digits.len() % 2 != 0 {
        return None;
    }
    into.reserve(digits.len() / 2);
    for pair in digits.chunks_exact(2) {
        let (high, low) = (NIBBLES[usize::from(pair[0])], NIBBLES[usize::from(pair[1])]);
        if high | low > 15 {
            return None;
        }
        into.push(high << 4 | low);
    }
    Some(())
}

/// What a hexadecimal digit stands for; 255 for what is none.
const NIBBLES: [u8; 256] = {
    let mut table = [255; 256];
    let mut digit = 0;
    while digit < 16 {
        table[b"0123456789abcdef"[digit] as usize] = digit as u8;
        table[b"0123456789ABCDEF"[digit] as usize] = digit as u8;
        digit += 1;
    }
    table
};
