//! A thousand workflows that nobody wrote.

use milepost::testing::Crash;

use crate::play::{assert_equal, assert_recovered, play};
use crate::program::{How, Op, Program, Stage, Strategy};
use crate::seed::{Case, Dice, seeds};

const WORKFLOWS: u64 = 1000;

struct Generator {
    dice: Dice,
    /// Stages and branches have had this many numbers.
    taken: u64,
}

impl Generator {
    fn program(&mut self, longest: u64, deepest: u32) -> Program {
        let length = 1 + self.dice.below(longest);
        (0..length).map(|_| self.op(deepest)).collect()
    }

    fn op(&mut self, deepest: u32) -> Op {
        let kinds = if deepest == 0 { 8 } else { 11 };
        match self.dice.below(kinds) {
            0 => Op::Sleep(self.dice.of(&[1, 50, 20_000, 40_000, 86_400_000])),
            1 => Op::Draw,
            2..8 => Op::Stage(self.stage()),
            8 => Op::Either(self.program(3, deepest - 1), self.program(3, deepest - 1)),
            9 => Op::Together(
                (0..2 + self.dice.below(2)).map(|_| (self.branch(), self.program(3, deepest - 1))).collect(),
            ),
            _ => Op::Child(self.program(2, deepest - 1)),
        }
    }

    fn stage(&mut self) -> Stage {
        self.taken += 1;
        let mut stage = Stage::new(self.taken);
        let dice = &mut self.dice;
        stage.strategy = dice.of(&[Strategy::Exponential, Strategy::Linear, Strategy::Fixed]);
        stage.base_ms = dice.of(&[0, 1, 10, 1000, 45_000]);
        stage.retries = dice.of(&[0, 1, 3, 5]);
        stage.timeout_ms = dice.of(&[None, Some(100), Some(2000)]);
        stage.how = dice.of(&[How::Refuses, How::Refuses, How::Hangs, How::Panics, How::Fatally]);
        stage.rollback = dice.one_in(3);
        stage.handled = dice.one_in(2);
        if dice.one_in(3) {
            stage.failures = u32::try_from(1 + dice.below(6)).expect("a small number");
        }
        stage
    }

    fn branch(&mut self) -> String {
        self.taken += 1;
        format!("b{}", self.taken)
    }
}

fn same_and_recovers(test: &'static str, seed: u64) {
    let _case = Case { test, seed };
    let mut generator = Generator { dice: Dice::new(seed), taken: 0 };
    let mut program = generator.program(6, 2);
    if generator.dice.one_in(10) {
        program.insert(program.len() / 2, Op::Anew);
    }
    let mut dice = generator.dice;
    let whole = play(&program, 1, None);
    assert_equal(&whole, &play(&program, 1, None));
    let crash = (dice.of(&[Crash::Before, Crash::After, Crash::Amid]), 1 + dice.below(whole.writes));
    assert_recovered(&whole, &play(&program, 1, Some(crash)), crash);
}

#[test]
fn the_same_seed_gives_the_same_events_and_the_same_delays_also_when_a_node_dies() {
    let test = "the_same_seed_gives_the_same_events_and_the_same_delays_also_when_a_node_dies";
    let seeds = seeds(0..WORKFLOWS);
    let half = seeds.len().div_ceil(2);
    std::thread::scope(|scope| {
        for seeds in seeds.chunks(half) {
            scope.spawn(move || seeds.iter().for_each(|seed| same_and_recovers(test, *seed)));
        }
    });
}
