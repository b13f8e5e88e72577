//! `status`: what runs, what waits and why, what failed where. Never asks for all there is.

mod list;
mod plan;
mod task;

use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::source::Found;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A plan's or a task's id, a plan's wins; left out: all plans, newest first
    #[arg(value_name = "PLAN|TASK", conflicts_with = "tenant")]
    target: Option<String>,
    /// The task of this tenant that matters most: the one at work, then one that waits for a person
    #[arg(long, value_name = "T")]
    tenant: Option<String>,
    /// How many plans to list
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: u16,
    /// Go on where the last list ended: its nextCursor
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

pub(crate) async fn status(context: &Context, args: Args) -> Outcome {
    let source = context.source()?;
    match (args.target, args.tenant) {
        (None, None) => list::show(context, &*source, args.limit, args.cursor.as_deref()).await?,
        (Some(id), None) => match source.find(&id).await? {
            Some(Found::Plan(plan)) => plan::show(context, &source.plan_report(&plan).await?),
            Some(Found::Task(task)) => task::show(context, &task),
            None => return Err(missing(context, "plan or task", &id)),
        },
        (_, Some(tenant)) => {
            let task = source.task_of(&tenant).await?;
            task::show(context, &task.ok_or_else(|| missing(context, "task of tenant", &tenant))?);
        }
    }
    Ok(Exit::Done)
}

pub(crate) fn missing(context: &Context, what: &str, id: &str) -> Failure {
    Failure::new(Exit::NotFound, format!("there is no {what} `{id}`"))
        .help(format!("`{}` lists the plans", context.command("status")))
}
