//! `sync`: plans that copy the tables of one database to another.

mod catalogue;
mod choice;
mod database;
mod init;
mod names;
mod plan_text;
mod tables;

use crate::context::Context;
use crate::exit::Outcome;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Write a plan file that copies the tables of one database to another, one task for each
    Init(init::Args),
    /// List the tables that a database has, with their size and key
    Tables(tables::Args),
}

pub(crate) async fn sync(context: &Context, args: Args) -> Outcome {
    match args.verb {
        Verb::Init(args) => init::init(context, args).await,
        Verb::Tables(args) => tables::tables(context, args).await,
    }
}
