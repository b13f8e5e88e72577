//! The time of day, by a clock that never goes back and goes on while the machine sleeps.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use milepost_core::time::Timestamp;
use rustix::time::{ClockId, clock_gettime};

use crate::precise;

/// The wall clock as it was at the start, moved on by the boot-time clock: an adjusted wall clock makes no timer fire
/// early or late, and a suspended machine does not stop them.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    source: Source,
    wall_start_ms: i64,
}

#[derive(Debug, Clone, Copy)]
enum Source {
    BootTime {
        start: Duration,
    },
    /// Tokio's own, which tests can move by hand.
    Tokio {
        start: tokio::time::Instant,
    },
}

/// Tokio's timers stop while the machine is suspended, so no wait is longer than this at a time.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

impl Clock {
    pub fn system() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_start_ms = i64::try_from(wall.as_millis()).unwrap_or(i64::MAX);
        Self { source: Source::BootTime { start: boot_time() }, wall_start_ms }
    }

    /// Follows tokio's paused clock, beginning at `start`; must be made inside a runtime.
    pub fn manual(start: Timestamp) -> Self {
        Self { source: Source::Tokio { start: tokio::time::Instant::now() }, wall_start_ms: start.as_millis() }
    }

    pub fn now(&self) -> Timestamp {
        self.now_and_rest().0
    }

    /// The time in whole milliseconds, and how long ago that was: what is due a second after this instant is due a second
    /// and the rest after the time that is written down.
    pub(crate) fn now_and_rest(&self) -> (Timestamp, Duration) {
        let elapsed = self.elapsed();
        let millis = i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX);
        let rest = Duration::from_nanos(u64::from(elapsed.subsec_nanos() % 1_000_000));
        (Timestamp::from_millis(self.wall_start_ms + millis), rest)
    }

    fn elapsed(&self) -> Duration {
        match self.source {
            Source::BootTime { start } => boot_time().saturating_sub(start),
            Source::Tokio { start } => start.elapsed(),
        }
    }

    /// Returns at `due` or later, never before, and hardly later.
    pub async fn sleep_until(&self, due: Timestamp) {
        self.sleep_until_past(due, Duration::ZERO).await;
    }

    /// The same for so much after it.
    pub(crate) async fn sleep_until_past(&self, due: Timestamp, rest: Duration) {
        let due = u64::try_from(due.as_millis().saturating_sub(self.wall_start_ms)).unwrap_or(0);
        let due = Duration::from_millis(due) + rest;
        loop {
            let left = due.saturating_sub(self.elapsed());
            if left.is_zero() {
                return;
            }
            match self.source {
                Source::BootTime { .. } => precise::sleep(left.min(LONGEST_SLEEP)).await,
                // Nothing suspends a clock that is moved by hand, and years of it are to pass in no time.
                Source::Tokio { .. } => tokio::time::sleep(left).await,
            }
        }
    }
}

fn boot_time() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use milepost_core::time::Millis;

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_at_its_due_time_and_never_before() {
        let clock = Clock::manual(Timestamp::from_millis(1_000));
        for wait in [0, 1, 59_999, 60_001, 3_600_000] {
            let due = clock.now() + Millis::new(wait);
            clock.sleep_until(due).await;
            assert!(clock.now() >= due);
        }
    }
}
