//! A value as SQLite holds it, as the kind that it is asked for: exactly, or not at all.

use std::borrow::Cow;
use std::fmt::Write;

use rusqlite::types::ValueRef;

use super::numbers::{beyond, digits_of, exact_float, exact_integer, fits, is_number, real_text};
use super::times;
use super::types::Affinity;
use crate::batch::{Batch, Cell};
use crate::canonical;
use crate::table::{Digits, Kind};

/// No decimal of any database has more zeros than this many digits can say.
const LONGEST_EXPONENT: usize = 5;

/// A column that is read.
#[derive(Debug)]
pub(super) struct Want {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) affinity: Affinity,
    /// Somebody wants it as something else than the column says, so that a number may be told as text and back.
    pub(super) converts: bool,
    pub(super) key: bool,
    /// Whatever it is.
    pub(super) as_is: bool,
}

impl Want {
    /// Adds it to the batch; or says why it cannot be what is asked for.
    pub(super) fn take(&self, batch: &mut Batch, value: ValueRef<'_>) -> Result<(), String> {
        match value {
            ValueRef::Null if self.key => Err(format!("column \"{}\" is NULL, and part of the key", self.name)),
            ValueRef::Null => {
                batch.push(Cell::Null);
                Ok(())
            }
            value if self.as_is => self.stored(batch, value),
            ValueRef::Integer(value) => self.integer(batch, value),
            ValueRef::Real(value) => self.real(batch, value),
            ValueRef::Text(bytes) => self.text(batch, self.utf8(bytes)?),
            ValueRef::Blob(bytes) => self.blob(batch, bytes),
        }
    }

    /// For another SQLite, which takes anything.
    fn stored(&self, batch: &mut Batch, value: ValueRef<'_>) -> Result<(), String> {
        match value {
            ValueRef::Null => batch.push(Cell::Null),
            ValueRef::Integer(value) => batch.push(Cell::Int(value)),
            ValueRef::Real(value) => batch.push(Cell::Float(value)),
            ValueRef::Text(bytes) => {
                let text = self.utf8(bytes)?;
                let number = if self.holds_beyond() { beyond(text) } else { None };
                match number {
                    Some(value) => batch.push(Cell::Uint(value)),
                    None => batch.push_text(text),
                }
            }
            ValueRef::Blob(bytes) => batch.push_bytes(bytes),
        }
        Ok(())
    }

    fn utf8<'a>(&self, bytes: &'a [u8]) -> Result<&'a str, String> {
        std::str::from_utf8(bytes).map_err(|_| format!("column \"{}\" holds text that is not UTF-8", self.name))
    }

    /// True of the type that keeps integers beyond SQLite's own as texts.
    fn holds_beyond(&self) -> bool {
        self.kind == Kind::Int { bits: 64, unsigned: true } && self.affinity == Affinity::Nothing
    }

    fn integer(&self, batch: &mut Batch, value: i64) -> Result<(), String> {
        match &self.kind {
            Kind::Bool if value == 0 || value == 1 => batch.push(Cell::Bool(value == 1)),
            Kind::Int { bits, unsigned } if fits(value, *bits, *unsigned) => batch.push(Cell::Int(value)),
            Kind::Float { bits } => match exact_float(value, *bits) {
                Some(value) => batch.push(Cell::Float(value)),
                None => return Err(self.unfit("the integer", &value)),
            },
            Kind::Decimal { digits } => {
                let mut text = [0; 24];
                let text = digits_of(&mut text, value);
                return self.decimal(batch, text, *digits, "the integer");
            }
            Kind::Json => batch.push_text(&value.to_string()),
            Kind::Text { .. } | Kind::Enum { .. } if self.converts => batch.push_text(&value.to_string()),
            Kind::Other if self.tells_numbers() => batch.push_text(&value.to_string()),
            Kind::Date | Kind::Time { .. } | Kind::DateTime { .. } | Kind::Instant { .. } => {
                let advice = format!(
                    "; which day a number means is not said, so read it as one: `types: {{ {}: int }}`",
                    self.name
                );
                return Err(self.unfit("the integer", &value) + &advice);
            }
            Kind::Bool
            | Kind::Int { .. }
            | Kind::Text { .. }
            | Kind::Bytes { .. }
            | Kind::Uuid
            | Kind::Enum { .. }
            | Kind::Other => return Err(self.unfit("the integer", &value)),
        }
        Ok(())
    }

    fn real(&self, batch: &mut Batch, value: f64) -> Result<(), String> {
        match &self.kind {
            Kind::Float { bits: 32 } if f64::from(value as f32) != value && !value.is_nan() => {
                return Err(self.unfit("the number", &value));
            }
            Kind::Float { .. } => batch.push(Cell::Float(value)),
            Kind::Int { bits, unsigned } if self.converts => match exact_integer(value) {
                Some(whole) if fits(whole, *bits, *unsigned) => batch.push(Cell::Int(whole)),
                Some(_) | None => return Err(self.unfit("the number", &value)),
            },
            Kind::Decimal { digits } if value.is_finite() => {
                return self.decimal(batch, &value.to_string(), *digits, "the number");
            }
            Kind::Json if value.is_finite() => batch.push_text(&real_text(value)),
            Kind::Text { .. } | Kind::Enum { .. } if self.converts => batch.push_text(&real_text(value)),
            Kind::Other if self.tells_numbers() => batch.push_text(&real_text(value)),
            Kind::Bool
            | Kind::Int { .. }
            | Kind::Decimal { .. }
            | Kind::Text { .. }
            | Kind::Bytes { .. }
            | Kind::Date
            | Kind::Time { .. }
            | Kind::DateTime { .. }
            | Kind::Instant { .. }
            | Kind::Json
            | Kind::Uuid
            | Kind::Enum { .. }
            | Kind::Other => return Err(self.unfit("the number", &value)),
        }
        Ok(())
    }

    fn text(&self, batch: &mut Batch, text: &str) -> Result<(), String> {
        let unfit = || self.unfit("the text", &Quoted(text));
        let spelled = match &self.kind {
            Kind::Text { .. } | Kind::Json | Kind::Enum { .. } | Kind::Other => Some(Cow::Borrowed(text)),
            Kind::Bool if self.converts && (text == "0" || text == "1") => {
                batch.push(Cell::Bool(text == "1"));
                return Ok(());
            }
            Kind::Int { bits, unsigned } => return self.whole(batch, text, *bits, *unsigned),
            Kind::Float { .. } if self.converts => {
                batch.push(Cell::Float(text.parse().map_err(|_| unfit())?));
                return Ok(());
            }
            Kind::Decimal { digits } => return self.decimal(batch, text, *digits, "the text"),
            Kind::Bytes { .. } if self.converts => {
                batch.push_bytes(text.as_bytes());
                return Ok(());
            }
            Kind::Date => times::date(text),
            Kind::Time { fraction } => times::time(text, *fraction),
            Kind::DateTime { fraction } => times::date_time(text, *fraction),
            Kind::Instant { fraction } => times::instant(text, *fraction),
            Kind::Uuid => {
                let uuid = uuid::Uuid::try_parse(text).map_err(|_| unfit())?;
                batch.push_text(uuid.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()));
                return Ok(());
            }
            Kind::Bool | Kind::Float { .. } | Kind::Bytes { .. } => None,
        };
        let zoned = || match self.kind {
            Kind::DateTime { fraction } if times::instant(text, fraction).is_some() => {
                format!("; it has a zone: `types: {{ {}: instant }}`", self.name)
            }
            _ => String::new(),
        };
        batch.push_text(&spelled.ok_or_else(|| unfit() + &zoned())?);
        Ok(())
    }

    /// An integer as text, where a column is not of numbers: what is beyond SQLite's own, or in a column of text.
    fn whole(&self, batch: &mut Batch, text: &str, bits: u8, unsigned: bool) -> Result<(), String> {
        let small = text.parse::<i64>().ok().filter(|value| self.converts && value.to_string() == text);
        match (small, beyond(text)) {
            (Some(value), _) if fits(value, bits, unsigned) => batch.push(Cell::Int(value)),
            (_, Some(value)) if bits == 64 && unsigned && (self.converts || self.holds_beyond()) => {
                batch.push(Cell::Uint(value));
            }
            _ => return Err(self.unfit("the text", &Quoted(text))),
        }
        Ok(())
    }

    fn blob(&self, batch: &mut Batch, bytes: &[u8]) -> Result<(), String> {
        match (&self.kind, bytes.try_into()) {
            (Kind::Bytes { .. }, _) => batch.push_bytes(bytes),
            (Kind::Uuid, Ok(bytes)) => {
                let uuid = uuid::Uuid::from_bytes(bytes);
                batch.push_text(uuid.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()));
            }
            _ => {
                let advice = format!("; read it as bytes: `types: {{ {}: bytes }}`", self.name);
                return Err(self.unfit("bytes", &format_args!("({} of them)", bytes.len())) + &advice);
            }
        }
        Ok(())
    }

    /// With all the places that the column has, and no other digits than it may have.
    fn decimal(&self, batch: &mut Batch, text: &str, digits: Option<Digits>, what: &str) -> Result<(), String> {
        let unfit = || self.unfit(what, &Quoted(text));
        if matches!(text, "NaN" | "Infinity" | "-Infinity") {
            batch.push_text(text);
            return Ok(());
        }
        let exponent = text.split_once(['e', 'E']).map_or(0, |(_, exponent)| exponent.len());
        if !is_number(text) || exponent > LONGEST_EXPONENT {
            return Err(unfit());
        }
        let plain = canonical::decimal(text);
        let Some(Digits { precision, scale }) = digits else {
            batch.push_text(&plain);
            return Ok(());
        };
        let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
        let bare = whole.trim_start_matches('-').trim_start_matches('0');
        let scale = scale as usize;
        let kept = fraction.trim_end_matches('0').len() <= scale && bare.len() + scale <= precision as usize;
        if !kept {
            return Err(unfit());
        }
        if fraction.len() == scale && !whole.is_empty() {
            batch.push_text(&plain);
            return Ok(());
        }
        let sign = if whole.starts_with('-') { "-" } else { "" };
        let bare = if bare.is_empty() { "0" } else { bare };
        let mut spelled = format!("{sign}{bare}");
        if scale > 0 {
            let fraction = &fraction[..fraction.len().min(scale)];
            let _ = write!(spelled, ".{fraction:0<scale$}");
        }
        batch.push_text(&spelled);
        Ok(())
    }

    /// A type that SQLite takes for a number's turns the text into the same number again; no type at all does not.
    fn tells_numbers(&self) -> bool {
        self.converts || self.affinity != Affinity::Nothing
    }

    fn unfit(&self, what: &str, value: &dyn std::fmt::Display) -> String {
        let name = &self.name;
        let advice = match self.kind {
            Kind::Other if self.affinity == Affinity::Nothing => {
                format!(": it has no type and holds values of several; say what it is: `types: {{ {name}: text }}`")
            }
            _ => format!(", which is no {}", name_of(&self.kind)),
        };
        format!("column \"{name}\" holds {what} {value}{advice}")
    }
}

/// Text in quotes, and not all of it if it is long.
struct Quoted<'a>(&'a str);

impl std::fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown: String = self.0.chars().take(100).collect();
        write!(f, "{shown:?}")
    }
}

/// In the words of people.
fn name_of(kind: &Kind) -> String {
    match kind {
        Kind::Bool => "boolean (0 or 1)".into(),
        Kind::Int { bits: 64, unsigned: false } => "integer".into(),
        Kind::Int { bits, unsigned } => {
            format!("integer of {bits} bits{}", if *unsigned { " without sign" } else { "" })
        }
        Kind::Float { bits: 32 } => "number of 32 bits".into(),
        Kind::Float { .. } => "floating-point number".into(),
        Kind::Decimal { digits: Some(Digits { precision, scale }) } => format!("decimal({precision},{scale})"),
        Kind::Decimal { digits: None } => "decimal".into(),
        Kind::Text { .. } | Kind::Enum { .. } | Kind::Other => "text".into(),
        Kind::Bytes { .. } => "bytes".into(),
        Kind::Date => "date like 2024-02-29".into(),
        Kind::Time { fraction } => format!("time like 23:59:59 with at most {fraction} digits of a second"),
        Kind::DateTime { fraction } => {
            format!("date with time like 2024-02-29 23:59:59, without zone, with at most {fraction} digits of a second")
        }
        Kind::Instant { fraction } => {
            format!("moment like 2024-02-29 23:59:59+00:00 with at most {fraction} digits of a second")
        }
        Kind::Json => "JSON".into(),
        Kind::Uuid => "UUID".into(),
    }
}
