//! `consumer`: how a server takes messages in, and pausing that.

use milepost_core::api::ConsumerStatus;

use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Data;
use crate::text::{count, dash};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Clone, Copy, clap::Subcommand)]
enum Verb {
    /// Take no more messages in; what runs goes on
    Pause,
    /// Take messages in again
    Resume,
}

pub(crate) async fn consumer(context: &Context, args: Args) -> Outcome {
    let Some(client) = context.client()? else {
        return Err(Failure::new(Exit::Usage, "`consumer` asks a server, and none is named")
            .help("name one by `--server URL` or MILEPOST_SERVER"));
    };
    let status = match args.verb {
        None => client.consumer().await?,
        Some(Verb::Pause) => client.pause_consumer().await?,
        Some(Verb::Resume) => client.resume_consumer().await?,
    };
    let mut data = Data::new();
    if context.json {
        data.json(&status);
    } else {
        data.line(line(&status));
    }
    Ok(Exit::Done)
}

fn line(status: &ConsumerStatus) -> String {
    let how = match (status.paused, status.connected) {
        (true, _) => "paused",
        (false, true) => "takes messages in",
        (false, false) => "does not reach its broker",
    };
    let failing = match &*status.failing_topics {
        [] => String::new(),
        topics => format!("; nothing can be published to {}", topics.join(", ")),
    };
    format!(
        "{how}: {} active, {} consumed, {} failed, lag {}, {}{failing}",
        status.active_executions,
        status.consumed_count,
        status.failed_count,
        dash(status.lag),
        count(status.partitions, "partition"),
    )
}
