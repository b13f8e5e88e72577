//! The few sentences about a plan as a whole, the same whoever runs it.

use milepost_core::api::PlanView;
use milepost_core::id::PlanId;
use milepost_core::task::By;

use crate::context::Context;
use crate::text::count;

pub(crate) fn begins(plan: &PlanView) -> String {
    let tasks = count(plan.tasks.total, "task");
    let ended = plan.tasks.total.saturating_sub(plan.tasks.open());
    let before = if ended > 0 { format!(", {ended} of them ended before") } else { String::new() };
    format!("plan {}: {tasks}{before}, {} at once", plan.plan_id, plan.max_concurrency)
}

pub(crate) fn paused(context: &Context, plan: &PlanId, by: Option<&By>) -> String {
    match by {
        Some(by) => {
            let why = by.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            let resume = context.command(&format!("resume {plan}"));
            format!("plan {plan} was paused by {}{why}; `{resume}` goes on", by.who)
        }
        None => format!("plan {plan} pauses because a task failed"),
    }
}
