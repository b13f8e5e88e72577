//! Clocks: what a store's own said, and this machine's where there is no other.

use std::time::{SystemTime, UNIX_EPOCH};

use milepost_core::time::Timestamp;
use tokio::time::Instant;

/// A look at a store's clock: it said `at` at some moment between the two.
#[derive(Debug, Clone, Copy)]
pub struct ClockReading {
    pub at: Timestamp,
    pub asked: Instant,
    pub answered: Instant,
}

impl ClockReading {
    /// The answer, which is here now, to what was asked then.
    pub(crate) fn answered(asked: Instant, at: Timestamp) -> Self {
        Self { at, asked, answered: Instant::now() }
    }
}

pub(crate) fn wall_clock() -> Timestamp {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX))
}
