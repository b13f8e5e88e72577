//! Pausing at the stage boundary, and taking it back.

use milepost_core::task::{Command, StageStatus, TaskContext, TaskStatus, TaskView};
use milepost_core::time::Millis;

use crate::support::{Run, StageWords, by, chain, stage};

fn pause() -> Command {
    Command::Pause(by())
}

fn resume() -> Command {
    Command::Resume(by())
}

#[test]
fn a_pause_lets_the_running_stage_finish_and_takes_effect_before_the_next() {
    let mut run = Run::of(chain([stage("a"), stage("b")]));
    run.claim();

    assert_eq!(run.act(pause()), ["PAUSE_REQUESTED"]);
    assert!(run.task.pause_requested().is_some());
    assert_eq!(run.act(pause()), [""; 0], "asking twice is asking once");
    assert_eq!(run.succeeds("a"), ["STAGE_COMPLETED a 1", "TASK_PAUSED"]);
    assert_eq!(run.task.status(), TaskStatus::Paused);
    assert_eq!(run.act(pause()), [""; 0], "it is paused already");
}

#[test]
fn a_pause_waits_for_every_parallel_stage() {
    let mut run = Run::of(vec![stage("a"), stage("b"), stage("c").needs(&[0])]);
    run.claim();
    run.act(pause());

    assert_eq!(run.succeeds("a"), ["STAGE_COMPLETED a 1"], "b runs, and c does not start");
    assert_eq!(run.fails("b"), ["RETRY_SCHEDULED b 2 after 1s", "TASK_PAUSED"]);
}

#[test]
fn a_task_that_waits_for_a_retry_pauses_at_once_and_its_retry_is_still_due_after_the_resume() {
    let mut run = Run::of(vec![stage("a")]);
    run.claim();
    run.fails("a");

    assert_eq!(run.act(pause()), ["PAUSE_REQUESTED", "TASK_PAUSED"]);
    assert_eq!(run.task.next_due(), None, "nothing starts in a paused task");
    run.after(Millis::from_secs(1));
    assert_eq!(run.act(Command::Wake), [""; 0]);
    assert_eq!(run.act(resume()), ["TASK_RESUMED"]);
    assert_eq!(run.task.status(), TaskStatus::Pending);
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED a 2"]);
}

#[test]
fn a_retry_that_is_not_due_yet_at_the_resume_is_waited_for() {
    let mut run = Run::of(vec![stage("a")]);
    run.claim();
    run.fails("a");
    let due = run.task.next_due();
    run.act(pause());
    run.act(resume());

    assert_eq!(run.claim(), ["TASK_STARTED on n1"]);
    assert_eq!(run.task.next_due(), due);
}

#[test]
fn a_pending_task_pauses_at_once() {
    let mut run = Run::of(vec![stage("a")]);

    assert_eq!(run.act(pause()), ["TASK_PAUSED"]);
    assert_eq!(run.act(resume()), ["TASK_RESUMED"]);
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED a 1"]);
}

#[test]
fn a_pause_during_the_last_stage_comes_too_late_and_the_task_completes() {
    let mut run = Run::of(vec![stage("a")]);
    run.claim();
    run.act(pause());

    assert_eq!(run.succeeds("a"), ["STAGE_COMPLETED a 1", "TASK_COMPLETED"]);
    assert!(!TaskView::new(&run.task, TaskContext::default()).pause_requested, "nobody waits for a pause any more");
}

#[test]
fn a_task_whose_stage_fails_for_good_while_a_pause_is_pending_fails() {
    let mut run = Run::of(vec![stage("a")]);
    run.claim();
    run.act(pause());

    assert_eq!(run.fails_for_good("a"), ["STAGE_FAILED a 1", "TASK_FAILED at a"]);
    assert!(run.task.pause_requested().is_none());
}

#[test]
fn a_resume_takes_back_a_pause_that_had_not_come_into_effect() {
    let mut run = Run::of(vec![stage("a"), stage("b"), stage("c").needs(&[0])]);
    run.claim();
    run.act(pause());
    run.succeeds("a");

    assert_eq!(run.act(resume()), ["TASK_RESUMED", "STAGE_STARTED c 1"], "what became ready meanwhile starts now");
    assert_eq!(run.task.status(), TaskStatus::Running);
    assert_eq!(run.succeeds("c"), ["STAGE_COMPLETED c 1"]);
    assert_eq!(run.succeeds("b"), ["STAGE_COMPLETED b 1", "TASK_COMPLETED"]);
}

#[test]
fn a_paused_task_goes_on_where_it_stopped() {
    let mut run = Run::of(chain([stage("a"), stage("b")]));
    run.claim();
    run.act(pause());
    run.succeeds("a");
    run.act(resume());

    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED b 1"]);
}

#[test]
fn a_paused_task_is_not_claimed() {
    let mut run = Run::of(vec![stage("a")]);
    run.act(pause());
    let claim = milepost_core::task::Claim { node: "n1".into(), lost_by: None, automatic: false };

    assert_eq!(run.refused(Command::Claim(claim)), "cannot run task task: it is PAUSED");
}

#[test]
fn a_pause_that_was_asked_for_before_the_node_went_away_takes_effect_at_the_take_over() {
    let mut run = Run::of(chain([stage("a"), stage("b")]));
    run.claim();
    run.act(pause());

    assert_eq!(run.crash(), ["TASK_INTERRUPTED and taken by n2", "TASK_PAUSED"], "nothing runs, so nothing starts");
    run.act(resume());
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED a 1"], "the cut-off attempt is repeated");
}

#[test]
fn an_interrupted_task_pauses_at_once() {
    let mut run = Run::of(vec![stage("a")]);
    run.claim();
    run.act(Command::Interrupt { reason: "stopped".to_owned() });

    assert_eq!(run.act(pause()), ["PAUSE_REQUESTED", "TASK_PAUSED"]);
    assert!(!run.task.interrupted());
}

#[test]
fn a_task_that_was_asked_to_pause_and_then_cut_off_pauses_when_it_is_asked_again() {
    let mut run = Run::of(chain([stage("a"), stage("b")]));
    run.claim();
    run.act(pause());
    run.act(Command::Interrupt { reason: "cut off".to_owned() });

    assert_eq!(run.act(pause()), ["TASK_PAUSED"]);
    let view = TaskView::new(&run.task, TaskContext { progress: Some((1, 2)), ..TaskContext::default() });
    assert_eq!((view.percent, view.stages[0].status), (25.0, StageStatus::Pending), "it will begin anew");
    run.act(resume());
    assert_eq!(run.claim(), ["TASK_STARTED on n1", "STAGE_STARTED a 1"], "under the same number");
}

#[test]
fn a_paused_task_may_be_cancelled_or_rolled_back() {
    let mut run = Run::of(chain([stage("a").undoable(), stage("b")]));
    run.claim();
    run.act(pause());
    run.succeeds("a");

    assert_eq!(run.act(Command::Cancel(by())), ["TASK_CANCELLED"]);
    assert_eq!(run.status_of("a"), StageStatus::Completed);
}
