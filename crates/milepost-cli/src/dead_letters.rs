//! `dead-letters`: what gave up, one of them in full, and putting them back.

use std::time::Duration;

use milepost_core::api::{DeadLetterView, RedriveAnswer};

use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Data};
use crate::source::Source;
use crate::text::{Table, count, dash, length, short, task_status};

/// Letters asked for at a time.
const PAGE: u16 = 200;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Show at most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: u16,
    /// Where to go on: the nextCursor of the page before
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// One dead letter, with the message as it came
    Show { id: String },
    /// Put dead letters back: tasks go on from their checkpoints, messages are published again
    Redrive(Redrive),
}

#[derive(Debug, clap::Args)]
struct Redrive {
    #[arg(value_name = "ID", required_unless_present = "all")]
    ids: Vec<String>,
    /// All that there are now
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// How many a second
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Why, for the log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(crate) async fn dead_letters(context: &Context, args: Args) -> Outcome {
    let source = context.source()?;
    match args.verb {
        None => list(context, &*source, args.limit, args.cursor.as_deref()).await,
        Some(Verb::Show { id }) => show(context, &*source, &id).await,
        Some(Verb::Redrive(redrive)) => put_back(context, &*source, redrive).await,
    }
}

async fn list(context: &Context, source: &dyn Source, limit: u16, cursor: Option<&str>) -> Outcome {
    let page = source.dead_letters(limit, cursor).await?;
    let mut data = Data::new();
    if context.json {
        data.json(&page);
        return Ok(Exit::Done);
    }
    if page.items.is_empty() {
        data.line("no dead letters");
        return Ok(Exit::Done);
    }
    let now = milepost_engine::Clock::system().now();
    let mut table = Table::new(&["DEAD LETTER", "TASK", "STAGE", "SINCE", "WHY"]);
    for letter in &page.items {
        table.row(vec![
            letter.id.clone(),
            dash(letter.task_id.as_ref()),
            dash(letter.failed_stage.as_ref()),
            format!("{} ago", length(now.since(letter.failed_at))),
            short(&letter.failure_reason, 80),
        ]);
    }
    table.lines("").iter().for_each(|line| data.line(line));
    drop(data);
    if let Some(cursor) = page.next_cursor
        && !context.quiet
    {
        let next = context.command(&format!("dead-letters --cursor {cursor}"));
        output::message(&format!("there are more: `{next}`"));
    }
    Ok(Exit::Done)
}

async fn show(context: &Context, source: &dyn Source, id: &str) -> Outcome {
    let letter = source.dead_letter(id).await?.ok_or_else(|| missing(context, id))?;
    let mut data = Data::new();
    if context.json {
        data.json(&letter);
        return Ok(Exit::Done);
    }
    lines(&letter).iter().for_each(|line| data.line(line));
    drop(data);
    if !context.quiet {
        output::message(&format!("`{}` puts it back", context.command(&format!("dead-letters redrive {id}"))));
    }
    Ok(Exit::Done)
}

fn lines(letter: &DeadLetterView) -> Vec<String> {
    let kind = letter.error_type.map(|kind| format!("{}: ", kind.as_str())).unwrap_or_default();
    let mut lines = vec![format!("dead letter {}", letter.id), format!("  {kind}{}", letter.failure_reason)];
    let mut tell = |what: &str, value: Option<String>| {
        lines.extend(value.map(|value| format!("  {what:<10} {value}")));
    };
    tell("task", letter.task_id.clone());
    tell("plan", letter.plan_id.clone());
    tell("stage", letter.failed_stage.clone());
    tell("attempts", letter.attempts.map(|attempts| attempts.to_string()));
    tell("failed at", Some(letter.failed_at.to_string()));
    tell("node", letter.node_id.clone());
    tell("topic", letter.original_topic.clone());
    tell("message", letter.original_message_id.clone());
    tell("as it came", letter.original_message.clone());
    lines
}

async fn put_back(context: &Context, source: &dyn Source, asked: Redrive) -> Outcome {
    let ids = if asked.all { all(source).await? } else { asked.ids };
    // One after the other: what failed for one reason would fail together.
    let mut turn = tokio::time::interval(Duration::from_secs(1) / asked.rate);
    let (mut answers, mut failed) = (Vec::new(), None);
    let mut data = Data::new();
    for id in &ids {
        turn.tick().await;
        match source.redrive(id, context.by(asked.reason.clone())).await {
            Ok(answer) => {
                if !context.json {
                    data.line(line(&answer));
                    data.flush();
                }
                answers.push(answer);
            }
            // Somebody else was faster, or it cannot be put back; the others can all the same.
            Err(failure) if asked.all && matches!(failure.exit, Exit::NotFound | Exit::Refused) => {
                output::message(&failure.message);
                failed = failed.or(Some(failure.exit).filter(|exit| *exit == Exit::Refused));
            }
            Err(failure) => return Err(failure),
        }
    }
    if context.json {
        data.json(&answers);
    } else if asked.all {
        data.line(format!("{} put back", count(answers.len() as u64, "dead letter")));
    }
    Ok(failed.unwrap_or(Exit::Done))
}

/// Those that are there now; what gives up meanwhile is left for another time.
async fn all(source: &dyn Source) -> Result<Vec<String>, Failure> {
    let (mut ids, mut cursor) = (Vec::new(), None);
    loop {
        let page = source.dead_letters(PAGE, cursor.as_deref()).await?;
        ids.extend(page.items.into_iter().map(|letter| letter.id));
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(ids);
        }
    }
}

fn line(answer: &RedriveAnswer) -> String {
    let message = answer.message_id.as_ref().map(|id| format!(", message {id}")).unwrap_or_default();
    match &answer.task {
        Some(task) => format!("{} put back: task {} {}{message}", answer.id, task.id, task_status(task.status)),
        None => format!("{} put back: published again{message}", answer.id),
    }
}

fn missing(context: &Context, id: &str) -> Failure {
    Failure::new(Exit::NotFound, format!("there is no dead letter `{id}`"))
        .help(format!("`{}` lists them", context.command("dead-letters")))
}
