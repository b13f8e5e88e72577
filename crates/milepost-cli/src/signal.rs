//! `signal`: a message for a workflow, which may be waiting for it or ask for it later.

use milepost_core::id::{IdempotencyKey, StageName, TaskId};
use serde_json::Value;

use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Data};
use crate::source::{Operated, Signal};
use crate::status::missing;
use crate::text::task_status;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    task: String,
    /// The signal, as the workflow calls it
    name: String,
    /// What goes with it; left out: null
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    payload: Option<String>,
    /// Sent again under the same key, it is not received again [default: a new key]
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Why, for the log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(crate) async fn signal(context: &Context, args: Args) -> Outcome {
    let task = TaskId::parse(&args.task).map_err(|_| missing(context, "task", &args.task))?;
    let name = StageName::parse(&args.name).map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    let payload = args.payload.as_deref().map_or(Ok(Value::Null), json)?;
    let key = args.key.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let key = IdempotencyKey::parse(key).map_err(|error| Failure::new(Exit::Usage, format!("--key: {error}")))?;
    let signal = Signal { task, name, payload, key, by: context.by(args.reason) };
    let Operated { answer, goes_on } = context.source()?.signal(signal).await?;
    let mut data = Data::new();
    if context.json {
        data.json(&answer);
    } else if let Some(task) = &answer.task {
        data.line(format!("{} {}, received {}", task.id, task_status(task.status), args.name));
    }
    if !goes_on && !context.quiet {
        output::message(
            "nothing runs just now; the signal is kept, and the program that has the workflow goes on with it",
        );
    }
    Ok(Exit::Done)
}

fn json(text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|error| {
        Failure::new(Exit::Usage, format!("`{text}` is not JSON: {error}"))
            .help("text has quotes of its own, as in '\"yes\"'")
    })
}
