//! How well things have gone under one key of late: whether to try at all, and how much longer to wait.
//!
//! A node keeps this in memory, for all tasks together. What it decides reaches the log as a failure and a delay, so a
//! replay needs none of it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::{Millis, Timestamp};

/// What a retry policy asks to be remembered from one task to the next; left out, nothing is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Guard {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaker: Option<Breaker>,
    /// Waits longer the fewer attempts have succeeded of late.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adaptive: bool,
    /// All that shares a key shares what is remembered. Left out: the workflow's name and the stage's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// When to stop trying, and for how long: `Breaker::after(5).cool_down(secs(30))`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    /// Failures in a row that open it; at least 1.
    pub failures: u32,
    pub cool_down: Millis,
}

impl Breaker {
    /// Opens after this many failures in a row, for thirty seconds.
    pub fn after(failures: u32) -> Self {
        Self { failures: failures.max(1), cool_down: Millis::from_secs(30) }
    }

    /// How long it lets nothing through. After that one attempt may try; its success closes it.
    #[must_use]
    pub fn cool_down(mut self, length: Duration) -> Self {
        self.cool_down = Millis::new(u64::try_from(length.as_millis()).unwrap_or(u64::MAX));
        self
    }
}

/// What an attempt says about the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Success,
    /// One that another try may mend.
    Failure,
    /// One that no other try can mend: the fault may well be the caller's own.
    Unclear,
}

/// An attempt that the breaker does not let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// Coming back before this is of no use.
    pub until: Timestamp,
    /// Another attempt is out to see whether things go again.
    pub probed: bool,
}

/// What is known of one key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Health {
    circuit: Circuit,
    recent: Recent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Circuit {
    Closed {
        /// In a row, up to now.
        failures: u32,
    },
    Open {
        until: Timestamp,
    },
    HalfOpen {
        /// When the one attempt was let through.
        since: Timestamp,
    },
}

impl Default for Circuit {
    fn default() -> Self {
        Circuit::Closed { failures: 0 }
    }
}

impl Health {
    /// Asked before each attempt; one that is let through reports by `ended`.
    pub fn admit(&mut self, breaker: &Breaker, now: Timestamp) -> Result<(), Refusal> {
        match self.circuit {
            Circuit::Closed { .. } => Ok(()),
            Circuit::Open { until } if now < until => Err(Refusal { until, probed: false }),
            Circuit::HalfOpen { since } if now < since + breaker.cool_down => {
                // The answer is expected any moment, and those who wait for it use nothing up by coming back.
                let soon = now + Millis::new((breaker.cool_down.get() / 10).max(1));
                Err(Refusal { until: soon.min(since + breaker.cool_down), probed: true })
            }
            // An attempt that has not come back in all this time may never: the next one is let through.
            Circuit::Open { .. } | Circuit::HalfOpen { .. } => {
                self.circuit = Circuit::HalfOpen { since: now };
                Ok(())
            }
        }
    }

    pub fn ended(&mut self, breaker: Option<&Breaker>, verdict: Verdict, now: Timestamp) {
        self.recent.add(verdict, now);
        let Some(breaker) = breaker else { return };
        let open = Circuit::Open { until: now + breaker.cool_down };
        self.circuit = match (self.circuit, verdict) {
            (Circuit::Closed { .. } | Circuit::HalfOpen { .. }, Verdict::Success) => Circuit::Closed { failures: 0 },
            (Circuit::Closed { failures }, Verdict::Failure) => match failures.saturating_add(1) {
                failures if failures < breaker.failures => Circuit::Closed { failures },
                _ => open,
            },
            (Circuit::HalfOpen { .. }, Verdict::Failure) => open,
            // It has told nothing: the next attempt is to try in its place.
            (Circuit::HalfOpen { .. }, Verdict::Unclear) => Circuit::Open { until: now },
            (closed @ Circuit::Closed { .. }, Verdict::Unclear) => closed,
            // It was let through before the others failed.
            (open @ Circuit::Open { .. }, Verdict::Success | Verdict::Failure | Verdict::Unclear) => open,
        };
    }

    /// The delay, longer by as much as attempts have failed of late: up to eight times as long.
    pub fn stretch(&self, delay: Millis, now: Timestamp) -> Millis {
        let (successes, all) = self.recent.counts(now);
        let longer = u128::from(delay.get()) * u128::from(all + GOOD_FAITH) / u128::from(successes + GOOD_FAITH);
        let longest = u128::from(delay.get()) * LONGEST_STRETCH;
        Millis::new(u64::try_from(longer.min(longest)).unwrap_or(u64::MAX))
    }

    /// Nothing is kept back on its account: forgetting it changes no decision of the breaker.
    pub fn is_closed(&self) -> bool {
        self.circuit == Circuit::default()
    }
}

/// Successes that a key is taken to have begun with, so that its first failure is not all that is known of it.
const GOOD_FAITH: u32 = 4;
const LONGEST_STRETCH: u128 = 8;
/// What is older than this since the last attempt is no longer recent.
const FORGET_AFTER: Millis = Millis::from_secs(600);

/// How the last attempts went, 32 at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Recent {
    /// A one for each success, the last attempt lowest.
    successes: u32,
    all: u32,
    last: Timestamp,
}

impl Recent {
    fn add(&mut self, verdict: Verdict, now: Timestamp) {
        let success = match verdict {
            Verdict::Success => 1,
            Verdict::Failure => 0,
            Verdict::Unclear => return,
        };
        if now.since(self.last) > FORGET_AFTER {
            *self = Self::default();
        }
        self.successes = (self.successes << 1) | success;
        self.all = (self.all + 1).min(u32::BITS);
        self.last = now;
    }

    fn counts(&self, now: Timestamp) -> (u32, u32) {
        if now.since(self.last) > FORGET_AFTER { (0, 0) } else { (self.successes.count_ones(), self.all) }
    }
}

impl Refusal {
    /// For the log, where people look for why a stage waits.
    pub fn of<'a>(&'a self, key: &'a str) -> impl fmt::Display + 'a {
        Words { refusal: self, key }
    }
}

struct Words<'a> {
    refusal: &'a Refusal,
    key: &'a str,
}

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Words { refusal: Refusal { until, probed }, key } = self;
        write!(f, "the breaker of `{key}` is open until {until}")?;
        if *probed { f.write_str(", while one attempt is trying") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn at(second: u64) -> Timestamp {
        START + Millis::from_secs(second)
    }

    fn breaker() -> Breaker {
        Breaker::after(3).cool_down(Duration::from_secs(30))
    }

    /// Opened by failures at second 0.
    fn opened() -> Health {
        let mut health = Health::default();
        for _ in 0..3 {
            health.admit(&breaker(), at(0)).unwrap();
            health.ended(Some(&breaker()), Verdict::Failure, at(0));
        }
        health
    }

    #[test]
    fn a_breaker_opens_after_that_many_failures_in_a_row() {
        let mut health = Health::default();
        for verdict in [Verdict::Failure, Verdict::Failure, Verdict::Success, Verdict::Failure, Verdict::Failure] {
            health.ended(Some(&breaker()), verdict, at(0));
            assert_eq!(health.admit(&breaker(), at(0)), Ok(()));
        }
        health.ended(Some(&breaker()), Verdict::Failure, at(1));
        assert_eq!(health.admit(&breaker(), at(1)), Err(Refusal { until: at(31), probed: false }));
        assert_eq!(health.admit(&breaker(), at(30)), Err(Refusal { until: at(31), probed: false }));
    }

    #[test]
    fn a_failure_that_no_other_try_can_mend_does_not_count() {
        let mut health = Health::default();
        for _ in 0..100 {
            health.ended(Some(&breaker()), Verdict::Unclear, at(0));
        }
        assert_eq!(health, Health::default());
    }

    #[test]
    fn half_open_lets_one_through_and_its_success_closes() {
        let mut health = opened();
        assert_eq!(health.admit(&breaker(), at(30)), Ok(()));
        assert_eq!(health.admit(&breaker(), at(30)), Err(Refusal { until: at(33), probed: true }));
        assert_eq!(health.admit(&breaker(), at(59)), Err(Refusal { until: at(60), probed: true }));
        health.ended(Some(&breaker()), Verdict::Success, at(59));
        for _ in 0..10 {
            assert_eq!(health.admit(&breaker(), at(59)), Ok(()));
        }
        assert!(health.is_closed());
    }

    #[test]
    fn half_open_opens_again_with_one_failure() {
        let mut health = opened();
        assert_eq!(health.admit(&breaker(), at(40)), Ok(()));
        health.ended(Some(&breaker()), Verdict::Failure, at(41));
        assert_eq!(health.admit(&breaker(), at(42)), Err(Refusal { until: at(71), probed: false }));
        assert_eq!(health.admit(&breaker(), at(71)), Ok(()));
    }

    #[test]
    fn an_attempt_that_is_never_heard_of_again_keeps_the_others_out_for_one_cool_down() {
        let mut health = opened();
        assert_eq!(health.admit(&breaker(), at(30)), Ok(()));
        assert_eq!(health.admit(&breaker(), at(60)), Ok(()));
        assert!(health.admit(&breaker(), at(60)).is_err());
    }

    #[test]
    fn an_attempt_that_tells_nothing_leaves_its_place_to_the_next() {
        let mut health = opened();
        assert_eq!(health.admit(&breaker(), at(30)), Ok(()));
        health.ended(Some(&breaker()), Verdict::Unclear, at(31));
        assert_eq!(health.admit(&breaker(), at(31)), Ok(()));
        assert!(health.admit(&breaker(), at(31)).is_err());
    }

    #[test]
    fn what_began_before_it_opened_changes_nothing_about_an_open_breaker() {
        for verdict in [Verdict::Success, Verdict::Failure, Verdict::Unclear] {
            let mut health = opened();
            health.ended(Some(&breaker()), verdict, at(20));
            assert_eq!(health.admit(&breaker(), at(29)), Err(Refusal { until: at(30), probed: false }));
        }
    }

    #[test]
    fn the_same_attempts_at_the_same_times_come_to_the_same() {
        let run = || {
            let (mut health, mut told) = (Health::default(), Vec::new());
            for index in 0..500u64 {
                let now = at(index * 7);
                let admitted = health.admit(&breaker(), now);
                if admitted.is_ok() {
                    let fails = !crate::retry::draw(7, "breaker", index).is_multiple_of(3);
                    health.ended(Some(&breaker()), if fails { Verdict::Failure } else { Verdict::Success }, now);
                }
                told.push((admitted, health.stretch(Millis::new(1000), now)));
            }
            told
        };
        assert_eq!(run(), run());
    }

    #[test]
    fn a_delay_grows_with_the_failures_of_late_up_to_eight_times() {
        let mut health = Health::default();
        let delay = Millis::new(1000);
        assert_eq!(health.stretch(delay, at(0)), delay);
        let mut before = delay;
        for _ in 0..40 {
            health.ended(None, Verdict::Failure, at(1));
            let now = health.stretch(delay, at(1));
            assert!(now >= before, "{now} after {before}");
            before = now;
        }
        assert_eq!(before, Millis::new(8000));
        for _ in 0..32 {
            health.ended(None, Verdict::Success, at(2));
        }
        assert_eq!(health.stretch(delay, at(2)), delay);
        assert_eq!(health.stretch(Millis::new(u64::MAX), at(2)).get(), u64::MAX);
    }

    #[test]
    fn failures_of_long_ago_stretch_nothing() {
        let mut health = Health::default();
        health.ended(None, Verdict::Failure, at(0));
        assert_eq!(health.stretch(Millis::new(1000), at(600)), Millis::new(1250));
        assert_eq!(health.stretch(Millis::new(1000), at(601)), Millis::new(1000));
    }

    #[test]
    fn a_refusal_says_whose_breaker_is_open_and_until_when() {
        let refusal = Refusal { until: at(0), probed: false };
        assert_eq!(
            refusal.of("payments").to_string(),
            "the breaker of `payments` is open until 2027-01-15T08:00:00.000Z"
        );
    }
}
