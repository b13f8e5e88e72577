//! One task: its stages, and what it waits for.

use milepost_core::task::TaskView;
use milepost_core::time::Millis;

use super::plan::{attempt, note};
use crate::context::Context;
use crate::output::{self, Data};
use crate::text::{Table, length, short, stage_status, task_status, until};

pub(super) fn show(context: &Context, task: &TaskView) {
    let mut data = Data::new();
    if context.json {
        return data.json(task);
    }
    let now = milepost_engine::Clock::system().now();
    let tenant = task.tenant_id.as_ref().map(|tenant| format!(", tenant {tenant}")).unwrap_or_default();
    data.line(format!(
        "task {} {}, {} of {} stages done, plan {}{tenant}",
        task.task_id,
        task_status(task.status),
        task.completed_stages,
        task.total_stages,
        task.plan_id
    ));
    if let Some(stage) = &task.current_stage {
        data.line(format!("  at {stage}, attempt {}", attempt(task)));
    }
    if let Some(started) = task.started_at {
        let ended =
            task.ended_at.map(|ended| format!(", ended after {}", length(ended.since(started)))).unwrap_or_default();
        data.line(format!("  started {started}{ended}"));
    }
    let why = note(context, task, now);
    if !why.is_empty() {
        data.line(format!("  {why}"));
    }
    if let Some(holder) = &task.blocked_by {
        data.line(format!("  blocked by {holder}"));
    }
    data.line("");
    stage_lines(task, now).iter().for_each(|line| data.line(line));
    drop(data);
    if let Some(failure) = &task.failure {
        output::message(&format!("\n{}: {}", failure.error_type.as_str(), failure.reason));
        output::message(&format!("  {}", context.command(&format!("logs {}", task.task_id))));
    }
}

fn stage_lines(task: &TaskView, now: milepost_core::time::Timestamp) -> Vec<String> {
    let mut table = Table::new(&["STAGE", "STATUS", "ATTEMPT", "TIME", "REASON"]);
    for stage in &task.stages {
        let due = stage.due_at.map(|due| format!("again {}: ", until(due, now))).unwrap_or_default();
        table.row(vec![
            stage.name.to_string(),
            stage_status(stage.status).to_string(),
            if stage.attempt == 0 { "-".to_owned() } else { format!("{} of {}", stage.attempt, stage.max_attempts) },
            if stage.duration_ms == 0 { "-".to_owned() } else { length(Millis::new(stage.duration_ms)) },
            format!("{due}{}", short(stage.reason.as_deref().unwrap_or(""), 80)),
        ]);
    }
    table.lines("  ")
}
