//! Searches schedules for one that breaks a rule, and replays one.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use milepost_sim::{Schedule, Search, Trace, quiet_panics};

#[derive(Parser)]
#[command(about = "The real engine, several nodes, under one seed")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Plays many schedules and prints the seeds of those that break a rule.
    Search {
        #[arg(long, default_value_t = 1)]
        from: u64,
        #[arg(long, default_value_t = 10_000)]
        count: u64,
        #[arg(long, default_value_t = 2)]
        threads: u64,
        /// Ends after so many failures.
        #[arg(long, default_value_t = 5)]
        failures: usize,
    },
    /// Plays one schedule and prints what happened in it.
    Replay {
        seed: u64,
        /// First looks for the shortest schedule that still fails as this one does.
        #[arg(long)]
        shortest: bool,
    },
    /// Plants one bug after the other, and prints how many schedules it took to find each.
    #[cfg(feature = "planted")]
    Planted {
        #[arg(long, default_value_t = 10_000)]
        most: u64,
    },
}

fn main() -> ExitCode {
    quiet_panics();
    let done = match Args::parse().command {
        Command::Search { from, count, threads, failures } => search(Search { from, count, threads, failures }),
        Command::Replay { seed, shortest } => replay(seed, shortest),
        #[cfg(feature = "planted")]
        Command::Planted { most } => planted(most),
    };
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[expect(clippy::print_stdout, reason = "it is a program for the terminal")]
fn search(search: Search) -> bool {
    let summary = search.run();
    println!("{summary}");
    summary.failures.is_empty()
}

#[expect(clippy::print_stdout, reason = "it is a program for the terminal")]
fn replay(seed: u64, shortest: bool) -> bool {
    let whole = Schedule::generate(seed);
    let schedule = if shortest { whole.shortest().unwrap_or(whole) } else { whole };
    let report = schedule.play(Trace::on());
    println!("{schedule}\n{}", report.trace.text());
    if let Some(violation) = &report.violation {
        println!("seed {seed}: {violation}");
    }
    report.violation.is_none()
}

#[cfg(feature = "planted")]
#[expect(clippy::print_stdout, reason = "it is a program for the terminal")]
fn planted(most: u64) -> bool {
    println!("| planted bug | schedules | found as |\n|---|---|---|");
    let mut all = true;
    for bug in milepost_sim::BUGS {
        match milepost_sim::find(bug, most) {
            Some(found) => println!("| {bug} | {} | {} |", found.schedules, found.violation),
            None => {
                all = false;
                println!("| {bug} | not in {most} | |");
            }
        }
    }
    all
}
