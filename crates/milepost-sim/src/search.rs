//! Many schedules, one after the other, on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::outside::TOLD_TO;
use crate::schedule::Schedule;
use crate::server::Server;
use crate::trace::Trace;
use crate::world::PACE;

/// Which schedules to play.
#[derive(Debug, Clone)]
pub struct Search {
    /// Where, if not in a simulated world.
    pub server: Option<Server>,
    pub from: u64,
    pub count: u64,
    /// So many at once.
    pub threads: u64,
    /// Ends after so many failures.
    pub failures: usize,
}

/// Schedules between two words of how far it is.
const TELL_EVERY: u64 = 100_000;

#[derive(Debug)]
pub struct Summary {
    pub schedules: u64,
    pub commits: u64,
    /// Time that passed in all of them together.
    pub simulated: Duration,
    pub took: Duration,
    pub failures: Vec<Failure>,
}

/// A schedule that broke a rule.
#[derive(Debug)]
pub struct Failure {
    pub seed: u64,
    pub violation: String,
    /// What to type to see it again.
    pub replay: String,
    /// Of what happens on a server there is no second time.
    pub trace: Trace,
}

impl Search {
    pub fn run(&self) -> Summary {
        quiet_panics();
        let begun = Instant::now();
        let (next, enough) = (AtomicU64::new(self.from), AtomicBool::new(false));
        let (commits, simulated) = (AtomicU64::new(0), AtomicU64::new(0));
        let failures = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| {
                    while !enough.load(Ordering::Relaxed) {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= self.from + self.count {
                            return;
                        }
                        let played = seed - self.from;
                        if played > 0 && played.is_multiple_of(TELL_EVERY) {
                            eprintln!("{played} of {} schedules, {:.0} s", self.count, begun.elapsed().as_secs_f64());
                        }
                        let schedule = Schedule::generate(seed);
                        let report = match &self.server {
                            None => schedule.play(Trace::default()),
                            Some(server) => schedule.play_on(server, Trace::on()),
                        };
                        commits.fetch_add(report.commits, Ordering::Relaxed);
                        simulated.fetch_add(report.simulated.as_secs(), Ordering::Relaxed);
                        if let Some(violation) = report.violation {
                            let mut failures = failures.lock().expect("nobody panics with it");
                            eprintln!("seed {seed}: {violation}");
                            failures.push(Failure { seed, violation, replay: self.replay(seed), trace: report.trace });
                            enough.store(failures.len() >= self.failures, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        Summary {
            schedules: next.into_inner().min(self.from + self.count) - self.from,
            commits: commits.into_inner(),
            simulated: Duration::from_secs(simulated.into_inner()),
            took: begun.elapsed(),
            failures: failures.into_inner().expect("nobody panics with it"),
        }
    }
}

impl Search {
    fn replay(&self, seed: u64) -> String {
        match &self.server {
            None => format!("cargo run -p milepost-sim -- replay {seed} --shortest"),
            Some(server) => format!("cargo run -p milepost-sim -- replay {seed} --on \"{server}\""),
        }
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for Failure { seed, violation, replay, trace } in &self.failures {
            if trace.is_on() {
                writeln!(f, "{}\n{}", Schedule::generate(*seed).faster(PACE), trace.text())?;
            }
            writeln!(f, "seed {seed}: {violation}\n  {replay}")?;
        }
        let (seconds, days) = (self.took.as_secs_f64(), self.simulated.as_secs() / 86_400);
        write!(
            f,
            "{} schedules ({} commits, {days} simulated days) in {seconds:.1} s, {:.0} a second; {} broke a rule",
            self.schedules,
            self.commits,
            self.schedules as f64 / seconds,
            self.failures.len()
        )
    }
}

/// Stages that panic do so because they were told to, and say nothing.
pub fn quiet_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.payload().downcast_ref::<&str>() != Some(&TOLD_TO) {
                default(info);
            }
        }));
    });
}
