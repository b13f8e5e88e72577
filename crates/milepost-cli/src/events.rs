//! `events`: a task's log, as it was written.

use std::time::Duration;

use milepost_core::task::{EventView, TaskView};

use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Data};
use crate::source::{EventsAsked, Source};
use crate::status::missing;
use crate::text::short;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    task: String,
    /// Only events with a larger sequence number
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    /// Only events of this attempt at a stage
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Go on until the task ends; with --json, one object to a line
    #[arg(long)]
    follow: bool,
}

/// How often a follower looks for news.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(crate) async fn events(context: &Context, args: Args) -> Outcome {
    let source = context.source()?;
    let task = task(context, &*source, &args.task).await?;
    if args.follow {
        return follow(context, &*source, &task, args.after, args.attempt).await;
    }
    let (after, attempt, limit) = (args.after, args.attempt, args.limit as usize);
    let asked = EventsAsked { plan: task.plan_id, task: task.task_id, after, attempt, limit };
    let page = source.events(asked).await?;
    let mut data = Data::new();
    if context.json {
        data.json(&page);
        return Ok(Exit::Done);
    }
    page.items.iter().for_each(|event| data.line(line(event)));
    drop(data);
    if let Some(next) = page.next_cursor {
        let more = format!("events {} --after {next}", args.task);
        output::message(&format!("more: `{}`", context.command(&more)));
    }
    Ok(Exit::Done)
}

/// The task, or where to look instead.
pub(crate) async fn task(context: &Context, source: &dyn Source, id: &str) -> Result<TaskView, Failure> {
    if let Some(task) = source.task(id).await? {
        return Ok(task);
    }
    let failure = missing(context, "task", id);
    if source.find(id).await?.is_some() {
        return Err(
            failure.help(format!("it is a plan: `{}` lists its tasks", context.command(&format!("status {id}"))))
        );
    }
    Err(failure)
}

async fn follow(
    context: &Context,
    source: &dyn Source,
    task: &TaskView,
    mut after: u64,
    attempt: Option<u32>,
) -> Outcome {
    loop {
        // Its state first: what was written after this look is found by the next one.
        let ended = source.task(task.task_id.as_str()).await?.is_none_or(|task| task.status.is_ended());
        let (plan, id) = (task.plan_id.clone(), task.task_id.clone());
        let asked = EventsAsked { plan, task: id, after, attempt: None, limit: usize::MAX };
        let items = source.events(asked).await?.items;
        after = items.last().map_or(after, |event| event.sequence);
        let mut data = Data::new();
        for event in items.iter().filter(|event| attempt.is_none() || event.attempt_number == attempt) {
            if context.json { data.json_line(event) } else { data.line(line(event)) }
        }
        data.flush();
        if ended || data.closed() {
            return Ok(Exit::Done);
        }
        drop(data);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn line(event: &EventView) -> String {
    let mut line = format!("{:>5}  {}  {:<20}", event.sequence, event.timestamp, event.event_type);
    let text = |key: &str| event.payload.get(key).and_then(|value| value.as_str());
    if let Some(stage) = text("stage") {
        line.push_str(&format!("  {stage}"));
    }
    if let Some(attempt) = event.attempt_number {
        line.push_str(&format!("  attempt {attempt}"));
    }
    if let Some(delay) = event.backoff_delay_ms {
        line.push_str(&format!("  in {delay}ms"));
    }
    if let Some(by) = event.payload.get("by").and_then(|by| by.get("who")).and_then(|who| who.as_str()) {
        line.push_str(&format!("  by {by}"));
    }
    if let Some(why) = event.payload.get("by").and_then(|by| by.get("why")).and_then(|why| why.as_str()) {
        line.push_str(&format!(": {}", short(why, 80)));
    }
    if let Some(node) = text("node") {
        line.push_str(&format!("  on {node}"));
    }
    if let Some(reason) = text("reason") {
        line.push_str(&format!("  {}", short(reason, 100)));
    }
    line.trim_end().to_owned()
}
