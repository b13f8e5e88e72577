//! One plan: its counts, what runs, what waits and why, what failed.

use milepost_core::api::{PlanReport, PlanView};
use milepost_core::task::{PlanStatus, StageStatus, TaskStatus, TaskView};
use milepost_core::time::Timestamp;

use crate::context::Context;
use crate::output::Data;
use crate::summary::{counts_line, failure_lines};
use crate::text::{Table, dash, how_far, length, pace, plan_status, seconds, short, until};
use crate::views::failed;

pub(super) fn show(context: &Context, report: &PlanReport) {
    let mut data = Data::new();
    if context.json {
        return data.json(report);
    }
    let now = milepost_engine::Clock::system().now();
    let PlanReport { plan, running, waiting, failures, .. } = report;
    let counts = &plan.tasks;
    data.line(format!(
        "plan {} {}, {}% done: {}",
        plan.plan_id,
        plan_status(plan.status),
        counts.percent(),
        counts_line(counts)
    ));
    data.line(format!("  {}", times(report, now)));
    if let Some(by) = &plan.changed_by {
        let why = by.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        data.line(format!("  last changed by {}{why}", by.who));
    }
    // What somebody runs all the same is in good hands: `milepost run` asks nobody about its plan.
    let held = plan.waits_for_person && running.iter().all(|task| task.interrupted);
    if held {
        let command = context.command(&format!("resume {}", plan.plan_id));
        data.line(format!(
            "  its recovery is manual, and all nodes were gone: nothing of it starts before `{command}`"
        ));
    }
    running_lines(context, running, counts.running + counts.rolling_back, now).iter().for_each(|line| data.line(line));
    waiting_lines(context, waiting, counts.pending + counts.paused, plan, held).iter().for_each(|line| data.line(line));
    failure_lines(failures, failed(counts)).iter().for_each(|line| data.line(line));
}

fn times(report: &PlanReport, now: Timestamp) -> String {
    let plan = &report.plan;
    let mut parts = vec![format!("created {}", plan.created_at)];
    match (plan.started_at, plan.ended_at) {
        (Some(started), Some(ended)) => {
            parts.push(format!("ended {ended}, {} after its start", length(ended.since(started))));
        }
        (Some(started), None) => parts.push(format!("started {} ago", length(now.since(started)))),
        (None, _) => parts.push("not started".to_owned()),
    }
    parts.push(format!("{} at once", plan.max_concurrency));
    parts.extend(report.rate.map(pace));
    parts.extend(report.eta_seconds.map(|eta| format!("about {} to go", seconds(eta))));
    parts.join(", ")
}

fn running_lines(context: &Context, tasks: &[TaskView], total: u64, now: Timestamp) -> Vec<String> {
    let mut table = Table::new(&["RUNNING", "TENANT", "STAGE", "DONE", "ATTEMPT", "NOTE"]);
    for task in tasks {
        table.row(vec![
            task.task_id.to_string(),
            dash(task.tenant_id.as_ref().map(|tenant| short(tenant.as_str(), 24))),
            dash(task.current_stage.as_ref()),
            format!("{}/{}", task.completed_stages, task.total_stages),
            attempt(task),
            note(context, task, now),
        ]);
    }
    section(tasks, table, total)
}

fn waiting_lines(context: &Context, tasks: &[TaskView], total: u64, plan: &PlanView, held: bool) -> Vec<String> {
    let mut table = Table::new(&["WAITING", "TENANT", "DONE", "WHY"]);
    for task in tasks {
        let why = match (task.status, &task.blocked_by) {
            _ if task.damaged.is_some() => damage(context, task).unwrap_or_default(),
            (TaskStatus::Paused, _) => {
                // In the middle of a stage, which begins anew then.
                let at = task.progress.as_ref().map(|said| format!(" at {}", how_far(said))).unwrap_or_default();
                format!("paused{at}; `{}` goes on", context.command(&format!("resume {}", task.task_id)))
            }
            _ if task.awaits_message => {
                format!("for its message; `{}` sends it", context.command(&format!("publish {}", task.task_id)))
            }
            (_, Some(holder)) => format!("blocked by {holder}"),
            (_, None) if plan.status != PlanStatus::Running => {
                format!("its plan is {}", plan.status)
            }
            (_, None) if held => "for a person to set it going".to_owned(),
            (_, None) => "for a free place".to_owned(),
        };
        table.row(vec![
            task.task_id.to_string(),
            dash(task.tenant_id.as_ref().map(|tenant| short(tenant.as_str(), 24))),
            format!("{}/{}", task.completed_stages, task.total_stages),
            why,
        ]);
    }
    section(tasks, table, total)
}

fn section(tasks: &[TaskView], table: Table, total: u64) -> Vec<String> {
    if tasks.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new()];
    lines.extend(table.lines("  "));
    let more = total.saturating_sub(tasks.len() as u64);
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    lines
}

/// `2 of 4`.
pub(super) fn attempt(task: &TaskView) -> String {
    let of = task.stages.iter().find(|stage| Some(&stage.name) == task.current_stage.as_ref());
    match (task.attempt, of) {
        (Some(attempt), Some(stage)) => format!("{attempt} of {}", stage.max_attempts),
        (Some(attempt), None) => attempt.to_string(),
        (None, _) => "-".to_owned(),
    }
}

/// What is wrong with a task that cannot be read or run, and what ends it.
pub(super) fn damage(context: &Context, task: &TaskView) -> Option<String> {
    let reason = task.damaged.as_ref()?;
    let next = context.command(&format!("store repair --task {}", task.task_id));
    Some(format!("damaged: {}; `{next}` ends it", short(reason, 120)))
}

/// Why a task that counts as running does not get on, or how.
pub(super) fn note(context: &Context, task: &TaskView, now: Timestamp) -> String {
    let mut parts = Vec::new();
    if let Some(damage) = damage(context, task) {
        return damage;
    }
    parts.extend(task.progress.as_ref().map(how_far));
    if task.status == TaskStatus::RollingBack {
        parts.push("rolling back".to_owned());
    }
    if task.interrupted {
        let next = context.command_here_or_there("run FILE", &format!("resume {}", task.task_id));
        parts.push(format!("interrupted: no node runs it, `{next}` goes on"));
    }
    if task.awaits_message {
        let next = context.command(&format!("publish {}", task.task_id));
        parts.push(format!("waits for its message; `{next}` sends it"));
    }
    if task.pause_requested {
        parts.push("pauses when its running stage ends".to_owned());
    }
    if let Some(due) = task.next_retry_at {
        let waits = task.stages.iter().find(|stage| stage.status == StageStatus::RetryWait);
        let reason =
            waits.and_then(|stage| stage.reason.as_ref()).map(|reason| format!(" after: {}", short(reason, 60)));
        parts.push(format!("retry {}{}", until(due, now), reason.unwrap_or_default()));
    }
    parts.join(", ")
}
