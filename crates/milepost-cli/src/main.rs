//! `milepost`: the engine on the command line. Each command is a file of its own; this one only leads to them.

mod args;
// mod bench; // with `Bench(bench::Args)` in args.rs, once it has `Args` and `run`
mod check;
mod checkpoint;
mod config;
mod context;
mod events;
mod exit;
mod logging;
mod logs;
mod operator;
mod output;
mod plan_file;
mod progress;
mod run;
mod signals;
mod socket;
mod status;
mod store;
mod summary;
mod text;
mod verbs;
mod views;

use std::process::ExitCode;

fn main() -> ExitCode {
    exit::with_code(args::parse(), |args| args.dispatch())
}
