//! What follows from what: every command in every situation that matters, as events.

mod damaged;
mod failing;
mod messages;
mod pausing;
mod rolling_back;
mod running;
mod taking_over;
mod workflows;

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each test binary uses its own part")]
mod support;
