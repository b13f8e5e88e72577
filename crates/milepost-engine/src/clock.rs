//! The time of day, by a clock that never goes back and goes on while the machine sleeps. On a store that nodes share it
//! follows the store's clock, so that all of them agree on what time it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use milepost_core::time::Timestamp;
use milepost_store::{ClockReading, Store};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Notify;

use crate::precise;

/// The wall clock as it was at the start, moved on by the boot-time clock: an adjusted wall clock makes no timer fire
/// early or late, and a suspended machine does not stop them. Clones are handles to the same clock.
#[derive(Debug, Clone)]
pub struct Clock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    source: Source,
    /// What it said at its start. All of it is in microseconds.
    start: i64,
    /// By how much the store's clock is ahead of this machine's.
    correction: AtomicI64,
    /// The latest it has said: found ahead of the store's, it stands still until that has caught up.
    said: AtomicI64,
    /// Whoever waits for an instant has to look again.
    corrected: Notify,
}

#[derive(Debug, Clone, Copy)]
enum Source {
    BootTime {
        start: Duration,
    },
    /// Tokio's own, which tests can move by hand.
    Tokio {
        start: tokio::time::Instant,
        /// By how many millionths it goes too fast; negative when too slow.
        drift: i32,
    },
}

const MILLION: i128 = 1_000_000;
/// Tokio's timers stop while the machine is suspended, so no wait is longer than this at a time.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// A correction by more than this is said: somebody should look at the machine's clock.
const NOTABLE: Duration = Duration::from_secs(1);

impl Clock {
    pub fn system() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start = Timestamp::from_millis(i64::try_from(wall.as_millis()).unwrap_or(i64::MAX));
        Self::new(Source::BootTime { start: boot_time() }, start)
    }

    /// This machine's clock, set by that of the store, if it has one of its own.
    pub fn of(store: &dyn Store) -> Self {
        let clock = Self::system();
        clock.follow_opening(store);
        clock
    }

    /// Follows tokio's paused clock, beginning at `start`; must be made inside a runtime.
    pub fn manual(start: Timestamp) -> Self {
        Self::manual_with_drift(start, 0)
    }

    /// The same for one that goes too fast by so many millionths, or too slow if negative.
    pub fn manual_with_drift(start: Timestamp, ppm: i32) -> Self {
        Self::new(Source::Tokio { start: tokio::time::Instant::now(), drift: ppm }, start)
    }

    fn new(source: Source, start: Timestamp) -> Self {
        let shared = Shared {
            source,
            start: micros(start),
            correction: AtomicI64::new(0),
            said: AtomicI64::new(i64::MIN),
            corrected: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    pub fn now(&self) -> Timestamp {
        self.now_and_rest().0
    }

    /// The time in whole milliseconds, and how long ago that was: what is due a second after this instant is due a second
    /// and the rest after the time that is written down.
    pub(crate) fn now_and_rest(&self) -> (Timestamp, Duration) {
        let now = self.say();
        let rest = Duration::from_micros(now.rem_euclid(1000).unsigned_abs());
        (Timestamp::from_millis(now.div_euclid(1000)), rest)
    }

    /// How long the clock has gone, whatever it was corrected by: what lengths of time are measured with.
    pub(crate) fn elapsed(&self) -> Duration {
        self.shared.source.elapsed()
    }

    /// Returns at `due` or later, never before, and hardly later.
    pub async fn sleep_until(&self, due: Timestamp) {
        self.sleep_until_past(due, Duration::ZERO).await;
    }

    /// The same for so much after it.
    pub(crate) async fn sleep_until_past(&self, due: Timestamp, rest: Duration) {
        let due = micros(due).saturating_add(i64::try_from(rest.as_micros()).unwrap_or(i64::MAX));
        loop {
            // Made before the look, so that it misses no correction after it.
            let corrected = self.shared.corrected.notified();
            if self.say() >= due {
                return;
            }
            let left = due.saturating_sub(self.shared.reading()).max(1).unsigned_abs();
            tokio::select! {
                biased;
                () = corrected => {}
                () = self.shared.source.sleep(Duration::from_micros(left)) => {}
            }
        }
    }

    /// Returns when the clock has gone for so long since its start, as `elapsed` tells.
    pub(crate) async fn sleep_until_elapsed(&self, due: Duration) {
        loop {
            let left = due.saturating_sub(self.elapsed());
            if left.is_zero() {
                return;
            }
            self.shared.source.sleep(left).await;
        }
    }

    /// Takes over what the store's clock said when the store was opened.
    pub(crate) fn follow_opening(&self, store: &dyn Store) {
        if let Some(ClockReading { at, asked, answered }) = store.clock() {
            let now = self.elapsed();
            self.follow(at, now.saturating_sub(asked.elapsed()), now.saturating_sub(answered.elapsed()));
        }
    }

    /// The store's clock said `at` at some moment between the two, by `elapsed`. As long as this clock may be right by
    /// that it is left alone; otherwise it is moved no further than it has to be. So a slow answer does little harm.
    pub(crate) fn follow(&self, at: Timestamp, asked: Duration, answered: Duration) {
        let shared = &self.shared;
        let uncorrected = |elapsed: Duration| shared.start.saturating_add(as_micros(elapsed));
        // It is said in whole milliseconds: it may have been almost one more.
        let most = micros(at).saturating_add(999).saturating_sub(uncorrected(asked));
        let least = micros(at).saturating_sub(uncorrected(answered)).min(most);
        let before = shared.correction.load(Ordering::Acquire);
        let correction = before.clamp(least, most);
        if correction == before {
            return;
        }
        let moved = Duration::from_micros(correction.abs_diff(before));
        if moved > NOTABLE {
            let direction = if correction > before { "behind" } else { "ahead of" };
            tracing::warn!(
                ?moved,
                "this node's clock was {direction} the store's, which it follows; is the machine's clock set?"
            );
        }
        shared.correction.store(correction, Ordering::Release);
        shared.corrected.notify_waiters();
    }

    fn say(&self) -> i64 {
        let reading = self.shared.reading();
        self.shared.said.fetch_max(reading, Ordering::AcqRel).max(reading)
    }
}

impl Shared {
    fn reading(&self) -> i64 {
        let elapsed = as_micros(self.source.elapsed());
        self.start.saturating_add(elapsed).saturating_add(self.correction.load(Ordering::Acquire))
    }
}

impl Source {
    fn elapsed(self) -> Duration {
        match self {
            Source::BootTime { start } => boot_time().saturating_sub(start),
            Source::Tokio { start, drift: 0 } => start.elapsed(),
            Source::Tokio { start, drift } => scale(start.elapsed(), MILLION + i128::from(drift), MILLION),
        }
    }

    /// About as long as that by this clock; whoever waits looks again.
    async fn sleep(self, length: Duration) {
        match self {
            Source::BootTime { .. } => precise::sleep(length.min(LONGEST_SLEEP)).await,
            // Nothing suspends a clock that is moved by hand, and years of it are to pass in no time.
            Source::Tokio { drift: 0, .. } => tokio::time::sleep(length).await,
            Source::Tokio { drift, .. } => {
                // Never for nothing: whoever looks again before any time has passed would look for ever.
                let length = scale(length, MILLION, MILLION + i128::from(drift)).max(Duration::from_nanos(1));
                tokio::time::sleep(length).await;
            }
        }
    }
}

fn scale(length: Duration, by: i128, of: i128) -> Duration {
    let nanos = i128::try_from(length.as_nanos()).unwrap_or(i128::MAX / MILLION).saturating_mul(by) / of.max(1);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

fn micros(at: Timestamp) -> i64 {
    at.as_millis().saturating_mul(1000)
}

fn as_micros(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX)
}

fn boot_time() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use milepost_core::time::Millis;

    const START: Timestamp = Timestamp::from_millis(1_000_000);
    const SECOND: Duration = Duration::from_secs(1);

    fn later(by: u64) -> Timestamp {
        START + Millis::new(by)
    }

    /// The store said `at`, and nobody had to wait for it.
    fn told(clock: &Clock, at: Timestamp) {
        clock.follow(at, clock.elapsed(), clock.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_rest_that_is_less_than_nothing_by_a_fast_clock_is_over_all_the_same() {
        let clock = Clock::manual_with_drift(START, 500);
        clock.sleep_until_elapsed(Duration::from_nanos(1)).await;
        assert!(clock.elapsed() >= Duration::from_nanos(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_at_its_due_time_and_never_before() {
        for drift in [0, 500, -500] {
            let clock = Clock::manual_with_drift(Timestamp::from_millis(1_000), drift);
            for wait in [0, 1, 59_999, 60_001, 3_600_000] {
                let due = clock.now() + Millis::new(wait);
                clock.sleep_until(due).await;
                assert!(clock.now() >= due);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_drifting_clock_gains_or_loses_so_many_millionths() {
        let (fast, slow) = (Clock::manual_with_drift(START, 100), Clock::manual_with_drift(START, -100));
        tokio::time::advance(SECOND * 1000).await;
        assert_eq!((fast.now(), slow.now()), (later(1_000_100), later(999_900)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_behind_the_stores_jumps_to_it_and_wakes_who_waited() {
        let clock = Clock::manual(START);
        assert_eq!(clock.now(), START);
        let waiting = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep_until(later(600_000)).await }
        });
        tokio::task::yield_now().await;
        told(&clock, later(600_000));
        assert_eq!(clock.now(), later(600_000));
        let began = tokio::time::Instant::now();
        waiting.await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_ahead_of_the_stores_stands_still_until_that_has_caught_up() {
        let clock = Clock::manual(later(10_000));
        assert_eq!(clock.now(), later(10_000));
        told(&clock, START);
        for _ in 0..9 {
            tokio::time::advance(SECOND).await;
            assert_eq!(clock.now(), later(10_000));
        }
        tokio::time::advance(SECOND * 2).await;
        assert_eq!(clock.now(), later(11_000));
        let began = tokio::time::Instant::now();
        clock.sleep_until(later(12_000)).await;
        assert_eq!(began.elapsed(), SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_has_told_nobody_the_time_yet_is_set_back_at_once() {
        let clock = Clock::manual(later(600_000));
        told(&clock, START);
        assert_eq!(clock.now(), START);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_took_long_moves_a_clock_no_further_than_it_has_to() {
        let clock = Clock::manual(START);
        tokio::time::advance(SECOND * 20).await;
        // Asked ten seconds ago: the clock may be right.
        clock.follow(later(12_000), SECOND * 10, SECOND * 20);
        assert_eq!(clock.now(), later(20_000));
        // The store is five seconds ahead at the least.
        clock.follow(later(25_000), SECOND * 10, SECOND * 20);
        assert_eq!(clock.now(), later(25_000));
    }
}
