//! `checkpoint`: how far a task has come, as the next attempt would find it.

use milepost_core::task::Checkpoint;
use serde::Serialize;

use crate::context::Context;
use crate::events::task;
use crate::exit::{Exit, Outcome};
use crate::output::{self, Data};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    task: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    has_checkpoint: bool,
    #[serde(flatten)]
    checkpoint: Option<Checkpoint>,
}

pub(crate) async fn checkpoint(context: &Context, args: Args) -> Outcome {
    let store = context.store()?.read()?;
    let stored = task(context, &*store, &args.task).await?;
    let checkpoint = Checkpoint::of(&stored.task);
    if checkpoint.is_none() && !context.json && !context.quiet {
        output::message(&format!("task {} is {} and has no checkpoint", args.task, stored.task.status()));
    }
    Data::new().json(&View { has_checkpoint: checkpoint.is_some(), checkpoint });
    Ok(Exit::Done)
}
