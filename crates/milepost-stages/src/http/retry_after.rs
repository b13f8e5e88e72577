//! `Retry-After`: seconds, or one of the three ways HTTP has ever written a date.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::{rfc2822, strtime};
use jiff::tz::TimeZone;
use milepost_core::time::Millis;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// A day. Who asks for more has usually not meant it, and a person should look at that stage sooner.
const LONGEST: Millis = Millis::from_secs(24 * 60 * 60);

pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Millis> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        // Too many digits for a number is long.
        text.parse().map_or(LONGEST, Millis::from_secs)
    } else {
        // By the other side's own clock, when it tells: ours may differ.
        let sent = headers.get(DATE).and_then(|date| http_date(date.to_str().ok()?));
        let since = sent.or_else(|| Timestamp::try_from(now).ok())?;
        let wait = http_date(text)?.as_millisecond().saturating_sub(since.as_millisecond());
        Millis::new(u64::try_from(wait).unwrap_or(0))
    };
    Some(wait.min(LONGEST))
}

fn http_date(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    let obsolete = |format: &str| -> Option<Timestamp> {
        let date: DateTime = strtime::parse(format, text).ok()?.to_datetime().ok()?;
        Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp())
    };
    rfc2822::DateTimeParser::new()
        .parse_timestamp(text)
        .ok()
        .or_else(|| obsolete("%A, %d-%b-%y %H:%M:%S GMT"))
        .or_else(|| obsolete("%a %b %e %H:%M:%S %Y"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn waits(retry_after_text: &str, date: Option<&str>) -> Option<u64> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, retry_after_text.parse().unwrap());
        if let Some(date) = date {
            headers.insert(DATE, date.parse().unwrap());
        }
        // 1994-11-06T08:49:07Z, half a minute before the dates below.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_747);
        retry_after(&headers, now).map(Millis::get)
    }

    #[test]
    fn seconds_and_all_three_forms_of_a_date_are_understood() {
        assert_eq!(waits("0", None), Some(0));
        assert_eq!(waits(" 120 ", None), Some(120_000));
        for date in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(waits(date, None), Some(30_000), "{date}");
        }
        assert_eq!(waits("Sun, 06 Nov 1994 08:49:37 GMT", Some("Sun, 06 Nov 1994 08:49:27 GMT")), Some(10_000));
        assert_eq!(waits("Sun, 06 Nov 1994 08:49:00 GMT", None), Some(0));
    }

    #[test]
    fn no_wait_is_longer_than_a_day_and_nonsense_is_none() {
        assert_eq!(waits("99999999999999999999999", None), Some(86_400_000));
        assert_eq!(waits("Tue, 31 Dec 2999 23:59:59 GMT", None), Some(86_400_000));
        for nonsense in ["", "soon", "-5", "1.5", "99 Foo"] {
            assert_eq!(waits(nonsense, None), None, "{nonsense}");
        }
    }
}
