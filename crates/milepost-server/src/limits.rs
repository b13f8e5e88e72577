//! How often a caller may ask: a bucket each that fills again with time, in memory that is bounded.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Callers that are told apart at once. When there are more, all further ones share a bucket.
const MOST_CALLERS: usize = 16 * 1024;
/// Forgetting those whose bucket is full again takes a look at all of them: not more often than this.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Who is counted as one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum CallerKey {
    Token(String),
    Address(IpAddr),
    Crowd,
}

impl CallerKey {
    /// One household or server has a whole /64 of IPv6 to itself.
    pub(crate) fn address(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
            address @ IpAddr::V4(_) => address,
        })
    }
}

/// A bucket holds what one second gives, so that a short burst passes.
#[derive(Debug)]
pub(crate) struct RateLimit {
    /// What one request costs.
    interval: Duration,
    buckets: Mutex<Buckets>,
}

#[derive(Debug)]
struct Buckets {
    /// When each bucket will be full again.
    full_at: HashMap<CallerKey, Instant>,
    swept_at: Option<Instant>,
}

impl RateLimit {
    pub(crate) fn new(per_second: u32) -> Self {
        let buckets = Buckets { full_at: HashMap::new(), swept_at: None };
        Self { interval: Duration::from_secs(1) / per_second.max(1), buckets: Mutex::new(buckets) }
    }

    /// Takes from the caller's bucket, or says how long it has to fill before there is enough in it.
    pub(crate) fn take(&self, caller: CallerKey, now: Instant) -> Result<(), Duration> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let caller = buckets.place_for(caller, now);
        let full_at = buckets.full_at.entry(caller).or_insert(now);
        let next = (*full_at).max(now) + self.interval;
        let over = next.duration_since(now).saturating_sub(Duration::from_secs(1));
        if over.is_zero() {
            *full_at = next;
            return Ok(());
        }
        Err(over)
    }
}

impl Buckets {
    fn place_for(&mut self, caller: CallerKey, now: Instant) -> CallerKey {
        if self.full_at.len() < MOST_CALLERS || self.full_at.contains_key(&caller) {
            return caller;
        }
        if self.swept_at.is_none_or(|swept_at| now.duration_since(swept_at) >= SWEEP_EVERY) {
            self.swept_at = Some(now);
            self.full_at.retain(|_, full_at| *full_at > now);
        }
        if self.full_at.len() < MOST_CALLERS { caller } else { CallerKey::Crowd }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> CallerKey {
        CallerKey::address(IpAddr::V4(number.into()))
    }

    #[test]
    fn a_caller_gets_a_second_at_once_and_then_as_much_as_time_gives() {
        let (limit, start) = (RateLimit::new(10), Instant::now());
        for _ in 0..10 {
            limit.take(key(1), start).unwrap();
        }
        let wait = limit.take(key(1), start).unwrap_err();
        assert!(wait <= Duration::from_millis(100), "{wait:?}");
        limit.take(key(2), start).unwrap();
        limit.take(key(1), start + wait).unwrap();
        limit.take(key(1), start + wait).unwrap_err();
        limit.take(key(1), start + Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn more_callers_than_there_are_buckets_share_one_and_the_memory_stays_bounded() {
        let (limit, start) = (RateLimit::new(1), Instant::now());
        let most = u32::try_from(MOST_CALLERS).unwrap();
        for number in 0..most {
            limit.take(key(number), start).unwrap();
        }
        limit.take(key(most), start).unwrap();
        limit.take(key(most + 1), start).unwrap_err();
        assert!(limit.buckets.lock().unwrap().full_at.len() <= MOST_CALLERS + 1);
        limit.take(key(most + 1), start + Duration::from_secs(5)).unwrap();
        assert_eq!(limit.buckets.lock().unwrap().full_at.len(), 1);
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_caller() {
        let of = |text: &str| CallerKey::address(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
