//! What holds between a node and a real broker.

#[path = "../support/mod.rs"]
mod support;

mod full;
mod intake;
mod parked;
mod poison;
mod relay;
mod sharing;
