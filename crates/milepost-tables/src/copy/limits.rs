//! No faster than was asked for.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::job::Limits;

/// Two buckets that refill steadily. A batch may be taken as soon as neither is in debt, and may put them into it: so no
/// batch is ever too large to be taken, and on the whole the rate holds.
#[derive(Debug)]
pub(super) struct Pace {
    rows: Option<Bucket>,
    bytes: Option<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    per_second: u64,
    /// When its debt is paid.
    free_at: Instant,
}

impl Pace {
    pub(super) fn new(limits: Limits, now: Instant) -> Self {
        let bucket = |per_second: Option<u64>| per_second.map(|rate| Bucket { per_second: rate.max(1), free_at: now });
        Self { rows: bucket(limits.rows_per_second), bytes: bucket(limits.bytes_per_second) }
    }

    /// Waits until so much may be written.
    pub(super) async fn wait(&mut self, rows: u64, bytes: u64) {
        let now = Instant::now();
        let rows = self.rows.as_mut().map(|bucket| bucket.take(rows, now));
        let bytes = self.bytes.as_mut().map(|bucket| bucket.take(bytes, now));
        if let Some(at) = rows.max(bytes).filter(|at| *at > now) {
            sleep_until(at).await;
        }
    }
}

impl Bucket {
    fn take(&mut self, amount: u64, now: Instant) -> Instant {
        let start = self.free_at.max(now);
        self.free_at = start + Duration::from_secs_f64(amount as f64 / self.per_second as f64);
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_slower_of_two_limits_holds() {
        let began = Instant::now();
        let limits = Limits { rows_per_second: Some(100), bytes_per_second: Some(1_000) };
        let mut pace = Pace::new(limits, began);
        for _ in 0..5 {
            pace.wait(100, 2_000).await;
        }
        assert_eq!(began.elapsed().as_secs(), 8, "the first is free, and each of the others waits for the one before");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_nothing_waits() {
        let began = Instant::now();
        let mut pace = Pace::new(Limits::default(), began);
        pace.wait(u64::MAX, u64::MAX).await;
        pace.wait(u64::MAX, u64::MAX).await;
        assert!(began.elapsed().is_zero());
    }
}
