//! Several nodes on one store, as real processes on real servers: killed, frozen, and with the store going away.

#[path = "../crash/library.rs"]
mod library;
#[path = "../crash/seed.rs"]
mod seed;
#[allow(dead_code, reason = "other tests need more of it")]
#[path = "../support/mod.rs"]
mod support;
#[path = "../crash/wrong_clock.rs"]
mod wrong_clock;

mod clock;
mod failover;
mod killed;
mod ledger;
mod node;
mod outages;
mod place;
mod slow_way;
mod store_loss;
