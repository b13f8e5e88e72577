//! Tasks of which something cannot be read: nothing is decided on them until a person gives them up.

use std::sync::Arc;

use milepost_core::plan::Settings;
use milepost_core::task::{Command, Event, Record, Rejection, StageStatus, Task, TaskSpec, TaskStatus, decide};

use crate::support::{Run, START, by, chain, retry, spec, stage};

fn lost() -> Event {
    Event::EventLost { reason: "its row fails its checksum".to_owned() }
}

/// One stage is done; then comes an event that cannot be read.
fn damaged() -> Run {
    let mut run = Run::with(Settings::default(), chain([stage("a"), stage("b")]));
    run.claim();
    run.succeeds("a");
    run.task = run.task.clone().apply(&Record::new(run.now, lost())).unwrap();
    run
}

#[test]
fn nothing_but_a_repair_is_decided_on_a_damaged_task() {
    let run = damaged();
    let refused = |command| decide(&run.task, command, run.now).expect_err("it is damaged");
    for command in [Command::Cancel(by()), Command::Pause(by()), retry(false), Command::Rollback(by()), Command::Wake] {
        let rejection = refused(command);
        assert!(matches!(&rejection, Rejection::Damaged { .. }), "{rejection}");
        assert!(rejection.to_string().contains("milepost store repair --task"), "{rejection}");
    }
}

#[test]
fn what_follows_a_lost_event_is_counted_and_means_nothing() {
    let run = damaged();
    let after = run.task.clone().apply(&Record::new(run.now, Event::TaskCompleted { result: None })).unwrap();
    assert_eq!((after.version(), after.status()), (run.task.version() + 1, TaskStatus::Running));
    assert_eq!(after.damage(), Some("its row fails its checksum"));
}

#[test]
fn a_repair_ends_it_as_failed_and_keeps_what_was_read() {
    let mut run = damaged();
    assert_eq!(run.act(Command::Repair(by())), ["TASK_REPAIRED", "TASK_FAILED"]);
    assert_eq!((run.task.status(), run.task.damage(), run.task.was_repaired()), (TaskStatus::Failed, None, true));
    assert_eq!(run.task.stage(0).1.status, StageStatus::Completed);
    assert!(run.task.failure().unwrap().cause.reason.contains("its row fails its checksum"));
    let image = Task::from_image(run.task.spec().clone(), &run.task.image()).unwrap();
    assert_eq!(image, run.task);
}

#[test]
fn a_repaired_task_runs_again_from_its_start_and_in_no_other_way() {
    let mut run = damaged();
    run.act(Command::Repair(by()));
    for command in [retry(true), Command::Rollback(by())] {
        let rejection = decide(&run.task, command, run.now).expect_err("what it has done is not known");
        assert!(rejection.to_string().contains("--from-start"), "{rejection}");
    }
    let lost = run.task.version();
    run.act(retry(false));
    assert_eq!((run.task.status(), run.task.was_repaired(), run.task.done().len()), (TaskStatus::Pending, false, 0));
    assert!(u64::from(run.task.run()) > lost - 2, "no lost event can have begun a run of this number");
}

#[test]
fn what_is_whole_or_has_ended_for_good_is_not_repaired() {
    let mut run = Run::with(Settings::default(), chain([stage("a")]));
    assert!(
        decide(&run.task, Command::Repair(by()), run.now).unwrap_err().to_string().contains("nothing of it is damaged")
    );
    run.claim();
    run.succeeds("a");
    run.task.mark_damaged("a row is missing");
    assert!(decide(&run.task, Command::Repair(by()), run.now).unwrap_err().to_string().contains("COMPLETED"));
}

#[test]
fn a_task_without_its_definition_can_be_given_up_and_no_more() {
    let whole = Arc::into_inner(spec(Settings::default(), chain([stage("a")]))).unwrap();
    let spec = TaskSpec { damage: Some("its definition fails its checksum".to_owned()), ..whole };
    let task = Task::created(Arc::new(spec));
    let repaired = decide(&task, Command::Repair(by()), START).unwrap().task;
    assert_eq!(repaired.status(), TaskStatus::Failed);
    let rejection = decide(&repaired, retry(false), START).unwrap_err();
    assert!(rejection.to_string().contains("submit the work as a new task"), "{rejection}");
}
