//! One spelling for what databases spell differently.

use std::borrow::Cow;

/// A time, with or without a date before it: no zeros at the end of the fraction, and no point without one.
pub(crate) fn time(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// A decimal without exponent and without `+`; its digits are kept, and so are zeros at its end. Words stay as they are.
pub(crate) fn decimal(text: &str) -> Cow<'_, str> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let Some((mantissa, exponent)) = text.split_once(['e', 'E']) else { return Cow::Borrowed(text) };
    let Ok(exponent) = exponent.parse::<i32>() else { return Cow::Borrowed(text) };
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |mantissa| ("-", mantissa));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let point = whole.len() as i32 + exponent;
    let text = if point <= 0 {
        format!("{sign}0.{}{digits}", "0".repeat(point.unsigned_abs() as usize))
    } else if point as usize >= digits.len() {
        format!("{sign}{digits}{}", "0".repeat(point as usize - digits.len()))
    } else {
        format!("{sign}{}.{}", &digits[..point as usize], &digits[point as usize..])
    };
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_is_spelled_without_exponent() {
        let cases = [
            ("12.50", "12.50"),
            ("+1", "1"),
            ("1e3", "1000"),
            ("-1.25E+1", "-12.5"),
            ("1.5e-3", "0.0015"),
            ("NaN", "NaN"),
            ("12e0", "12"),
        ];
        for (given, expected) in cases {
            assert_eq!(decimal(given), expected);
        }
    }

    #[test]
    fn a_time_has_no_zeros_at_its_end() {
        let cases = [
            ("10:00:00", "10:00:00"),
            ("10:00:00.120000", "10:00:00.12"),
            ("2024-01-10 10:00:00.000", "2024-01-10 10:00:00"),
        ];
        for (given, expected) in cases {
            assert_eq!(time(given), expected);
        }
    }
}
