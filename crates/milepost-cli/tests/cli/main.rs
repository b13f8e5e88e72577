//! The command line, as a person or a script meets it.

mod answers;
mod canned;
mod crowds;
mod damage;
mod exit_codes;
mod failures;
mod files;
mod injection;
mod kafka;
mod messages;
mod moving;
mod places;
mod recovery;
mod remote;
mod replaying;
mod running;
mod runs;
mod saying;
mod served;
mod server;
mod serving;
mod shared;
mod stopping;
mod stores;
mod verbs;
mod workflows;

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each test binary uses its own part")]
mod support;
