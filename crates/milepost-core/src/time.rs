//! Instants and lengths of time, in whole milliseconds: what the store keeps and what a decision may look at.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Milliseconds since 1970-01-01T00:00:00Z; printed and read as RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
pub struct Timestamp(i64);

/// The last instant that is written as RFC 3339: 9999-12-30T22:00:00.000Z. What would be later is then.
const LAST: i64 = 253_402_207_200_000;

impl Timestamp {
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Zero when `earlier` is in fact later.
    pub fn since(self, earlier: Timestamp) -> Millis {
        Millis(self.0.saturating_sub(earlier.0).max(0).unsigned_abs())
    }
}

impl Add<Millis> for Timestamp {
    type Output = Timestamp;
    fn add(self, length: Millis) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::try_from(length.0).unwrap_or(i64::MAX)).min(LAST))
    }
}

impl Sub<Millis> for Timestamp {
    type Output = Timestamp;
    fn sub(self, length: Millis) -> Timestamp {
        Timestamp(self.0.saturating_sub(i64::try_from(length.0).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

/// What could not be read as an instant.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is not a time; expected RFC 3339, such as 2026-01-31T09:30:00Z")]
pub struct InvalidTime {
    text: String,
}

impl std::str::FromStr for Timestamp {
    type Err = InvalidTime;

    /// A time without a zone is read as UTC, as the seeds' own records have none.
    fn from_str(text: &str) -> Result<Self, InvalidTime> {
        // How an instant is written that RFC 3339 cannot write.
        if let Some(Ok(millis)) = text.strip_suffix(" ms").map(str::parse) {
            return Ok(Timestamp(millis));
        }
        let zoned = text.parse::<jiff::Timestamp>();
        let at = zoned.or_else(|_| {
            text.parse::<jiff::civil::DateTime>()
                .and_then(|civil| civil.to_zoned(jiff::tz::TimeZone::UTC))
                .map(|zoned| zoned.timestamp())
        });
        match at {
            Ok(at) => Ok(Timestamp(at.as_millisecond())),
            Err(_) => Err(InvalidTime { text: text.to_owned() }),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// For instants of which there are many: a number, where every byte counts.
pub(crate) mod as_millis {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Timestamp;

    #[expect(clippy::ref_option, reason = "serde hands it over like this")]
    pub(crate) fn serialize<S: Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
        at.map(Timestamp::as_millis).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
        Ok(Option::<i64>::deserialize(deserializer)?.map(Timestamp::from_millis))
    }
}

/// A length of time in whole milliseconds. In plan files it reads as `250ms`, `3s`, `5m`, `1h`; stored, it is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(u64);

impl Millis {
    pub const ZERO: Millis = Millis(0);

    pub(crate) fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    pub const fn new(millis: u64) -> Self {
        Self(millis)
    }

    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    pub const fn get(self) -> u64 {
        self.0
    }

    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    pub fn saturating_add(self, other: Millis) -> Millis {
        Millis(self.0.saturating_add(other.0))
    }
}

/// What could not be read as a length of time.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a duration; expected a whole number with a unit, such as 250ms, 3s, 5m or 1h")]
pub struct InvalidDuration {
    text: String,
}

impl std::str::FromStr for Millis {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        let invalid = || InvalidDuration { text: text.to_owned() };
        let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(invalid)?;
        let (number, unit) = text.split_at(split);
        let factor: u64 = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(invalid()),
        };
        let number: u64 = number.parse().map_err(|_| invalid())?;
        number.checked_mul(factor).filter(|ms| i64::try_from(*ms).is_ok()).map(Millis).ok_or_else(invalid)
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0s"),
            ms if ms % 3_600_000 == 0 => write!(f, "{}h", ms / 3_600_000),
            ms if ms % 60_000 == 0 => write!(f, "{}m", ms / 60_000),
            ms if ms % 1000 == 0 => write!(f, "{}s", ms / 1000),
            ms => write!(f, "{ms}ms"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_whole_number_with_a_unit() {
        for (text, ms) in [("250ms", 250), ("3s", 3000), ("5m", 300_000), ("1h", 3_600_000), ("0s", 0)] {
            assert_eq!(text.parse(), Ok(Millis(ms)));
        }
        for bad in ["", "3", "s", "3 s", "-3s", "1.5s", "3d", "99999999999999999999s", "9223372036854775807h"] {
            assert!(bad.parse::<Millis>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_time_reads_back_as_it_was_written_and_without_a_zone_it_is_utc() {
        let at = Timestamp(1_764_000_000_123);
        assert_eq!(at.to_string(), "2025-11-24T16:00:00.123Z");
        assert_eq!(at.to_string().parse::<Timestamp>().unwrap(), at);
        assert_eq!("2025-11-24T16:00:00.123".parse::<Timestamp>().unwrap(), at);
    }
}
