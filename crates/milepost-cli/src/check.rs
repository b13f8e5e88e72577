//! `check` and `schema`: what a plan file may say, and whether this one does.

use milepost_core::plan::{Plan, PlanErrors};
use serde::Serialize;
use serde_json::json;

use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Data;
use crate::plan_file::{self, Unusable};
use crate::text::count;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The plan file, YAML or JSON; `-` is stdin
    file: String,
}

pub(crate) fn check(context: &Context, args: &Args) -> Outcome {
    match plan_file::read(&args.file, &plan_file::registry()) {
        Ok(plan) => {
            show(context, &args.file, &plan);
            Ok(Exit::Done)
        }
        Err(unusable) => refuse(context, unusable),
    }
}

/// Says what is wrong with a file.
pub(crate) fn refuse(context: &Context, unusable: Unusable) -> Outcome {
    match unusable {
        Unusable::Wrong(errors) if context.json => {
            Data::new().json(&items(&errors));
            Ok(Exit::Usage)
        }
        Unusable::Wrong(_) | Unusable::Unreadable(_) => Err(unusable.into()),
    }
}

pub(crate) fn schema() -> Outcome {
    Data::new().json(&milepost_core::plan::schema());
    Ok(Exit::Done)
}

impl From<Unusable> for Failure {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Unreadable(failure) => failure,
            Unusable::Wrong(errors) => {
                let total = errors.errors.len() + errors.more;
                let found = count(total as u64, "error");
                Failure::new(Exit::Usage, format!("{found} in the plan file\n\n{}", errors.to_string().trim_end()))
            }
        }
    }
}

fn show(context: &Context, file: &str, plan: &Plan) {
    let definition = &plan.definition;
    let own: usize = plan.tasks.iter().map(|task| task.stages.as_ref().unwrap_or(&definition.stages).len()).sum();
    let mut data = Data::new();
    if context.json {
        let mut shown = json!({
            "planId": definition.id,
            "tasks": plan.tasks.len(),
            "stages": own,
            "maxConcurrency": definition.settings.max_concurrency,
        });
        if let Some(workflow) = &definition.workflow {
            shown["workflow"] = json!(workflow);
        }
        return data.json(&shown);
    }
    // How many stages a function will have, nobody knows.
    let does = match &definition.workflow {
        Some(workflow) => format!("each runs the workflow {workflow}"),
        None => format!("{} in all", count(own as u64, "stage")),
    };
    data.line(format!(
        "{file} is good: plan {}, {}, {does}, {} at once",
        definition.id,
        count(plan.tasks.len() as u64, "task"),
        definition.settings.max_concurrency
    ));
}

#[derive(Debug, Serialize)]
struct Item<'a> {
    line: usize,
    column: usize,
    path: &'a str,
    message: &'a str,
    help: Option<&'a str>,
}

fn items(errors: &PlanErrors) -> Vec<Item<'_>> {
    errors
        .errors
        .iter()
        .map(|error| Item {
            line: error.line,
            column: error.column,
            path: &error.path,
            message: &error.message,
            help: error.help.as_deref(),
        })
        .collect()
}
