//! The replay scenarios, one by one: each is played twice, and then with a node that dies at every write in turn.

use milepost::testing::Crash;

use crate::play::{Played, assert_equal, assert_recovered, play};
use crate::program::{How, Op, Program, Stage, Strategy};

fn stage(number: u64, failures: u32) -> Stage {
    Stage { failures, ..Stage::new(number) }
}

fn fine(number: u64) -> Op {
    Op::Stage(stage(number, 0))
}

fn fails(number: u64, failures: u32) -> Op {
    Op::Stage(stage(number, failures))
}

fn replays(program: &Program, runs: usize) -> Played {
    let whole = play(program, runs, None);
    assert_equal(&whole, &play(program, runs, None));
    for write in 1..=whole.writes {
        for crash in [Crash::Before, Crash::After, Crash::Amid] {
            let crash = (crash, write);
            assert_recovered(&whole, &play(program, runs, Some(crash)), crash);
        }
    }
    whole
}

/// Replays a program and counts, in its first run: RETRY_SCHEDULED, STAGE_COMPLETED, and whether it succeeded.
macro_rules! scenarios {
    ($($name:ident: $program:expr => $retries:expr, $completed:expr, $succeeds:expr;)+) => { $(
        #[test]
        fn $name() {
            let whole = replays(&$program, 1);
            let log = &whole.logs["run-1"];
            let counted = (log.count("RETRY_SCHEDULED"), log.count("STAGE_COMPLETED"), whole.results[0].is_ok());
            assert_eq!(counted, ($retries, $completed, $succeeds), "{:#?}", log.lines());
        }
    )+ };
}

scenarios! {
    no_failure_and_no_retry: vec![fine(1)] => 0, 1, true;
    one_retry_then_success: vec![fails(1, 1)] => 1, 1, true;
    three_failures_then_success: vec![fails(1, 3)] => 3, 1, true;
    as_many_failures_as_attempts_is_the_end: vec![fails(1, 4)] => 3, 0, false;
    without_retries_the_first_failure_is_the_end: vec![Op::Stage(Stage { retries: 0, ..stage(1, 1) })] => 0, 0, false;
    the_last_attempt_of_six_succeeds: vec![Op::Stage(Stage { retries: 5, ..stage(1, 5) })] => 5, 1, true;
    linear_delays: vec![Op::Stage(Stage { strategy: Strategy::Linear, ..stage(1, 3) })] => 3, 1, true;
    fixed_delays: vec![Op::Stage(Stage { strategy: Strategy::Fixed, ..stage(1, 3) })] => 3, 1, true;
    no_delay_at_all: vec![Op::Stage(Stage { base_ms: 0, ..stage(1, 3) })] => 3, 1, true;
    delays_long_enough_to_give_the_task_back: vec![Op::Stage(Stage { base_ms: 50_000, ..stage(1, 3) })] => 3, 1, true;
    the_first_of_three_stages_fails_twice: vec![fails(1, 2), fine(2), fine(3)] => 2, 3, true;
    the_middle_of_three_stages_fails_twice: vec![fine(1), fails(2, 2), fine(3)] => 2, 3, true;
    the_last_of_three_stages_fails_twice: vec![fine(1), fine(2), fails(3, 2)] => 2, 3, true;
    every_stage_fails_in_its_own_measure: vec![fails(1, 1), fails(2, 2), fails(3, 3)] => 6, 3, true;
    two_stages_succeed_and_the_third_gives_up: vec![fails(1, 1), fails(2, 2), fails(3, 4)] => 6, 2, false;
    a_stage_that_gives_up_is_handled_and_the_next_one_runs:
        vec![Op::Stage(Stage { handled: true, ..stage(1, 4) }), fails(2, 1)] => 4, 1, true;
    a_fatal_failure_is_not_tried_again:
        vec![fine(1), Op::Stage(Stage { how: How::Fatally, ..stage(2, 1) })] => 0, 1, false;
    a_stage_that_hangs_runs_into_its_timeout_and_is_tried_again:
        vec![Op::Stage(Stage { how: How::Hangs, timeout_ms: Some(100), ..stage(1, 2) })] => 2, 1, true;
    a_stage_that_panics_is_tried_again:
        vec![Op::Stage(Stage { how: How::Panics, ..stage(1, 1) }), fine(2)] => 1, 2, true;
    what_completed_is_undone_when_the_last_stage_gives_up:
        vec![
            Op::Stage(Stage { rollback: true, ..stage(1, 1) }),
            Op::Stage(Stage { rollback: true, ..stage(2, 0) }),
            fails(3, 4),
        ] => 4, 2, false;
    a_retry_after_a_short_sleep_and_before_a_long_one:
        vec![Op::Sleep(10), fails(1, 1), Op::Sleep(86_400_000), fine(2)] => 1, 4, true;
    clock_and_dice_between_retries: vec![Op::Draw, fails(1, 2), Op::Draw, fails(2, 1), Op::Draw] => 3, 2, true;
    a_way_that_chance_chose_is_taken_again:
        vec![Op::Either(vec![fails(1, 1)], vec![fails(2, 1)]), fine(3)] => 1, 2, true;
    branches_fail_side_by_side:
        vec![Op::Together(vec![
            ("b1".to_owned(), vec![fails(1, 1), fine(2)]),
            ("b2".to_owned(), vec![fine(3), fails(4, 2)]),
        ])] => 3, 4, true;
    a_branch_that_gives_up_fails_the_workflow:
        vec![Op::Together(vec![
            ("b1".to_owned(), vec![fails(1, 4)]),
            ("b2".to_owned(), vec![Op::Stage(Stage { rollback: true, ..stage(2, 1) })]),
        ])] => 4, 1, false;
    the_retries_of_a_child_are_its_own: vec![fails(1, 1), Op::Child(vec![fails(2, 2)]), fine(3)] => 1, 3, true;
    a_child_that_gives_up_fails_its_parent: vec![fine(1), Op::Child(vec![fails(2, 4)])] => 0, 1, false;
    a_workflow_that_begins_anew_counts_its_attempts_anew: vec![fails(1, 2), Op::Anew, fails(2, 1)] => 3, 2, true;
}

#[test]
fn many_runs_at_once_each_have_delays_of_their_own() {
    let whole = replays(&vec![fails(1, 1), fails(2, 2)], 4);
    let delays: std::collections::BTreeSet<Vec<u64>> = whole.logs.values().map(|log| log.backoffs()).collect();
    assert_eq!(delays.len(), 4, "{delays:?}");
}
