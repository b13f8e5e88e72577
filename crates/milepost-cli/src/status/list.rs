//! All plans, newest first, a page at a time.

use milepost_store::{PlanQuery, Store};
use serde_json::json;

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::{self, Data};
use crate::text::{Table, plan_status};
use crate::views::{PlanView, failed};

pub(super) async fn show(
    context: &Context,
    store: &dyn Store,
    limit: u16,
    cursor: Option<&str>,
) -> Result<(), Failure> {
    let bad =
        |text: &str| Failure::new(Exit::Usage, format!("`{text}` is no cursor; expected the nextCursor of a list"));
    let after = cursor.map(|text| text.parse().map_err(|_| bad(text))).transpose()?;
    let page = store.plans(PlanQuery { open_only: false, after, limit: limit.into() }).await?;
    let next = page.next.map(|next| next.to_string());
    let mut data = Data::new();
    if context.json {
        let items: Vec<PlanView> = page.items.iter().map(PlanView::from).collect();
        data.json(&json!({ "items": items, "nextCursor": next }));
        return Ok(());
    }
    if page.items.is_empty() {
        output::message(&format!("no plans yet; `{}` runs one", context.command("run FILE")));
        return Ok(());
    }
    let mut table = Table::new(&["PLAN", "STATUS", "DONE", "TASKS", "COMPLETED", "RUNNING", "FAILED", "CREATED"]);
    for row in &page.items {
        table.row(vec![
            row.id.to_string(),
            plan_status(row.status).to_string(),
            format!("{}%", row.counts.percent()),
            row.counts.total.to_string(),
            row.counts.completed.to_string(),
            (row.counts.running + row.counts.rolling_back).to_string(),
            failed(&row.counts).to_string(),
            row.created_at.to_string(),
        ]);
    }
    table.lines("").iter().for_each(|line| data.line(line));
    drop(data);
    if let Some(next) = next {
        output::message(&format!("more: `{}`", context.command(&format!("status --cursor {next}"))));
    }
    Ok(())
}
