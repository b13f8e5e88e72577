//! Progress where there is no terminal: a plain line for what a reader of the log will want to find.

use std::time::{Duration, Instant};

use milepost_core::api::PlanView;
use milepost_core::id::{PlanId, TaskId};
use milepost_core::task::{By, Event, Record};
use milepost_engine::FeedItem;

use super::tracker::Tracker;
use crate::output::message;
use crate::text::{length, short};
use crate::views::failed;

/// Larger plans get a line now and then instead of several for each task.
const SMALL_PLAN: u64 = 100;
const OVERVIEW_EVERY: Duration = Duration::from_secs(10);
/// Failures beyond these are left to the summary.
const MOST_FAILURES: usize = 20;

#[derive(Debug)]
pub(super) struct Lines {
    plan: PlanId,
    each_task: bool,
    failures: usize,
    last_overview: Instant,
}

impl Lines {
    pub(super) fn new(plan: &PlanView) -> Self {
        Self {
            plan: plan.plan_id.clone(),
            each_task: plan.tasks.total <= SMALL_PLAN,
            failures: 0,
            last_overview: Instant::now(),
        }
    }

    pub(super) fn take(&mut self, item: &FeedItem) {
        let FeedItem::Task { plan, task, records, done, stages, .. } = item else { return };
        if *plan == self.plan {
            for record in records.iter() {
                if let Some(line) = self.line(task, record, *done, *stages) {
                    message(&line);
                }
            }
        }
    }

    pub(super) fn tick(&mut self, tracker: &Tracker) {
        if self.each_task || self.last_overview.elapsed() < OVERVIEW_EVERY {
            return;
        }
        self.last_overview = Instant::now();
        let counts = &tracker.counts;
        let failed = failed(counts);
        let (total, running) = (counts.total, tracker.active_count());
        message(&format!(
            "{}: {} of {total} tasks completed, {running} running, {failed} failed",
            self.plan, counts.completed
        ));
    }

    fn line(&mut self, task: &TaskId, record: &Record, done: usize, stages: usize) -> Option<String> {
        let text = match record.event() {
            Event::TaskFailed { stage, cause, .. } => {
                self.failures += 1;
                if self.failures > MOST_FAILURES {
                    return None;
                }
                let at = stage.as_ref().map(|stage| format!(" at {stage}")).unwrap_or_default();
                return Some(format!("{task} FAILED{at}: {}", short(&cause.reason, 200)));
            }
            _ if !self.each_task => return None,
            Event::TaskPaused { by } => format!("PAUSED{}", of(by.as_ref())),
            Event::TaskCancelled { by } => format!("CANCELLED{}", of(Some(by))),
            Event::TaskStarted { .. } if done > 0 => format!("goes on after {done} of {stages} stages"),
            Event::TaskStarted { .. } => "started".to_owned(),
            Event::TaskCompleted { .. } => "COMPLETED".to_owned(),
            Event::RetryScheduled { stage, attempt, delay, cause, .. } => {
                format!("{stage}: attempt {attempt} in {}: {}", length(*delay), short(&cause.reason, 200))
            }
            Event::TaskInterrupted { taken_by: Some(_), .. } => {
                format!("taken up again after {done} of {stages} stages")
            }
            Event::TaskInterrupted { taken_by: None, .. } => format!("interrupted after {done} of {stages} stages"),
            Event::RollbackStarted { .. } => "rolling back".to_owned(),
            Event::TaskRolledBack {} => "ROLLED_BACK".to_owned(),
            Event::RollbackFailed { reason } => format!("ROLLBACK_FAILED: {}", short(reason, 200)),
            Event::CheckpointDiscarded { reason } => format!("begins anew: {}", short(reason, 200)),
            Event::TaskCreated {}
            | Event::StageStarted { .. }
            | Event::StageCompleted { .. }
            | Event::StageSkipped { .. }
            | Event::StageFailed { .. }
            | Event::PauseRequested { .. }
            | Event::TaskResumed { .. }
            | Event::TaskRetried { .. }
            | Event::StageRolledBack { .. }
            | Event::MessageReceived { .. }
            | Event::DeadLettered { .. }
            | Event::SignalReceived { .. }
            | Event::ValueRecorded { .. }
            | Event::TaskContinued { .. }
            | Event::EventLost { .. }
            | Event::TaskRepaired { .. } => return None,
        };
        Some(format!("{task} {text}"))
    }
}

fn of(by: Option<&By>) -> String {
    by.map(|by| format!(" by {}", by.who)).unwrap_or_default()
}
