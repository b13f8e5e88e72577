//! `store repair --task ID`: gives a damaged task up, so that its plan can end.

use milepost_core::id::TaskId;
use milepost_engine::Verb;

use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;
use crate::socket::Name;
use crate::verbs;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The damaged task; `milepost status` of its plan shows which are
    #[arg(long, value_name = "ID")]
    task: String,
    /// Why, for the log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(crate) async fn repair(context: &Context, args: Args) -> Outcome {
    let missing = || Failure::new(Exit::NotFound, format!("there is no task `{}`", args.task));
    let task = TaskId::parse(&args.task).map_err(|_| missing())?;
    let done = verbs::order(context, Name::Task(args.task.clone()), Verb::Repair, args.reason).await?;
    if !context.quiet && !context.json {
        output::message(&format!("what could be read of it is kept: `{}`", context.command(&format!("events {task}"))));
        let again = context.command(&format!("retry {task} --from-start"));
        output::message(&format!("`{again}` runs it again, if its definition can be read"));
    }
    Ok(done)
}
