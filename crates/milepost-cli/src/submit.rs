//! `submit`: hands a plan to a server, which runs it.

use milepost::{Client, ClientError, PlanFormat, PlanUpload};
use milepost_core::api::{Accepted, ProblemPart};
use milepost_core::plan::PlanErrors;

use crate::check;
use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Data};
use crate::plan_file::{self, Unusable};
use crate::source::Remote;
use crate::text::{count, plan_status, shell};
use crate::watch;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The plan file, YAML or JSON; `-` is stdin
    file: String,
    /// Run it at once, which is the default
    #[arg(long)]
    start: bool,
    /// Leave it READY, for a later `start`
    #[arg(long, conflicts_with = "start")]
    no_start: bool,
    /// If the stored plan has other tasks: add the new ones, and remove those that are gone
    #[arg(long)]
    update: bool,
    /// Of a plan with `trigger: message`: also send each of its tasks the message that it waits for
    #[arg(long)]
    publish: bool,
    /// Then watch it to its end, and exit as `watch` does
    #[arg(long)]
    watch: bool,
}

pub(crate) async fn submit(context: &Context, args: Args) -> Outcome {
    let Some(client) = context.client()? else {
        return Err(Failure::new(Exit::Usage, "`submit` hands a plan to a server, and none is named")
            .help("name one by `--server URL` or MILEPOST_SERVER")
            .help(format!("`{}` runs it here, without one", context.command(&format!("run {}", shell(&args.file))))));
    };
    // What can be known here is said at once, and as `check` says it.
    let text = match plan_file::read_for_server(&args.file) {
        Ok(text) => text,
        Err(unusable) => return check::refuse(context, unusable),
    };
    let accepted = match send(&client, &args, text.clone()).await {
        Ok(accepted) => accepted,
        Err(ClientError::Problem { errors, .. }) if !errors.is_empty() => {
            return check::refuse(context, Unusable::Wrong(told(&args.file, &text, errors)));
        }
        Err(error) => return Err(refusal(context, &args, error)),
    };
    if !args.watch {
        show(context, &args, &accepted);
        return Ok(Exit::Done);
    }
    if !context.json {
        show(context, &args, &accepted);
    }
    watch::follow(context, &Remote::new(client), &accepted.plan.plan_id).await
}

async fn send(client: &Client, args: &Args, text: Vec<u8>) -> Result<Accepted, ClientError> {
    // YAML reads JSON as well; only a name that says so makes it JSON.
    let format = if args.file.ends_with(".json") { PlanFormat::Json } else { PlanFormat::Yaml };
    let (start, update, publish) = (!args.no_start, args.update, args.publish);
    client.submit(PlanUpload { text: text.into(), format, start, update, publish }).await
}

/// What the server found wrong, in the words of `check`.
fn told(file: &str, text: &[u8], errors: Vec<ProblemPart>) -> PlanErrors {
    PlanErrors::told(plan_file::shown(file), &String::from_utf8_lossy(text), errors)
}

fn refusal(context: &Context, args: &Args, error: ClientError) -> Failure {
    let clash = matches!(&error, ClientError::Problem { status: 409, code, .. } if code == "clash");
    let failure = Failure::from(error);
    if clash && !args.update && failure.message.contains("exists with other content") {
        let again = context.command(&format!("submit {} --update", shell(&args.file)));
        return failure
            .help(format!("`{again}` adds new tasks and removes those that are gone"))
            .help("or give the plan another id");
    }
    failure
}

fn show(context: &Context, args: &Args, accepted: &Accepted) {
    let mut data = Data::new();
    if context.json {
        return data.json(accepted);
    }
    let plan = &accepted.plan;
    let note = match (accepted.created, accepted.added + accepted.removed) {
        (true, _) => String::new(),
        (false, 0) => ", was there already".to_owned(),
        (false, _) => {
            format!(", updated: {} added, {} removed", count(accepted.added, "task"), count(accepted.removed, "task"))
        }
    };
    data.line(format!("{} {}, {}{note}", plan.plan_id, plan_status(plan.status), count(plan.tasks.total, "task")));
    drop(data);
    if !context.quiet && !args.watch {
        let (next, what) = if args.no_start { ("start", "runs it") } else { ("watch", "follows it") };
        output::message(&format!("`{}` {what}", context.command(&format!("{next} {}", plan.plan_id))));
    }
}
