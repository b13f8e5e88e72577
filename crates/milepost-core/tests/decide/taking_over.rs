//! Nodes that stop, nodes that go away, and tasks that seem to kill theirs.

use milepost_core::failure::ErrorType;
use milepost_core::plan::{OnFailure, Settings};
use milepost_core::task::{Claim, Command, MAX_TAKEOVERS, StageResult, StageStatus, TaskStatus};
use milepost_core::time::Millis;
use serde_json::Map;

use crate::support::{Run, StageWords, by, chain, retry, stage};

const SECOND: Millis = Millis::from_secs(1);

fn success() -> StageResult {
    StageResult::Success(Map::new())
}

fn stop() -> Command {
    Command::Interrupt { reason: "stopped".to_owned() }
}

#[test]
fn a_stage_that_ends_while_its_node_stops_is_recorded_and_nothing_new_starts() {
    let mut run = Run::of(chain([stage("a"), stage("b")]));
    run.claim();

    assert_eq!(run.ended_stopping("a", success()), ["STAGE_COMPLETED a 1", "TASK_INTERRUPTED"]);
    assert_eq!(run.task.status(), TaskStatus::Running);
    assert!(run.task.interrupted());
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED b 1"]);
    assert!(!run.task.interrupted());
}

#[test]
fn a_node_that_stops_waits_for_every_parallel_stage() {
    let mut run = Run::of(vec![stage("a"), stage("b"), stage("c").needs(&[0])]);
    run.claim();

    assert_eq!(run.ended_stopping("a", success()), ["STAGE_COMPLETED a 1"]);
    assert_eq!(run.ended_stopping("b", success()), ["STAGE_COMPLETED b 1", "TASK_INTERRUPTED"]);
}

#[test]
fn the_last_stage_completes_the_task_also_on_a_node_that_stops() {
    let mut run = Run::of(vec![stage("a")]);
    run.claim();

    assert_eq!(run.ended_stopping("a", success()), ["STAGE_COMPLETED a 1", "TASK_COMPLETED"]);
}

#[test]
fn nothing_happens_to_an_interrupted_task_until_somebody_takes_it_on() {
    let mut run = Run::of(chain([stage("a"), stage("b")]));
    run.claim();
    let late = run.ends("a", success());
    assert_eq!(run.act(stop()), ["TASK_INTERRUPTED"]);

    assert_eq!(run.act(stop()), [""; 0], "once");
    assert_eq!(run.act(Command::Wake), [""; 0]);
    assert!(run.refused(Command::StageEnded(late)).contains("no longer waits"));
    assert!(run.task.interrupted());
}

#[test]
fn an_interrupted_wait_does_not_end_before_somebody_takes_it_on() {
    let mut run = Run::of(vec![stage("a")]);
    run.claim();
    run.fails("a");
    run.act(stop());

    assert_eq!(run.after(SECOND).act(Command::Wake), [""; 0]);
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED a 2"]);
}

#[test]
fn a_cut_off_attempt_is_repeated_under_its_own_number_and_uses_none_up() {
    let mut run = Run::of(vec![stage("a").attempts(2)]);
    run.claim();
    run.fails("a");
    run.after(SECOND).act(Command::Wake);

    assert_eq!(run.crash(), ["TASK_INTERRUPTED and taken by n2", "STAGE_STARTED a 2"]);
    assert_eq!(run.crash(), ["TASK_INTERRUPTED and taken by n2", "STAGE_STARTED a 2"]);
    assert_eq!(run.task.node().map(AsRef::as_ref), Some("n2"));
    assert_eq!(run.succeeds("a"), ["STAGE_COMPLETED a 2", "TASK_COMPLETED"]);
}

#[test]
fn every_parallel_attempt_that_was_cut_off_is_repeated_and_a_done_stage_is_not() {
    let mut run = Run::of(vec![stage("a"), stage("b"), stage("c")]);
    run.claim();
    run.succeeds("b");

    assert_eq!(run.crash(), ["TASK_INTERRUPTED and taken by n2", "STAGE_STARTED a 1", "STAGE_STARTED c 1"]);
}

#[test]
fn a_task_that_is_taken_over_while_it_waits_is_no_longer_interrupted_and_waits_on() {
    let mut run = Run::of(vec![stage("a")]);
    run.claim();
    run.fails("a");
    let due = run.task.next_due();

    assert_eq!(run.crash(), ["TASK_INTERRUPTED and taken by n2"]);
    assert!(!run.task.interrupted(), "a live node has it");
    assert!(run.try_to(retry(true)).is_err(), "and nobody else may start it");
    assert_eq!(run.task.next_due(), due);
    assert_eq!(run.after(SECOND).act(Command::Wake), ["STAGE_STARTED a 2"]);
}

#[test]
fn a_retry_that_fell_due_while_no_node_had_the_task_fires_at_the_take_over() {
    let mut run = Run::of(vec![stage("a")]);
    run.claim();
    run.fails("a");

    assert_eq!(run.after(SECOND).crash(), ["TASK_INTERRUPTED and taken by n2", "STAGE_STARTED a 2"]);
}

#[test]
fn a_branch_that_was_cut_off_beside_a_failed_one_is_not_run_again() {
    let mut run = Run::of(vec![stage("a"), stage("b")]);
    run.claim();
    run.fails_for_good("a");

    assert_eq!(run.crash(), ["TASK_INTERRUPTED and taken by n2", "TASK_FAILED at a"]);
    assert_eq!(run.status_of("b"), StageStatus::Cancelled);
}

#[test]
fn a_cut_off_handler_is_repeated_under_its_own_number() {
    let mut run = Run::of(chain([stage("a").undoable(), stage("b").attempts(1)]));
    run.claim();
    run.succeeds("a");
    run.fails("b");
    run.act(Command::Rollback(by()));
    run.claim();
    run.fails("a");
    run.after(SECOND).act(Command::Wake);

    assert_eq!(run.crash(), ["TASK_INTERRUPTED and taken by n2", "STAGE_STARTED a 2 to undo"]);
    assert_eq!(run.act(stop()), ["TASK_INTERRUPTED"]);
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED a 2 to undo"]);
    assert_eq!(run.succeeds("a"), ["STAGE_ROLLED_BACK a", "TASK_ROLLED_BACK"]);
}

#[test]
fn an_interrupted_task_may_be_resumed_or_retried_and_a_held_one_may_not() {
    let mut held = Run::of(vec![stage("a")]);
    held.claim();
    assert_eq!(held.refused(retry(true)), "cannot retry task task: it is RUNNING");
    assert_eq!(held.refused(Command::Resume(by())), "cannot resume task task: it is RUNNING");

    let mut run = Run::of(vec![stage("a")]);
    run.claim();
    run.act(stop());
    assert_eq!(run.act(Command::Resume(by())), ["TASK_RESUMED"]);
    assert_eq!(run.task.status(), TaskStatus::Pending);
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED a 1"]);

    run.act(stop());
    assert_eq!(run.act(retry(false)), ["TASK_RETRIED from the start"]);
    assert_eq!(run.task.status(), TaskStatus::Pending);
}

// --- crash loops ---

#[test]
fn the_tenth_take_over_in_a_row_on_one_stage_fails_the_task_as_a_crash_loop() {
    let mut run = Run::of(chain([stage("a"), stage("b")]));
    run.claim();
    run.succeeds("a");
    for _ in 1..MAX_TAKEOVERS {
        assert_eq!(run.crash(), ["TASK_INTERRUPTED and taken by n2", "STAGE_STARTED b 1"]);
    }

    assert_eq!(run.crash(), ["TASK_INTERRUPTED and taken by n2", "TASK_FAILED at b", "DEAD_LETTERED"]);
    assert_eq!(run.task.status(), TaskStatus::Failed);
    assert_eq!(run.task.failure().unwrap().cause.error_type, ErrorType::CrashLoop);
    assert_eq!(run.act(retry(true)), ["TASK_RETRIED from its checkpoint"], "a person may put it back");
    assert_eq!(run.task.takeovers(), 0);
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED b 1"]);
}

#[test]
fn take_overs_are_counted_for_each_stage_by_itself() {
    let mut run = Run::of(chain([stage("a"), stage("b"), stage("c")]));
    run.claim();
    for name in ["a", "b", "c"] {
        for _ in 1..MAX_TAKEOVERS {
            run.crash();
        }
        run.succeeds(name);
    }

    assert_eq!(run.task.status(), TaskStatus::Completed);
}

#[test]
fn a_take_over_that_somebody_asked_for_starts_the_count_anew() {
    let mut run = Run::of(vec![stage("a")]);
    run.claim();
    for _ in 1..MAX_TAKEOVERS {
        run.crash();
    }

    let asked = Claim { node: "n3".into(), lost_by: Some("n2".into()), automatic: false };
    assert_eq!(run.act(Command::Claim(asked)), ["TASK_INTERRUPTED and taken by n3", "STAGE_STARTED a 1"]);
    assert_eq!(run.task.takeovers(), 0);
    for _ in 1..MAX_TAKEOVERS {
        run.crash();
    }
    assert_eq!(run.task.status(), TaskStatus::Running);
}

#[test]
fn a_resume_starts_the_count_anew() {
    let mut run = Run::of(vec![stage("a")]);
    run.claim();
    run.crash();
    run.act(Command::Pause(by()));
    run.act(Command::Resume(by()));

    assert_eq!(run.task.takeovers(), 0);
}

#[test]
fn a_task_that_failed_in_a_crash_loop_can_still_be_rolled_back() {
    let mut run = Run::of(chain([stage("a").undoable(), stage("b")]));
    run.claim();
    run.succeeds("a");
    for _ in 0..MAX_TAKEOVERS {
        run.crash();
    }
    run.act(Command::Rollback(by()));

    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED a 1 to undo"]);
}

#[test]
fn a_crash_loop_rolls_back_when_failures_are_to() {
    let settings = Settings { on_failure: OnFailure::Rollback, ..Settings::default() };
    let mut run = Run::with(settings, chain([stage("a").undoable(), stage("b")]));
    run.claim();
    run.succeeds("a");
    for _ in 1..MAX_TAKEOVERS {
        run.crash();
    }

    let expected = [
        "TASK_INTERRUPTED and taken by n2",
        "TASK_FAILED at b",
        "DEAD_LETTERED",
        "ROLLBACK_STARTED",
        "STAGE_STARTED a 1 to undo",
    ];
    assert_eq!(run.crash(), expected);
}

#[test]
fn a_crash_loop_in_a_rollback_ends_it_as_failed_and_what_was_undone_stays_undone() {
    let mut run = Run::of(chain([stage("a").undoable(), stage("b").undoable(), stage("c").attempts(1)]));
    run.claim();
    run.succeeds("a");
    run.succeeds("b");
    run.fails("c");
    run.act(Command::Rollback(by()));
    run.claim();
    for _ in 1..MAX_TAKEOVERS {
        run.crash();
    }
    run.succeeds("b");
    for _ in 1..MAX_TAKEOVERS {
        assert_eq!(run.crash(), ["TASK_INTERRUPTED and taken by n2", "STAGE_STARTED a 1 to undo"], "counted anew");
    }

    assert_eq!(run.crash(), ["TASK_INTERRUPTED and taken by n2", "ROLLBACK_FAILED", "DEAD_LETTERED"]);
    assert_eq!(run.task.status(), TaskStatus::RollbackFailed);
    assert_eq!(run.act(Command::Rollback(by())), ["ROLLBACK_STARTED"]);
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED a 1 to undo"], "b is not undone twice");
}
