//! The last word of a run: how it ended, what failed, and what to type next.

use std::time::Duration;

use milepost_core::api::{PlanView, TaskFailureView};
use milepost_core::id::PlanId;
use milepost_core::plan::TaskCounts;
use milepost_core::task::PlanStatus;
use milepost_core::time::Millis;
use milepost_store::{Store, StoreError};
use serde::Serialize;

use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, Data};
use crate::run::{Ending, Waiting, Why};
use crate::text::{Table, count, dash, length, plan_status, shell, short, task_status};
use crate::views;

/// A plan and what failed of it.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    #[serde(flatten)]
    plan: PlanView,
    failures: Vec<TaskFailureView>,
}

impl Summary {
    pub(crate) async fn read(store: &dyn Store, plan: &PlanId) -> Result<Self, Failure> {
        let row = store.plan(plan).await?;
        let row = row.ok_or_else(|| StoreError::NotFound { what: "plan", id: plan.to_string() })?;
        let failures = views::failures(store, &row).await?;
        Ok(Self { plan: PlanView::from(&row), failures })
    }

    pub(crate) fn status(&self) -> PlanStatus {
        self.plan.status
    }

    pub(crate) fn show(self, context: &Context, file: &str, ending: &Ending, took: Duration) {
        if context.json {
            return Data::new().json(&self);
        }
        let completed = self.plan.status == PlanStatus::Completed;
        if completed && context.quiet {
            return;
        }
        let mut data = Data::new();
        let took = length(Millis::new(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)));
        data.line(format!(
            "plan {} {} in {took}: {}",
            self.plan.plan_id,
            plan_status(self.plan.status),
            counts_line(&self.plan.tasks)
        ));
        failure_lines(&self.failures, views::failed(&self.plan.tasks)).iter().for_each(|line| data.line(line));
        drop(data);
        self.next_steps(context, file, ending);
    }

    pub(crate) fn show_nothing_to_do(self, context: &Context, file: &str) {
        if context.json {
            return Data::new().json(&self);
        }
        let id = &self.plan.plan_id;
        let mut data = Data::new();
        if self.plan.status == PlanStatus::Completed {
            if !context.quiet {
                data.line(format!(
                    "plan {id} is COMPLETED already, {}: there is nothing left to do",
                    count(self.plan.tasks.total, "task")
                ));
            }
            return;
        }
        data.line(format!("plan {id} is {}: {}", plan_status(self.plan.status), counts_line(&self.plan.tasks)));
        failure_lines(&self.failures, views::failed(&self.plan.tasks)).iter().for_each(|line| data.line(line));
        drop(data);
        self.next_steps(context, file, &Ending::Ended(self.plan.plan_id.clone()));
    }

    /// The exact commands, so that nobody has to look them up after something went wrong.
    fn next_steps(&self, context: &Context, file: &str, ending: &Ending) {
        let mut steps = Steps { context, lines: Vec::new() };
        let run = if file == "-" { "run FILE".to_owned() } else { format!("run {}", shell(file)) };
        match ending {
            Ending::Interrupted(_) if !self.plan.status.is_ended() => steps.add(&run, "carries on where it stopped"),
            Ending::Stuck(_, waiting) => steps.stuck(waiting),
            Ending::Interrupted(_) | Ending::Ended(_) | Ending::PausedByFailure(_) => {}
        }
        if let Some(failure) = self.failures.first() {
            let task = &failure.task_id;
            steps.add(&format!("logs {task}"), "what its stages printed");
            if self.plan.tasks.failed > 0 && self.plan.status != PlanStatus::Cancelled {
                steps.add(&format!("{run} --retry-failed"), "runs every failed task again from its checkpoint");
                steps.add(&format!("retry {task}"), "marks this one to run again at the next `run`");
            }
        }
        if matches!(ending, Ending::PausedByFailure(_)) {
            steps.add(&run, "goes on without the failed tasks");
        }
        if self.plan.status == PlanStatus::Cancelled {
            steps.lines.push("a cancelled plan is final; submit the work as a new plan".to_owned());
        }
        steps.lines.iter().for_each(|line| output::message(line));
    }
}

struct Steps<'a> {
    context: &'a Context,
    lines: Vec<String>,
}

impl Steps<'_> {
    fn add(&mut self, command: &str, what: &str) {
        self.lines.push(format!("  {:<40}  {what}", self.context.command(command)));
    }

    fn stuck(&mut self, waiting: &[Waiting]) {
        for Waiting { task, why } in waiting {
            self.lines.push(match why {
                Why::BlockedBy(holder) => format!("task {task} waits for {holder}, which nobody runs now"),
                Why::SetAside(reason) => format!("task {task} cannot be run: {reason}"),
            });
        }
        for Waiting { task, why } in waiting {
            if let Why::SetAside(_) = why {
                self.add(&format!("store repair --task {task}"), "ends it as FAILED, so that its plan can end");
            }
        }
        let holder = |waiting: &Waiting| match &waiting.why {
            Why::BlockedBy(holder) => holder.split_once(':').map(|(_, task)| task.to_owned()),
            Why::SetAside(_) => None,
        };
        if let Some(holder) = waiting.iter().find_map(holder) {
            self.add(&format!("status {holder}"), "why it still holds the tenant");
            self.add(&format!("cancel {holder}"), "gives the tenant free; or run its plan to its end");
        }
    }
}

/// Only the states that occur.
pub(crate) fn counts_line(counts: &TaskCounts) -> String {
    let states = [
        ("completed", counts.completed),
        ("failed", counts.failed),
        ("running", counts.running),
        ("pending", counts.pending),
        ("paused", counts.paused),
        ("cancelled", counts.cancelled),
        ("rolling back", counts.rolling_back),
        ("rolled back", counts.rolled_back),
        ("rollback failed", counts.rollback_failed),
    ];
    let parts: Vec<String> =
        states.iter().filter(|(_, number)| *number > 0).map(|(name, number)| format!("{number} {name}")).collect();
    format!("{} ({})", count(counts.total, "task"), parts.join(", "))
}

pub(crate) fn failure_lines(failures: &[TaskFailureView], total: u64) -> Vec<String> {
    if failures.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new(&["TASK", "TENANT", "STATUS", "STAGE", "ATTEMPTS", "TYPE", "REASON"]);
    for failure in failures {
        table.row(vec![
            failure.task_id.to_string(),
            dash(failure.tenant_id.as_ref().map(|tenant| short(tenant.as_str(), 24))),
            task_status(failure.status).to_string(),
            dash(failure.stage.as_ref()),
            dash(failure.attempts),
            dash(failure.error_type.map(|kind| kind.as_str())),
            short(failure.reason.as_deref().unwrap_or("-"), 80),
        ]);
    }
    let mut lines = vec![String::new()];
    lines.extend(table.lines("  "));
    let more = total.saturating_sub(failures.len() as u64);
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    lines.push(String::new());
    lines
}
