//! Tables, copied by the real binary: plans made from a catalogue, run, killed, paused, mended.

mod hundred;
mod killed;
mod made;
mod server;
mod source;
mod steered;
mod target;

#[path = "../crash/seed.rs"]
mod seed;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each test binary uses its own part")]
mod support;
