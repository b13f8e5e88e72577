//! Whether a text is spelled as dates, times and numbers are between databases.
//!
//! PostgreSQL itself understands more than these spellings, and not as they are meant: `now`, `24:00:00` on a day, an
//! hour before midnight that looks like a zone.

use crate::canonical;

/// `2024-02-29`, years of more digits, ` BC`, `infinity`. Whether there is such a day the server knows.
pub(super) fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() == 10 {
        return is_plain_date(bytes) || is_beyond(text);
    }
    let text = text.strip_suffix(" BC").unwrap_or(text);
    is_long_date(text) || is_beyond(text)
}

/// `23:59:59.123`; `24:00:00` as well, which is the end of a day where there is no date.
pub(super) fn is_time(text: &str) -> bool {
    is_clock(text.as_bytes()) || text == "24:00:00"
}

/// A date, a blank, and a time.
pub(super) fn is_date_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() >= 19 && is_plain_date(&bytes[..10]) && bytes[10] == b' ' && is_clock(&bytes[11..]) {
        return true;
    }
    let text = text.strip_suffix(" BC").unwrap_or(text);
    let split = text.split_once(' ').is_some_and(|(date, time)| is_long_date(date) && is_clock(time.as_bytes()));
    split || is_beyond(text)
}

/// Digits after the second; the zeros at the end count.
pub(super) fn fraction(text: &str) -> usize {
    let text = text.strip_suffix(" BC").unwrap_or(text);
    text.rsplit_once('.').map_or(0, |(_, fraction)| fraction.len())
}

/// `-12.50`.
pub(super) fn is_decimal(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    are_digits(whole.as_bytes()) && are_digits(fraction.as_bytes())
}

/// The same number without zeros at the end of its fraction.
pub(super) fn trimmed(decimal: &str) -> &str {
    if decimal.contains('.') { decimal.trim_end_matches('0').trim_end_matches('.') } else { decimal }
}

/// A number whose shortest spelling as a float is this one.
pub(super) fn exact_float(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    let same = !value.is_finite() || trimmed(&canonical::decimal(text)) == trimmed(&value.to_string());
    same.then_some(value)
}

fn is_beyond(text: &str) -> bool {
    matches!(text, "infinity" | "-infinity")
}

fn is_plain_date(bytes: &[u8]) -> bool {
    are_digits(&bytes[..4])
        && bytes[4] == b'-'
        && are_digits(&bytes[5..7])
        && bytes[7] == b'-'
        && are_digits(&bytes[8..10])
}

fn is_long_date(text: &str) -> bool {
    let mut parts = text.rsplitn(3, '-').map(str::as_bytes);
    let (day, month, year) = (parts.next(), parts.next(), parts.next());
    day.is_some_and(|day| day.len() == 2 && are_digits(day))
        && month.is_some_and(|month| month.len() == 2 && are_digits(month))
        && year.is_some_and(|year| year.len() >= 4 && are_digits(year))
}

/// `23:59:59`, with or without a fraction; no hour 24 and no second 60, which would be another moment.
fn is_clock(bytes: &[u8]) -> bool {
    if bytes.len() < 8 || bytes[2] != b':' || bytes[5] != b':' {
        return false;
    }
    let part = |at: usize, limit: u8| {
        let (tens, ones) = (bytes[at].wrapping_sub(b'0'), bytes[at + 1].wrapping_sub(b'0'));
        tens <= 9 && ones <= 9 && tens * 10 + ones < limit
    };
    part(0, 24)
        && part(3, 60)
        && part(6, 60)
        && (bytes.len() == 8 || bytes[8] == b'.' && bytes.len() > 9 && are_digits(&bytes[9..]))
}

fn are_digits(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_spelling_is_a_date_with_a_time() {
        let good = ["2024-02-29 23:59:59", "2024-02-29 23:59:59.1", "12024-01-01 00:00:00", "0044-03-15 10:00:00.5 BC"];
        for text in good {
            assert!(is_date_time(text), "{text}");
        }
        for text in ["now", "2024-02-29", "2024-02-29T10:00:00", "2024-01-01 24:00:00", "2024-01-01 10:00:60", "", "é"]
        {
            assert!(!is_date_time(text), "{text}");
        }
        assert!(is_date_time("infinity") && is_date_time("-infinity"));
    }

    #[test]
    fn only_one_spelling_is_a_date_or_a_time() {
        for text in ["2024-02-29", "0000-00-00", "12024-01-01", "0044-03-15 BC", "infinity", "-infinity"] {
            assert!(is_date(text), "{text}");
        }
        for text in ["today", "2024-02-29 10:00:00", "20240229", "2024-2-29", "", "12345678é"] {
            assert!(!is_date(text), "{text}");
        }
        assert!(is_time("24:00:00") && is_time("00:00:00.000001"));
        for text in ["-01:00:00", "25:00:00", "838:59:59", "10:00", "10:00:00.", "allballs"] {
            assert!(!is_time(text), "{text}");
        }
    }

    #[test]
    fn a_decimal_is_digits_and_a_point() {
        for text in ["0", "-12.50", "123456789012345678901234567890.1"] {
            assert!(is_decimal(text), "{text}");
        }
        for text in ["", "-", "1.", ".5", "1e3", "+1", "NaN"] {
            assert!(!is_decimal(text), "{text}");
        }
        assert_eq!((trimmed("1.50"), trimmed("1.00"), trimmed("100")), ("1.5", "1", "100"));
    }
}
