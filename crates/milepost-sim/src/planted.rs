//! The bugs that one would fear, and how long it takes to find each.

use milepost_core::planted::plant;

use crate::schedule::Schedule;
use crate::server::Server;
use crate::trace::Trace;

/// Each is switched on by its name, in the code that it is about.
pub const BUGS: [&str; 33] = [
    "a claimed task is forgotten",
    "a commit minds no lease",
    "a commit minds no version",
    "a cut-off attempt counts",
    "a lease is given out twice",
    "a lost answer loses the task",
    "a message is acknowledged too early",
    "a message is taken in twice",
    "a message never expires",
    "a paused plan goes on",
    "a plan ends with its first task",
    "a plan never ends",
    "a retry forgets the checkpoint",
    "a retry starts early",
    "a rollback goes forwards",
    "a signal is answered too early",
    "a signal is received twice",
    "a sleeper wakes tomorrow",
    "a slot is leaked",
    "a slot is not counted",
    "a stage starts before its commit",
    "a stage waits for nothing",
    "a tenant is not locked",
    "a tenant stays locked",
    "a timer is lost",
    "an unanswered commit counts as done",
    "an update removes what runs",
    "delays are drawn anew",
    "orphans are forgotten",
    "there is one attempt too many",
    "times go back",
    "what failed is not undone",
    "who leaves keeps its tasks",
];

/// A bug that was found: after how many schedules, and by which rule.
#[derive(Debug)]
pub struct Found {
    pub schedules: u64,
    pub violation: String,
}

/// Who judges, and where.
#[derive(Debug, Clone, Copy)]
pub enum Judge<'a> {
    /// By everything there is to know.
    All,
    /// As on servers, where there is only the log.
    Log,
    /// On a server. What a bug is planted in has to be of the engine.
    On(&'a Server),
}

/// Plays schedules with this bug in the code until a rule is broken; none if that takes too many.
pub fn find(bug: &'static str, most: u64, judge: Judge<'_>) -> Option<Found> {
    plant(bug);
    let found = (1..=most).find_map(|seed| {
        let schedule = Schedule::generate(seed);
        let report = match judge {
            Judge::All => schedule.play(Trace::default()),
            Judge::Log => schedule.play_by_log(Trace::default()),
            Judge::On(server) => schedule.play_on(server, Trace::default()),
        };
        Some(Found { schedules: seed, violation: report.violation? })
    });
    plant("");
    found
}
