//! How long what a stage said of its progress counts.

use std::sync::Arc;

use milepost_core::failure::ErrorType;
use milepost_core::id::StageName;
use milepost_core::task::{By, Cause, Event, Outputs, Record, TaskStatus, ends_progress, percent, percent_with, share};
use milepost_core::time::{Millis, Timestamp};

fn ends(status: TaskStatus, events: Vec<Event>) -> bool {
    let at = Timestamp::from_millis(0);
    let records: Vec<Record> = events.into_iter().map(|event| Record::new(at, event)).collect();
    ends_progress(status, &records)
}

fn stage() -> StageName {
    StageName::parse("s").unwrap()
}

fn cut_off() -> Event {
    let (node, reason): (Arc<str>, _) = ("n".into(), "stopped".to_owned());
    Event::TaskInterrupted { node, reason, taken_by: None, automatic: false }
}

#[test]
fn progress_stays_while_a_task_is_paused_or_cut_off_in_the_middle_of_a_stage() {
    let by = || By::new("ann");
    assert!(!ends(TaskStatus::Running, vec![Event::PauseRequested { by: by() }]));
    assert!(!ends(TaskStatus::Running, vec![cut_off()]));
    assert!(!ends(TaskStatus::Paused, vec![cut_off(), Event::TaskPaused { by: Some(by()) }]));
}

#[test]
fn progress_is_over_with_its_attempt_and_when_the_task_is_to_go_on() {
    let (by, cause) = (By::new("ann"), Cause { error_type: ErrorType::Network, reason: "no route".into() });
    let completed = || Event::StageCompleted { stage: stage(), attempt: 1, outputs: Outputs::default() };
    let delay = Millis::from_secs(1);
    let retry = Event::RetryScheduled { stage: stage(), attempt: 2, delay, cause, rollback: false };
    assert!(ends(TaskStatus::Running, vec![completed()]));
    assert!(ends(TaskStatus::Running, vec![retry]));
    assert!(ends(TaskStatus::Paused, vec![completed(), Event::TaskPaused { by: None }]), "at the boundary");
    assert!(ends(TaskStatus::Pending, vec![Event::TaskResumed { by: by.clone() }]));
    assert!(ends(TaskStatus::Pending, vec![Event::TaskRetried { by, from_checkpoint: true }]));
    assert!(ends(TaskStatus::Completed, vec![Event::TaskCompleted { result: None }]));
    assert!(ends(TaskStatus::Running, vec![Event::TaskStarted { node: "n".into() }]), "a claim begins anew");
}

#[test]
fn a_share_is_never_more_than_all_and_of_nothing_it_is_nothing() {
    assert_eq!([share(0, 0), share(5, 0), share(5, 10), share(20, 10)], [0.0, 0.0, 0.5, 1.0]);
    assert_eq!(share(u64::MAX, u64::MAX), 1.0);
    assert_eq!(percent(TaskStatus::Completed, 0, 0, [(0, 0)]), 100.0, "a stage without a row ends at 100");
    assert_eq!(percent(TaskStatus::Running, 0, 1, [(0, 0)]), 0.0);
    assert_eq!(percent_with(TaskStatus::Running, 0, 1, [1.0]), 99.9, "100 only when it is completed");
}
