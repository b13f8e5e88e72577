//! The checkpoint as the outside reads and writes it: its spellings, the rules that make it valid, and its life.

#[allow(dead_code, reason = "each test binary uses its own part")]
mod support;

use milepost_core::id::StageName;
use milepost_core::task::{
    Checkpoint, Command, FRESH_FOR, InvalidCheckpoint, StageResult, TaskContext, TaskStatus, TaskView,
};
use milepost_core::time::Millis;
use serde_json::{Value, json};

use support::{DAY, Run, START, StageWords, by, chain, retry, stage};

fn names(checkpoint: &Checkpoint) -> Vec<&str> {
    checkpoint.completed_stage_names.iter().map(StageName::as_str).collect()
}

fn stages() -> Vec<milepost_core::plan::StageDefinition> {
    chain([stage("stage-1"), stage("stage-2"), stage("stage-3")])
}

fn read(value: Value) -> Checkpoint {
    serde_json::from_value(value).unwrap()
}

fn with(index: i64, names: &[&str]) -> Checkpoint {
    read(json!({ "lastCompletedStageIndex": index, "completedStageNames": names, "timestamp": START }))
}

// --- reading and writing ---

#[test]
fn a_checkpoint_is_written_with_the_first_spelling_of_each_field() {
    let mut run = Run::of(chain([stage("a"), stage("b").attempts(2), stage("c")]));
    run.claim();
    run.after(Millis::new(250)).ended("a", StageResult::Success(json!({ "id": 7 }).as_object().unwrap().clone()));
    run.after(Millis::new(40)).fails("b");

    let written = serde_json::to_value(Checkpoint::of(&run.task).unwrap()).unwrap();

    assert_eq!(
        written,
        json!({
            "lastCompletedStageIndex": 0,
            "completedStageNames": ["a"],
            "customData": { "a": { "id": 7 } },
            "timestamp": "2025-11-24T16:00:00.250Z",
            "version": 6,
            "executorInstance": "n1",
            "stageDurations": { "a": 250, "b": 40 },
            "failureHistory": [{
                "failedAt": "b",
                "attempt": 1,
                "errorType": "NETWORK",
                "reason": "connection refused",
                "timestamp": "2025-11-24T16:00:00.290Z",
            }],
        })
    );
}

#[test]
fn both_spellings_are_read_as_the_same_and_both_are_written_back_as_the_first() {
    let first = json!({
        "lastCompletedStageIndex": 1,
        "completedStageNames": ["stage-1", "stage-2"],
        "customData": { "stage-1": { "id": 7 } },
        "timestamp": "2025-11-23T10:10:00Z",
    });
    let second = json!({
        "lastCompletedStageIndex": 1,
        "completedStages": ["stage-1", "stage-2"],
        "contextData": { "stage-1": { "id": 7 } },
        "savedAt": "2025-11-23T10:10:00",
    });

    assert_eq!(read(first.clone()), read(second.clone()), "and a time without a zone is UTC");
    for checkpoint in [read(first), read(second)] {
        let written = serde_json::to_value(&checkpoint).unwrap();
        for key in ["completedStageNames", "customData", "timestamp"] {
            assert!(written.get(key).is_some(), "{key}");
        }
        for alias in ["completedStages", "contextData", "savedAt"] {
            assert!(written.get(alias).is_none(), "{alias}");
        }
        assert_eq!(read(written), checkpoint);
    }
}

// --- the rules ---

#[test]
fn a_checkpoint_whose_names_are_as_many_as_its_index_says_fits() {
    for done in 1..=3 {
        let all = ["stage-1", "stage-2", "stage-3"];
        let checkpoint = with(done as i64 - 1, &all[..done]);
        assert_eq!(checkpoint.fits(&stages()), Ok(()));
        assert_eq!(checkpoint.start_index(), done);
    }
}

#[test]
fn the_index_must_be_that_of_a_stage() {
    for index in [-1, 3, i64::MIN, i64::MAX] {
        let names = vec!["stage-1"; usize::try_from(index + i64::from(index < 3)).unwrap_or(0).min(4)];
        let invalid = with(index, &names).fits(&stages());
        assert_eq!(invalid, Err(InvalidCheckpoint::Index { index, stages: 3 }));
    }
    assert_eq!(with(i64::MAX, &[]).start_index(), i64::MAX as usize, "and no index overflows");
    assert_eq!(with(i64::MIN, &[]).start_index(), 0);
    assert!(with(0, &["stage-1"]).fits(&[]).is_err(), "without stages none is");
}

#[test]
fn the_sample_with_index_2_and_two_names_is_invalid() {
    let sample = read(json!({
        "lastCompletedStageIndex": 2,
        "completedStages": ["stage-1", "stage-2"],
        "contextData": {},
        "savedAt": "2025-11-23T10:10:00",
    }));

    let invalid = sample.fits(&stages()).unwrap_err();

    assert_eq!(invalid, InvalidCheckpoint::Length { names: 2, index: 2 });
    assert_eq!(invalid.to_string(), "it names 2 completed stages, but its last completed stage is number 2");
}

#[test]
fn more_names_than_the_index_says_are_invalid_too() {
    let invalid = with(0, &["stage-1", "stage-2"]).fits(&stages());
    assert_eq!(invalid, Err(InvalidCheckpoint::Length { names: 2, index: 0 }));
}

#[test]
fn every_name_must_be_that_of_a_stage() {
    let name = StageName::parse("gone").unwrap();
    assert_eq!(with(1, &["stage-1", "gone"]).fits(&stages()), Err(InvalidCheckpoint::Name { name }));
}

#[test]
fn a_checkpoint_is_fresh_for_seven_days() {
    let checkpoint = with(0, &["stage-1"]);

    assert_eq!(FRESH_FOR, Millis::new(7 * DAY.get()));
    assert_eq!(checkpoint.is_fresh(START + FRESH_FOR), Ok(()));
    assert_eq!(checkpoint.is_fresh(START - DAY), Ok(()), "a clock that runs behind makes nothing old");
    let stale = Err(InvalidCheckpoint::Stale { saved: START });
    assert_eq!(checkpoint.is_fresh(START + FRESH_FOR + Millis::new(1)), stale);
}

#[test]
fn only_a_newer_version_replaces_a_stored_one() {
    let checkpoint = Checkpoint { version: 5, ..with(0, &["stage-1"]) };

    assert_eq!(checkpoint.is_newer_than(4), Ok(()));
    assert_eq!(checkpoint.is_newer_than(5), Err(InvalidCheckpoint::Version { found: 5, stored: 5 }));
    assert!(checkpoint.is_newer_than(6).is_err());
}

// --- its life ---

fn has_checkpoint(run: &Run) -> bool {
    let shown = TaskView::new(&run.task, TaskContext::default()).has_checkpoint;
    assert_eq!(shown, Checkpoint::of(&run.task).is_some());
    shown
}

#[test]
fn there_is_none_until_a_stage_is_done_also_when_the_first_one_fails() {
    let mut run = Run::of(chain([stage("a").attempts(1), stage("b")]));
    assert!(!has_checkpoint(&run));
    run.claim();
    assert!(!has_checkpoint(&run));
    run.fails("a");
    assert_eq!(run.task.status(), TaskStatus::Failed);
    assert!(!has_checkpoint(&run));
}

#[test]
fn a_skipped_stage_makes_one_too() {
    let mut run = Run::of(chain([stage("a"), stage("b")]));
    run.claim();
    run.ended("a", StageResult::Skip("nothing to do".to_owned()));

    assert_eq!(names(&Checkpoint::of(&run.task).unwrap()), ["a"]);
}

#[test]
fn its_index_is_the_number_of_done_stages_less_one_in_whatever_order_they_ended() {
    let mut run = Run::of(vec![stage("a"), stage("b"), stage("c")]);
    run.claim();
    run.succeeds("c");
    run.succeeds("a");

    let checkpoint = Checkpoint::of(&run.task).unwrap();
    assert_eq!(checkpoint.last_completed_stage_index, 1);
    assert_eq!(names(&checkpoint), ["c", "a"]);
}

#[test]
fn it_is_gone_when_the_task_is_completed() {
    let mut run = Run::of(chain([stage("a"), stage("b")]));
    run.claim();
    run.succeeds("a");
    assert!(has_checkpoint(&run));
    run.succeeds("b");
    assert!(!has_checkpoint(&run));
}

fn failed_at_b() -> Run {
    let mut run = Run::of(chain([stage("a").undoable(), stage("b").attempts(1), stage("c")]));
    run.claim();
    run.succeeds("a");
    run.fails("b");
    run
}

#[test]
fn it_is_gone_when_the_task_is_rolled_back() {
    let mut run = failed_at_b();
    run.act(Command::Rollback(by()));
    assert!(has_checkpoint(&run), "until something is undone");
    run.claim();
    run.succeeds("a");
    assert!(!has_checkpoint(&run));
}

#[test]
fn it_is_kept_when_the_task_fails_pauses_or_is_cancelled() {
    let failed = failed_at_b();
    assert!(has_checkpoint(&failed));

    for end in [Command::Pause(by()), Command::Cancel(by())] {
        let mut run = Run::of(chain([stage("a"), stage("b")]));
        run.claim();
        run.succeeds("a");
        run.fails("b");
        run.act(end);
        assert!(has_checkpoint(&run), "{}", run.task.status());
    }
}

#[test]
fn across_a_manual_retry_it_still_lists_every_done_stage() {
    let mut run = failed_at_b();
    run.act(retry(true));
    assert_eq!(names(&Checkpoint::of(&run.task).unwrap()), ["a"]);
    run.claim();
    run.succeeds("b");

    let checkpoint = Checkpoint::of(&run.task).unwrap();
    assert_eq!(names(&checkpoint), ["a", "b"]);
    assert_eq!(checkpoint.last_completed_stage_index, 1);
    assert_eq!(checkpoint.failure_history.len(), 1, "and what failed before");
}

#[test]
fn a_retry_from_the_start_forgets_it() {
    let mut run = failed_at_b();
    run.act(retry(false));
    assert!(!has_checkpoint(&run));
}

#[test]
fn its_version_only_grows_and_its_time_is_that_of_the_last_done_stage() {
    let mut run = Run::of(chain([stage("a"), stage("b"), stage("c")]));
    run.claim();
    run.after(Millis::from_secs(1)).succeeds("a");
    let first = Checkpoint::of(&run.task).unwrap();
    run.after(Millis::from_secs(1)).fails("b");
    let second = Checkpoint::of(&run.task).unwrap();

    assert_eq!(second.is_newer_than(first.version), Ok(()));
    assert_eq!(first.timestamp, START + Millis::from_secs(1));
    assert_eq!(second.timestamp, first.timestamp);
}

#[test]
fn it_shows_the_twenty_latest_failures() {
    let mut run = Run::of(chain([stage("a"), stage("b").attempts(30)]));
    run.claim();
    run.succeeds("a");
    for _ in 0..25 {
        run.fails("b");
        run.after(Millis::from_secs(1)).act(Command::Wake);
    }

    let history = Checkpoint::of(&run.task).unwrap().failure_history;
    assert_eq!(history.iter().map(|failure| failure.attempt).collect::<Vec<_>>(), (6..=25).collect::<Vec<u32>>());
}
