//! What is left when the program or its disk gives up at the worst moment, and what it does with more than usual.

mod bench;
mod busy;
mod clock;
mod concurrency;
mod disk;
mod faults;
mod flips;
mod history;
mod kills;
mod large;
mod library;
mod memory;
mod power;
mod retries;
mod seed;
mod witness;
mod wrong_clock;

#[path = "../cli/served.rs"]
#[allow(dead_code, reason = "each test binary uses its own part")]
mod served;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each test binary uses its own part")]
mod support;
