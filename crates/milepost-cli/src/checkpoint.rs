//! `checkpoint`: how far a task has come, as the next attempt would find it.

use crate::context::Context;
use crate::events::task;
use crate::exit::{Exit, Outcome};
use crate::output::{self, Data};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    task: String,
}

pub(crate) async fn checkpoint(context: &Context, args: Args) -> Outcome {
    let source = context.source()?;
    let task = task(context, &*source, &args.task).await?;
    let checkpoint = source.checkpoint(&task.task_id).await?;
    if !checkpoint.has_checkpoint && !context.json && !context.quiet {
        output::message(&format!("task {} is {} and has no checkpoint", args.task, task.status));
    }
    Data::new().json(&checkpoint);
    Ok(Exit::Done)
}
