//! Dates and times as SQLite's users write them, in Milepost's one spelling: exactly the same, or not at all.

use std::borrow::Cow;

use crate::canonical;

/// `2024-02-29`, and what other databases say besides: `infinity`, `0000-00-00`, `0044-03-15 BC`.
pub(super) fn date(text: &str) -> Option<Cow<'_, str>> {
    let plain = text.strip_suffix(" BC").unwrap_or(text);
    (is_word(text) || parts(plain).is_some_and(|(_, _, _, rest)| rest.is_empty())).then_some(Cow::Borrowed(text))
}

/// `10:00`, `10:00:00.120`; also `-838:59:59` and `24:00:00`, which are times to some.
pub(super) fn time(text: &str, fraction: u8) -> Option<Cow<'_, str>> {
    let hours = text.strip_prefix('-').unwrap_or(text).find(':')?;
    let plain = text.strip_prefix('-').unwrap_or(text);
    let digits = (2..=3).contains(&hours) && plain[..hours].bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        return None;
    }
    with_seconds(text, &plain[hours + 1..], fraction)
}

/// With a space or a `T` between; a zone is none of a clock's reading.
pub(super) fn date_time(text: &str, fraction: u8) -> Option<Cow<'_, str>> {
    if is_word(text) {
        return Some(Cow::Borrowed(text));
    }
    let (plain, era) = text.strip_suffix(" BC").map_or((text, ""), |plain| (plain, " BC"));
    let (_, _, _, rest) = parts(plain)?;
    let date = &plain[..plain.len() - rest.len()];
    let clock = rest.strip_prefix(['T', 't', ' '])?;
    let clock = if clock.find(':') == Some(2) { time(clock, fraction)? } else { return None };
    if era.is_empty() && rest.starts_with(' ') && clock.len() == rest.len() - 1 {
        return Some(Cow::Borrowed(text));
    }
    Some(Cow::Owned(format!("{date} {clock}{era}")))
}

/// With `Z`, `+02:00`, `+0200` or `+02` at its end, or nothing for UTC; in UTC.
pub(super) fn instant(text: &str, fraction: u8) -> Option<Cow<'_, str>> {
    let (plain, minutes) = zone(text)?;
    let local = date_time(plain, fraction)?;
    if minutes == 0 {
        return Some(local);
    }
    let (year, month, day, rest) = parts(&local)?;
    if month == 0 || day == 0 || rest.ends_with(" BC") {
        return None;
    }
    let clock = rest.strip_prefix(' ')?;
    let of_day = clock.get(..2)?.parse::<i64>().ok()? * 60 + clock.get(3..5)?.parse::<i64>().ok()? - minutes;
    let (year, month, day) = from_days(to_days(year, month, day) + of_day.div_euclid(24 * 60));
    let of_day = of_day.rem_euclid(24 * 60);
    (year > 0).then(|| {
        Cow::Owned(format!("{year:04}-{month:02}-{day:02} {:02}:{:02}{}", of_day / 60, of_day % 60, &clock[5..]))
    })
}

fn is_word(text: &str) -> bool {
    matches!(text, "infinity" | "-infinity")
}

/// Year, month, day, and what comes after them. A month or a day that is not said is 0, as in MySQL.
fn parts(text: &str) -> Option<(i64, i64, i64, &str)> {
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let year = text.find('-').filter(|end| (4..=6).contains(end))?;
    let rest = text.get(year + 1..)?;
    let (month, day) = (rest.get(..2)?, rest.get(3..5)?);
    if rest.as_bytes()[2] != b'-' {
        return None;
    }
    let (year, month, day): (i64, i64, i64) = (number(&text[..year])?, number(month)?, number(day)?);
    (month <= 12 && day <= 31).then_some((year, month, day, &rest[5..]))
}

/// `text` ends with `rest`, which is what comes after the hours.
fn with_seconds<'a>(text: &'a str, rest: &str, fraction: u8) -> Option<Cow<'a, str>> {
    let two = |part: Option<&str>| part.is_some_and(|part| matches!(part.as_bytes(), [b'0'..=b'5', b'0'..=b'9']));
    if !two(rest.get(..2)) {
        return None;
    }
    if rest.len() == 2 {
        return Some(Cow::Owned(format!("{text}:00")));
    }
    let seconds = rest[2..].strip_prefix(':')?;
    let digits = seconds.get(2..)?;
    if !two(seconds.get(..2)) {
        return None;
    }
    if digits.is_empty() {
        return Some(Cow::Borrowed(text));
    }
    let digits = digits.strip_prefix('.').filter(|digits| !digits.is_empty())?;
    let kept = digits.trim_end_matches('0').len() <= usize::from(fraction);
    (kept && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| Cow::Borrowed(canonical::time(text)))
}

/// The text before its zone, and the zone's minutes before UTC.
fn zone(text: &str) -> Option<(&str, i64)> {
    if let Some(plain) = text.strip_suffix(['Z', 'z']) {
        return Some((plain, 0));
    }
    let Some(colon) = text.find(':') else { return Some((text, 0)) };
    let Some(sign) = text[colon..].find(['+', '-']).map(|at| colon + at) else { return Some((text, 0)) };
    let digits: String = text[sign + 1..].chars().filter(|c| *c != ':').collect();
    let (hours, minutes) = match digits.len() {
        2 => (digits.as_str(), "0"),
        4 => digits.split_at(2),
        _ => return None,
    };
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    if hours > 15 || minutes > 59 {
        return None;
    }
    let minutes = hours * 60 + minutes;
    let plain = text[..sign].trim_end_matches(' ');
    Some((plain, if text[sign..].starts_with('-') { -minutes } else { minutes }))
}

/// Days since 1970-01-01, in the calendar of today at all times.
fn to_days(year: i64, month: i64, day: i64) -> i64 {
    // A year that begins in March ends with the day that comes and goes.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    (year, month, of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_told_in_utc() {
        let cases = [
            ("2024-02-29 23:59:59.123", Some("2024-02-29 23:59:59.123")),
            ("2024-02-29T23:59:59.120Z", Some("2024-02-29 23:59:59.12")),
            ("2024-03-01T01:30:00+02:00", Some("2024-02-29 23:30:00")),
            ("2023-12-31 22:30:00.5-0200", Some("2024-01-01 00:30:00.5")),
            ("1970-01-01 00:00:00+00", Some("1970-01-01 00:00:00")),
            ("1969-12-31T20:00:00-04:00", Some("1970-01-01 00:00:00")),
            ("9999-12-31 23:59:59.999999", Some("9999-12-31 23:59:59.999999")),
            ("2024-01-10T10:00", Some("2024-01-10 10:00:00")),
            ("2024-01-01 10:00:00.123456789Z", None),
            ("2024-01-01 10:00:00 Europe/Berlin", None),
            ("2024-01-01", None),
            ("infinity", Some("infinity")),
        ];
        for (given, expected) in cases {
            assert_eq!(instant(given, 6).as_deref(), expected, "{given}");
        }
    }

    #[test]
    fn a_clocks_reading_has_no_zone() {
        let cases = [
            ("2024-02-29T10:00:00.500", Some("2024-02-29 10:00:00.5")),
            ("0000-00-00 00:00:00", Some("0000-00-00 00:00:00")),
            ("2024-02-29 10:00:00Z", None),
            ("2024-02-29 10:00:00+02:00", None),
            ("2024-02-29 25:00:61", None),
            ("20240229 10:00:00", None),
            ("2024-2-9 10:00:00", None),
            ("0044-03-15 12:00:00 BC", Some("0044-03-15 12:00:00 BC")),
        ];
        for (given, expected) in cases {
            assert_eq!(date_time(given, 6).as_deref(), expected, "{given}");
        }
        assert_eq!(date_time("2024-02-29 10:00:00.5", 0), None, "half a second is not dropped");
        assert_eq!(date_time("2024-02-29 10:00:00.000", 0).as_deref(), Some("2024-02-29 10:00:00"));
    }

    #[test]
    fn a_date_and_a_time_are_spelled_one_way() {
        for date_text in ["2024-02-29", "0000-00-00", "infinity", "10000-01-01", "0044-03-15 BC"] {
            assert_eq!(date(date_text).as_deref(), Some(date_text));
        }
        for no_date in ["2024-02-29 10:00:00", "yesterday", "29.02.2024", "2024-13-01", "", "２０２４-01-01"] {
            assert_eq!(date(no_date), None, "{no_date}");
        }
        let cases = [
            ("10:00", Some("10:00:00")),
            ("-838:59:59.100", Some("-838:59:59.1")),
            ("24:00:00", Some("24:00:00")),
            ("10:00:00.", None),
            ("10", None),
            ("1:00:00", None),
        ];
        for (given, expected) in cases {
            assert_eq!(time(given, 6).as_deref(), expected, "{given}");
        }
    }

    #[test]
    fn days_are_counted_there_and_back() {
        for days in (-800_000..3_000_000).step_by(997) {
            let (year, month, day) = from_days(days);
            assert_eq!(to_days(year, month, day), days);
        }
        assert_eq!(to_days(1970, 1, 1), 0);
        assert_eq!(to_days(2024, 2, 29), 19_782);
    }
}
