//! Chance that can be repeated: one number decides every draw of a test.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use milepost_core::retry::draw;

/// The dice of one test. What it draws follows from the seed alone.
pub(crate) struct Dice {
    seed: u64,
    drawn: u64,
}

impl Dice {
    /// Says how to repeat this test; a test that fails shows it.
    pub(crate) fn of(test: &str) -> Self {
        let seed = match std::env::var("MILEPOST_TEST_SEED") {
            Ok(seed) => seed.parse().expect("MILEPOST_TEST_SEED is a number"),
            Err(_) => SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs(),
        };
        eprintln!(
            "to repeat it: MILEPOST_TEST_SEED={seed} cargo test -p milepost-cli --test {} {test}",
            env!("CARGO_CRATE_NAME")
        );
        Self { seed, drawn: 0 }
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.drawn += 1;
        draw(self.seed, "crash", self.drawn) % bound
    }

    pub(crate) fn millis(&mut self, range: Range<u64>) -> Duration {
        Duration::from_micros(range.start * 1000 + self.below((range.end - range.start) * 1000))
    }
}
