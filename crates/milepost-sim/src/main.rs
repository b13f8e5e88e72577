//! Searches schedules for one that breaks a rule, and replays one.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use clap::{Parser, Subcommand};
use milepost_sim::{Schedule, Trace};

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
        /// Goes on after so many failures.
        #[arg(long, default_value_t = 5)]
        failures: u64,
    },
    /// Plays one schedule and prints what happened in it.
    Replay {
        seed: u64,
        /// First looks for the shortest schedule that still fails as this one does.
        #[arg(long)]
        shortest: bool,
    },
}

fn main() -> ExitCode {
    quiet_panics();
    match Args::parse().command {
        Command::Search { from, count, threads, failures } => search(from, count, threads, failures),
        Command::Replay { seed, shortest } => replay(seed, shortest),
    }
}

#[expect(clippy::print_stdout, reason = "it is a program for the terminal")]
fn replay(seed: u64, shortest: bool) -> ExitCode {
    let whole = Schedule::generate(seed);
    let schedule = if shortest { whole.shortest().unwrap_or(whole) } else { whole };
    let report = schedule.play(Trace::on());
    println!("{schedule}\n{}", report.trace.text());
    match report.violation {
        Some(violation) => {
            println!("seed {seed}: {violation}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

#[expect(clippy::print_stdout, reason = "it is a program for the terminal")]
fn search(from: u64, count: u64, threads: u64, failures: u64) -> ExitCode {
    let (next, failed, commits, enough) =
        (AtomicU64::new(from), AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + count {
                        return;
                    }
                    let report = Schedule::generate(seed).play(Trace::default());
                    commits.fetch_add(report.commits, Ordering::Relaxed);
                    if let Some(violation) = report.violation {
                        println!("seed {seed}: {violation}");
                        if failed.fetch_add(1, Ordering::Relaxed) + 1 >= failures {
                            enough.store(true, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let (seconds, failed) = (begun.elapsed().as_secs_f64(), failed.into_inner());
    let played = next.into_inner().min(from + count) - from;
    println!(
        "{played} schedules, {} commits, {failed} failed, {seconds:.1} s, {:.0} a second",
        commits.into_inner(),
        played as f64 / seconds
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Stages that panic do so because they were told to.
fn quiet_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&"the stage was told to") {
            default(info);
        }
    }));
}
