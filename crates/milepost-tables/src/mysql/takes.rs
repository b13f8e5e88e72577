//! What a column of the target takes as it is.
//!
//! The server changes values to fit without a word: it rounds, cuts spaces off, fills up with zeros, takes `'1'` for the
//! first value of an ENUM and 70 for the year 1970. Everything of that kind is found here, before it is sent.

use crate::batch::{Batch, Cell};
use crate::shown::shown;
use crate::table::{Digits, Kind};

use super::connect::Facts;
use super::types::{Encoding, Native, TextType};

/// A column of the target, as a writer knows it.
#[derive(Debug)]
pub(super) struct Takes {
    name: String,
    nullable: bool,
    rule: Rule,
    /// LOAD DATA means the same by the same text.
    pub(super) loads: bool,
}

#[derive(Debug)]
enum Rule {
    /// What does not fit, the server refuses by itself.
    Anything,
    Text {
        text: TextType,
    },
    Bytes {
        fixed: bool,
        length: u64,
    },
    Decimal(Digits),
    Whole,
    Float {
        bits: u8,
    },
    Year,
    OneOf(Vec<String>),
    SomeOf(Vec<String>),
    Uuid,
    Date,
    Time {
        fraction: u8,
    },
    DateTime {
        fraction: u8,
    },
}

impl Takes {
    /// None: no value of this kind would be what it was in such a column.
    pub(super) fn of(name: &str, kind: &Kind, native: &Native, nullable: bool, facts: Facts) -> Option<Self> {
        let rule = rule(kind, native)?;
        let loads = match native {
            Native::Text(text) => text.encoding == Encoding::Utf8 || matches!(kind, Kind::Uuid),
            Native::Json => facts.maria,
            Native::Bits { .. } | Native::Uuid | Native::Space | Native::Unknown => false,
            _ => true,
        };
        Some(Self { name: name.to_owned(), nullable, rule, loads })
    }

    /// In words, what is wrong with a value.
    pub(super) fn refuses(&self, batch: &Batch, cell: Cell) -> Option<String> {
        let why = self.why(batch, cell)?;
        let mut value = shown(batch, cell).to_string();
        if value.len() > 100 {
            value = format!("{}…", value.chars().take(100).collect::<String>());
        }
        Some(format!("column \"{}\" holds {value}, {why}", self.name))
    }

    fn why(&self, batch: &Batch, cell: Cell) -> Option<String> {
        let text = |cell| if let Cell::Text(span) = cell { Some(batch.text(span)) } else { None };
        match (&self.rule, cell) {
            (_, Cell::Null) => (!self.nullable).then(|| "which the target's column does not take".to_owned()),
            (_, Cell::Float(value)) if !value.is_finite() => Some("which MySQL has no number for".to_owned()),
            (Rule::Anything, _) => None,
            (Rule::Text { text: limits }, Cell::Text(span)) => too_long(limits, batch.text(span)),
            (Rule::Bytes { fixed, length }, Cell::Bytes(span) | Cell::Text(span)) => {
                let given = batch.bytes(span).len() as u64;
                let fits = if *fixed { given == *length } else { given <= *length };
                (!fits).then(|| format!("which is {given} bytes, and the target's column takes {length}"))
            }
            (Rule::Decimal(digits), cell) => text(cell).and_then(|text| bad_decimal(text, *digits)),
            (Rule::Whole, cell) => text(cell).and_then(|text| bad_decimal(text, Digits { precision: 20, scale: 0 })),
            (Rule::Float { bits: 32 }, Cell::Float(value)) => {
                (f64::from(value as f32) != value).then(|| "which FLOAT would round".to_owned())
            }
            (Rule::Float { bits }, Cell::Int(value)) => {
                let exact = if *bits == 32 { 1 << 24 } else { 1_i64 << 53 };
                (value.unsigned_abs() > exact.unsigned_abs())
                    .then(|| "which the target's column would round".to_owned())
            }
            (Rule::Float { .. }, Cell::Uint(_)) => Some("which the target's column would round".to_owned()),
            (Rule::Year, Cell::Int(0 | 1901..=2155)) => None,
            (Rule::Year, _) => Some("which is no year of MySQL's (1901 to 2155)".to_owned()),
            (Rule::OneOf(values), Cell::Text(span)) => {
                let given = batch.text(span);
                let known = given.is_empty() || values.iter().any(|value| value == given);
                (!known).then(|| "which is no value of the target's ENUM".to_owned())
            }
            (Rule::SomeOf(values), Cell::Text(span)) => (!are_members(values, batch.text(span)))
                .then(|| "which are no members of the target's SET in its order".to_owned()),
            (Rule::Uuid, cell) => text(cell).filter(|text| !is_uuid(text)).map(|_| "which is no UUID".to_owned()),
            (Rule::Date, cell) => text(cell).filter(|text| !is_date(text)).map(|_| NO_DATE.to_owned()),
            (Rule::Time { fraction }, cell) => text(cell).and_then(|text| bad_time(text, *fraction)),
            (Rule::DateTime { fraction }, cell) => text(cell).and_then(|text| bad_date_time(text, *fraction)),
            (
                Rule::Text { .. } | Rule::Bytes { .. } | Rule::Float { .. } | Rule::OneOf(_) | Rule::SomeOf(_),
                Cell::Bool(_) | Cell::Int(_) | Cell::Uint(_) | Cell::Float(_) | Cell::Text(_) | Cell::Bytes(_),
            ) => None,
        }
    }
}

fn rule(kind: &Kind, native: &Native) -> Option<Rule> {
    use Kind::*;
    let rule = match (native, kind) {
        (Native::Int { .. } | Native::Flag | Native::Bits { .. }, Bool | Int { .. }) => Rule::Anything,
        (Native::Int { .. } | Native::Flag, Decimal { .. }) => Rule::Whole,
        (Native::Year, Int { .. }) => Rule::Year,
        (Native::Decimal(_), Bool | Int { .. }) => Rule::Anything,
        (Native::Decimal(digits), Decimal { .. }) => Rule::Decimal(*digits),
        (Native::Float { bits }, Bool | Int { .. } | Float { .. }) => Rule::Float { bits: *bits },
        (Native::Text(text), Int { .. } | Decimal { .. } | Text { .. } | Date | Time { .. } | DateTime { .. })
        | (Native::Text(text), Instant { .. } | Json | Uuid | Enum { .. } | Other) => Rule::Text { text: *text },
        (Native::Bytes { fixed, length }, Bytes { .. } | Text { .. }) => Rule::Bytes { fixed: *fixed, length: *length },
        (Native::Date, Date) => Rule::Date,
        (Native::Time { fraction }, Time { .. }) => Rule::Time { fraction: *fraction },
        (Native::DateTime { fraction } | Native::Timestamp { fraction }, DateTime { .. } | Instant { .. }) => {
            Rule::DateTime { fraction: *fraction }
        }
        (Native::Enum { values }, Enum { .. } | Text { .. }) => Rule::OneOf(values.clone()),
        (Native::Set { values }, Text { .. }) => Rule::SomeOf(values.clone()),
        (Native::Json, Json | Text { .. }) => Rule::Anything,
        (Native::Uuid, Uuid | Text { .. }) => Rule::Uuid,
        (Native::Space, Bytes { .. }) => Rule::Anything,
        (Native::Unknown, Text { .. } | Other) => Rule::Anything,
        _ => return None,
    };
    Some(rule)
}

fn too_long(limits: &TextType, text: &str) -> Option<String> {
    if limits.fixed && text.ends_with(' ') {
        return Some("and CHAR forgets the spaces at its end".to_owned());
    }
    let bytes = if limits.encoding == Encoding::Other { text.chars().count() } else { text.len() };
    if bytes as u64 > limits.bytes {
        return Some(format!("which is longer than the {} bytes of the target's column", limits.bytes));
    }
    let characters = limits.characters.filter(|characters| text.len() > *characters as usize)?;
    let given = text.chars().count();
    (given > characters as usize)
        .then(|| format!("which has {given} characters, and the target's column takes {characters}"))
}

fn bad_decimal(text: &str, digits: Digits) -> Option<String> {
    let number = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = !whole.is_empty() && [whole, fraction].iter().all(|part| part.bytes().all(|b| b.is_ascii_digit()));
    if !is_number {
        return Some("which MySQL has no number for".to_owned());
    }
    if fraction.len() > digits.scale as usize && fraction.trim_end_matches('0').len() > digits.scale as usize {
        return Some(format!("which has more than {} digits after the point", digits.scale));
    }
    let room = digits.precision - digits.scale;
    (whole.len() > room as usize && whole.trim_start_matches('0').len() > room as usize)
        .then(|| format!("which has more than {room} digits before the point"))
}

fn are_members(values: &[String], given: &str) -> bool {
    let mut from = 0;
    given.is_empty()
        || given.split(',').all(|member| {
            let found = values[from..].iter().position(|value| value == member);
            from += found.map_or(0, |at| at + 1);
            found.is_some()
        })
}

pub(super) fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        })
}

const NO_DATE: &str = "which is no date of MySQL's (0000-00-00 to 9999-12-31)";

/// As spelled; whether there is such a day the server knows.
pub(super) fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 10
        && bytes[4] == b'-'
        && bytes[7] == b'-'
        && digits(&bytes[..4])
        && digits(&bytes[5..7])
        && digits(&bytes[8..])
}

fn bad_time(text: &str, fraction: u8) -> Option<String> {
    let time = text.strip_prefix('-').unwrap_or(text);
    let hours = time.find(':').filter(|hours| matches!(hours, 2 | 3) && digits(&time.as_bytes()[..*hours]));
    match hours.map(|hours| bad_clock(&time[hours..], fraction)) {
        None => Some("which is no time of MySQL's (-838:59:59 to 838:59:59)".to_owned()),
        Some(bad) => bad,
    }
}

fn bad_date_time(text: &str, fraction: u8) -> Option<String> {
    let clock = match text.get(..10).filter(|date| is_date(date)) {
        Some(_) => text[10..].strip_prefix(' '),
        None => None,
    };
    match clock.filter(|clock| clock.len() >= 8 && digits(&clock.as_bytes()[..2])) {
        None => Some("which is no date with a time of MySQL's (0000-00-00 00:00:00 to 9999-12-31 23:59:59)".to_owned()),
        Some(clock) => bad_clock(&clock[2..], fraction),
    }
}

/// `:mm:ss` and what comes after it.
fn bad_clock(text: &str, fraction: u8) -> Option<String> {
    let bytes = text.as_bytes();
    let whole =
        bytes.len() >= 6 && bytes[0] == b':' && bytes[3] == b':' && digits(&bytes[1..3]) && digits(&bytes[4..6]);
    let rest = if whole { &bytes[6..] } else { b"?" };
    match rest.strip_prefix(b".") {
        None if rest.is_empty() => None,
        Some(part) if digits(part) => {
            let long = text.trim_end_matches('0').len() > 7 + usize::from(fraction);
            long.then(|| format!("which has more than {fraction} digits after the second"))
        }
        None | Some(_) => Some("which is no time of MySQL's".to_owned()),
    }
}

fn digits(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_that_would_be_rounded_is_refused() {
        let digits = Digits { precision: 5, scale: 2 };
        for fine in ["0", "-123.45", "123.4500", "000123"] {
            assert_eq!(bad_decimal(fine, digits), None, "{fine}");
        }
        for bad in ["1234", "1.234", "NaN", "", "1e3", "-"] {
            assert!(bad_decimal(bad, digits).is_some(), "{bad}");
        }
    }

    #[test]
    fn only_dates_and_times_in_our_spelling_are_sent() {
        for fine in ["2024-02-29 23:59:59", "0000-00-00 00:00:00", "9999-12-31 23:59:59.123"] {
            assert_eq!(bad_date_time(fine, 3), None, "{fine}");
        }
        for bad in [
            "2024-02-29 23:59:59.1234",
            "infinity",
            "12024-01-01 00:00:00",
            "2024-02-29",
            "2024-02-29 23:59:59+01",
            "0044-03-15 00:00:00 BC",
        ] {
            assert!(bad_date_time(bad, 3).is_some(), "{bad}");
        }
        for fine in ["00:00:00", "-838:59:59", "24:00:00.5"] {
            assert_eq!(bad_time(fine, 6), None, "{fine}");
        }
        for bad in ["1:00:00", "00:00", "00:00:00+01", "é0:00:00"] {
            assert!(bad_time(bad, 6).is_some(), "{bad}");
        }
        assert!(is_date("2024-02-30"), "the server knows how long a month is");
        assert!(!is_date("infinity") && !is_date("2024-02-3"));
    }

    #[test]
    fn members_of_a_set_come_in_its_order() {
        let values = ["a", "b", "c"].map(str::to_owned);
        assert!(are_members(&values, "") && are_members(&values, "a,c") && are_members(&values, "b"));
        assert!(!are_members(&values, "c,a") && !are_members(&values, "a,a") && !are_members(&values, "d"));
    }
}
