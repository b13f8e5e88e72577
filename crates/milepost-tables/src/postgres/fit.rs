//! Whether a value would be the same in its column: the server rounds, cuts off and reinterprets some without a word.

use crate::batch::{Batch, Cell};

use super::names::float;
use super::shapes;
use super::types::{Base, Native};

/// What a column of the target takes, as far as the server itself would not refuse the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// The server refuses what it cannot hold.
    Any,
    Bool,
    /// A text of this many characters.
    Length(usize),
    /// The same, and no blanks at its end.
    Padded(Option<usize>),
    /// A number with this many digits after its point.
    Scale(usize),
    /// A number with this many zeros before its point.
    Rounded(usize),
    Real,
    Double,
    Bytes,
    Date,
    Time {
        fraction: usize,
    },
    Moment {
        fraction: usize,
    },
}

impl Fit {
    pub(super) fn of(native: &Native) -> Self {
        let length = native.length().map(|length| length as usize);
        let fraction = usize::from(native.fraction());
        match native.base {
            Base::Bool => Fit::Bool,
            Base::Text => length.map_or(Fit::Any, Fit::Length),
            Base::Padded => Fit::Padded(length),
            Base::Numeric => match (native.digits(), native.rounded()) {
                (Some(digits), _) => Fit::Scale(digits.scale as usize),
                (None, Some(zeros)) => Fit::Rounded(zeros),
                (None, None) => Fit::Any,
            },
            Base::Money => Fit::Scale(2),
            Base::Real => Fit::Real,
            Base::Double => Fit::Double,
            Base::Bytes => Fit::Bytes,
            Base::Date => Fit::Date,
            Base::Time => Fit::Time { fraction },
            Base::Timestamp | Base::TimestampTz => Fit::Moment { fraction },
            Base::Int { .. } | Base::Oid | Base::Json | Base::Uuid | Base::Enum | Base::Other => Fit::Any,
        }
    }

    /// What keeps a value out of the column, in words that go on after the value.
    pub(super) fn check(self, batch: &Batch, cell: Cell) -> Result<(), String> {
        match (self, cell) {
            (_, Cell::Null) => Ok(()),
            (Fit::Bytes, Cell::Text(_) | Cell::Bytes(_)) => Ok(()),
            (Fit::Bytes, Cell::Bool(_) | Cell::Int(_) | Cell::Uint(_) | Cell::Float(_)) => no("bytes"),
            (_, Cell::Bytes(_)) => Err("which are bytes, and the column is of another type".into()),
            (Fit::Any, _) => Ok(()),
            (Fit::Bool, Cell::Text(span)) => {
                matches!(batch.bytes(span), b"t" | b"f" | b"true" | b"false" | b"0" | b"1")
                    .then_some(())
                    .ok_or_else(|| "which is no boolean".into())
            }
            (
                Fit::Bool | Fit::Length(_) | Fit::Padded(_),
                Cell::Bool(_) | Cell::Int(_) | Cell::Uint(_) | Cell::Float(_),
            ) => Ok(()),
            (Fit::Length(length), Cell::Text(span)) => short(batch.bytes(span), length),
            (Fit::Padded(length), Cell::Text(span)) => {
                let text = batch.bytes(span);
                if text.ends_with(b" ") {
                    return Err("which ends in a blank, and the column keeps none there".into());
                }
                length.map_or(Ok(()), |length| short(text, length))
            }
            (Fit::Scale(scale), Cell::Text(span)) => scaled(batch.text(span), scale),
            (Fit::Scale(scale), Cell::Float(value)) => scaled(&crate::canonical::decimal(&float(value)), scale),
            (Fit::Rounded(zeros), Cell::Text(span)) => rounded(batch.text(span), zeros),
            (Fit::Rounded(zeros), Cell::Float(value)) => rounded(&crate::canonical::decimal(&float(value)), zeros),
            (Fit::Rounded(zeros), Cell::Int(value)) => rounded(&value.to_string(), zeros),
            (Fit::Rounded(zeros), Cell::Uint(value)) => rounded(&value.to_string(), zeros),
            (Fit::Rounded(zeros), Cell::Bool(value)) => rounded(&u8::from(value).to_string(), zeros),
            (Fit::Scale(_), Cell::Bool(_) | Cell::Int(_) | Cell::Uint(_)) => Ok(()),
            (Fit::Real | Fit::Double, _) => self.check_float(batch, cell),
            (Fit::Date, Cell::Text(span)) => shaped(batch.text(span), "date", shapes::is_date, 0),
            (Fit::Time { fraction }, Cell::Text(span)) => {
                shaped(batch.text(span), "time of day", shapes::is_time, fraction)
            }
            (Fit::Moment { fraction }, Cell::Text(span)) => {
                let is_moment = |text: &str| shapes::is_date_time(text) || shapes::is_date(text);
                shaped(batch.text(span), "date with a time", is_moment, fraction)
            }
            (Fit::Date, _) => no("date"),
            (Fit::Time { .. }, _) => no("time of day"),
            (Fit::Moment { .. }, _) => no("date with a time"),
        }
    }

    fn check_float(self, batch: &Batch, cell: Cell) -> Result<(), String> {
        let (value, same) = match cell {
            Cell::Float(value) => (value, true),
            Cell::Int(value) => (value as f64, value as f64 as i128 == i128::from(value)),
            Cell::Uint(value) => (value as f64, value as f64 as u128 == u128::from(value)),
            Cell::Text(span) => match shapes::exact_float(batch.text(span)) {
                Some(value) => (value, true),
                None => (0.0, false),
            },
            Cell::Null | Cell::Bool(_) | Cell::Bytes(_) => return Ok(()),
        };
        let narrow = self != Fit::Real || value.is_nan() || f64::from(value as f32) == value;
        (same && narrow).then_some(()).ok_or_else(|| "which is no number that the column has exactly".into())
    }
}

fn no(what: &str) -> Result<(), String> {
    Err(format!("which is no {what}"))
}

fn short(text: &[u8], length: usize) -> Result<(), String> {
    // Characters are counted only where there may be too many.
    if text.len() <= length {
        return Ok(());
    }
    let characters = text.iter().filter(|byte| (**byte as i8) >= -0x40).count();
    if characters <= length {
        return Ok(());
    }
    Err(format!("which has {characters} characters, and the column takes {length}"))
}

fn scaled(text: &str, scale: usize) -> Result<(), String> {
    let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
    if fraction.len() <= scale || fraction.as_bytes()[scale..].iter().all(|digit| *digit == b'0') {
        return Ok(());
    }
    Err(format!("which has more than the {scale} digits after its point that the column takes"))
}

fn rounded(text: &str, zeros: usize) -> Result<(), String> {
    scaled(text, 0)?;
    let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
    let significant = whole.trim_end_matches('0');
    if matches!(significant, "" | "-") || whole.len() - significant.len() >= zeros || !shapes::is_decimal(text) {
        return Ok(());
    }
    Err(format!("which does not end in the {zeros} zeros that the column rounds to"))
}

fn shaped(text: &str, what: &str, is: impl Fn(&str) -> bool, fraction: usize) -> Result<(), String> {
    if !is(text) {
        return no(what);
    }
    if shapes::fraction(text) > fraction {
        return Err(format!("which has more than the {fraction} digits after its second that the column takes"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(fit: Fit, text: &str) -> bool {
        let mut batch = Batch::new(1);
        batch.push_text(text);
        fit.check(&batch, batch.row(0)[0]).is_ok()
    }

    #[test]
    fn what_the_server_would_round_or_cut_off_is_kept_out() {
        assert!(takes(Fit::Scale(2), "1.500") && !takes(Fit::Scale(2), "1.505"));
        assert!(takes(Fit::Rounded(3), "12000.0") && takes(Fit::Rounded(3), "0") && takes(Fit::Rounded(3), "NaN"));
        assert!(!takes(Fit::Rounded(3), "12100") && !takes(Fit::Rounded(3), "1000.5"));
        assert!(takes(Fit::Length(3), "äöü") && !takes(Fit::Length(3), "abc "));
        assert!(takes(Fit::Padded(Some(3)), "ab") && !takes(Fit::Padded(Some(3)), "ab "));
        assert!(takes(Fit::Moment { fraction: 3 }, "2024-01-01 00:00:00.123"));
        assert!(!takes(Fit::Moment { fraction: 3 }, "2024-01-01 00:00:00.1234"));
        assert!(!takes(Fit::Moment { fraction: 6 }, "now") && !takes(Fit::Date, "2024-01-01 10:00:00"));
        assert!(takes(Fit::Double, "0.1") && !takes(Fit::Double, "0.10000000000000000001"));
    }

    #[test]
    fn a_number_that_a_column_would_round_is_kept_out() {
        let batch = Batch::new(1);
        assert!(Fit::Double.check(&batch, Cell::Int(1 << 53)).is_ok());
        assert!(Fit::Double.check(&batch, Cell::Int((1 << 53) + 1)).is_err());
        assert!(Fit::Real.check(&batch, Cell::Float(0.1)).is_err());
        assert!(Fit::Real.check(&batch, Cell::Float(f64::from(0.1_f32))).is_ok());
        assert!(Fit::Scale(2).check(&batch, Cell::Float(1e-7)).is_err());
    }
}
