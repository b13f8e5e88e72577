//! `watch`: live progress of a plan that somebody else runs, until it ends.

use futures::StreamExt;
use milepost::WatchEvent;
use milepost_core::api::{PlanReport, Snapshot};
use milepost_core::id::PlanId;
use milepost_core::task::PlanStatus;

use crate::context::Context;
use crate::exit::{Exit, Outcome};
use crate::output::{self, Data};
use crate::progress::{Spectator, begins};
use crate::signals::Signals;
use crate::source::{Found, Source};
use crate::status::missing;
use crate::summary::{counts_line, failure_lines};
use crate::text::plan_status;
use crate::views::failed;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    plan: String,
}

pub(crate) async fn watch(context: &Context, args: Args) -> Outcome {
    let source = context.source()?;
    match source.find(&args.plan).await? {
        Some(Found::Plan(plan)) => follow(context, &*source, &plan).await,
        Some(Found::Task(task)) => {
            let events = context.command(&format!("events {} --follow", task.task_id));
            Err(missing(context, "plan", &args.plan).help(format!("it is a task: `{events}` follows it")))
        }
        None => Err(missing(context, "plan", &args.plan)),
    }
}

pub(crate) async fn follow(context: &Context, source: &dyn Source, plan: &PlanId) -> Outcome {
    let mut signals = Signals::listen()?;
    let mut events = source.watch(plan).await?;
    let mut screen = Screen { context, spectator: None };
    let ended = loop {
        tokio::select! {
            biased;
            () = signals.next() => {
                screen.clear();
                return Ok(Exit::Interrupted);
            }
            () = screen.time_to_draw() => screen.draw(),
            event = events.next() => match event {
                Some(Ok(WatchEvent::End(end))) => {
                    screen.show(&WatchEvent::End(end.clone()));
                    break end.plan_status;
                }
                Some(Ok(event)) => if !screen.show(&event) {
                    return Ok(Exit::Done);
                },
                Some(Err(failure)) => {
                    screen.clear();
                    return Err(failure);
                }
                None => break None,
            },
        }
    };
    screen.clear();
    let report = source.plan_report(plan).await?;
    if !context.json {
        summarise(context, &report);
    }
    let completed = ended.unwrap_or(report.plan.status) == PlanStatus::Completed;
    Ok(if completed { Exit::Done } else { Exit::TaskFailed })
}

/// What the watcher sees: one JSON object to a line, or progress for a person.
struct Screen<'a> {
    context: &'a Context,
    /// From the first snapshot on.
    spectator: Option<Spectator>,
}

impl Screen<'_> {
    /// False when nobody reads any more.
    fn show(&mut self, event: &WatchEvent) -> bool {
        if self.context.json {
            let mut data = Data::new();
            data.json_line(event);
            data.flush();
            return !data.closed();
        }
        if let (None, WatchEvent::Snapshot(snapshot)) = (&self.spectator, event) {
            self.begin(snapshot);
        }
        if let Some(spectator) = &mut self.spectator {
            spectator.take(self.context, event);
        }
        true
    }

    fn begin(&mut self, snapshot: &Snapshot) {
        let plan = &snapshot.plan;
        if !self.context.quiet {
            output::message(&begins(plan));
        }
        self.spectator = Spectator::new(self.context, plan);
    }

    async fn time_to_draw(&mut self) {
        match &mut self.spectator {
            Some(spectator) => spectator.time_to_draw().await,
            None => std::future::pending().await,
        }
    }

    fn draw(&mut self) {
        if let Some(spectator) = &mut self.spectator {
            spectator.draw();
        }
    }

    fn clear(&mut self) {
        if let Some(spectator) = self.spectator.take() {
            spectator.clear();
        }
    }
}

fn summarise(context: &Context, report: &PlanReport) {
    let plan = &report.plan;
    if plan.status == PlanStatus::Completed && context.quiet {
        return;
    }
    let mut data = Data::new();
    data.line(format!("plan {} {}: {}", plan.plan_id, plan_status(plan.status), counts_line(&plan.tasks)));
    failure_lines(&report.failures, failed(&plan.tasks)).iter().for_each(|line| data.line(line));
    drop(data);
    if let Some(failure) = report.failures.first() {
        output::message(&format!("  {}", context.command(&format!("logs {}", failure.task_id))));
    }
}
