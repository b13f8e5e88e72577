//! Several nodes on one store, as real processes on real servers: killed, frozen, and with the store going away.

#[path = "../crash/seed.rs"]
mod seed;
#[allow(dead_code, reason = "other tests need more of it")]
#[path = "../support/mod.rs"]
mod support;

mod killed;
mod ledger;
mod node;
mod place;
mod store_loss;
