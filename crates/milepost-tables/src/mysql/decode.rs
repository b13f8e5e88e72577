//! A value of the server as a cell of the kind that is asked for, exactly or not at all.

use mysql_async::Value;

use crate::batch::{Batch, Cell};
use crate::table::Kind;

use super::spell::{push_clock, push_date, spell};
use super::takes::{is_date, is_uuid};
use super::types::Native;

/// A column as it is read.
#[derive(Debug)]
pub(super) struct Reads {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) native: Native,
}

/// The value is not what it is asked for as.
#[derive(Debug)]
pub(super) struct Other;

type Decoded = Result<(), Other>;

impl Reads {
    pub(super) fn push(&self, batch: &mut Batch, value: &Value) -> Decoded {
        match value {
            Value::NULL => batch.push(Cell::Null),
            Value::Int(value) => return integer(batch, &self.kind, i128::from(*value)),
            Value::UInt(value) => return integer(batch, &self.kind, i128::from(*value)),
            Value::Float(value) => return float(batch, &self.kind, f64::from(*value), || value.to_string()),
            Value::Double(value) => return float(batch, &self.kind, *value, || value.to_string()),
            Value::Date(..) | Value::Time(..) => return self.moment(batch, value),
            Value::Bytes(bytes) => return self.bytes(batch, bytes),
        }
        Ok(())
    }

    /// Why the row is not among the rows.
    pub(super) fn reason(&self, value: &Value) -> String {
        let value = shown(&self.native, value).to_string();
        let value: String = value.chars().take(200).collect();
        let advice = match (&self.native, &self.kind) {
            (Native::Flag, Kind::Bool) => format!("; `types: {{ {}: integer }}` copies it as a number", self.name),
            _ => String::new(),
        };
        format!("column \"{}\" holds {value}, which is no {}{advice}", self.name, in_words(&self.kind))
    }

    fn bytes(&self, batch: &mut Batch, bytes: &[u8]) -> Decoded {
        match &self.native {
            Native::Bits { .. } => integer(batch, &self.kind, i128::from(bits(bytes))),
            Native::Bytes { .. } | Native::Space => binary(batch, &self.kind, bytes),
            Native::Decimal(_) => decimal(batch, &self.kind, utf8(bytes)?),
            _ => self.text(batch, utf8(bytes)?),
        }
    }

    fn text(&self, batch: &mut Batch, text: &str) -> Decoded {
        match &self.kind {
            Kind::Text { .. } | Kind::Other => batch.push_text(text),
            Kind::Bytes { .. } => batch.push_bytes(text.as_bytes()),
            Kind::Json
                if self.native == Native::Json || serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() =>
            {
                batch.push_text(text);
            }
            Kind::Enum { values } if text.is_empty() || values.iter().any(|value| value == text) => {
                batch.push_text(text);
            }
            Kind::Uuid => {
                let lower = text.to_ascii_lowercase();
                if !is_uuid(&lower) {
                    return Err(Other);
                }
                batch.push_text(&lower);
            }
            Kind::Bool | Kind::Int { .. } | Kind::Float { .. } | Kind::Decimal { .. } => {
                return decimal(batch, &self.kind, text);
            }
            Kind::Date if is_date(text) => batch.push_text(text),
            Kind::Time { .. } | Kind::DateTime { .. } | Kind::Instant { .. } if looks_like(&self.kind, text) => {
                batch.push_text(crate::canonical::time(text));
            }
            Kind::Json
            | Kind::Enum { .. }
            | Kind::Date
            | Kind::Time { .. }
            | Kind::DateTime { .. }
            | Kind::Instant { .. } => {
                return Err(Other);
            }
        }
        Ok(())
    }

    fn moment(&self, batch: &mut Batch, value: &Value) -> Decoded {
        let date_only = self.native == Native::Date;
        let (clock_is_zero, micros) = match value {
            Value::Date(_, _, _, hour, minute, second, micros) => {
                ((*hour, *minute, *second, *micros) == (0, 0, 0, 0), *micros)
            }
            Value::Time(.., micros) => (false, *micros),
            _ => return Err(Other),
        };
        let is_time = matches!(value, Value::Time(..));
        let fits = |fraction: u8| micros % 10_u32.pow(6_u32.saturating_sub(u32::from(fraction))) == 0;
        let mut written = String::with_capacity(32);
        match &self.kind {
            Kind::Date if !is_time && clock_is_zero => push_date(&mut written, value),
            Kind::DateTime { fraction } | Kind::Instant { fraction } if !is_time && fits(*fraction) => {
                push_date(&mut written, value);
                written.push(' ');
                push_clock(&mut written, value);
            }
            Kind::Time { fraction } if is_time && fits(*fraction) => push_clock(&mut written, value),
            Kind::Text { .. } | Kind::Other => spell(&mut written, value, date_only),
            _ => return Err(Other),
        }
        batch.push_text(&written);
        Ok(())
    }
}

/// A value by itself, for people.
pub(super) fn shown(native: &Native, value: &Value) -> serde_json::Value {
    use serde_json::json;
    match value {
        Value::NULL => json!(null),
        Value::Int(value) => json!(value),
        Value::UInt(value) => json!(value),
        Value::Float(value) => json!(value),
        Value::Double(value) => json!(value),
        Value::Date(..) | Value::Time(..) => {
            let mut written = String::new();
            spell(&mut written, value, *native == Native::Date);
            json!(written)
        }
        Value::Bytes(bytes) => {
            let mut batch = Batch::new(1);
            match (native, std::str::from_utf8(bytes)) {
                (Native::Bits { .. }, _) => return json!(bits(bytes)),
                (Native::Bytes { .. } | Native::Space, _) | (_, Err(_)) => batch.push_bytes(bytes),
                (_, Ok(text)) => batch.push_text(text),
            }
            crate::shown::shown(&batch, batch.row(0)[0])
        }
    }
}

/// Big-endian, of up to eight bytes.
pub(super) fn bits(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}

fn utf8(bytes: &[u8]) -> Result<&str, Other> {
    std::str::from_utf8(bytes).map_err(|_| Other)
}

fn integer(batch: &mut Batch, kind: &Kind, value: i128) -> Decoded {
    match kind {
        Kind::Bool if matches!(value, 0 | 1) => batch.push(Cell::Bool(value == 1)),
        Kind::Int { bits, unsigned } if in_range(value, *bits, *unsigned) => match i64::try_from(value) {
            Ok(value) => batch.push(Cell::Int(value)),
            Err(_) => batch.push(Cell::Uint(u64::try_from(value).map_err(|_| Other)?)),
        },
        Kind::Float { bits } if value.unsigned_abs() <= if *bits <= 32 { 1 << 24 } else { 1 << 53 } => {
            batch.push(Cell::Float(value as f64));
        }
        Kind::Decimal { .. } | Kind::Text { .. } | Kind::Other => batch.push_text(&value.to_string()),
        _ => return Err(Other),
    }
    Ok(())
}

fn in_range(value: i128, bits: u8, unsigned: bool) -> bool {
    let bits = u32::from(bits.clamp(1, 64));
    match unsigned {
        true => (0..1_i128 << bits).contains(&value),
        false => (-(1_i128 << (bits - 1))..1_i128 << (bits - 1)).contains(&value),
    }
}

/// `spelled` is the shortest text that is read back as the same number.
fn float(batch: &mut Batch, kind: &Kind, value: f64, spelled: impl FnOnce() -> String) -> Decoded {
    match kind {
        Kind::Float { bits } if *bits > 32 || f64::from(value as f32) == value => batch.push(Cell::Float(value)),
        Kind::Bool | Kind::Int { .. } if value.fract() == 0.0 && value.abs() <= (1_u64 << 53) as f64 => {
            return integer(batch, kind, value as i128);
        }
        Kind::Decimal { .. } | Kind::Text { .. } | Kind::Other => batch.push_text(&spelled()),
        _ => return Err(Other),
    }
    Ok(())
}

/// A number as a text.
fn decimal(batch: &mut Batch, kind: &Kind, text: &str) -> Decoded {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = whole.strip_prefix('-').unwrap_or(whole);
    let is_number = !digits.is_empty() && digits.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
    match kind {
        Kind::Text { .. } | Kind::Other => batch.push_text(text),
        _ if !is_number => {
            let value = text.parse::<f64>().ok().filter(|value| value.is_finite()).ok_or(Other)?;
            return match kind {
                Kind::Float { .. } => float(batch, kind, value, String::new),
                _ => Err(Other),
            };
        }
        Kind::Decimal { digits } => {
            let scale = digits.map_or(usize::MAX, |digits| digits.scale as usize);
            if fraction.trim_end_matches('0').len() > scale {
                return Err(Other);
            }
            batch.push_text(text);
        }
        Kind::Float { .. } => return float(batch, kind, text.parse().map_err(|_| Other)?, String::new),
        Kind::Bool | Kind::Int { .. } if fraction.bytes().all(|byte| byte == b'0') => {
            return integer(batch, kind, whole.parse().map_err(|_| Other)?);
        }
        _ => return Err(Other),
    }
    Ok(())
}

fn binary(batch: &mut Batch, kind: &Kind, bytes: &[u8]) -> Decoded {
    match kind {
        Kind::Bytes { .. } => batch.push_bytes(bytes),
        Kind::Text { .. } | Kind::Other => batch.push_text(utf8(bytes)?),
        Kind::Json => {
            serde_json::from_slice::<serde::de::IgnoredAny>(bytes).map_err(|_| Other)?;
            batch.push_text(utf8(bytes)?);
        }
        // As many keep them: BINARY(16).
        Kind::Uuid => {
            let uuid = uuid::Uuid::from_slice(bytes).map_err(|_| Other)?;
            batch.push_text(uuid.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()));
        }
        _ => return Err(Other),
    }
    Ok(())
}

fn looks_like(kind: &Kind, text: &str) -> bool {
    let clock = |clock: &str| {
        let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
        clock.len() == 8
            && clock
                .bytes()
                .enumerate()
                .all(|(at, byte)| if at == 2 || at == 5 { byte == b':' } else { byte.is_ascii_digit() })
            && !fraction.is_empty()
            && fraction.bytes().all(|byte| byte.is_ascii_digit())
    };
    match kind {
        Kind::Time { .. } => clock(text),
        _ => text.split_once(' ').is_some_and(|(date, time)| is_date(date) && clock(time)),
    }
}

fn in_words(kind: &Kind) -> String {
    match kind {
        Kind::Bool => "boolean".to_owned(),
        Kind::Int { bits, unsigned } => format!("{}integer of {bits} bits", if *unsigned { "unsigned " } else { "" }),
        Kind::Float { bits } => format!("floating-point number of {bits} bits"),
        Kind::Decimal { .. } => "such decimal number".to_owned(),
        Kind::Text { .. } | Kind::Other => "text".to_owned(),
        Kind::Bytes { .. } => "bytes".to_owned(),
        Kind::Date => "date".to_owned(),
        Kind::Time { fraction } => format!("time with {fraction} digits after the second"),
        Kind::DateTime { fraction } => format!("date and time with {fraction} digits after the second"),
        Kind::Instant { fraction } => format!("moment with {fraction} digits after the second"),
        Kind::Json => "JSON".to_owned(),
        Kind::Uuid => "UUID".to_owned(),
        Kind::Enum { values } => format!("one of {}", values.join(", ")),
    }
}
