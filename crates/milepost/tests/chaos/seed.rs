//! Chance that can be had again: all of a case follows from its number.

use std::ops::Range;

use milepost_core::retry::draw;

const SEED: &str = "MILEPOST_TEST_SEED";

/// The numbers to try: all of them, or the one that the environment names.
pub(crate) fn seeds(all: Range<u64>) -> Vec<u64> {
    match std::env::var(SEED) {
        Ok(seed) => vec![seed.parse().expect("MILEPOST_TEST_SEED is a number")],
        Err(_) => all.collect(),
    }
}

/// While this is alive, a panic is followed by the command that repeats the case.
pub(crate) struct Case {
    pub(crate) test: &'static str,
    pub(crate) seed: u64,
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("again: {SEED}={} cargo test -p milepost --test chaos {}", self.seed, self.test);
        }
    }
}

pub(crate) struct Dice {
    seed: u64,
    drawn: u64,
}

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, drawn: 0 }
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.drawn += 1;
        draw(self.seed, "chaos", self.drawn) % bound.max(1)
    }

    pub(crate) fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        let index = usize::try_from(self.below(all.len() as u64)).expect("an index");
        all[index]
    }
}
