//! Searches schedules for one that breaks a rule, and replays one.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use milepost_sim::{PACE, Schedule, Search, Server, Trace, quiet_panics};

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
        /// On this PostgreSQL, MySQL or Redis, in real time, each in a store of its own.
        #[arg(long, value_name = "URL", value_parser = Server::parse)]
        on: Option<Server>,
    },
    /// Plays one schedule and prints what happened in it.
    Replay {
        seed: u64,
        /// First looks for the shortest schedule that still fails as this one does.
        #[arg(long)]
        shortest: bool,
        /// On this PostgreSQL, MySQL or Redis, in real time: what happens there is not the same each time.
        #[arg(long, value_name = "URL", value_parser = Server::parse, conflicts_with = "shortest")]
        on: Option<Server>,
    },
    /// Plants one bug after the other, and prints how many schedules it took to find each.
    #[cfg(feature = "planted")]
    Planted {
        #[arg(long, default_value_t = 10_000)]
        most: u64,
        /// Only this bug.
        #[arg(long)]
        bug: Option<String>,
        /// Judged by the log alone, as on servers.
        #[arg(long)]
        by_log: bool,
        /// On this server; bugs of the simulated store are not there.
        #[arg(long, value_name = "URL", value_parser = Server::parse)]
        on: Option<Server>,
    },
}

fn main() -> ExitCode {
    quiet_panics();
    let done = match Args::parse().command {
        Command::Search { from, count, threads, failures, on } => {
            search(&Search { server: on, from, count, threads, failures })
        }
        Command::Replay { seed, shortest, on } => replay(seed, shortest, on.as_ref()),
        #[cfg(feature = "planted")]
        Command::Planted { most, bug, by_log, on } => {
            let judge = match (&on, by_log) {
                (Some(server), _) => milepost_sim::Judge::On(server),
                (None, true) => milepost_sim::Judge::Log,
                (None, false) => milepost_sim::Judge::All,
            };
            planted(most, bug.as_deref(), judge)
        }
    };
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[expect(clippy::print_stdout, reason = "it is a program for the terminal")]
fn search(search: &Search) -> bool {
    let summary = search.run();
    println!("{summary}");
    summary.failures.is_empty()
}

#[expect(clippy::print_stdout, reason = "it is a program for the terminal")]
fn replay(seed: u64, shortest: bool, on: Option<&Server>) -> bool {
    let whole = Schedule::generate(seed);
    let schedule = if shortest { whole.shortest().unwrap_or(whole) } else { whole };
    let report = match on {
        None => schedule.play(Trace::on()),
        Some(server) => schedule.play_on(server, Trace::on()),
    };
    let schedule = if on.is_some() { schedule.faster(PACE) } else { schedule };
    println!("{schedule}\n{}", report.trace.text());
    if let Some(violation) = &report.violation {
        println!("seed {seed}: {violation}");
    }
    report.violation.is_none()
}

#[cfg(feature = "planted")]
#[expect(clippy::print_stdout, reason = "it is a program for the terminal")]
fn planted(most: u64, only: Option<&str>, judge: milepost_sim::Judge<'_>) -> bool {
    println!("| planted bug | schedules | found as |\n|---|---|---|");
    let mut all = true;
    for bug in milepost_sim::BUGS.into_iter().filter(|bug| only.is_none_or(|only| only == *bug)) {
        match milepost_sim::find(bug, most, judge) {
            Some(found) => println!("| {bug} | {} | {} |", found.schedules, found.violation),
            None => {
                all = false;
                println!("| {bug} | not in {most} | |");
            }
        }
    }
    all
}
