//! The real engine, several nodes, under one seed.
//!
//! Nodes run the same code as in the binary, on a virtual clock and in one thread. Their store is the memory store behind
//! a network that loses, delays and repeats; what stages do outside is counted. The invariants are checked after every
//! commit, and once nothing goes wrong any more everything has to end, or to wait for something that is named.
//!
//! The same schedules can be played on real servers, in real time, through proxies that do what the simulated network does.
//!
//! **Never**, unless there is a server: reads a real clock, a random number or the system. The same seed gives the same
//! trace, byte for byte.

mod dice;
mod flows;
mod generate;
mod life;
mod outside;
mod pace;
#[cfg(feature = "planted")]
mod planted;
mod proxy;
mod schedule;
mod search;
mod seen;
mod server;
mod settle;
mod shared;
mod shrink;
mod trace;
mod watch;
mod wire;
mod world;

#[cfg(feature = "planted")]
pub use planted::{BUGS, Found, Judge, find};
pub use schedule::{Act, Aim, Network, NodeSetup, Schedule, Step, Via};
pub use search::{Failure, Search, Summary, quiet_panics};
pub use server::Server;
pub use trace::Trace;
pub use world::{PACE, Report};
