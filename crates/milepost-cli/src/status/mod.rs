//! `status`: what runs, what waits and why, what failed where. Reads the file whoever owns it, and never all of it.

mod list;
mod plan;
mod task;

use milepost_core::id::Tenant;
use milepost_engine::Target;
use milepost_store::{Store, TaskQuery, TasksOf};

use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::store;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A plan's or a task's id, a plan's wins; left out: all plans, newest first
    #[arg(value_name = "PLAN|TASK", conflicts_with = "tenant")]
    target: Option<String>,
    /// The newest task of this tenant
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
    let store = context.store()?.read()?;
    let store = &*store;
    match (args.target, args.tenant) {
        (None, None) => list::show(context, store, args.limit, args.cursor.as_deref()).await?,
        (Some(id), None) => match store::find(store, &id).await? {
            Some(Target::Plan(plan)) => plan::show(context, store, &plan).await?,
            Some(Target::Task(task)) => task::show(context, store, &task).await?,
            Some(Target::Tenant(_)) | None => return Err(missing(context, "plan or task", &id)),
        },
        (_, Some(tenant)) => {
            let task = newest_of(store, &tenant).await?.ok_or_else(|| missing(context, "task of tenant", &tenant))?;
            task::show(context, store, &task).await?;
        }
    }
    Ok(Exit::Done)
}

pub(crate) fn missing(context: &Context, what: &str, id: &str) -> Failure {
    Failure::new(Exit::NotFound, format!("there is no {what} `{id}`"))
        .help(format!("`{}` lists the plans", context.command("status")))
}

async fn newest_of(store: &dyn Store, tenant: &str) -> Result<Option<milepost_core::id::TaskId>, Failure> {
    let Ok(tenant) = Tenant::parse(tenant) else { return Ok(None) };
    let query = TaskQuery { of: TasksOf::Tenant(tenant), statuses: Vec::new(), after: None, limit: 1 };
    Ok(store.tasks(query).await?.items.into_iter().next().map(|row| row.key.id))
}
