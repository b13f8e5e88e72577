//! The operator's verbs: asked of whoever runs the plan, and what became of it.

use milepost_core::api::{LeftTask, ResetAnswer, VerbAnswer};
use milepost_core::task::TaskStatus;
use milepost_engine::Verb;

use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Data};
use crate::socket::Name;
use crate::source::{Operated, Order};
use crate::text::{count, plan_status, task_status};
use crate::views::MOST_SHOWN;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A plan's or a task's id; a plan's wins
    #[arg(value_name = "PLAN|TASK", required_unless_present = "tenant", conflicts_with = "tenant")]
    target: Option<String>,
    /// The task of this tenant that matters most: the one at work, then one that waits for a person
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

pub(crate) async fn operate(context: &Context, args: Args, verb: Verb) -> Outcome {
    let target = match (args.target, args.tenant) {
        (_, Some(tenant)) => Name::Tenant(tenant),
        (Some(id), None) => Name::Id(id),
        (None, None) => return Err(Failure::new(Exit::Usage, "name a plan, a task or --tenant")),
    };
    order(context, target, verb, args.reason).await
}

/// Asks for it, and shows what came of it.
pub(crate) async fn order(context: &Context, target: Name, verb: Verb, reason: Option<String>) -> Outcome {
    let order = Order { target, verb, by: context.by(reason) };
    let operated = context.source()?.operate(order).await;
    let Operated { answer, goes_on } = operated.map_err(|failure| match failure.exit {
        Exit::NotFound => failure.help(format!("`{}` lists the plans", context.command("status"))),
        Exit::Done | Exit::TaskFailed | Exit::Usage | Exit::OutOfReach | Exit::Refused | Exit::Interrupted => failure,
    })?;
    show(context, verb, &answer);
    if !goes_on {
        say_what_goes_on(context, verb, &answer);
    }
    if answer.left.is_empty() {
        return Ok(Exit::Done);
    }
    say_what_is_left(&answer.left);
    Ok(Exit::Refused)
}

/// Tasks of the plan that need something else before the verb can do anything for them.
fn say_what_is_left(left: &[LeftTask]) {
    let were = if left.len() == 1 {
        "1 task was left as it was".to_owned()
    } else {
        format!("{} tasks were left as they were", left.len())
    };
    output::message(&format!("{were}:"));
    for task in left.iter().take(MOST_SHOWN) {
        output::message(&format!("  {}", task.reason));
    }
    if left.len() > MOST_SHOWN {
        output::message(&format!("  and {} more", left.len() - MOST_SHOWN));
    }
}

fn show(context: &Context, verb: Verb, answer: &VerbAnswer) {
    let mut data = Data::new();
    let reset = verb == Verb::ResetFailed;
    if context.json {
        let reset_answer = || ResetAnswer { reset: answer.tasks, left: answer.left.clone() };
        return if reset { data.json(&reset_answer()) } else { data.json(answer) };
    }
    if reset {
        data.line(format!("{} {} reset to PENDING", answer.target, count(answer.tasks, "failed task")));
        return;
    }
    if let Some(task) = &answer.task {
        let waits = task.pause_requested && task.status == TaskStatus::Running;
        let note = if waits { ", pauses when its running stage ends" } else { "" };
        data.line(format!("{} {}{note}", task.id, task_status(task.status)));
    } else if let Some(plan) = &answer.plan {
        let changed =
            if answer.tasks > 0 { format!(", {} changed", count(answer.tasks, "task")) } else { String::new() };
        data.line(format!("{} {}{changed}", plan.id, plan_status(plan.status)));
    }
}

/// With no owner nothing runs: a verb that asks for something to run is only a note for the next one.
fn say_what_goes_on(context: &Context, verb: Verb, answer: &VerbAnswer) {
    let runs = match verb {
        Verb::Start | Verb::Resume | Verb::Retry { .. } | Verb::Rollback => true,
        Verb::ResetFailed => answer.tasks > 0,
        Verb::Pause | Verb::Cancel | Verb::Repair => false,
    };
    if runs && !context.quiet {
        let plan = answer.plan.as_ref().map(|plan| format!(" of plan {}", plan.id)).unwrap_or_default();
        output::message(&format!(
            "nothing runs just now; `{}` with the file{plan} goes on",
            context.command("run FILE")
        ));
    }
}
