//! What was heard of a plan from elsewhere, put as the feed of a node here would have put it.

use std::collections::HashMap;

use milepost_core::api::{StateMessage, TaskProgress};
use milepost_core::failure::ErrorType;
use milepost_core::id::{StageName, TaskId};
use milepost_core::task::{By, Cause, Event, EventView, Outputs, Record, TaskStatus};
use milepost_core::time::Millis;
use milepost_engine::FeedItem;
use serde::de::DeserializeOwned;

/// Tasks that have begun and not ended, as far as they were told of.
#[derive(Debug, Default)]
pub(super) struct Heard {
    tasks: HashMap<TaskId, Known>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    status: TaskStatus,
    done: usize,
    stages: usize,
}

impl Heard {
    pub(super) fn snapshot(&mut self, tasks: &[TaskProgress]) {
        self.tasks.clear();
        tasks.iter().for_each(|task| self.progress(task));
    }

    pub(super) fn progress(&mut self, task: &TaskProgress) {
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let (done, stages) = (size(task.completed_stages), size(task.total_stages));
        self.tasks.insert(task.task_id.clone(), Known { status: task.status, done, stages });
        self.forget_if_ended(&task.task_id);
    }

    /// None when nothing happened to a task that we know the words for.
    pub(super) fn state(&mut self, message: &StateMessage) -> Option<FeedItem> {
        let task = message.task_id.clone()?;
        let records: Vec<Record> = message.events.iter().filter_map(record).collect();
        let known = self.tasks.entry(task.clone()).or_insert(Known { status: TaskStatus::Pending, done: 0, stages: 0 });
        records.iter().for_each(|record| known.follow(record.event()));
        // What the events before it did is in the numbers; nobody counts a stage twice.
        known.stages = known.stages.max(known.done);
        let Known { status, done, stages } = *known;
        self.forget_if_ended(&task);
        let (plan, records) = (message.plan_id.clone(), records.into());
        Some(FeedItem::Task { plan, task, status, records, done, stages })
    }

    fn forget_if_ended(&mut self, task: &TaskId) {
        if self.tasks.get(task).is_some_and(|known| known.status.is_ended()) {
            self.tasks.remove(task);
        }
    }
}

impl Known {
    fn follow(&mut self, event: &Event) {
        match event {
            Event::TaskStarted { .. } => self.status = TaskStatus::Running,
            Event::StageCompleted { .. } | Event::StageSkipped { .. } => {
                self.status = TaskStatus::Running;
                self.done += 1;
            }
            Event::StageStarted { rollback, .. }
            | Event::StageFailed { rollback, .. }
            | Event::RetryScheduled { rollback, .. } => {
                self.status = if *rollback { TaskStatus::RollingBack } else { TaskStatus::Running };
            }
            Event::TaskPaused { .. } => self.status = TaskStatus::Paused,
            Event::TaskResumed { .. } if self.status == TaskStatus::Paused => self.status = TaskStatus::Pending,
            Event::TaskCompleted { .. } => self.status = TaskStatus::Completed,
            Event::TaskFailed { .. } => self.status = TaskStatus::Failed,
            Event::TaskCancelled { .. } => self.status = TaskStatus::Cancelled,
            Event::TaskRetried { from_checkpoint, .. } => {
                self.status = TaskStatus::Pending;
                self.done = if *from_checkpoint { self.done } else { 0 };
            }
            Event::RollbackStarted { .. } => self.status = TaskStatus::RollingBack,
            Event::StageRolledBack { .. } => {
                self.status = TaskStatus::RollingBack;
                self.done = self.done.saturating_sub(1);
            }
            Event::TaskRolledBack {} => self.status = TaskStatus::RolledBack,
            Event::RollbackFailed { .. } => self.status = TaskStatus::RollbackFailed,
            Event::CheckpointDiscarded { .. } | Event::TaskContinued { .. } => self.done = 0,
            Event::TaskCreated {}
            | Event::PauseRequested { .. }
            | Event::TaskResumed { .. }
            | Event::TaskInterrupted { .. }
            | Event::SignalReceived { .. }
            | Event::ValueRecorded { .. }
            | Event::MessageReceived { .. }
            | Event::EventLost { .. }
            | Event::TaskRepaired { .. }
            | Event::DeadLettered { .. } => {}
        }
    }
}

/// The event behind what the outside sees of it; none for one that only a newer server knows.
fn record(view: &EventView) -> Option<Record> {
    let text = |key: &str| Some(view.payload.get(key)?.as_str()?.to_owned());
    let flag = |key: &str| view.payload.get(key).and_then(serde_json::Value::as_bool).unwrap_or(false);
    let stage = || StageName::parse(text("stage")?).ok();
    let by = || field::<By>(view, "by");
    let attempt = view.attempt_number.unwrap_or(1);
    let rollback = flag("rollback");
    let cause = || Cause {
        error_type: field(view, "errorType").unwrap_or(ErrorType::Unknown),
        reason: view.failure_reason.clone().unwrap_or_default(),
    };
    let reason = || text("reason").unwrap_or_default();
    let event = match view.event_type.as_str() {
        "TASK_CREATED" => Event::TaskCreated {},
        "TASK_STARTED" => Event::TaskStarted { node: text("node")?.into() },
        "STAGE_STARTED" => Event::StageStarted { stage: stage()?, attempt, rollback, step: None },
        "STAGE_COMPLETED" => Event::StageCompleted { stage: stage()?, attempt, outputs: Outputs::default() },
        "STAGE_SKIPPED" => Event::StageSkipped { stage: stage()?, reason: reason() },
        "STAGE_FAILED" => Event::StageFailed { stage: stage()?, attempt, cause: cause(), rollback },
        "RETRY_SCHEDULED" => Event::RetryScheduled {
            stage: stage()?,
            attempt,
            delay: Millis::new(view.backoff_delay_ms.unwrap_or(0)),
            cause: cause(),
            rollback,
        },
        "PAUSE_REQUESTED" => Event::PauseRequested { by: by()? },
        "TASK_PAUSED" => Event::TaskPaused { by: by() },
        "TASK_RESUMED" => Event::TaskResumed { by: by()? },
        "TASK_COMPLETED" => Event::TaskCompleted { result: None },
        "TASK_FAILED" => Event::TaskFailed { stage: stage(), attempts: view.attempt_number, cause: cause() },
        "TASK_CANCELLED" => Event::TaskCancelled { by: by()? },
        "TASK_INTERRUPTED" => Event::TaskInterrupted {
            node: text("node")?.into(),
            reason: reason(),
            taken_by: text("takenBy").map(Into::into),
            automatic: flag("automatic"),
        },
        "TASK_RETRIED" => Event::TaskRetried { by: by()?, from_checkpoint: flag("fromCheckpoint") },
        "ROLLBACK_STARTED" => Event::RollbackStarted { by: by() },
        "STAGE_ROLLED_BACK" => Event::StageRolledBack { stage: stage()? },
        "TASK_ROLLED_BACK" => Event::TaskRolledBack {},
        "ROLLBACK_FAILED" => Event::RollbackFailed { reason: reason() },
        "CHECKPOINT_DISCARDED" => Event::CheckpointDiscarded { reason: reason() },
        "DEAD_LETTERED" => Event::DeadLettered { reason: reason() },
        "EVENT_LOST" => Event::EventLost { reason: reason() },
        "TASK_REPAIRED" => Event::TaskRepaired { by: by()?, reason: reason() },
        _ => return None,
    };
    Some(Record::new(view.timestamp, event))
}

fn field<T: DeserializeOwned>(view: &EventView, key: &str) -> Option<T> {
    serde_json::from_value(view.payload.get(key)?.clone()).ok()
}

#[cfg(test)]
mod tests {
    use milepost_core::id::PlanId;
    use milepost_core::time::Timestamp;

    use super::*;

    fn events() -> Vec<Event> {
        let (stage, by) = (|| StageName::parse("s").unwrap(), || By { who: "a@b".into(), why: Some("x".into()) });
        let cause = || Cause { error_type: ErrorType::Unknown, reason: "broken".into() };
        vec![
            Event::TaskCreated {},
            Event::TaskStarted { node: "n".into() },
            Event::StageStarted { stage: stage(), attempt: 2, rollback: true, step: None },
            Event::StageCompleted { stage: stage(), attempt: 2, outputs: Outputs::default() },
            Event::StageSkipped { stage: stage(), reason: "why".into() },
            Event::StageFailed { stage: stage(), attempt: 2, cause: cause(), rollback: true },
            Event::RetryScheduled {
                stage: stage(),
                attempt: 3,
                delay: Millis::new(250),
                cause: cause(),
                rollback: false,
            },
            Event::PauseRequested { by: by() },
            Event::TaskPaused { by: Some(by()) },
            Event::TaskPaused { by: None },
            Event::TaskResumed { by: by() },
            Event::TaskCompleted { result: None },
            Event::TaskFailed { stage: Some(stage()), attempts: Some(4), cause: cause() },
            Event::TaskCancelled { by: by() },
            Event::TaskInterrupted {
                node: "n".into(),
                reason: "gone".into(),
                taken_by: Some("m".into()),
                automatic: true,
            },
            Event::TaskRetried { by: by(), from_checkpoint: true },
            Event::RollbackStarted { by: None },
            Event::StageRolledBack { stage: stage() },
            Event::TaskRolledBack {},
            Event::RollbackFailed { reason: "why".into() },
            Event::CheckpointDiscarded { reason: "why".into() },
            Event::DeadLettered { reason: "why".into() },
            Event::EventLost { reason: "why".into() },
            Event::TaskRepaired { by: by(), reason: "why".into() },
        ]
    }

    fn message(events: &[Event]) -> StateMessage {
        let (plan, task) = (PlanId::parse("p").unwrap(), TaskId::parse("t").unwrap());
        let at = Timestamp::from_millis(1_000);
        let view =
            |(event, sequence): (&Event, u64)| EventView::new(&plan, &task, sequence, &Record::new(at, event.clone()));
        let events = events.iter().zip(1..).map(view).collect();
        StateMessage { plan_id: plan.clone(), plan_status: None, by: None, task_id: Some(task.clone()), events }
    }

    #[test]
    fn every_event_is_understood_as_it_was_meant() {
        let views = message(&events()).events;
        let heard: Vec<Event> = views.iter().map(|view| record(view).unwrap().event().clone()).collect();
        assert_eq!(heard, events());
    }

    #[test]
    fn a_tasks_state_is_followed_from_what_happens_to_it() {
        let mut heard = Heard::default();
        let stage = StageName::parse("s").unwrap();
        let started = Event::TaskStarted { node: "n".into() };
        let completed = Event::StageCompleted { stage, attempt: 1, outputs: Outputs::default() };
        let Some(FeedItem::Task { status, done, .. }) = heard.state(&message(&[started, completed])) else { panic!() };
        assert_eq!((status, done), (TaskStatus::Running, 1));
        let Some(FeedItem::Task { status, done, .. }) = heard.state(&message(&[Event::TaskCompleted { result: None }]))
        else {
            panic!()
        };
        assert_eq!((status, done), (TaskStatus::Completed, 1));
        assert!(heard.tasks.is_empty(), "what has ended is forgotten");
    }

    #[test]
    fn what_only_a_newer_server_knows_is_passed_over() {
        let mut message = message(&[Event::TaskCompleted { result: None }]);
        message.events[0].event_type = "TASK_TELEPORTED".into();
        let Some(FeedItem::Task { records, .. }) = Heard::default().state(&message) else { panic!() };
        assert!(records.is_empty());
    }
}
