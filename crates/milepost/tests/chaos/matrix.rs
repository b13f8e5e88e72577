//! Where it fails × retries × timeouts × runs at once × where the node dies.

use milepost::testing::Crash;

use crate::play::{assert_recovered, play};
use crate::program::{How, Op, Program, Stage};
use crate::seed::{Case, Dice, seeds};

const STAGES: u64 = 4;
const RETRIES: [u32; 4] = [0, 1, 3, 5];
const TIMEOUTS_MS: [Option<u64>; 4] = [Some(100), Some(500), Some(2000), None];
const AT_ONCE: [usize; 4] = [1, 4, 8, 16];
const CELLS: u64 = STAGES * 4 * 4 * 4;

/// The cell of this number. Its failing stage fails less often than it is tried, as often, or for good.
fn cell(number: u64, dice: &mut Dice) -> (Program, usize) {
    let at = |index: u64, step: u64| usize::try_from(index / step % 4).expect("an index");
    let (retries, timeout_ms) = (RETRIES[at(number, 4)], TIMEOUTS_MS[at(number, 16)]);
    let stage = |index: u64| {
        let mut stage = Stage { retries, timeout_ms, rollback: index.is_multiple_of(2), ..Stage::new(index) };
        if index == number % STAGES {
            stage.failures = u32::try_from(dice.below(u64::from(retries) + 2)).expect("a small number");
            // Only what has a timeout of its own is left hanging.
            stage.how = if timeout_ms.is_some() { How::Hangs } else { How::Refuses };
        }
        Op::Stage(stage)
    };
    ((0..STAGES).map(stage).collect(), AT_ONCE[at(number, 64)])
}

fn every_cell(test: &'static str, crash: Crash) {
    for seed in seeds(0..CELLS) {
        let _case = Case { test, seed };
        let mut dice = Dice::new(seed);
        let (program, runs) = cell(seed, &mut dice);
        let whole = play(&program, runs, None);
        let crash = (crash, 1 + dice.below(whole.writes));
        assert_recovered(&whole, &play(&program, runs, Some(crash)), crash);
    }
}

#[test]
fn every_cell_recovers_from_a_crash_before_a_write() {
    every_cell("every_cell_recovers_from_a_crash_before_a_write", Crash::Before);
}

#[test]
fn every_cell_recovers_from_a_crash_after_a_write() {
    every_cell("every_cell_recovers_from_a_crash_after_a_write", Crash::After);
}

/// The task's image is written in the commit itself, so this is also the crash while it is being made.
#[test]
fn every_cell_recovers_from_a_crash_in_the_middle_of_a_write() {
    every_cell("every_cell_recovers_from_a_crash_in_the_middle_of_a_write", Crash::Amid);
}
