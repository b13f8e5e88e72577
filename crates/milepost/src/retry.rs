//! How often and after how long, in few words.

use std::time::Duration;

use milepost_core::breaker::{Breaker, Guard};
use milepost_core::retry::{RetryPolicy, Strategy};
use milepost_core::time::Millis;

/// When a stage that failed is tried again: `Retry::exponential(secs(1)).attempts(5)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Retry {
    policy: RetryPolicy,
}

impl Retry {
    /// Waits `base`, then twice, then four times as long, a minute at most.
    pub fn exponential(base: Duration) -> Self {
        Self::with(Strategy::Exponential, base)
    }

    /// Waits `base`, then twice, then three times as long, a minute at most.
    pub fn linear(base: Duration) -> Self {
        Self::with(Strategy::Linear, base)
    }

    /// Always waits as long.
    pub fn fixed(base: Duration) -> Self {
        Self::with(Strategy::Fixed, base)
    }

    /// Fails the first time it fails.
    pub fn never() -> Self {
        Self::fixed(Duration::ZERO).attempts(1)
    }

    fn with(strategy: Strategy, base: Duration) -> Self {
        Self { policy: RetryPolicy { strategy, base: whole(base), ..RetryPolicy::default() } }
    }

    /// Executions in all, the first one included. Left out: four.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.policy.max_attempts = attempts.max(1);
        self
    }

    /// The longest wait, before chance adds to it.
    #[must_use]
    pub fn at_most(mut self, max: Duration) -> Self {
        self.policy.max = Some(whole(max));
        self
    }

    /// What an exponential wait grows by.
    #[must_use]
    pub fn multiplier(mut self, multiplier: f64) -> Self {
        self.policy.multiplier = multiplier.max(1.0);
        self
    }

    /// Without the part, up to half of `base`, that chance adds so that many do not come back at once.
    #[must_use]
    pub fn no_jitter(mut self) -> Self {
        self.policy.jitter = false;
        self
    }

    /// Stops trying for a while after so many failures in a row, of all runs on this node together.
    ///
    /// An attempt that is not made for that reason is not counted: it comes again when the breaker lets one through.
    #[must_use]
    pub fn breaker(mut self, breaker: Breaker) -> Self {
        self.guard().breaker = Some(breaker);
        self
    }

    /// Waits longer the fewer attempts have succeeded of late, of all runs on this node together: up to eight times as
    /// long, and never longer than `at_most`.
    #[must_use]
    pub fn adaptive(mut self) -> Self {
        self.guard().adaptive = true;
        self
    }

    /// Stages with the same key share a breaker and what is known of late. Left out: a key for each stage of each
    /// workflow.
    #[must_use]
    pub fn breaker_key(mut self, key: impl Into<String>) -> Self {
        self.guard().key = Some(key.into());
        self
    }

    fn guard(&mut self) -> &mut Guard {
        self.policy.guard.get_or_insert_default()
    }
}

impl From<Retry> for RetryPolicy {
    fn from(retry: Retry) -> Self {
        retry.policy
    }
}

fn whole(length: Duration) -> Millis {
    Millis::new(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
}

pub fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub fn mins(mins: u64) -> Duration {
    Duration::from_secs(mins.saturating_mul(60))
}

pub fn hours(hours: u64) -> Duration {
    mins(hours.saturating_mul(60))
}

pub fn days(days: u64) -> Duration {
    hours(days.saturating_mul(24))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_remembers_nothing_from_run_to_run_unless_it_is_told_to() {
        let policy = |retry: Retry| RetryPolicy::from(retry);
        assert_eq!(policy(Retry::exponential(secs(1)).attempts(5)).guard, None);
        let breaker = Breaker::after(5).cool_down(secs(30));
        let guarded = policy(Retry::fixed(secs(1)).breaker(breaker).adaptive().breaker_key("payments"));
        let guard = Guard { breaker: Some(breaker), adaptive: true, key: Some("payments".to_owned()) };
        assert_eq!(guarded.guard.as_deref(), Some(&guard));
        assert_eq!(policy(Retry::fixed(secs(1)).adaptive()).guard.and_then(|guard| guard.key), None);
    }
}
