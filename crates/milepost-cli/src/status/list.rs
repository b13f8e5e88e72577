//! All plans, newest first, a page at a time.

use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, Data};
use crate::source::Source;
use crate::text::{Table, plan_status};
use crate::views::failed;

pub(super) async fn show(
    context: &Context,
    source: &dyn Source,
    limit: u16,
    cursor: Option<&str>,
) -> Result<(), Failure> {
    let page = source.plans(limit, cursor).await?;
    let mut data = Data::new();
    if context.json {
        data.json(&page);
        return Ok(());
    }
    if page.items.is_empty() {
        output::message(&format!(
            "no plans yet; `{}` runs one",
            context.command_here_or_there("run FILE", "submit FILE")
        ));
        return Ok(());
    }
    let mut table = Table::new(&["PLAN", "STATUS", "DONE", "TASKS", "COMPLETED", "RUNNING", "FAILED", "CREATED"]);
    for plan in &page.items {
        table.row(vec![
            plan.plan_id.to_string(),
            plan_status(plan.status).to_string(),
            format!("{}%", plan.tasks.percent()),
            plan.tasks.total.to_string(),
            plan.tasks.completed.to_string(),
            (plan.tasks.running + plan.tasks.rolling_back).to_string(),
            failed(&plan.tasks).to_string(),
            plan.created_at.to_string(),
        ]);
    }
    table.lines("").iter().for_each(|line| data.line(line));
    drop(data);
    if let Some(next) = page.next_cursor {
        output::message(&format!("more: `{}`", context.command(&format!("status --cursor {next}"))));
    }
    Ok(())
}
