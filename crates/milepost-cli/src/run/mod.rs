//! `run`: submits a plan and runs it here to its end, or carries on where it stopped.

mod supervise;
mod take_up;

use std::sync::Arc;

use milepost_core::api::PlanView;
use milepost_core::plan::{Plan, Trigger};
use milepost_engine::{Engine, Options};
use milepost_store::{PlanRow, Resubmit, Start, Store, StoreError};

use crate::config::StoreLoss;
use crate::context::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::files::{self, Authors};
use crate::output;
use crate::plan_file;
use crate::progress::{Progress, begins};
use crate::signals::Signals;
use crate::socket::{self, Listener};
use crate::store_url::StoreUrl;
use crate::summary::Summary;
use crate::text::{count, shell};

use supervise::supervise;

pub(crate) use supervise::{Ending, Waiting, Why};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The plan file, YAML or JSON; `-` is stdin
    file: String,
    /// If the stored plan has other tasks: add the new ones, and remove those that are gone
    #[arg(long)]
    update: bool,
    /// Also run failed tasks again, from their checkpoints
    #[arg(long)]
    retry_failed: bool,
    /// The name of this node in the log [default: HOST-PID]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// What becomes of its tasks while the store is away [default: hold]
    #[arg(long, value_name = "WHAT")]
    on_store_loss: Option<StoreLoss>,
}

pub(crate) async fn run(context: &Context, args: Args) -> Outcome {
    let registry = plan_file::registry();
    let plan = Arc::new(plan_file::read(&args.file, &registry)?);
    if plan.definition.settings.trigger == Trigger::Message {
        let message = format!(
            "plan {} waits for messages (`trigger: message`), which `run` does not receive",
            plan.definition.id
        );
        return Err(Failure::new(Exit::Usage, message)
            .help("leave `trigger` out to run it now")
            .help("`milepost serve --kafka HOST:PORT` receives them; hand it the plan by `milepost submit`"));
    }
    if let Some(workflow) = &plan.definition.workflow {
        let message = format!(
            "plan {} runs the workflow {workflow}, a function of a program of its own, and this one has none",
            plan.definition.id
        );
        let submit = format!("milepost --server URL submit {}", shell(&args.file));
        return Err(Failure::new(Exit::Usage, message)
            .help(format!("`{submit}` hands it to that program, at the address where it serves"))
            .help("or begin it in the program itself, by `engine.run`"));
    }
    let url = context.store()?;
    let mut options = Options::new(context.node(args.node.clone()));
    options.only = Some(plan.definition.id.clone());
    options.capacity = context.capacity(plan.definition.settings.max_concurrency);
    options.on_store_loss = context.on_store_loss(args.on_store_loss);
    options.recovery = context.recovery(None);
    let store = join(&url, &options).await?;
    // Before anything runs, so that no signal finds it unprepared.
    let signals = Signals::listen()?;
    let registry = files::registry(context, registry, &url, Authors::Trusted, false);
    let engine = Engine::new(store, registry, options);
    // From here on verbs come to us, also while a large plan is being stored.
    let listener = listen(&url, &engine);
    let mut run = Run { context, file: &args.file, engine, listener };
    let outcome = run.submit_and_run(&args, &plan, signals).await;
    run.leave().await;
    outcome
}

/// A run of one plan, for as long as this process is a node of the store.
pub(crate) struct Run<'a> {
    context: &'a Context,
    file: &'a str,
    engine: Engine,
    listener: Option<Listener>,
}

impl Run<'_> {
    async fn submit_and_run(&mut self, args: &Args, plan: &Arc<Plan>, signals: Signals) -> Outcome {
        let row = submit(self.context, args, &self.engine, plan).await?;
        let row = take_up::take_up(self, row, args.retry_failed).await?;
        if nothing_to_do(&row) {
            return self.say_there_is_nothing_to_do(&row).await;
        }
        self.run_it(row, signals).await
    }

    async fn run_it(&mut self, row: PlanRow, signals: Signals) -> Outcome {
        let started = std::time::Instant::now();
        self.say_it_begins(&row);
        let progress = Progress::start(self.context, &self.engine, &row);
        self.engine.start();
        let ending = supervise(self, &row.id, signals, &progress).await;
        self.leave().await;
        progress.finish().await;
        self.summarise(ending?, started.elapsed()).await
    }

    /// Verbs that come after this find nobody, and are done by whoever gave them.
    async fn leave(&mut self) {
        if let Some(listener) = self.listener.take() {
            listener.close().await;
        }
        self.engine.stop().await;
    }

    fn say_it_begins(&self, row: &PlanRow) {
        if self.context.quiet {
            return;
        }
        output::message(&begins(&PlanView::from(row)));
    }

    async fn summarise(&self, ending: Ending, took: std::time::Duration) -> Outcome {
        let store = &**self.engine.store();
        let summary = Summary::read(store, ending.plan()).await?;
        let exit = ending.exit(summary.status());
        summary.show(self.context, self.file, &ending, took);
        Ok(exit)
    }

    async fn say_there_is_nothing_to_do(&self, row: &PlanRow) -> Outcome {
        let summary = Summary::read(&**self.engine.store(), &row.id).await?;
        summary.show_nothing_to_do(self.context, self.file);
        let done = row.status == milepost_core::task::PlanStatus::Completed;
        Ok(if done { Exit::Done } else { Exit::TaskFailed })
    }
}

/// Without a socket the plan runs all the same; only nobody can tell it anything. On a store that nodes share, others
/// reach this one through the store.
pub(crate) fn listen(url: &StoreUrl, engine: &Engine) -> Option<Listener> {
    match socket::listen(url.file()?, engine) {
        Ok(listener) => Some(listener),
        Err(error) => {
            tracing::warn!(%error, "no socket beside the store: other terminals can watch, but not pause or cancel");
            None
        }
    }
}

pub(crate) async fn join(url: &StoreUrl, options: &Options) -> Result<Arc<dyn Store>, Failure> {
    match url.join(options).await {
        Ok(store) => Ok(store),
        Err(error @ StoreError::Owned { .. }) => Err(url
            .failure(error)
            .help("`milepost status` shows what it does; verbs such as `milepost pause` reach it from here")),
        Err(error) => Err(url.failure(error)),
    }
}

async fn submit(context: &Context, args: &Args, engine: &Engine, plan: &Arc<Plan>) -> Result<PlanRow, Failure> {
    let resubmit = if args.update { Resubmit::Update } else { Resubmit::Same };
    let submitted = engine.submit(plan.clone(), Start::AtOnce, resubmit).await.map_err(|error| {
        let failure = Failure::from(error);
        let clash =
            failure.exit == Exit::Usage && !args.update && failure.message.contains("exists with other content");
        if clash {
            let again = context.command(&format!("run {} --update", shell(&args.file)));
            return failure
                .help(format!("`{again}` adds new tasks and removes those that are gone"))
                .help("or give the plan another id");
        }
        failure
    })?;
    let difference = submitted.difference;
    if difference.added + difference.removed > 0 && !context.quiet {
        let (added, removed) = (count(difference.added, "task"), count(difference.removed, "task"));
        output::message(&format!("plan {} updated: {added} added, {removed} removed", plan.definition.id));
    }
    Ok(submitted.plan)
}

/// The plan has ended, and nothing of it is being cancelled or rolled back any more.
fn nothing_to_do(row: &PlanRow) -> bool {
    row.status.is_ended() && row.counts.open() == 0
}
