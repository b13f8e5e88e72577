//! How fast a count grows and how long the rest will take: from counts and the times at which they were reached.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A rate is that of about so much time: long enough to be calm, short enough to show a change.
const WINDOW: Duration = Duration::from_secs(5);
/// Of counts that come closer together than this the newest is kept.
const APART: Duration = Duration::from_millis(200);
/// A rate from less than this says nothing.
const SHORTEST: Duration = Duration::from_millis(250);

/// The last seconds of a count that only grows.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    /// Oldest first. The first may be older than the window: it is where the window begins.
    reached: VecDeque<(Instant, u64)>,
}

impl Pace {
    /// The first count is where it begins, and not something that was done in no time.
    pub fn reached(&mut self, count: u64, at: Instant) {
        let kept = self.reached.len();
        if kept >= 2 && self.reached[kept - 1].0.duration_since(self.reached[kept - 2].0) < APART {
            self.reached.pop_back();
        }
        self.reached.push_back((at, count));
        while self.reached.len() > 2 && at.saturating_duration_since(self.reached[1].0) >= WINDOW {
            self.reached.pop_front();
        }
    }

    /// How much a second, lately; none before that can be said. It falls while nothing is reached.
    pub fn rate(&self, now: Instant) -> Option<f64> {
        let (&(_, count), earlier) = (self.reached.back()?, self.reached.len() - 1);
        let age = |at: Instant| now.saturating_duration_since(at);
        let before = self.reached.range(..earlier);
        let &(since, from) = before.clone().rev().find(|(at, _)| age(*at) >= WINDOW).or(before.clone().next())?;
        let elapsed = age(since);
        (elapsed >= SHORTEST).then(|| count.saturating_sub(from) as f64 / elapsed.as_secs_f64())
    }
}

/// Seconds until all is done; none when nobody knows how much there is, or nothing moves.
pub fn eta_seconds(done: u64, total: u64, rate: Option<f64>) -> Option<u64> {
    let rate = rate.filter(|rate| *rate > 0.0 && total > 0)?;
    Some((total.saturating_sub(done) as f64 / rate).ceil() as u64)
}

/// What is known of a plan that runs, for an estimate of when it ends.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outlook {
    /// How long tasks of it took that have completed: all, or as many as there was time to look at.
    pub took: Vec<Duration>,
    /// Tasks that run: all, or as many as there was time to look at.
    pub running: Vec<Underway>,
    /// How many run.
    pub at_once: u64,
    /// How many have not begun.
    pub waiting: u64,
}

/// A task that runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Underway {
    pub since: Duration,
    /// Which part of it is done, from 0 to 1.
    pub share: f64,
    /// Seconds that its stage will still take, if that is its last.
    pub eta_seconds: Option<u64>,
}

impl Outlook {
    /// Seconds until the plan ends, if all goes on as it went: what the tasks that run have left, and the usual time for
    /// each that waits, shared among as many as run at once; and no sooner than the slowest that runs. None when there
    /// is nothing to go by.
    pub fn eta_seconds(&self) -> Option<u64> {
        if self.running.is_empty() {
            return None;
        }
        let usual = self.usual();
        let left: Vec<f64> = self.running.iter().map(|task| task.left(usual)).collect::<Option<_>>()?;
        let slowest = left.iter().copied().fold(0.0, f64::max);
        let at_once = self.at_once.max(1) as f64;
        // Those that were not looked at are as far as the others.
        let running = left.iter().sum::<f64>() / left.len() as f64 * at_once;
        let waiting = if self.waiting == 0 { 0.0 } else { usual? * self.waiting as f64 };
        Some(((running + waiting) / at_once).max(slowest).ceil() as u64)
    }

    /// How long a task takes: as long as those took that have completed, else as those will take that run.
    fn usual(&self) -> Option<f64> {
        let took = || self.took.iter().map(Duration::as_secs_f64);
        let will = || self.running.iter().filter_map(|task| Some(task.since.as_secs_f64() + task.left(None)?));
        mean(took()).or_else(|| mean(will()))
    }
}

impl Underway {
    fn left(&self, usual: Option<f64>) -> Option<f64> {
        let since = self.since.as_secs_f64();
        let by_share = || (self.share > 0.0).then(|| since * (1.0 - self.share.min(1.0)) / self.share);
        let eta = self.eta_seconds.map(|seconds| seconds as f64);
        eta.or_else(by_share).or_else(|| usual.map(|usual| (usual - since).max(0.0)))
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: f64) -> Duration {
        Duration::from_secs_f64(secs)
    }

    #[test]
    fn a_rate_is_that_of_the_last_seconds_and_not_of_all_time() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        // Slow for a minute, then fast for ten seconds.
        let slow = (0..600_u64).map(|i| (i, 10 * i));
        let fast = (0..=100_u64).map(|i| (600 + i, 6_000 + 1_000 * i));
        for (tenth, count) in slow.chain(fast) {
            pace.reached(count, start + Duration::from_millis(100 * tenth));
        }
        let rate = pace.rate(start + secs(70.0)).unwrap();
        assert!((9_500.0..=10_500.0).contains(&rate), "{rate}");
        assert!(pace.reached.len() < 40, "{} kept", pace.reached.len());
    }

    #[test]
    fn what_was_there_at_the_beginning_was_not_done_in_no_time() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        pace.reached(5_000_000, start);
        assert_eq!(pace.rate(start + secs(3.0)), None, "nothing has moved yet");
        pace.reached(5_000_100, start + secs(1.0));
        assert_eq!(pace.rate(start + secs(1.0)), Some(100.0));
        assert_eq!(Pace::default().rate(start), None);
    }

    #[test]
    fn a_rate_falls_while_nothing_happens_and_is_right_for_batches_that_take_long() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        for batch in 0..4 {
            pace.reached(2_500 * batch, start + secs(10.0 * batch as f64));
        }
        assert_eq!(pace.rate(start + secs(30.0)), Some(250.0));
        assert!(pace.rate(start + secs(60.0)).unwrap() < 100.0);
        assert!(pace.rate(start + secs(30.0)).unwrap().is_finite());
    }

    #[test]
    fn a_rest_of_unknown_size_or_one_that_does_not_move_has_no_end() {
        assert_eq!(eta_seconds(50, 100, Some(20.0)), Some(3));
        assert_eq!(eta_seconds(150, 100, Some(20.0)), Some(0), "more than all is all");
        assert_eq!([eta_seconds(50, 0, Some(20.0)), eta_seconds(1, 2, Some(0.0)), eta_seconds(1, 2, None)], [None; 3]);
    }

    fn underway(since: f64, share: f64, eta_seconds: Option<u64>) -> Underway {
        Underway { since: secs(since), share, eta_seconds }
    }

    #[test]
    fn a_plan_ends_when_the_tasks_that_wait_have_had_their_turns() {
        let took = vec![secs(10.0), secs(30.0)];
        let running = vec![underway(5.0, 0.5, Some(10)), underway(15.0, 0.75, None)];
        // 10 and 5 seconds are left, and 8 tasks of 20 seconds each, two at a time.
        let outlook = Outlook { took, running, at_once: 2, waiting: 8 };
        assert_eq!(outlook.eta_seconds(), Some(88));
        assert_eq!(Outlook { waiting: 0, ..outlook }.eta_seconds(), Some(10), "no sooner than the slowest");
    }

    #[test]
    fn before_the_first_task_has_completed_the_running_ones_tell_how_long_one_takes() {
        let outlook = Outlook { running: vec![underway(10.0, 0.5, None)], at_once: 1, waiting: 2, took: vec![] };
        assert_eq!(outlook.eta_seconds(), Some(50));
    }

    #[test]
    fn a_plan_of_which_nothing_is_known_has_no_estimate() {
        let unknown = underway(10.0, 0.0, None);
        let outlook = Outlook { running: vec![unknown], at_once: 1, waiting: 2, took: vec![] };
        assert_eq!(outlook.eta_seconds(), None);
        assert_eq!(Outlook::default().eta_seconds(), None);
        let known = Outlook { took: vec![secs(25.0)], ..outlook };
        assert_eq!(known.eta_seconds(), Some(65), "15 more, and twice 25");
    }
}
