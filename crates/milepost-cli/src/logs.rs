//! `logs`: what a task's stages printed, byte for byte.

use std::io::IsTerminal;

use milepost_core::api::{List, LogView};
use milepost_store::{LogChunk, LogQuery};

use crate::context::Context;
use crate::events::task;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Data};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    task: String,
    /// Only this stage
    #[arg(long, value_name = "S")]
    stage: Option<String>,
    /// Only this attempt
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
}

pub(crate) async fn logs(context: &Context, args: Args) -> Outcome {
    let source = context.source()?;
    let task = task(context, &*source, &args.task).await?;
    let stage = match &args.stage {
        None => None,
        Some(wanted) => match task.stages.iter().find(|stage| stage.name.as_str() == wanted) {
            Some(stage) => Some(stage.name.clone()),
            None => {
                let known = task.stages.iter().map(|stage| stage.name.as_str()).collect::<Vec<_>>().join(", ");
                let message = format!("task {} has no stage `{wanted}`; it has {known}", args.task);
                return Err(Failure::new(Exit::NotFound, message));
            }
        },
    };
    let query = LogQuery { task: task.task_id.clone(), stage, attempt: args.attempt };
    let chunks = together(source.logs(query).await?);
    if context.json {
        let items = chunks.iter().map(LogView::from).collect();
        Data::new().json(&List::<LogView> { items, next_cursor: None });
        return Ok(Exit::Done);
    }
    if chunks.is_empty() && !context.quiet {
        output::message(&format!("task {} has printed nothing", args.task));
    }
    show(&chunks, std::io::stdout().is_terminal());
    Ok(Exit::Done)
}

/// Pieces of one attempt that follow each other are one.
fn together(chunks: Vec<LogChunk>) -> Vec<LogChunk> {
    let mut joined: Vec<LogChunk> = Vec::new();
    for chunk in chunks {
        match joined.last_mut() {
            Some(last) if last.stage == chunk.stage && last.attempt == chunk.attempt => last.bytes.extend(chunk.bytes),
            Some(_) | None => joined.push(chunk),
        }
    }
    joined
}

/// Headers are for people; a pipe gets what the stages printed and nothing else.
fn show(chunks: &[LogChunk], headers: bool) {
    let mut data = Data::new();
    for chunk in chunks {
        if headers {
            let header = format!("── {}, attempt {}, {} ──", chunk.stage, chunk.attempt, chunk.at);
            data.line(console::style(header).dim().to_string());
        }
        data.bytes(&chunk.bytes);
        if headers && !chunk.bytes.ends_with(b"\n") {
            data.bytes(b"\n");
        }
    }
}
