//! `milepost`: the engine on the command line. Each command is a file of its own; this one only leads to them.

mod args;
mod bench;
mod check;
mod checkpoint;
mod config;
mod consumer;
mod context;
mod dead_letters;
mod events;
mod exit;
mod explain;
mod files;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(not(feature = "kafka"))]
#[path = "no_kafka.rs"]
mod kafka;
mod logging;
mod logs;
mod operator;
mod output;
mod plan_file;
mod progress;
mod publish;
mod replay;
mod run;
mod serve;
mod signal;
mod signals;
mod socket;
mod source;
mod status;
mod store;
mod store_url;
mod submit;
mod summary;
mod sync;
mod text;
mod token;
mod verbs;
mod views;
mod watch;

use std::process::ExitCode;

/// Commits are made on one thread and written on another, which the system's allocator pays for with locks.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    exit::with_code(args::parse(), |args| args.dispatch())
}
