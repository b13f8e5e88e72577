//! `explain`: why a task is not running, and what a person can do about it.

use crate::context::Context;
use crate::events::task;
use crate::exit::{Exit, Outcome};
use crate::output::Data;
use crate::status::missing;
use crate::text::task_status;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    task: String,
}

pub(crate) async fn explain(context: &Context, args: Args) -> Outcome {
    let source = context.source()?;
    let task = task(context, &*source, &args.task).await?;
    let explanation = source.explain(&task.task_id).await?;
    let explanation = explanation.ok_or_else(|| missing(context, "task", &args.task))?;
    let mut data = Data::new();
    if context.json {
        data.json(&explanation);
        return Ok(Exit::Done);
    }
    data.line(format!("task {} {}: {}", explanation.task_id, task_status(explanation.status), explanation.message));
    if let Some(next) = &explanation.next {
        data.line(format!("  next: {next}"));
    }
    Ok(Exit::Done)
}
