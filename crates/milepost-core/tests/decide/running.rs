//! The way of a task whose stages do as they should.

use milepost_core::task::{
    Claim, Command, Event, StageEnded, StageResult, StageStatus, TaskContext, TaskStatus, TaskView,
};
use milepost_core::time::Millis;
use serde_json::{Map, Value, json};

use crate::support::{Run, StageWords, by, chain, replay, retry, stage};

fn outputs(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

#[test]
fn a_chain_runs_its_stages_one_after_another() {
    let mut run = Run::of(chain([stage("a"), stage("b")]));

    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED a 1"]);
    assert_eq!(run.succeeds("a"), ["STAGE_COMPLETED a 1", "STAGE_STARTED b 1"]);
    assert_eq!(run.succeeds("b"), ["STAGE_COMPLETED b 1", "TASK_COMPLETED"]);
    assert_eq!(run.task.status(), TaskStatus::Completed);
    assert_eq!(run.task.ended_at(), Some(run.now));
}

#[test]
fn stages_that_need_nothing_of_each_other_run_at_once_and_the_one_that_needs_both_waits_for_both() {
    let mut run = Run::of(vec![stage("a"), stage("b").needs(&[0]), stage("c").needs(&[0]), stage("d").needs(&[1, 2])]);

    run.claim();
    assert_eq!(run.succeeds("a"), ["STAGE_COMPLETED a 1", "STAGE_STARTED b 1", "STAGE_STARTED c 1"]);
    assert_eq!(run.succeeds("c"), ["STAGE_COMPLETED c 1"]);
    assert_eq!(run.succeeds("b"), ["STAGE_COMPLETED b 1", "STAGE_STARTED d 1"]);
    assert_eq!(run.succeeds("d"), ["STAGE_COMPLETED d 1", "TASK_COMPLETED"]);
    let done: Vec<&str> = run.task.done().iter().map(AsRef::as_ref).collect();
    assert_eq!(done, ["a", "c", "b", "d"], "in completion order");
}

#[test]
fn a_stage_may_need_one_that_the_file_lists_later() {
    let mut run = Run::of(vec![stage("last").needs(&[1]), stage("first")]);

    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED first 1"]);
    assert_eq!(run.succeeds("first"), ["STAGE_COMPLETED first 1", "STAGE_STARTED last 1"]);
}

#[test]
fn a_skipped_stage_counts_as_done() {
    let mut run = Run::of(chain([stage("a"), stage("b")]));
    run.claim();
    run.fails("a");
    run.after(Millis::from_secs(1)).act(Command::Wake);

    let happened = run.ended("a", StageResult::Skip("nothing to do".to_owned()));

    assert_eq!(happened, ["STAGE_SKIPPED a", "STAGE_STARTED b 1"]);
    assert_eq!(run.status_of("a"), StageStatus::Skipped);
    assert_eq!(run.task.done().len(), 1);
    assert_eq!(run.task.stage(0).1.cause, None, "it did not fail in the end");
}

#[test]
fn a_task_without_stages_is_complete_as_soon_as_it_starts() {
    assert_eq!(Run::of(Vec::new()).claim(), ["TASK_STARTED on n1", "TASK_COMPLETED"]);
}

#[test]
fn a_task_whose_stages_are_all_done_completes_without_running_any() {
    let mut run = Run::of(chain([stage("a"), stage("b")]));
    run.claim();
    run.succeeds("a");
    run.succeeds("b");
    // The log ends just before TASK_COMPLETED, as another writer of checkpoints might leave it.
    run.log.pop();

    let mut interrupted = Run { task: replay(run.task.spec(), &run.log), log: run.log.clone(), now: run.now };
    assert_eq!(interrupted.crash(), ["TASK_INTERRUPTED and taken by n2", "TASK_COMPLETED"]);

    let mut resumed = Run { task: replay(run.task.spec(), &run.log), log: run.log, now: run.now };
    resumed.act(Command::Interrupt { reason: "stopped".to_owned() });
    assert_eq!(resumed.act(Command::Resume(by())), ["TASK_RESUMED"]);
    assert_eq!(resumed.claim(), ["TASK_STARTED on n1", "TASK_COMPLETED"]);
}

#[test]
fn outputs_of_done_stages_are_what_later_stages_see() {
    let mut run = Run::of(chain([stage("a"), stage("b")]));
    run.claim();

    run.ended("a", StageResult::Success(outputs(json!({ "id": 7 }))));

    assert_eq!(run.task.scope()["stages"], json!({ "a": { "outputs": { "id": 7 } } }));
}

#[test]
fn a_result_of_another_attempt_or_another_stage_is_stale() {
    let mut run = Run::of(chain([stage("a"), stage("b")]));
    run.claim();
    run.fails("a");
    run.after(Millis::from_secs(1)).act(Command::Wake);
    let late = |stage, attempt| {
        let result = StageResult::Success(Map::new());
        Command::StageEnded(StageEnded { stage, attempt, result, stopping: false })
    };

    assert_eq!(run.refused(late(0, 1)), "task task no longer waits for attempt 1 of stage a");
    assert_eq!(run.refused(late(1, 1)), "task task no longer waits for attempt 1 of stage b");
    assert_eq!(run.refused(late(9, 1)), "task task no longer waits for attempt 1 of stage number 9");
}

#[test]
fn a_result_that_comes_after_the_end_is_stale_also_in_a_rollback() {
    let stages = || vec![stage("a").undoable(), stage("b").undoable()];
    let mut run = Run::of(stages());
    run.claim();
    let late = run.ends("b", StageResult::Success(Map::new()));
    run.act(Command::Cancel(by()));
    assert!(run.refused(Command::StageEnded(late)).contains("no longer waits"));

    let mut run = Run::of(stages());
    run.claim();
    run.fails_for_good("a");
    let late = run.ends("a", StageResult::Success(Map::new()));
    run.succeeds("b");
    run.act(Command::Rollback(by()));
    assert!(run.refused(Command::StageEnded(late)).contains("no longer waits"), "nobody has started to undo it");
    let out_of_range = StageEnded { stage: 9, ..run.ends("a", StageResult::Success(Map::new())) };
    assert!(run.refused(Command::StageEnded(out_of_range)).contains("stage number 9"));
}

#[test]
fn cancelling_ends_the_task_and_its_open_stages_at_once() {
    let mut run = Run::of(vec![stage("a"), stage("b"), stage("c").needs(&[0])]);
    run.claim();
    run.succeeds("a");
    run.fails("b");

    assert_eq!(run.act(Command::Cancel(by())), ["TASK_CANCELLED"]);
    assert_eq!(run.task.status(), TaskStatus::Cancelled);
    assert_eq!(run.status_of("a"), StageStatus::Completed);
    assert_eq!(run.status_of("b"), StageStatus::Cancelled);
    assert_eq!(run.status_of("c"), StageStatus::Cancelled);
    assert_eq!(run.task.next_due(), None, "nothing waits any more");
}

#[test]
fn cancelling_is_final_and_cancelling_again_changes_nothing() {
    let mut run = Run::of(vec![stage("a")]);
    run.act(Command::Cancel(by()));

    assert_eq!(run.act(Command::Cancel(by())), [""; 0]);
    assert_eq!(
        run.refused(retry(true)),
        "cannot retry task task: it is CANCELLED, which is final; submit the work as a new task"
    );
}

#[test]
fn a_node_that_takes_on_a_waiting_task_is_the_one_on_record() {
    let mut run = Run::of(vec![stage("a")]);
    run.claim();
    run.fails("a");

    // The wait was long, so the first node gave the task back.
    let claim = |node: &str| Command::Claim(Claim { node: node.into(), lost_by: None, automatic: true });
    assert_eq!(run.act(claim("n1")), [""; 0]);
    assert_eq!(run.act(claim("n2")), ["TASK_STARTED on n2"]);
    assert_eq!(run.task.node().map(AsRef::as_ref), Some("n2"));
    assert_eq!(run.after(Millis::from_secs(1)).act(claim("n3")), ["TASK_STARTED on n3", "STAGE_STARTED a 2"]);
}

#[test]
fn a_wake_before_anything_is_due_changes_nothing() {
    let mut run = Run::of(vec![stage("a")]);
    assert_eq!(run.act(Command::Wake), [""; 0], "PENDING");
    run.claim();
    assert_eq!(run.act(Command::Wake), [""; 0], "a stage runs");
    run.fails("a");
    assert_eq!(run.act(Command::Wake), [""; 0], "a stage waits");
    run.after(Millis::new(999));
    assert_eq!(run.act(Command::Wake), [""; 0], "a stage still waits");
    run.after(Millis::new(1));
    assert_eq!(run.act(Command::Wake), ["STAGE_STARTED a 2"]);
}

#[test]
fn every_event_carries_the_instant_of_the_decision() {
    let mut run = Run::of(vec![stage("a")]);
    run.after(Millis::new(123)).claim();

    assert!(run.log.iter().all(|record| record.at() == run.now));
    assert!(matches!(run.log[0].event(), Event::TaskStarted { .. }));
}

#[test]
fn what_a_running_stage_reports_of_itself_moves_the_task_within_that_stages_share_only() {
    let mut run = Run::of(chain([stage("a"), stage("b"), stage("c"), stage("d")]));
    run.claim();
    run.succeeds("a");
    let percent = |progress| TaskView::new(&run.task, TaskContext { progress, ..TaskContext::default() }).percent;

    assert_eq!(percent(None), 25.0);
    assert_eq!(percent(Some((1, 2))), 37.5);
    assert_eq!(percent(Some((5, 2))), 50.0, "more than all is all");
    assert_eq!(percent(Some((3, 0))), 25.0, "of nothing is nothing");
}
