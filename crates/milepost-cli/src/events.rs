//! `events`: a task's log, as it was written.

use std::time::Duration;

use milepost_core::id::TaskId;
use milepost_core::task::EventView;
use milepost_store::{EventQuery, Store, StoredTask};
use serde_json::json;

use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Data};
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
/// Events read at a time.
const PAGE: usize = 1000;

pub(crate) async fn events(context: &Context, args: Args) -> Outcome {
    let store = context.store()?.read()?;
    let stored = task(context, &*store, &args.task).await?;
    let mut reading = Reading { store: &*store, stored, attempt: args.attempt, after: args.after };
    if args.follow {
        return follow(context, &mut reading).await;
    }
    let limit = args.limit as usize;
    let (items, more) = reading.page(limit).await?;
    let next = more.then(|| items.last().map(|event| event.sequence)).flatten();
    let mut data = Data::new();
    if context.json {
        data.json(&json!({ "items": items, "nextCursor": next.map(|next| next.to_string()) }));
        return Ok(Exit::Done);
    }
    items.iter().for_each(|event| data.line(line(event)));
    drop(data);
    if let Some(next) = next {
        let more = format!("events {} --after {next}", args.task);
        output::message(&format!("more: `{}`", context.command(&more)));
    }
    Ok(Exit::Done)
}

/// The task, or where to look instead.
pub(crate) async fn task(context: &Context, store: &dyn Store, id: &str) -> Result<StoredTask, Failure> {
    if let Ok(id) = TaskId::parse(id)
        && let Some(stored) = store.task(&id).await?
    {
        return Ok(stored);
    }
    let failure = missing(context, "task", id);
    if crate::store::find(store, id).await?.is_some() {
        return Err(
            failure.help(format!("it is a plan: `{}` lists its tasks", context.command(&format!("status {id}"))))
        );
    }
    Err(failure)
}

struct Reading<'a> {
    store: &'a dyn Store,
    stored: StoredTask,
    attempt: Option<u32>,
    after: u64,
}

impl Reading<'_> {
    /// The next events that are wanted, and whether there may be more of them.
    async fn page(&mut self, limit: usize) -> Result<(Vec<EventView>, bool), Failure> {
        let spec = self.stored.task.spec().clone();
        let mut wanted = Vec::new();
        loop {
            let query = EventQuery { task: spec.id.clone(), after: self.after, limit: PAGE };
            let found = self.store.events(query).await?;
            let last = found.len() < PAGE;
            for event in found {
                if wanted.len() == limit {
                    return Ok((wanted, true));
                }
                self.after = event.sequence;
                let view = EventView::new(&spec.plan, &spec.id, event.sequence, &event.record);
                if self.attempt.is_none() || view.attempt_number == self.attempt {
                    wanted.push(view);
                }
            }
            if last {
                return Ok((wanted, false));
            }
        }
    }
}

async fn follow(context: &Context, reading: &mut Reading<'_>) -> Outcome {
    loop {
        // Its state first: what was written after this look is found by the next one.
        let id = reading.stored.key.id.clone();
        let ended = reading.store.task(&id).await?.is_none_or(|stored| stored.task.status().is_ended());
        let (items, _) = reading.page(usize::MAX).await?;
        let mut data = Data::new();
        for event in &items {
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
