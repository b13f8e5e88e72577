//! Failures: when a stage is tried again, when the task gives up, and how a person puts it back.

use milepost_core::failure::ErrorType;
use milepost_core::plan::{OnFailure, OnInvalidCheckpoint, Settings};
use milepost_core::retry::{RetryPolicy, Strategy};
use milepost_core::task::{Command, Event, EventView, StageResult, StageStatus, TaskStatus};
use milepost_core::time::Millis;
use serde_json::json;

use crate::support::{DAY, Run, StageWords, by, chain, replay, retry, retryable, spec, stage};

const SECOND: Millis = Millis::from_secs(1);

#[test]
fn a_stage_runs_max_attempts_times_and_not_once_more() {
    let mut run = Run::of(vec![stage("a").attempts(3)]);
    run.claim();

    assert_eq!(run.fails("a"), ["RETRY_SCHEDULED a 2 after 1s"]);
    assert_eq!(run.after(SECOND).act(Command::Wake), ["STAGE_STARTED a 2"]);
    assert_eq!(run.fails("a"), ["RETRY_SCHEDULED a 3 after 1s"]);
    assert_eq!(run.after(SECOND).act(Command::Wake), ["STAGE_STARTED a 3"]);
    assert_eq!(run.fails("a"), ["STAGE_FAILED a 3", "TASK_FAILED at a"]);
    assert_eq!(run.task.failure().unwrap().attempts, Some(3));
}

#[test]
fn one_attempt_means_no_retry() {
    let mut run = Run::of(vec![stage("a").attempts(1)]);
    run.claim();

    assert_eq!(run.fails("a"), ["STAGE_FAILED a 1", "TASK_FAILED at a"]);
}

#[test]
fn four_attempts_succeed_on_the_fourth_after_three_failures() {
    let mut stage = stage("a");
    stage.retry = RetryPolicy::callbacks();
    let mut run = Run::of(vec![stage]);
    run.claim();

    for (attempt, seconds) in [(2, 1), (3, 2), (4, 4)] {
        assert_eq!(run.fails("a"), [format!("RETRY_SCHEDULED a {attempt} after {seconds}s")]);
        run.after(Millis::from_secs(seconds)).act(Command::Wake);
    }
    assert_eq!(run.succeeds("a"), ["STAGE_COMPLETED a 4", "TASK_COMPLETED"]);
}

#[test]
fn a_scheduled_retry_says_which_attempt_comes_after_how_long_and_why() {
    let mut run = Run::of(vec![stage("a")]);
    run.claim();
    run.fails("a");

    let view = EventView::new(&run.task.spec().plan, run.task.id(), run.task.version(), run.log.last().unwrap());

    assert_eq!(view.event_type, "RETRY_SCHEDULED");
    assert_eq!(view.sequence, 4);
    assert_eq!(view.payload, json!({ "stage": "a", "reason": "connection refused" }));
    assert_eq!(view.attempt_number, Some(2));
    assert_eq!(view.backoff_delay_ms, Some(1000));
    assert_eq!(view.failure_reason.as_deref(), Some("connection refused"));
    assert_eq!(run.task.next_due(), Some(run.now + SECOND));
}

#[test]
fn the_delay_of_a_retry_is_the_one_its_policy_computes_for_this_task_and_stage() {
    let mut jittered = stage("a");
    jittered.retry = RetryPolicy::workflows(Strategy::Linear, SECOND, 5);
    let expected = jittered.retry.delay(milepost_core::retry::seed_of("task"), &jittered.name, 1);
    let mut run = Run::of(vec![jittered]);
    run.claim();
    run.fails("a");

    assert!(matches!(run.log.last().unwrap().event(), Event::RetryScheduled { delay, .. } if *delay == expected));
}

#[test]
fn a_longer_retry_after_wins_over_the_policy_and_a_shorter_one_does_not() {
    for (asked, waits) in [(5, "5s"), (0, "1s")] {
        let mut run = Run::of(vec![stage("a")]);
        run.claim();
        let busy = retryable().after(Millis::from_secs(asked));
        assert_eq!(run.ended("a", StageResult::Failure(busy)), [format!("RETRY_SCHEDULED a 2 after {waits}")]);
    }
}

#[test]
fn a_failure_that_no_retry_can_mend_ends_the_stage_at_once() {
    let mut run = Run::of(chain([stage("a").attempts(10), stage("b")]));
    run.claim();

    assert_eq!(run.fails_for_good("a"), ["STAGE_FAILED a 1", "TASK_FAILED at a"]);
    assert_eq!(run.task.status(), TaskStatus::Failed);
    assert_eq!(run.status_of("b"), StageStatus::Cancelled, "dependants are cancelled");
    let failure = run.task.failure().unwrap();
    assert_eq!((failure.cause.error_type, failure.cause.reason.as_str()), (ErrorType::Business, "no such order"));
}

#[test]
fn other_stages_keep_running_while_one_waits_for_its_retry() {
    let mut run = Run::of(vec![stage("a"), stage("b"), stage("c").needs(&[1])]);
    run.claim();

    assert_eq!(run.fails("a"), ["RETRY_SCHEDULED a 2 after 1s"]);
    assert_eq!(run.succeeds("b"), ["STAGE_COMPLETED b 1", "STAGE_STARTED c 1"]);
    assert_eq!(run.after(SECOND).succeeds("c"), ["STAGE_COMPLETED c 1", "STAGE_STARTED a 2"]);
}

#[test]
fn when_one_branch_fails_the_others_result_is_kept_and_nothing_new_starts() {
    let mut run = Run::of(vec![stage("a"), stage("b"), stage("c").needs(&[1])]);
    run.claim();

    assert_eq!(run.fails_for_good("a"), ["STAGE_FAILED a 1"], "b still runs");
    assert_eq!(run.task.status(), TaskStatus::Running);
    assert_eq!(run.succeeds("b"), ["STAGE_COMPLETED b 1", "TASK_FAILED at a"], "once, and c never starts");
    assert_eq!(run.task.done().len(), 1);
    assert_eq!(run.status_of("c"), StageStatus::Cancelled);
}

#[test]
fn when_one_branch_has_failed_the_other_is_not_tried_again() {
    let mut run = Run::of(vec![stage("a"), stage("b")]);
    run.claim();
    run.fails_for_good("a");

    assert_eq!(run.fails("b"), ["STAGE_FAILED b 1", "TASK_FAILED at a"]);
}

#[test]
fn when_one_branch_has_failed_a_waiting_one_is_not_waited_for() {
    let mut run = Run::of(vec![stage("a"), stage("b"), stage("c")]);
    run.claim();
    run.fails("b");
    assert_eq!(run.fails_for_good("a"), ["STAGE_FAILED a 1"]);
    assert_eq!(run.task.next_due(), None, "b will not start again");
    assert_eq!(run.after(SECOND).act(Command::Wake), [""; 0]);

    assert_eq!(run.succeeds("c"), ["STAGE_COMPLETED c 1", "TASK_FAILED at a"]);
    assert_eq!(run.status_of("b"), StageStatus::Cancelled);
}

// --- a person puts it back ---

fn failed_at_b(settings: Settings) -> Run {
    let mut run = Run::with(settings, chain([stage("a"), stage("b").attempts(2), stage("c")]));
    run.claim();
    run.succeeds("a");
    run.fails("b");
    run.after(SECOND).act(Command::Wake);
    run.fails("b");
    run
}

#[test]
fn a_retry_from_the_checkpoint_goes_on_at_the_failed_stage_and_counts_its_attempts_from_one() {
    let mut run = failed_at_b(Settings::default());

    assert_eq!(run.act(retry(true)), ["TASK_RETRIED from its checkpoint"]);
    assert_eq!(run.task.status(), TaskStatus::Pending);
    assert_eq!(run.task.ended_at(), None);
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED b 1"]);
    assert_eq!(run.fails("b"), ["RETRY_SCHEDULED b 2 after 1s"], "a full set of attempts");
    run.after(SECOND).act(Command::Wake);
    assert_eq!(run.succeeds("b"), ["STAGE_COMPLETED b 2", "STAGE_STARTED c 1"]);
    assert_eq!(run.task.failure(), None);
}

#[test]
fn a_retry_from_the_start_runs_every_stage_again() {
    let mut run = failed_at_b(Settings::default());

    assert_eq!(run.act(retry(false)), ["TASK_RETRIED from the start"]);
    assert!(run.task.done().is_empty());
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED a 1"]);
}

#[test]
fn a_retry_before_anything_is_done_goes_on_with_the_same_run() {
    let mut run = Run::of(vec![stage("a").attempts(1)]);
    run.claim();
    run.fails("a");

    assert_eq!(run.act(retry(true)), ["TASK_RETRIED from its checkpoint"]);
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED a 1"]);
}

#[test]
fn a_checkpoint_of_seven_days_is_taken_up_and_one_that_is_older_is_discarded() {
    let week = Millis::new(7 * DAY.get());
    let mut run = failed_at_b(Settings::default());
    let saved = run.now - SECOND;

    run.now = saved + week;
    assert_eq!(run.act(retry(true)), ["TASK_RETRIED from its checkpoint"]);

    let mut run = failed_at_b(Settings::default());
    run.now = saved + week + Millis::new(1);
    assert_eq!(run.act(retry(true)), ["CHECKPOINT_DISCARDED", "TASK_RETRIED from the start"]);
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED a 1"]);
}

#[test]
fn under_block_an_old_checkpoint_refuses_the_retry_until_it_is_from_the_start() {
    let blocking = Settings { on_invalid_checkpoint: OnInvalidCheckpoint::Block, ..Settings::default() };
    let mut run = failed_at_b(blocking);
    run.after(Millis::new(8 * DAY.get()));

    let refusal = run.refused(retry(true));
    assert!(refusal.starts_with("cannot retry task task from its checkpoint: it was saved at"), "{refusal}");
    assert_eq!(run.task.status(), TaskStatus::Failed);
    assert_eq!(run.act(retry(false)), ["TASK_RETRIED from the start"]);
}

#[test]
fn age_never_invalidates_the_checkpoint_of_a_task_that_waits_is_paused_or_was_interrupted() {
    let old = Millis::new(30 * DAY.get());

    let mut waits = Run::of(chain([stage("a"), stage("b")]));
    waits.claim();
    waits.succeeds("a");
    waits.fails("b");
    assert_eq!(waits.after(old).act(Command::Wake), ["STAGE_STARTED b 2"]);

    let mut paused = Run::of(chain([stage("a"), stage("b")]));
    paused.claim();
    paused.act(Command::Pause(by()));
    paused.succeeds("a");
    paused.after(old).act(Command::Resume(by()));
    assert_eq!(paused.claim(), ["TASK_STARTED on n1", "STAGE_STARTED b 1"]);

    let mut interrupted = Run::of(chain([stage("a"), stage("b")]));
    interrupted.claim();
    interrupted.succeeds("a");
    interrupted.act(Command::Interrupt { reason: "stopped".to_owned() });
    assert_eq!(interrupted.after(old).act(retry(true)), ["TASK_RETRIED from its checkpoint"]);
    assert_eq!(interrupted.claim(), ["TASK_STARTED on n1", "STAGE_STARTED b 1"]);
}

/// The same log over a definition in which `a` has another name.
fn with_a_renamed(run: &Run) -> Run {
    let settings = Settings::clone(&run.task.spec().settings);
    let renamed = spec(settings, chain([stage("a2"), stage("b").attempts(2), stage("c")]));
    Run { task: replay(&renamed, &run.log), log: Vec::new(), now: run.now }
}

#[test]
fn a_checkpoint_that_no_longer_fits_the_stages_is_discarded_and_the_task_starts_over() {
    let mut failed = with_a_renamed(&failed_at_b(Settings::default()));
    assert_eq!(failed.act(retry(true)), ["CHECKPOINT_DISCARDED", "TASK_RETRIED from the start"]);
    assert_eq!(failed.claim(), ["TASK_STARTED on n1", "STAGE_STARTED a2 1"]);

    let mut running = Run::of(chain([stage("a"), stage("b"), stage("c")]));
    running.claim();
    running.succeeds("a");
    let taken_over = with_a_renamed(&running).crash();
    assert_eq!(taken_over, ["TASK_INTERRUPTED and taken by n2", "CHECKPOINT_DISCARDED", "STAGE_STARTED a2 1"]);
}

#[test]
fn under_block_a_task_whose_checkpoint_no_longer_fits_fails_instead_of_starting_over() {
    let on_invalid_checkpoint = OnInvalidCheckpoint::Block;
    let settings = Settings { on_invalid_checkpoint, on_failure: OnFailure::Rollback, ..Settings::default() };
    let mut running = Run::with(settings, chain([stage("a"), stage("b"), stage("c")]));
    running.claim();
    running.succeeds("a");
    let mut blocked = with_a_renamed(&running);

    assert_eq!(blocked.crash(), ["TASK_INTERRUPTED and taken by n2", "TASK_FAILED"]);
    let cause = &blocked.task.failure().unwrap().cause;
    assert_eq!(cause.error_type, ErrorType::Validation);
    assert_eq!(cause.reason, "its checkpoint is invalid: its completed stage `a` is not a stage of the task");
    assert!(blocked.refused(retry(true)).contains("is not a stage of the task"));
    assert_eq!(blocked.act(retry(false)), ["TASK_RETRIED from the start"]);
}

// --- the task's own time limit ---

fn limited(on_failure: OnFailure) -> Settings {
    Settings { task_timeout: Some(Millis::from_secs(60)), on_failure, ..Settings::default() }
}

#[test]
fn a_task_that_does_not_end_within_its_task_timeout_fails_with_timeout() {
    let mut run = Run::with(limited(OnFailure::Stop), chain([stage("a"), stage("b")]));
    run.claim();
    run.succeeds("a");
    let deadline = run.task.deadline().unwrap();

    run.after(Millis::new(59_999));
    assert_eq!(run.act(Command::TimeOut), [""; 0], "not yet");
    run.after(Millis::new(1));
    assert_eq!(run.now, deadline);
    assert_eq!(run.act(Command::TimeOut), ["TASK_FAILED at b"]);
    assert_eq!(run.task.failure().unwrap().cause.error_type, ErrorType::Timeout);
    assert_eq!(run.status_of("b"), StageStatus::Cancelled);
    assert_eq!(run.task.deadline(), None, "it does not strike twice");
    assert_eq!(run.act(Command::TimeOut), [""; 0]);
}

#[test]
fn a_task_timeout_with_on_failure_rollback_undoes_also_the_stage_it_cut_off() {
    let stages = chain([stage("a").undoable(), stage("b").undoable(), stage("c").undoable()]);
    let mut run = Run::with(limited(OnFailure::Rollback), stages);
    run.claim();
    run.succeeds("a");

    let happened = run.after(Millis::from_secs(60)).act(Command::TimeOut);

    assert_eq!(happened, ["TASK_FAILED at b", "ROLLBACK_STARTED", "STAGE_STARTED b 1 to undo"]);
    assert_eq!(run.task.deadline(), None, "the limit does not bind the rollback");
    assert_eq!(run.succeeds("b"), ["STAGE_ROLLED_BACK b", "STAGE_STARTED a 1 to undo"]);
    assert_eq!(run.succeeds("a"), ["STAGE_ROLLED_BACK a", "TASK_ROLLED_BACK"]);
}

#[test]
fn a_retry_gives_a_task_its_whole_time_limit_again() {
    let mut run = Run::with(limited(OnFailure::Stop), vec![stage("a")]);
    run.claim();
    run.after(Millis::from_secs(60)).act(Command::TimeOut);
    run.act(retry(true));
    run.after(DAY).claim();

    assert_eq!(run.task.deadline(), Some(run.now + Millis::from_secs(60)));
}

#[test]
fn the_time_limit_stands_still_while_the_task_is_paused() {
    let mut run = Run::with(limited(OnFailure::Stop), chain([stage("a"), stage("b")]));
    run.claim();
    run.act(Command::Pause(by()));
    run.after(Millis::from_secs(20)).succeeds("a");
    run.after(DAY).act(Command::Resume(by()));
    run.claim();

    assert_eq!(run.task.deadline(), Some(run.now + Millis::from_secs(40)));
}
