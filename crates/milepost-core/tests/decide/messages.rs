//! Tasks that messages set off: what a message does, when it comes too late, and how a person puts one back.

use milepost_core::failure::ErrorType;
use milepost_core::message::Message;
use milepost_core::plan::{OnFailure, Settings};
use milepost_core::task::{Claim, Command, TaskStatus};
use milepost_core::time::Millis;

use crate::support::{DAY, Run, START, StageWords, by, by_message, chain, message, replay, retry, stage};

const HOUR: Millis = Millis::from_secs(3600);

fn claim() -> Command {
    Command::Claim(Claim { node: "n1".into(), lost_by: None, automatic: false })
}

fn receive(id: &str) -> Command {
    Command::Receive(message(id, Some(START + HOUR)))
}

fn waiting() -> Run {
    Run::with(by_message(), chain([stage("a"), stage("b").attempts(1)]))
}

/// Its second stage has failed for good.
fn given_up() -> Run {
    let mut run = waiting();
    run.act(receive("m1"));
    run.claim();
    run.succeeds("a");
    run.fails("b");
    run
}

#[test]
fn a_task_that_waits_for_its_message_cannot_be_claimed_before_it_is_here() {
    let mut run = waiting();
    assert!(run.task.awaits_message());
    assert_eq!(run.refused(claim()), "cannot run task task: it is PENDING, and waits for its message");

    assert_eq!(run.act(receive("m1")), ["MESSAGE_RECEIVED m1"]);
    assert!(!run.task.awaits_message());
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED a 1"]);
}

#[test]
fn a_task_takes_one_message_and_refuses_every_other() {
    let mut run = waiting();
    run.act(receive("m1"));
    let words = "cannot start task task: it is PENDING, and does not wait for a message";
    assert_eq!(run.refused(receive("m1")), words);
    assert_eq!(run.refused(receive("m2")), words);
    run.claim();
    assert!(run.try_to(receive("m2")).is_err());
}

#[test]
fn a_task_of_a_plan_that_is_started_takes_no_message() {
    let mut run = Run::of(chain([stage("a")]));
    assert!(!run.task.awaits_message());
    assert!(run.try_to(receive("m1")).is_err());
}

#[test]
fn a_paused_task_keeps_the_message_that_came_meanwhile_and_starts_when_it_is_resumed() {
    let mut run = waiting();
    run.act(Command::Pause(by()));
    assert_eq!(run.act(receive("m1")), ["MESSAGE_RECEIVED m1"]);
    assert_eq!(run.task.status(), TaskStatus::Paused);
    run.act(Command::Resume(by()));
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED a 1"]);
}

#[test]
fn a_message_that_comes_after_its_deadline_fails_its_task_as_expired() {
    let mut run = waiting();
    let late = run.after(HOUR).after(Millis::new(1)).act(receive("m1"));
    assert_eq!(late, ["MESSAGE_RECEIVED m1", "TASK_FAILED", "DEAD_LETTERED"]);
    let cause = &run.task.failure().unwrap().cause;
    assert_eq!(cause.error_type, ErrorType::Expired);
    assert!(cause.reason.starts_with("its message said to start by 2025-11-24T17:00:00.000Z"), "{}", cause.reason);
}

#[test]
fn a_message_that_comes_just_in_time_is_in_time() {
    let mut run = waiting();
    assert_eq!(run.after(HOUR).act(receive("m1")), ["MESSAGE_RECEIVED m1"]);
    assert_eq!(run.claim()[0], "TASK_STARTED on n1");
}

#[test]
fn the_deadline_is_the_latest_start_and_no_limit_for_what_has_started() {
    let mut run = waiting();
    run.act(receive("m1"));
    assert_eq!(run.after(HOUR).after(Millis::new(1)).act(claim()), ["TASK_FAILED", "DEAD_LETTERED"]);

    let mut run = waiting();
    run.act(receive("m1"));
    run.claim();
    assert_eq!(run.after(HOUR).after(HOUR).crash(), ["TASK_INTERRUPTED and taken by n2", "STAGE_STARTED a 1"]);
}

#[test]
fn a_task_that_was_paused_until_after_its_deadline_fails_when_it_is_to_start() {
    let mut run = waiting();
    run.act(Command::Pause(by()));
    run.after(HOUR).after(HOUR).act(receive("m1"));
    run.act(Command::Resume(by()));
    assert_eq!(run.act(claim()), ["TASK_FAILED", "DEAD_LETTERED"]);
}

#[test]
fn a_retry_by_a_person_runs_also_after_the_deadline() {
    let mut run = waiting();
    run.after(HOUR).after(HOUR).act(receive("m1"));
    run.act(retry(true));
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED a 1"]);
}

#[test]
fn every_final_failure_of_a_task_that_a_message_set_off_is_a_dead_letter() {
    let run = given_up();
    assert_eq!(run.task.dead_letter(), Some(run.task.version()));

    let mut run = waiting();
    run.act(receive("m1"));
    run.claim();
    assert_eq!(run.act(Command::StoreLost), ["TASK_FAILED at a", "DEAD_LETTERED"]);

    let mut run = Run::of(chain([stage("a").attempts(1)]));
    run.claim();
    assert_eq!(run.fails("a"), ["STAGE_FAILED a 1", "TASK_FAILED at a"]);
    assert_eq!(run.task.dead_letter(), None);
}

#[test]
fn a_failure_that_is_rolled_back_is_a_dead_letter_first() {
    let settings = Settings { on_failure: OnFailure::Rollback, ..by_message() };
    let mut run = Run::with(settings, chain([stage("a").undoable(), stage("b").attempts(1)]));
    run.act(receive("m1"));
    run.claim();
    run.succeeds("a");
    let failed = run.fails("b");
    assert_eq!(failed[..3], ["STAGE_FAILED b 1", "TASK_FAILED at b", "DEAD_LETTERED"]);
    assert_eq!(failed[3], "ROLLBACK_STARTED");
}

#[test]
fn a_redrive_goes_on_from_the_checkpoint_under_a_new_message() {
    let mut run = given_up();
    run.after(DAY);
    let again = Command::Redrive { by: by(), message: message("m2", Some(run.now + HOUR)) };
    assert_eq!(run.act(again), ["TASK_RETRIED from its checkpoint", "MESSAGE_RECEIVED m2"]);
    assert_eq!(run.task.message().unwrap().id.as_ref(), "m2");
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED b 1"]);
    assert_eq!(run.succeeds("b"), ["STAGE_COMPLETED b 1", "TASK_COMPLETED"]);
    assert_eq!(replay(run.task.spec(), &run.log), run.task);
}

#[test]
fn a_redrive_of_a_task_that_does_not_stand_still_is_refused() {
    let mut run = waiting();
    let again = || Command::Redrive { by: by(), message: message("m2", None) };
    assert_eq!(run.refused(again()), "cannot retry task task: it is PENDING");
    run.act(receive("m1"));
    run.claim();
    assert_eq!(run.refused(again()), "cannot retry task task: it is RUNNING");
}

#[test]
fn a_task_without_stages_completes_with_its_message() {
    let mut run = Run::with(by_message(), Vec::new());
    run.act(receive("m1"));
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "TASK_COMPLETED"]);
}

#[test]
fn a_time_without_a_zone_in_a_message_is_utc() {
    let text = br#"{"messageId":"m1","taskId":"t1","deadline":"2025-11-24T17:00:00"}"#;
    let message = Message::parse(text).unwrap();
    assert_eq!(message.deadline, Some(START + HOUR));
}

#[test]
fn a_message_needs_an_id_that_can_be_kept() {
    let with = |id: &str| Message::parse(format!(r#"{{"messageId":"{id}","taskId":"t1"}}"#).as_bytes());
    assert!(with(&"m".repeat(256)).is_ok());
    assert_eq!(with("").unwrap_err().to_string(), "its messageId has 0 characters, and 1 to 256 are allowed");
    assert!(with(&"m".repeat(257)).is_err());
    assert!(Message::parse(b"no JSON").unwrap_err().to_string().starts_with("it is not a message: "));
}
