//! `replay`: the decisions of a recorded task, made again and compared with its log.

use milepost_core::id::TaskId;
use milepost_core::task::{Decided, Difference, Event, EventView, Record, Task, replay as decide_again};
use milepost_engine::workflow::{History, log};
use serde_json::{Value, json};

use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Data;
use crate::status::missing;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    task: String,
    /// Print a workflow's recorded run instead, as JSON for `milepost::replay` in a test
    #[arg(long)]
    export: bool,
}

pub(crate) async fn replay(context: &Context, args: Args) -> Outcome {
    let store = context.store()?.visit().await?;
    let id = TaskId::parse(&args.task).map_err(|_| missing(context, "task", &args.task))?;
    let stored = store.task(&id).await?.ok_or_else(|| missing(context, "task", &args.task))?;
    if args.export {
        let history = History::read(&*store, &id).await?;
        let words = format!("task {id} runs a plan's stages, which are replayed here");
        let history = history.ok_or_else(|| Failure::new(Exit::Refused, words))?;
        Data::new().json(&history);
        return Ok(Exit::Done);
    }
    if let Some(workflow) = &stored.task.spec().workflow {
        let words = format!("task {id} runs the workflow {workflow}, whose code is in its own program");
        return Err(Failure::new(Exit::Refused, words)
            .help(format!("`{}` prints its recording", context.command(&format!("replay {id} --export"))))
            .help("`milepost::replay` runs it in a test of that program"));
    }
    let events = log(&*store, &id).await?;
    match decide_again(stored.task.spec().clone(), &events) {
        Ok(replayed) => {
            show(context, &json!({ "taskId": id, "events": replayed, "divergence": null }), || {
                format!("replayed {replayed} events, no divergence")
            });
            Ok(Exit::Done)
        }
        Err(difference) => {
            show(context, &data(&stored.task, events.len(), &difference), || words(&difference));
            Ok(Exit::TaskFailed)
        }
    }
}

fn show(context: &Context, data: &Value, words: impl FnOnce() -> String) {
    if context.json { Data::new().json(data) } else { Data::new().line(words()) }
}

fn data(task: &Task, events: usize, difference: &Difference) -> Value {
    let spec = task.spec();
    let view = |record: &Record| json!(EventView::new(&spec.plan, &spec.id, difference.sequence, record));
    let (decided, refused) = match &difference.decided {
        Decided::Event(record) => (view(record), None),
        Decided::Nothing => (Value::Null, None),
        Decided::Refused(words) => (Value::Null, Some(words)),
    };
    json!({
        "taskId": spec.id,
        "events": events,
        "divergence": {
            "sequence": difference.sequence,
            "recorded": difference.recorded.as_ref().map(view),
            "decided": decided,
            "refused": refused,
        },
    })
}

fn words(difference: &Difference) -> String {
    let recorded = difference.recorded.as_ref().map_or_else(|| "nothing".to_owned(), describe);
    let decided = match &difference.decided {
        Decided::Event(record) => describe(record),
        Decided::Nothing => "nothing".to_owned(),
        Decided::Refused(words) => format!("nothing: {words}"),
    };
    format!("diverges at event {}\n  the log has     {recorded}\n  the rules have  {decided}", difference.sequence)
}

fn describe(record: &Record) -> String {
    let event = record.event();
    let mut words = event.kind().to_owned();
    if let Some(stage) = event.stage() {
        words.push_str(&format!(" {stage}"));
    }
    match event {
        Event::RetryScheduled { attempt, delay, .. } => words.push_str(&format!(" attempt {attempt} in {delay}")),
        Event::StageStarted { attempt, .. }
        | Event::StageCompleted { attempt, .. }
        | Event::StageFailed { attempt, .. } => words.push_str(&format!(" attempt {attempt}")),
        _ => {}
    }
    words
}
