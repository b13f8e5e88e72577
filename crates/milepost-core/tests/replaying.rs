//! A recorded log against today's rules: what is compared, and what is said of the first difference.

#[allow(dead_code, reason = "each test binary uses its own part")]
mod support;

use milepost_core::plan::Settings;
use milepost_core::task::{Claim, Command, Decided, Difference, Event, Record, TaskStatus, replay};
use milepost_core::time::Millis;

use support::{Run, START, by, by_message, chain, fatal, message, spec, stage};

fn log(run: &Run) -> Vec<Record> {
    let created = Record::new(START, Event::TaskCreated {});
    [created].into_iter().chain(run.log.iter().cloned()).collect()
}

/// One stage that fails once and then succeeds, and one that fails for good.
fn recorded() -> Run {
    let mut run = Run::of(chain([stage("a"), stage("b")]));
    run.claim();
    run.fails("a");
    run.after(Millis::from_secs(1)).act(milepost_core::task::Command::Wake);
    run.succeeds("a");
    run.fails_for_good("b");
    run
}

#[test]
fn a_log_replays_against_the_rules_that_made_it() {
    let run = recorded();
    assert_eq!(replay(run.task.spec().clone(), &log(&run)), Ok(log(&run).len() as u64));
}

/// A message that came too late, a redrive of it, one that was claimed too late, and a retry.
#[test]
fn what_messages_did_replays() {
    let second = Millis::from_secs(1);
    let claim = || Command::Claim(Claim { node: "n1".into(), lost_by: None, automatic: false });
    let mut run = Run::with(by_message(), chain([stage("a")]));
    run.act(Command::Receive(message("m1", Some(START - second))));
    run.act(Command::Redrive { by: by(), message: message("m2", Some(START)) });
    run.after(second).act(claim());
    run.act(Command::Retry { by: by(), from_checkpoint: true });
    run.act(claim());
    run.fails_for_good("a");
    assert_eq!(replay(run.task.spec().clone(), &log(&run)), Ok(log(&run).len() as u64));
}

/// A stage has failed and another was cut off: asked to pause once more, the task fails, and leaves no pause behind.
#[test]
fn a_second_pause_of_a_task_that_nobody_has_replays() {
    let mut run = Run::of(vec![stage("a"), stage("b")]);
    run.claim();
    run.fails_for_good("a");
    run.act(Command::Pause(by()));
    run.act(Command::Interrupt { reason: "the node was stopped".to_owned() });
    run.act(Command::Pause(by()));
    assert_eq!(run.task.status(), TaskStatus::Failed);
    assert_eq!(replay(run.task.spec().clone(), &log(&run)), Ok(log(&run).len() as u64));
}

#[test]
fn another_delay_is_a_difference_that_shows_both_sides() {
    let run = recorded();
    let mut stages = chain([stage("a"), stage("b")]);
    stages[0].retry.base = Millis::from_secs(2);
    let Difference { sequence, recorded, decided } =
        *replay(spec(Settings::default(), stages), &log(&run)).unwrap_err();
    assert_eq!(sequence, 4);
    let Some(Event::RetryScheduled { delay: was, attempt: 2, .. }) = recorded.as_ref().map(Record::event) else {
        panic!("{recorded:?}")
    };
    let Decided::Event(decided) = decided else { panic!("{decided:?}") };
    let Event::RetryScheduled { delay: is, attempt: 2, .. } = decided.event() else { panic!("{decided:?}") };
    assert_eq!((*was, *is), (Millis::from_secs(1), Millis::from_secs(2)));
}

#[test]
fn fewer_attempts_are_a_difference_where_the_last_one_failed() {
    let run = recorded();
    let mut stages = chain([stage("a"), stage("b")]);
    stages[0].retry.max_attempts = 1;
    let difference = replay(spec(Settings::default(), stages), &log(&run)).unwrap_err();
    let Decided::Event(decided) = difference.decided else { panic!("{difference:?}") };
    assert_eq!((difference.sequence, decided.event().kind()), (4, "STAGE_FAILED"));
}

#[test]
fn a_stage_that_the_plan_does_not_have_is_a_difference_where_the_log_starts_it() {
    let run = recorded();
    let stages = chain([stage("a"), stage("c")]);
    let difference = replay(spec(Settings::default(), stages), &log(&run)).unwrap_err();
    assert_eq!(difference.recorded.as_ref().map(|record| record.event().stage().unwrap().as_str()), Some("b"));
    let Decided::Event(decided) = difference.decided else { panic!("{difference:?}") };
    assert_eq!(decided.event().stage().unwrap().as_str(), "c");
}

#[test]
fn a_log_that_lacks_an_event_or_has_one_too_many_is_a_difference() {
    let run = recorded();
    let (whole, spec) = (log(&run), run.task.spec());
    let mut short = whole.clone();
    short.pop();
    let difference = replay(spec.clone(), &short).unwrap_err();
    assert_eq!((difference.sequence, difference.recorded), (whole.len() as u64, None));
    let mut long = whole;
    let cause = milepost_core::task::Cause::from(&fatal());
    long.push(Record::new(run.now, Event::TaskFailed { stage: None, attempts: None, cause }));
    let difference = replay(spec.clone(), &long).unwrap_err();
    assert_eq!((difference.sequence, difference.decided), (long.len() as u64, Decided::Nothing));
    assert_eq!(replay(spec.clone(), &[]).unwrap_err().sequence, 1);
}
