//! What is left when the program or its disk gives up at the worst moment, and what it does with more than usual.

mod bench;
mod concurrency;
mod disk;
mod faults;
mod history;
mod kills;
mod large;
mod retries;
mod seed;
mod witness;

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each test binary uses its own part")]
mod support;
