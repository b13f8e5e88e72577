//! The operator's verbs: handed to the owner of the store, or done here when there is none.

use std::time::{Duration, Instant};

use milepost_core::task::TaskStatus;
use milepost_engine::{Engine, Options, Verb};
use milepost_store::StoreError;
use serde_json::json;

use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Data};
use crate::plan_file::registry;
use crate::socket::{Answer, CallError, Done, Name, Request, VerbName, call};
use crate::store::StoreUrl;
use crate::text::{count, plan_status, task_status};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A plan's or a task's id; a plan's wins
    #[arg(value_name = "PLAN|TASK", required_unless_present = "tenant", conflicts_with = "tenant")]
    target: Option<String>,
    /// The newest task of this tenant
    #[arg(long, value_name = "T")]
    tenant: Option<String>,
    /// Why, for the log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    pub(crate) common: Args,
    /// Forget the checkpoint and begin with the first stage
    #[arg(long)]
    pub(crate) from_start: bool,
}

/// How long an owner may take to come or to go before a verb gives up on it.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) async fn operate(context: &Context, args: Args, verb: Verb) -> Outcome {
    let (name, shown) = match (args.target, args.tenant) {
        (_, Some(tenant)) => (Name::Tenant(tenant.clone()), tenant),
        (Some(id), None) => (Name::Id(id.clone()), id),
        (None, None) => return Err(Failure::new(Exit::Usage, "name a plan, a task or --tenant")),
    };
    let url = context.store()?;
    url.must_exist()?;
    let request = Request::new(name, verb, context.by(args.reason));
    let (answer, by_owner) = ask(&url, &request).await?;
    match answer {
        Answer::Done(done) => {
            show(context, &shown, verb.into(), &done);
            if !by_owner {
                say_what_goes_on(context, verb.into(), &done);
            }
            Ok(Exit::Done)
        }
        Answer::Refused { message } => Err(Failure::new(Exit::Refused, message)),
        Answer::NotFound { message } => {
            Err(Failure::new(Exit::NotFound, message).help(format!("`{}` lists the plans", context.command("status"))))
        }
        Answer::Failed { message } => Err(Failure::new(Exit::OutOfReach, message)),
    }
}

/// True when the owner did it, and goes on by itself.
async fn ask(url: &StoreUrl, request: &Request) -> Result<(Answer, bool), Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match call(&url.path, request).await {
            Ok(answer) => return Ok((answer, true)),
            Err(CallError::Nobody) => {}
            Err(CallError::Lost(error)) => {
                let message = format!("the process that owns the store went away before it answered: {error}");
                return Err(Failure::new(Exit::OutOfReach, message).help("`milepost status` shows what was done"));
            }
        }
        match url.own() {
            Ok(store) => {
                let engine = Engine::new(store, registry(), Options::new("milepost"));
                let answer = request.clone().perform(&engine).await;
                engine.stop().await;
                return Ok((answer, false));
            }
            // Just starting or just leaving, or another verb: its turn is over in a moment.
            Err(StoreError::Owned { .. }) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => return Err(url.failure(error)),
        }
    }
}

fn show(context: &Context, target: &str, verb: VerbName, done: &Done) {
    let mut data = Data::new();
    if context.json {
        return data.json(&answer(target, verb, done));
    }
    if verb == VerbName::ResetFailed {
        data.line(format!("{target} {} reset to PENDING", count(done.tasks, "failed task")));
        return;
    }
    if let Some(task) = &done.task {
        let waits = task.pause_requested && task.status == TaskStatus::Running;
        let note = if waits { ", pauses when its running stage ends" } else { "" };
        data.line(format!("{} {}{note}", task.id, task_status(task.status)));
    } else if let Some(plan) = &done.plan {
        let changed = if done.tasks > 0 { format!(", {} changed", count(done.tasks, "task")) } else { String::new() };
        data.line(format!("{} {}{changed}", plan.id, plan_status(plan.status)));
    }
}

fn answer(target: &str, verb: VerbName, done: &Done) -> serde_json::Value {
    if verb == VerbName::ResetFailed {
        return json!({ "reset": done.tasks });
    }
    json!({
        "target": target,
        "verb": verb,
        "tasks": done.tasks,
        "plan": done.plan,
        "task": done.task,
    })
}

/// With no owner nothing runs: a verb that asks for something to run is only a note for the next one.
fn say_what_goes_on(context: &Context, verb: VerbName, done: &Done) {
    let runs = match verb {
        VerbName::Start | VerbName::Resume | VerbName::Retry | VerbName::Rollback => true,
        VerbName::ResetFailed => done.tasks > 0,
        VerbName::Pause | VerbName::Cancel => false,
    };
    if runs && !context.quiet {
        let plan = done.plan.as_ref().map(|plan| format!(" of plan {}", plan.id)).unwrap_or_default();
        output::message(&format!(
            "nothing runs just now; `{}` with the file{plan} goes on",
            context.command("run FILE")
        ));
    }
}
