//! A plan's own life: what its status becomes when somebody asks, and when its tasks have ended.

use serde::{Deserialize, Serialize};

use crate::task::{PlanStatus, TaskStatus};

/// Something that a person or the engine asks of a plan as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanCommand {
    Start,
    Pause,
    Resume,
    Cancel,
    /// A task of it is to run again: at once.
    Retry,
    /// Failed tasks became PENDING again and wait for a start.
    Reset,
    /// A task ended: is anything left to run?
    Settle,
    /// A person is about to have its tasks run again. The plan keeps its status; its version grows, so that of two who
    /// looked at the same version only one does it.
    RetryTasks,
    /// The same for any other change of its tasks.
    ChangeTasks,
}

impl PlanCommand {
    /// A person wants the plan to run: what `recovery: manual` held back goes on.
    pub fn lets_go(self) -> bool {
        match self {
            PlanCommand::Start | PlanCommand::Resume | PlanCommand::RetryTasks => true,
            PlanCommand::Pause
            | PlanCommand::Cancel
            | PlanCommand::Retry
            | PlanCommand::Reset
            | PlanCommand::Settle
            | PlanCommand::ChangeTasks => false,
        }
    }

    /// The version grows even if the status stays as it is.
    pub fn always_counts(self) -> bool {
        matches!(self, PlanCommand::RetryTasks | PlanCommand::ChangeTasks)
    }
}

/// How many tasks of a plan are in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskCounts {
    pub total: u64,
    pub pending: u64,
    pub running: u64,
    pub paused: u64,
    pub completed: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub rolling_back: u64,
    pub rolled_back: u64,
    pub rollback_failed: u64,
}

impl TaskCounts {
    pub fn add(&mut self, status: TaskStatus, count: u64) {
        self.total += count;
        *self.slot(status) += count;
    }

    pub fn remove(&mut self, status: TaskStatus) {
        self.total = self.total.saturating_sub(1);
        let slot = self.slot(status);
        *slot = slot.saturating_sub(1);
    }

    fn slot(&mut self, status: TaskStatus) -> &mut u64 {
        match status {
            TaskStatus::Pending => &mut self.pending,
            TaskStatus::Running => &mut self.running,
            TaskStatus::Paused => &mut self.paused,
            TaskStatus::Completed => &mut self.completed,
            TaskStatus::Failed => &mut self.failed,
            TaskStatus::Cancelled => &mut self.cancelled,
            TaskStatus::RollingBack => &mut self.rolling_back,
            TaskStatus::RolledBack => &mut self.rolled_back,
            TaskStatus::RollbackFailed => &mut self.rollback_failed,
        }
    }

    /// Tasks that may still run.
    pub fn open(&self) -> u64 {
        self.pending + self.running + self.paused + self.rolling_back
    }

    /// Completed tasks out of all; 100 only when all are.
    pub fn percent(&self) -> f64 {
        if self.total == 0 {
            return 0.0;
        }
        (self.completed as f64 / self.total as f64 * 1000.0).floor() / 10.0
    }
}

/// Why a plan stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {verb} plan {plan}: it is {status}{hint}")]
pub struct PlanRejection {
    pub verb: &'static str,
    pub plan: String,
    pub status: PlanStatus,
    pub hint: &'static str,
}

/// What `command` makes of a plan; the same status when there is nothing to change.
pub fn next_plan_status(
    plan: &str,
    status: PlanStatus,
    counts: &TaskCounts,
    command: PlanCommand,
) -> Result<PlanStatus, PlanRejection> {
    use PlanStatus::{Cancelled, Completed, Created, Failed, Paused, Ready, Running};
    let refuse = |verb, hint| Err(PlanRejection { verb, plan: plan.to_owned(), status, hint });
    match (command, status) {
        (PlanCommand::Start, Created | Ready | Running) => Ok(Running),
        (PlanCommand::Start, Paused) => refuse("start", "; resume it"),
        (PlanCommand::Start, Failed) => refuse("start", "; retry it, or reset-failed and start it"),
        (PlanCommand::Start, Completed | Cancelled) => refuse("start", ""),

        (PlanCommand::Pause, Ready | Running | Paused) => Ok(Paused),
        (PlanCommand::Pause, Created | Completed | Failed | Cancelled) => refuse("pause", ""),

        (PlanCommand::Resume, Paused) => Ok(Running),
        // The plan runs, but single tasks of it may be paused.
        (PlanCommand::Resume, Running) => Ok(Running),
        (PlanCommand::Resume, Created | Ready) => refuse("resume", "; start it"),
        (PlanCommand::Resume, Failed) => refuse("resume", "; retry it"),
        (PlanCommand::Resume, Completed | Cancelled) => refuse("resume", ""),

        (PlanCommand::Cancel, Created | Ready | Running | Paused | Cancelled) => Ok(Cancelled),
        (PlanCommand::Cancel, Completed | Failed) => refuse("cancel", ""),

        // A paused plan stays paused: its tasks become PENDING and wait for the resume.
        (PlanCommand::Retry, Paused) => Ok(Paused),
        (PlanCommand::Retry, Created | Ready | Running | Failed) => Ok(Running),
        (PlanCommand::Retry, Completed | Cancelled) => refuse("retry", ""),

        (PlanCommand::Reset, Failed) => Ok(Ready),
        (PlanCommand::Reset, Created | Ready | Running | Paused) => Ok(status),
        (PlanCommand::Reset, Completed | Cancelled) => refuse("reset the failed tasks of", ""),

        (PlanCommand::Settle, Created | Ready | Running | Paused) if counts.open() == 0 => {
            Ok(if counts.completed == counts.total { Completed } else { Failed })
        }
        (PlanCommand::Settle, Created | Ready | Running | Paused | Completed | Failed | Cancelled) => Ok(status),

        (PlanCommand::RetryTasks, Completed | Cancelled) => refuse("retry", ""),
        (PlanCommand::RetryTasks, Created | Ready | Running | Paused | Failed) => Ok(status),
        (PlanCommand::ChangeTasks, _) => Ok(status),
    }
}
