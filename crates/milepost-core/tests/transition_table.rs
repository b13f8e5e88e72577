//! The transition tables as people read them: every status, every event, every verb. A change here is a change of the rules.

#[allow(dead_code, reason = "each test binary uses its own part")]
mod support;

use std::fmt::Write;
use std::sync::Arc;

use milepost_core::failure::ErrorType;
use milepost_core::id::StageName;
use milepost_core::plan::{PlanCommand, Settings, TaskCounts, Trigger, next_plan_status};
use milepost_core::task::{Cause, Claim, Command, Event, PlanStatus, TaskStatus, next_status};
use milepost_core::time::Millis;

use support::{Run, StageWords, by, by_message, chain, message, retry, stage};

/// One event of every kind, with a name for the table where the kind alone does not tell.
fn events() -> Vec<(String, Event)> {
    let stage = StageName::parse("a").unwrap();
    let node: Arc<str> = "n1".into();
    let cause = Cause { error_type: ErrorType::Unknown, reason: "boom".to_owned() };
    let (attempt, delay, reason, outputs) = (1, Millis::ZERO, "why".to_owned(), Arc::default());
    let mut events = vec![
        Event::TaskCreated {},
        Event::TaskStarted { node: node.clone() },
        Event::StageCompleted { stage: stage.clone(), attempt, outputs },
        Event::StageSkipped { stage: stage.clone(), reason: reason.clone() },
        Event::PauseRequested { by: by() },
        Event::TaskPaused { by: None },
        Event::TaskResumed { by: by() },
        Event::TaskCompleted { result: None },
        Event::TaskFailed { stage: None, attempts: None, cause: cause.clone() },
        Event::TaskCancelled { by: by() },
        Event::TaskInterrupted { node, reason: reason.clone(), taken_by: None, automatic: false },
        Event::TaskRetried { by: by(), from_checkpoint: true },
        Event::RollbackStarted { by: None },
        Event::StageRolledBack { stage: stage.clone() },
        Event::TaskRolledBack {},
        Event::RollbackFailed { reason: reason.clone() },
        Event::CheckpointDiscarded { reason: reason.clone() },
        Event::EventLost { reason: reason.clone() },
        Event::TaskRepaired { by: by(), reason: reason.clone() },
        Event::DeadLettered { reason },
        Event::MessageReceived { message: message("m1", None) },
        Event::SignalReceived { name: stage.clone(), payload: serde_json::Value::Null, by: by(), id: None },
        Event::ValueRecorded { name: "now".to_owned(), value: serde_json::Value::Null },
        Event::TaskContinued { input: Arc::default() },
    ];
    for rollback in [false, true] {
        let (stage, cause) = (stage.clone(), cause.clone());
        events.push(Event::StageStarted { stage: stage.clone(), attempt, rollback, step: None });
        events.push(Event::StageFailed { stage: stage.clone(), attempt, cause: cause.clone(), rollback });
        events.push(Event::RetryScheduled { stage, attempt, delay, cause, rollback });
    }
    events.into_iter().map(|event| (name(&event), event)).collect()
}

fn name(event: &Event) -> String {
    let undo = match event {
        Event::StageStarted { rollback, .. }
        | Event::StageFailed { rollback, .. }
        | Event::RetryScheduled { rollback, .. } => *rollback,
        _ => false,
    };
    format!("{}{}", event.kind(), if undo { " (undo)" } else { "" })
}

#[test]
fn what_each_event_makes_of_each_task_status() {
    let mut table = String::new();
    for status in TaskStatus::ALL {
        for interrupted in [false, true] {
            if interrupted && !status.is_active() {
                continue;
            }
            writeln!(table, "{status}{}", if interrupted { ", interrupted" } else { "" }).unwrap();
            for (name, event) in events() {
                if let Some(next) = next_status(*status, interrupted, &event) {
                    writeln!(table, "  {name:<24} {next}").unwrap();
                }
            }
        }
    }
    insta::assert_snapshot!(table);
}

/// A task in each status, in the most usual way there.
fn task_in(settings: &Settings, status: TaskStatus, interrupted: bool) -> Run {
    let mut run = Run::with(settings.clone(), chain([stage("a").undoable(), stage("b").attempts(1)]));
    if settings.trigger == Trigger::Message && status != TaskStatus::Pending {
        run.act(Command::Receive(message("m1", None)));
    }
    let failed = |run: &mut Run| {
        run.claim();
        run.succeeds("a");
        run.fails("b");
    };
    match status {
        TaskStatus::Pending => {}
        TaskStatus::Running => {
            run.claim();
        }
        TaskStatus::Paused => {
            run.claim();
            run.act(Command::Pause(by()));
            run.succeeds("a");
        }
        TaskStatus::Completed => {
            run.claim();
            run.succeeds("a");
            run.succeeds("b");
        }
        TaskStatus::Failed => failed(&mut run),
        TaskStatus::Cancelled => {
            run.act(Command::Cancel(by()));
        }
        TaskStatus::RollingBack | TaskStatus::RolledBack | TaskStatus::RollbackFailed => {
            failed(&mut run);
            run.act(Command::Rollback(by()));
            run.claim();
            if status == TaskStatus::RolledBack {
                run.succeeds("a");
            } else if status == TaskStatus::RollbackFailed {
                run.fails_for_good("a");
            }
        }
    }
    if interrupted {
        run.act(Command::Interrupt { reason: "stopped".to_owned() });
    }
    assert_eq!((run.task.status(), run.task.interrupted()), (status, interrupted));
    run
}

#[test]
fn what_each_command_comes_to_in_each_task_status() {
    let claim = |lost: bool| Claim { node: "n2".into(), lost_by: lost.then(|| "n1".into()), automatic: true };
    let commands = [
        ("claim", Command::Claim(claim(false))),
        ("take over", Command::Claim(claim(true))),
        ("wake", Command::Wake),
        ("time out", Command::TimeOut),
        ("interrupt", Command::Interrupt { reason: "stopped".to_owned() }),
        ("pause", Command::Pause(by())),
        ("resume", Command::Resume(by())),
        ("resume, held back", Command::LetGo(by())),
        ("cancel", Command::Cancel(by())),
        ("retry", retry(true)),
        ("retry --from-start", retry(false)),
        ("rollback", Command::Rollback(by())),
        ("repair", Command::Repair(by())),
        ("store lost", Command::StoreLost),
    ];
    insta::assert_snapshot!(answers(&Settings::default(), &commands));
}

#[test]
fn what_each_command_comes_to_for_a_task_that_a_message_sets_off() {
    let commands = [
        ("claim", Command::Claim(Claim { node: "n2".into(), lost_by: None, automatic: true })),
        ("receive", Command::Receive(message("m2", None))),
        ("redrive", Command::Redrive { by: by(), message: message("m2", None) }),
        ("pause", Command::Pause(by())),
        ("cancel", Command::Cancel(by())),
        ("retry", retry(true)),
        ("store lost", Command::StoreLost),
    ];
    insta::assert_snapshot!(answers(&by_message(), &commands));
}

fn answers(settings: &Settings, commands: &[(&str, Command)]) -> String {
    let mut table = String::new();
    for status in TaskStatus::ALL {
        for interrupted in [false, true] {
            if interrupted && !status.is_active() {
                continue;
            }
            writeln!(table, "{status}{}", if interrupted { ", interrupted" } else { "" }).unwrap();
            for (name, command) in commands {
                let answer = match task_in(settings, *status, interrupted).try_to(command.clone()) {
                    Ok(events) if events.is_empty() => "nothing".to_owned(),
                    Ok(events) => events.join(", "),
                    Err(rejection) => format!("refused: {rejection}"),
                };
                writeln!(table, "  {name:<18} {answer}").unwrap();
            }
        }
    }
    table
}

#[test]
fn what_each_command_makes_of_each_plan_status() {
    let counts = |statuses: &[TaskStatus]| {
        let mut counts = TaskCounts::default();
        statuses.iter().for_each(|status| counts.add(*status, 1));
        counts
    };
    let busy = counts(&[TaskStatus::Completed, TaskStatus::Running]);
    let commands = [
        ("start", PlanCommand::Start, busy),
        ("pause", PlanCommand::Pause, busy),
        ("resume", PlanCommand::Resume, busy),
        ("cancel", PlanCommand::Cancel, busy),
        ("retry", PlanCommand::Retry, busy),
        ("reset-failed", PlanCommand::Reset, busy),
        ("retry its tasks", PlanCommand::RetryTasks, busy),
        ("change its tasks", PlanCommand::ChangeTasks, busy),
        ("settle, one to run", PlanCommand::Settle, busy),
        ("settle, all completed", PlanCommand::Settle, counts(&[TaskStatus::Completed, TaskStatus::Completed])),
        ("settle, one failed", PlanCommand::Settle, counts(&[TaskStatus::Completed, TaskStatus::Failed])),
        ("settle, one cancelled", PlanCommand::Settle, counts(&[TaskStatus::Completed, TaskStatus::Cancelled])),
        ("settle, one rolled back", PlanCommand::Settle, counts(&[TaskStatus::Completed, TaskStatus::RolledBack])),
    ];
    let mut table = String::new();
    for status in PlanStatus::ALL {
        writeln!(table, "{status}").unwrap();
        for (name, command, counts) in &commands {
            let answer = match next_plan_status("p", *status, counts, *command) {
                Ok(next) => next.to_string(),
                Err(rejection) => format!("refused: {rejection}"),
            };
            writeln!(table, "  {name:<24} {answer}").unwrap();
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn a_plan_is_open_while_any_task_may_still_run() {
    for status in TaskStatus::ALL {
        let mut counts = TaskCounts::default();
        counts.add(TaskStatus::Completed, 3);
        counts.add(*status, 1);
        assert_eq!(counts.open() > 0, !status.is_ended(), "{status}");
        assert_eq!(counts.total, 4);
    }
}

#[test]
fn a_plans_percent_is_that_of_its_completed_tasks_and_100_only_when_all_are() {
    let percent = |completed, failed| {
        let mut counts = TaskCounts::default();
        counts.add(TaskStatus::Completed, completed);
        counts.add(TaskStatus::Failed, failed);
        counts.percent()
    };
    assert_eq!(percent(0, 0), 0.0);
    assert_eq!(percent(1, 2), 33.3);
    assert_eq!(percent(99_999, 1), 99.9);
    assert_eq!(percent(7, 0), 100.0);
}
