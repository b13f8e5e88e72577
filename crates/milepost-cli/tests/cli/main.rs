//! The command line, as a person or a script meets it.

mod answers;
mod exit_codes;
mod failures;
mod running;
mod stopping;
mod verbs;

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each test binary uses its own part")]
mod support;
