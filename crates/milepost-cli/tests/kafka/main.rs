//! Messages from another program's Kafka client to their outcomes, through real nodes on a real broker and store.

#[path = "../nodes/node.rs"]
mod node;
#[allow(dead_code, reason = "other tests need more of it")]
#[path = "../nodes/place.rs"]
mod place;
#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../crash/seed.rs"]
mod seed;
#[allow(dead_code, reason = "other tests need more of it")]
#[path = "../support/mod.rs"]
mod support;

mod bench;
mod files;
mod judge;
mod killed;
mod mix;
mod rebalances;
mod thousand;
mod topics;
