//! Numbers in other words: texts, integers and floats that say the same.

/// As SQLite shows it, with all the digits that it takes to read it back.
pub(super) fn real_text(value: f64) -> String {
    format!("{value:?}")
}

/// Digits with at most one point, a sign and an exponent: what SQLite takes for a number.
pub(super) fn is_number(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = text.split_once(['e', 'E']).map_or((text, None), |(m, e)| (m, Some(e)));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let raised = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty()) && raised
}

pub(super) fn fits(value: i64, bits: u8, unsigned: bool) -> bool {
    match (bits, unsigned) {
        (64, false) => true,
        (64, true) => value >= 0,
        (bits, true) => value >= 0 && value < 1 << bits,
        (bits, false) => value >= -(1 << (bits - 1)) && value < 1 << (bits - 1),
    }
}

pub(super) fn exact_float(value: i64, bits: u8) -> Option<f64> {
    let float = if bits == 32 { f64::from(value as f32) } else { value as f64 };
    (float as i128 == i128::from(value)).then_some(float)
}

pub(super) fn exact_integer(value: f64) -> Option<i64> {
    let whole = value as i64;
    (whole as f64 == value && value.abs() <= 9_007_199_254_740_992.0).then_some(whole)
}

/// An integer's digits without an allocation.
pub(super) fn digits_of(buffer: &mut [u8; 24], value: i64) -> &str {
    use std::io::Write as _;
    let mut rest = &mut buffer[..];
    write!(rest, "{value}").expect("an integer has at most 20 characters");
    let length = 24 - rest.len();
    std::str::from_utf8(&buffer[..length]).expect("digits are ASCII")
}

/// What an integer beyond SQLite's own is, if a text is exactly that.
pub(super) fn beyond(text: &str) -> Option<u64> {
    text.parse::<u64>().ok().filter(|value| *value > i64::MAX.cast_unsigned() && value.to_string() == text)
}
