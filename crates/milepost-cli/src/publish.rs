//! `publish`: sends tasks the messages that they wait for, by way of the outbox.

use milepost_core::id::TaskId;
use milepost_core::time::Millis;

use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Data;
use crate::source::Publication;
use crate::status::missing;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Tasks of plans with `trigger: message`
    #[arg(required = true, value_name = "TASK")]
    tasks: Vec<String>,
    /// How soon they have to start [default: 1h]
    #[arg(long, value_name = "TIME")]
    deadline: Option<Millis>,
}

pub(crate) async fn publish(context: &Context, args: Args) -> Outcome {
    if args.deadline == Some(Millis::ZERO) {
        return Err(Failure::new(Exit::Usage, "--deadline is 0s, and no task could start in time"));
    }
    let tasks = args.tasks.iter().map(|id| TaskId::parse(id).map_err(|_| missing(context, "task", id)));
    let tasks = tasks.collect::<Result<Vec<_>, Failure>>()?;
    let publication = Publication { tasks, within: args.deadline, by: context.by(None) };
    let messages = context.source()?.publish(publication).await?;
    let mut data = Data::new();
    if context.json {
        data.json(&messages);
        return Ok(Exit::Done);
    }
    for message in &messages {
        data.line(format!("{} published, message {}", message.task_id, message.message_id));
    }
    Ok(Exit::Done)
}
