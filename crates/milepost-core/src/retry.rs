//! How long to wait before trying a stage again. Same seed, stage and attempt: same delay, on any machine.

use serde::{Deserialize, Serialize};

use crate::breaker::Guard;
use crate::id::StageName;
use crate::time::Millis;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Executions in all, the first one included; at least 1.
    pub max_attempts: u32,
    pub strategy: Strategy,
    pub base: Millis,
    pub multiplier: f64,
    /// Bounds the delay before jitter is added; none: unbounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Millis>,
    pub jitter: bool,
    /// Exit codes of `run:` that end the stage at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fatal_exit_codes: Vec<i32>,
    /// What earlier attempts of other tasks have to do with it; none: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<Box<Guard>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    Fixed,
    Linear,
    Exponential,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 4,
            strategy: Strategy::Exponential,
            base: Millis::from_secs(1),
            multiplier: 2.0,
            max: Some(Millis::from_secs(60)),
            jitter: true,
            fatal_exit_codes: Vec::new(),
            guard: None,
        }
    }
}

impl RetryPolicy {
    /// The file service's callbacks: 3 retries after 1, 2 and 4 seconds, a minute at most, no jitter.
    pub fn callbacks() -> Self {
        Self { jitter: false, ..Self::default() }
    }

    /// The workflow engine's steps: doubling (or growing by `base`) without a cap, with jitter below half of `base`.
    pub fn workflows(strategy: Strategy, base: Millis, max_attempts: u32) -> Self {
        Self { max_attempts, strategy, base, max: None, ..Self::default() }
    }

    /// The wait between the failure of `attempt` (counted from 1) and the next one.
    pub fn delay(&self, seed: u64, stage: &StageName, attempt: u32) -> Millis {
        let attempt = attempt.max(1);
        let base = self.base.get();
        let grown = match self.strategy {
            Strategy::Fixed => base,
            Strategy::Linear => base.saturating_mul(u64::from(attempt)),
            // A float this large saturates when cast, so no attempt number overflows.
            Strategy::Exponential => (base as f64 * power(self.multiplier, attempt - 1)).round() as u64,
        };
        let capped = self.max.map_or(grown, |max| grown.min(max.get()));
        Millis::new(capped.saturating_add(self.jitter(seed, stage, attempt)))
    }

    fn jitter(&self, seed: u64, stage: &StageName, attempt: u32) -> u64 {
        match self.base.get() / 2 {
            bound if self.jitter && bound > 0 => draw(seed, stage.as_str(), u64::from(attempt)) % bound,
            _ => 0,
        }
    }
}

/// By squaring, with plain multiplications only: the library's `powi` may round differently from machine to machine.
fn power(base: f64, mut exponent: u32) -> f64 {
    let (mut result, mut square) = (1.0, base);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= square;
        }
        square *= square;
        exponent >>= 1;
    }
    result
}

/// The seed of a task's own random numbers: its id, so that the same task draws the same numbers anywhere.
pub fn seed_of(task: &str) -> u64 {
    mix(fnv1a(task.as_bytes()))
}

/// The `ordinal`-th number of the source `name`, out of all that `seed` stands for.
pub fn draw(seed: u64, name: &str, ordinal: u64) -> u64 {
    mix(mix(seed ^ fnv1a(name.as_bytes())).wrapping_add(ordinal.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// SplitMix64's finaliser: every input bit reaches every output bit.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage() -> StageName {
        StageName::parse("charge").unwrap()
    }

    fn delays(policy: &RetryPolicy, attempts: std::ops::RangeInclusive<u32>) -> Vec<u64> {
        attempts.map(|attempt| policy.delay(7, &stage(), attempt).get()).collect()
    }

    #[test]
    fn the_callback_preset_waits_one_two_and_four_seconds_and_never_more_than_a_minute() {
        assert_eq!(delays(&RetryPolicy::callbacks(), 1..=3), [1000, 2000, 4000]);
        assert_eq!(delays(&RetryPolicy::callbacks(), 6..=8), [32_000, 60_000, 60_000]);
        assert_eq!(RetryPolicy::callbacks().max_attempts, 4);
    }

    #[test]
    fn the_workflow_preset_doubles_or_adds_without_a_cap_and_its_jitter_stays_below_half_of_base() {
        let base = Millis::from_secs(1);
        for seed in 0..1000 {
            for attempt in 1..=20 {
                let exponential =
                    RetryPolicy::workflows(Strategy::Exponential, base, 30).delay(seed, &stage(), attempt).get();
                let floor = 1000 << (attempt - 1);
                assert!((floor..floor + 500).contains(&exponential), "{exponential} at {attempt}");
                let linear = RetryPolicy::workflows(Strategy::Linear, base, 30).delay(seed, &stage(), attempt).get();
                let floor = 1000 * u64::from(attempt);
                assert!((floor..floor + 500).contains(&linear), "{linear} at {attempt}");
            }
        }
    }

    #[test]
    fn jitter_reaches_both_ends_of_its_range() {
        let policy = RetryPolicy { base: Millis::new(10), strategy: Strategy::Fixed, ..RetryPolicy::default() };
        let drawn: std::collections::BTreeSet<u64> =
            (0..200).map(|seed| policy.delay(seed, &stage(), 1).get()).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [10, 11, 12, 13, 14]);
    }

    #[test]
    fn the_same_seed_gives_the_same_delays_and_another_seed_others() {
        let policy = RetryPolicy::default();
        let of = |seed| (1..=10).map(|attempt| policy.delay(seed, &stage(), attempt).get()).collect::<Vec<_>>();
        assert_eq!(of(42), of(42));
        assert_ne!(of(42), of(43));
        // The very numbers, so that no release silently changes what a replay would compute.
        assert_eq!(of(42), GOLDEN);
    }
    const GOLDEN: [u64; 10] = [1375, 2339, 4440, 8058, 16_160, 32_218, 60_228, 60_099, 60_497, 60_366];

    #[test]
    fn a_base_too_small_to_halve_has_no_jitter() {
        for base in [0, 1] {
            let policy = RetryPolicy { base: Millis::new(base), strategy: Strategy::Fixed, ..RetryPolicy::default() };
            assert_eq!(policy.delay(9, &stage(), 3).get(), base);
        }
    }

    #[test]
    fn no_attempt_number_overflows() {
        for strategy in [Strategy::Fixed, Strategy::Linear, Strategy::Exponential] {
            for attempt in [0, 1, 63, 64, 65, 1_000_000, u32::MAX] {
                for max in [None, Some(Millis::from_secs(60))] {
                    let policy = RetryPolicy {
                        strategy,
                        max,
                        multiplier: 1e300,
                        base: Millis::new(u64::MAX / 2),
                        ..RetryPolicy::default()
                    };
                    let delay = policy.delay(u64::MAX, &stage(), attempt).get();
                    assert!(max.is_none_or(|max| delay <= max.get() + u64::MAX / 4));
                }
            }
        }
    }
}
