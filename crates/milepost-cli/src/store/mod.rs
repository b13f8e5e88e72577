//! `store`: what is done to a store as a whole.

mod books;
mod migrate;
mod moving;
mod repair;

use crate::context::Context;
use crate::exit::Outcome;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Copy everything from one store to another while both are stopped, and check that it arrived
    Migrate(migrate::Args),
    /// End a task that cannot be read as FAILED, with what could be read of its log kept
    Repair(repair::Args),
}

pub(crate) async fn store(context: &Context, args: Args) -> Outcome {
    match args.verb {
        Verb::Migrate(args) => migrate::migrate(context, args).await,
        Verb::Repair(args) => repair::repair(context, args).await,
    }
}
