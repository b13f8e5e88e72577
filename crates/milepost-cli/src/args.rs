//! The command line itself: what may be typed, and which function that leads to.

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::config::Color;
use crate::context::Context;
use crate::exit::{Exit, Outcome};
use crate::output::Data;
use crate::{
    bench, check, checkpoint, consumer, dead_letters, events, explain, logging, logs, publish, replay, run, serve,
    signal, status, store, submit, sync, token, verbs, watch,
};

const AFTER_HELP: &str = "\
Exit codes:
  0    done
  1    some task failed, or the plan was cancelled
  2    bad usage, a bad plan file, or a plan that clashes with a stored one
  3    store out of reach: missing, damaged, or owned by another process;
       or server out of reach: not there, or it refuses the token
  4    no such plan, task or table
  5    refused: its state forbids it
  130  interrupted (Ctrl-C once: stop at the stage boundary; twice: now)

Examples:
  milepost check deploy.yaml
  milepost run deploy.yaml
  milepost status deploy-2025-11
  milepost pause task-3 --reason 'waiting for the database team'
  milepost logs task-3 --stage push
  milepost run deploy.yaml --retry-failed
  milepost --server http://127.0.0.1:8080 submit deploy.yaml --watch

Settings come from flags, then MILEPOST_STORE, MILEPOST_SERVER and MILEPOST_TOKEN, then --config FILE or
./milepost.toml.";

/// Durable plans of tasks of stages: each stage's result is kept before the next one starts.
#[derive(Debug, Parser)]
#[command(name = "milepost", version, after_help = AFTER_HELP, arg_required_else_help = true, infer_subcommands = false)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// Where plans are kept: sqlite:PATH, postgres://…, mysql://… or redis://… [env: MILEPOST_STORE] [default:
    /// sqlite:milepost.db]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Ask this running server instead of a store: http://HOST:PORT [env: MILEPOST_SERVER]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// The server's token is in this file; or in the variable MILEPOST_TOKEN
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Read settings from this file instead of ./milepost.toml
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say more: -v for information, -vv for debugging
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Say nothing but results and errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Colours; `auto` is for terminals only and respects NO_COLOR
    #[arg(long, global = true, value_name = "WHEN")]
    pub(crate) color: Option<Color>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Submit a plan and run it here to its end; the same plan again carries on where it stopped
    Run(run::Args),
    /// Say what is wrong with a plan file, without running it
    Check(check::Args),
    /// Print the JSON Schema of plan files
    Schema,
    /// Run plans here for whoever asks: the engine behind an HTTP API
    Serve(serve::Args),
    /// Keys to the API: make, list, revoke
    Token(token::Args),
    /// Hand a plan to a server, which runs it
    Submit(submit::Args),
    /// What runs, what waits and why, what failed where
    Status(status::Args),
    /// Live progress of a plan, until it ends
    Watch(watch::Args),
    /// Why a task is not running
    Explain(explain::Args),
    /// A task's event log
    Events(events::Args),
    /// What a task's stages printed
    Logs(logs::Args),
    /// How far a task has come, as it is kept for the next attempt
    Checkpoint(checkpoint::Args),
    /// Let a plan that is READY run
    Start(verbs::Args),
    /// Pause at the stage boundary
    Pause(verbs::Args),
    /// Go on with what is paused
    Resume(verbs::Args),
    /// End it for good, and what it is running right now
    Cancel(verbs::Args),
    /// Run failed or interrupted tasks again, from their checkpoints
    Retry(verbs::RetryArgs),
    /// Undo what its stages did, the last one first
    Rollback(verbs::Args),
    /// Make failed tasks PENDING again, to run at the next start
    ResetFailed(verbs::Args),
    /// Send a workflow a signal, which it waits for or asks for later
    Signal(signal::Args),
    /// Send tasks the messages that they wait for
    Publish(publish::Args),
    /// What gave up, and putting it back
    DeadLetters(dead_letters::Args),
    /// How a server takes messages in, and pausing that
    Consumer(consumer::Args),
    /// Make the decisions of a recorded task again, and report the first that differs from its log
    Replay(replay::Args),
    /// Move everything from one store to another
    Store(store::Args),
    /// Copy the tables of one database to another: writes the plan
    Sync(sync::Args),
    /// Measure this machine and store, beside what both give a bare loop; prints JSON
    Bench(bench::Args),
    /// Print a script that completes commands in your shell
    Completions { shell: clap_complete::Shell },
}

pub(crate) fn parse() -> Cli {
    Cli::parse()
}

impl Cli {
    pub(crate) fn dispatch(self) -> Outcome {
        let Cli { global, command } = self;
        if let Command::Completions { shell } = command {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "milepost", &mut script);
            Data::new().bytes(&script);
            return Ok(Exit::Done);
        }
        let context = Context::new(&global)?;
        let _logging = logging::start(command.logging(&context), global.verbose, global.quiet)?;
        // One core is the store's writer's: sharing it would cost both more than it gains.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = cores.saturating_sub(1).max(1);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build();
        let runtime = runtime.map_err(|error| crate::exit::Failure::new(Exit::OutOfReach, error.to_string()))?;
        runtime.block_on(Box::pin(command.perform(&context)))
    }
}

impl Command {
    /// A server says more of itself than a command that somebody waits for.
    fn logging(&self, context: &Context) -> logging::Style {
        if let Command::Serve(args) = self { args.logging(context) } else { logging::Style::default() }
    }

    async fn perform(self, context: &Context) -> Outcome {
        use milepost_engine::Verb;
        match self {
            Command::Run(args) => run::run(context, args).await,
            Command::Check(args) => check::check(context, &args),
            Command::Schema => check::schema(),
            Command::Serve(args) => serve::serve(context, args).await,
            Command::Token(args) => token::token(context, args).await,
            Command::Submit(args) => submit::submit(context, args).await,
            Command::Status(args) => status::status(context, args).await,
            Command::Watch(args) => watch::watch(context, args).await,
            Command::Explain(args) => explain::explain(context, args).await,
            Command::Events(args) => events::events(context, args).await,
            Command::Logs(args) => logs::logs(context, args).await,
            Command::Checkpoint(args) => checkpoint::checkpoint(context, args).await,
            Command::Start(args) => verbs::operate(context, args, Verb::Start).await,
            Command::Pause(args) => verbs::operate(context, args, Verb::Pause).await,
            Command::Resume(args) => verbs::operate(context, args, Verb::Resume).await,
            Command::Cancel(args) => verbs::operate(context, args, Verb::Cancel).await,
            Command::Retry(args) => {
                let verb = Verb::Retry { from_checkpoint: !args.from_start };
                verbs::operate(context, args.common, verb).await
            }
            Command::Rollback(args) => verbs::operate(context, args, Verb::Rollback).await,
            Command::ResetFailed(args) => verbs::operate(context, args, Verb::ResetFailed).await,
            Command::Signal(args) => signal::signal(context, args).await,
            Command::Publish(args) => publish::publish(context, args).await,
            Command::DeadLetters(args) => dead_letters::dead_letters(context, args).await,
            Command::Consumer(args) => consumer::consumer(context, args).await,
            Command::Replay(args) => replay::replay(context, args).await,
            Command::Store(args) => store::store(context, args).await,
            Command::Sync(args) => sync::sync(context, args).await,
            Command::Bench(args) => bench::bench(context, &args).await,
            Command::Completions { .. } => Ok(Exit::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_put_together_soundly() {
        Cli::command().debug_assert();
    }
}
