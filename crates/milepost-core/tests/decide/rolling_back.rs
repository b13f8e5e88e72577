//! Undoing what was done: in which order, what happens when that fails, and what is left for the next time.

use milepost_core::failure::ErrorType;
use milepost_core::id::StageName;
use milepost_core::plan::{OnFailure, Settings};
use milepost_core::task::{
    Cause, Checkpoint, Command, Event, Record, StageResult, StageStatus, TaskContext, TaskStatus, TaskView,
};
use milepost_core::time::Millis;

use crate::support::{Run, StageWords, by, chain, replay, retry, stage};

const SECOND: Millis = Millis::from_secs(1);

fn rollback() -> Command {
    Command::Rollback(by())
}

/// `a` and `b` are done, `c` has failed for good, and all of them can be undone, in one attempt each.
fn failed_at_c() -> Run {
    let undoable = |name| stage(name).attempts(1).undoable();
    let mut run = Run::of(chain([undoable("a"), undoable("b"), undoable("c"), undoable("d")]));
    run.claim();
    run.succeeds("a");
    run.succeeds("b");
    run.fails("c");
    run
}

#[test]
fn a_rollback_undoes_the_failed_stage_first_and_then_the_completed_ones_from_the_last_to_the_first() {
    let mut run = failed_at_c();

    assert_eq!(run.act(rollback()), ["ROLLBACK_STARTED"]);
    assert_eq!(run.task.status(), TaskStatus::RollingBack);
    assert_eq!(run.claim(), ["STAGE_STARTED c 1 to undo"]);
    assert_eq!(run.succeeds("c"), ["STAGE_ROLLED_BACK c", "STAGE_STARTED b 1 to undo"]);
    assert_eq!(run.succeeds("b"), ["STAGE_ROLLED_BACK b", "STAGE_STARTED a 1 to undo"]);
    assert_eq!(run.succeeds("a"), ["STAGE_ROLLED_BACK a", "TASK_ROLLED_BACK"]);
    assert_eq!(run.task.status(), TaskStatus::RolledBack);
    assert_eq!(run.status_of("d"), StageStatus::Cancelled, "it never ran, so it is not undone");
}

#[test]
fn a_log_that_undid_in_another_order_than_todays_folds_to_what_it_says() {
    let name = |name: &str| StageName::parse(name).unwrap();
    let started = |stage| Event::StageStarted { stage: name(stage), attempt: 1, rollback: true, step: None };
    let undone = |stage| Event::StageRolledBack { stage: name(stage) };
    let failed = |stage| {
        let cause = Cause { error_type: ErrorType::Business, reason: "no".to_owned() };
        Event::StageFailed { stage: name(stage), attempt: 1, cause, rollback: true }
    };
    let mut run = failed_at_c();
    run.act(rollback());
    let later = [started("a"), undone("a"), started("b"), failed("b"), started("c")];
    run.log.extend(later.map(|event| Record::new(run.now, event)));
    for (events, queue) in
        [(0, [2, 1, 0].as_slice()), (1, &[0, 2, 1]), (2, &[2, 1]), (3, &[1, 2]), (4, &[2]), (5, &[2])]
    {
        let task = replay(run.task.spec(), &run.log[..run.log.len() - 5 + events]);
        assert_eq!(task.undo().unwrap().queue, queue, "after {events} events");
    }
    run.task = replay(run.task.spec(), &run.log);
    assert_eq!(run.succeeds("c"), ["STAGE_ROLLED_BACK c", "ROLLBACK_FAILED"]);
    let statuses = ["a", "b", "c"].map(|stage| run.status_of(stage));
    assert_eq!(statuses, [StageStatus::RolledBack, StageStatus::Completed, StageStatus::RolledBack]);
}

#[test]
fn parallel_stages_are_undone_in_the_reverse_of_the_order_in_which_they_completed() {
    let mut run = Run::of(vec![
        stage("a").undoable(),
        stage("b").undoable(),
        stage("c").undoable(),
        stage("d").needs(&[0, 1, 2]).attempts(1),
    ]);
    run.claim();
    run.succeeds("b");
    run.succeeds("c");
    run.succeeds("a");
    run.fails("d");
    run.act(rollback());

    assert_eq!(run.claim(), ["STAGE_STARTED a 1 to undo"]);
    assert_eq!(run.succeeds("a"), ["STAGE_ROLLED_BACK a", "STAGE_STARTED c 1 to undo"]);
    assert_eq!(run.succeeds("c"), ["STAGE_ROLLED_BACK c", "STAGE_STARTED b 1 to undo"]);
}

#[test]
fn stages_without_a_handler_and_skipped_ones_are_passed_over() {
    let mut run = Run::of(chain([stage("a").undoable(), stage("b"), stage("c").undoable(), stage("d").attempts(1)]));
    run.claim();
    run.succeeds("a");
    run.succeeds("b");
    run.ended("c", milepost_core::task::StageResult::Skip("not needed".to_owned()));
    run.fails("d");
    run.act(rollback());

    assert_eq!(run.claim(), ["STAGE_STARTED a 1 to undo"]);
    assert_eq!(run.succeeds("a"), ["STAGE_ROLLED_BACK a", "TASK_ROLLED_BACK"]);
}

#[test]
fn a_rollback_is_refused_when_no_stage_that_ran_has_a_handler() {
    let mut run = Run::of(chain([stage("a"), stage("b").attempts(1), stage("c").undoable()]));
    run.claim();
    run.succeeds("a");
    run.fails("b");

    assert_eq!(
        run.refused(rollback()),
        "cannot roll back task task: no stage of it that has anything to undo has a rollback handler"
    );
    assert_eq!(run.task.status(), TaskStatus::Failed);
}

#[test]
fn a_handler_is_tried_again_under_the_policy_of_its_stage() {
    let mut run = Run::of(chain([stage("a").attempts(2).undoable(), stage("b").attempts(1)]));
    run.claim();
    run.succeeds("a");
    run.fails("b");
    run.act(rollback());
    run.claim();

    assert_eq!(run.fails("a"), ["RETRY_SCHEDULED a 2 after 1s to undo"]);
    assert_eq!(run.task.next_due(), Some(run.now + SECOND));
    assert_eq!(run.act(Command::Wake), [""; 0], "not before its time");
    assert_eq!(run.after(SECOND).act(Command::Wake), ["STAGE_STARTED a 2 to undo"]);
    assert_eq!(TaskView::new(&run.task, TaskContext::default()).attempt, Some(2), "the handler's attempt");
    assert_eq!(run.fails("a"), ["STAGE_FAILED a 2 to undo", "ROLLBACK_FAILED"]);
}

#[test]
fn a_handler_that_fails_does_not_keep_the_others_from_being_undone() {
    let mut run = failed_at_c();
    run.act(rollback());
    run.claim();
    run.succeeds("c");

    assert_eq!(run.fails("b"), ["STAGE_FAILED b 1 to undo", "STAGE_STARTED a 1 to undo"]);
    assert_eq!(run.succeeds("a"), ["STAGE_ROLLED_BACK a", "ROLLBACK_FAILED"]);
    assert_eq!(run.task.status(), TaskStatus::RollbackFailed);
    assert_eq!(run.status_of("b"), StageStatus::Completed, "what could not be undone is still done");
    let names = Checkpoint::of(&run.task).unwrap().completed_stage_names;
    assert_eq!(names.iter().map(AsRef::as_ref).collect::<Vec<&str>>(), ["b"]);
}

#[test]
fn rolling_back_again_does_only_what_is_left() {
    let mut run = failed_at_c();
    run.act(rollback());
    run.claim();
    run.succeeds("c");
    run.fails("b");
    run.succeeds("a");

    assert!(run.refused(retry(true)).ends_with("use `milepost rollback task` to undo the rest"));
    assert_eq!(run.act(rollback()), ["ROLLBACK_STARTED"]);
    assert_eq!(run.claim(), ["STAGE_STARTED b 1 to undo"]);
    assert_eq!(run.succeeds("b"), ["STAGE_ROLLED_BACK b", "TASK_ROLLED_BACK"]);
}

#[test]
fn a_paused_task_is_rolled_back_with_the_stage_that_waited_for_its_retry() {
    let mut run = Run::of(chain([stage("a").undoable(), stage("b").undoable(), stage("c").undoable()]));
    run.claim();
    run.succeeds("a");
    run.fails("b");
    run.act(Command::Pause(by()));
    run.act(rollback());

    assert_eq!(run.task.next_due(), None, "b is not tried again");
    assert_eq!(run.claim(), ["STAGE_STARTED b 1 to undo"]);
    assert_eq!(run.succeeds("b"), ["STAGE_ROLLED_BACK b", "STAGE_STARTED a 1 to undo"]);
    assert_eq!(run.status_of("c"), StageStatus::Cancelled);
}

#[test]
fn a_stage_that_failed_before_a_retry_is_still_undone() {
    let mut run = failed_at_c();
    run.act(retry(true));
    run.act(Command::Pause(by()));
    run.act(rollback());

    assert_eq!(run.claim(), ["STAGE_STARTED c 1 to undo"]);
    assert_eq!(run.succeeds("c"), ["STAGE_ROLLED_BACK c", "STAGE_STARTED b 1 to undo"]);
}

#[test]
fn the_only_stage_that_was_tried_is_undone_also_when_it_failed_before_a_retry() {
    let mut run = Run::of(vec![stage("a").attempts(1).undoable()]);
    run.claim();
    run.fails("a");
    run.act(retry(true));
    run.act(Command::Pause(by()));
    run.act(rollback());

    assert_eq!(run.claim(), ["STAGE_STARTED a 1 to undo"]);
}

#[test]
fn a_stage_that_a_crash_cut_off_before_a_retry_is_still_undone() {
    let mut run = Run::of(chain([stage("a").undoable(), stage("b").undoable()]));
    run.claim();
    run.succeeds("a");
    run.act(Command::Interrupt { reason: "stopped".to_owned() });
    run.act(retry(true));
    run.act(Command::Pause(by()));
    run.act(rollback());

    assert_eq!(run.claim(), ["STAGE_STARTED b 1 to undo"]);
}

#[test]
fn a_stage_whose_second_attempt_skipped_it_is_undone_for_what_the_first_may_have_left() {
    let skip = || StageResult::Skip("nothing to do".to_owned());
    let mut run = Run::of(vec![stage("a").undoable(), stage("b").undoable(), stage("c").attempts(1)]);
    run.claim();
    run.fails("a");
    run.ended("b", skip());
    run.after(SECOND).act(Command::Wake);
    run.ended("a", skip());
    run.fails("c");
    run.act(rollback());

    assert_eq!(run.claim(), ["STAGE_STARTED a 1 to undo"]);
    assert_eq!(run.succeeds("a"), ["STAGE_ROLLED_BACK a", "TASK_ROLLED_BACK"], "b left nothing");
}

#[test]
fn a_stage_that_was_skipped_in_the_end_is_undone_after_those_that_needed_it() {
    let mut run = Run::of(chain([stage("a").undoable(), stage("b").undoable(), stage("c").undoable().attempts(1)]));
    run.claim();
    run.fails("a");
    run.after(SECOND).act(Command::Wake);
    run.ended("a", StageResult::Skip("nothing to do".to_owned()));
    run.succeeds("b");
    run.fails("c");
    run.act(rollback());

    assert_eq!(run.claim(), ["STAGE_STARTED c 1 to undo"]);
    assert_eq!(run.succeeds("c"), ["STAGE_ROLLED_BACK c", "STAGE_STARTED b 1 to undo"]);
    assert_eq!(run.succeeds("b"), ["STAGE_ROLLED_BACK b", "STAGE_STARTED a 1 to undo"]);
    assert_eq!(run.succeeds("a"), ["STAGE_ROLLED_BACK a", "TASK_ROLLED_BACK"]);
}

#[test]
fn a_run_from_the_start_answers_only_for_itself() {
    let mut run = failed_at_c();
    run.act(retry(false));
    run.claim();
    run.fails_for_good("a");
    run.act(rollback());

    assert_eq!(run.claim(), ["STAGE_STARTED a 1 to undo"]);
    assert_eq!(run.succeeds("a"), ["STAGE_ROLLED_BACK a", "TASK_ROLLED_BACK"]);
}

#[test]
fn a_rolled_back_task_can_be_retried_and_then_starts_from_the_start() {
    let mut run = failed_at_c();
    run.act(rollback());
    run.claim();
    for name in ["c", "b", "a"] {
        run.succeeds(name);
    }

    assert_eq!(run.act(retry(true)), ["TASK_RETRIED from the start"]);
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED a 1"]);
}

#[test]
fn on_failure_rollback_begins_as_soon_as_the_task_fails() {
    let settings = Settings { on_failure: OnFailure::Rollback, ..Settings::default() };
    let mut run = Run::with(settings, chain([stage("a").undoable(), stage("b").attempts(1)]));
    run.claim();
    run.succeeds("a");

    let happened = run.fails("b");

    assert_eq!(happened, ["STAGE_FAILED b 1", "TASK_FAILED at b", "ROLLBACK_STARTED", "STAGE_STARTED a 1 to undo"]);
    assert_eq!(run.succeeds("a"), ["STAGE_ROLLED_BACK a", "TASK_ROLLED_BACK"]);
}

#[test]
fn on_failure_rollback_waits_for_the_stages_that_still_run_and_undoes_them_too() {
    let settings = Settings { on_failure: OnFailure::Rollback, ..Settings::default() };
    let mut run = Run::with(settings, vec![stage("a").undoable(), stage("b").attempts(1)]);
    run.claim();

    assert_eq!(run.fails("b"), ["STAGE_FAILED b 1"]);
    let happened = run.succeeds("a");
    assert_eq!(happened, ["STAGE_COMPLETED a 1", "TASK_FAILED at b", "ROLLBACK_STARTED", "STAGE_STARTED a 1 to undo"]);
}

#[test]
fn on_failure_rollback_with_nothing_to_undo_leaves_the_task_failed() {
    let settings = Settings { on_failure: OnFailure::Rollback, ..Settings::default() };
    let mut run = Run::with(settings, vec![stage("a").attempts(1)]);
    run.claim();

    assert_eq!(run.fails("a"), ["STAGE_FAILED a 1", "TASK_FAILED at a"]);
    assert_eq!(run.task.status(), TaskStatus::Failed);
}

#[test]
fn a_node_that_stops_starts_no_handler_either() {
    let settings = Settings { on_failure: OnFailure::Rollback, ..Settings::default() };
    let mut run = Run::with(settings, chain([stage("a").undoable(), stage("b").attempts(1)]));
    run.claim();
    run.succeeds("a");

    let happened = run.ended_stopping("b", StageResult::Failure(crate::support::retryable()));

    assert_eq!(happened, ["STAGE_FAILED b 1", "TASK_FAILED at b", "ROLLBACK_STARTED", "TASK_INTERRUPTED"]);
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED a 1 to undo"]);
}

#[test]
fn a_running_task_has_to_be_paused_before_it_is_rolled_back() {
    let mut run = Run::of(vec![stage("a").undoable()]);
    run.claim();

    assert_eq!(run.refused(rollback()), "cannot roll back task task: it is RUNNING; `milepost pause task` first");
}
