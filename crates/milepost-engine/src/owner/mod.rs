//! The way to the process that owns a store: one JSON line asks, one JSON line answers, over a Unix socket beside it.
//!
//! Whoever owns a SQLite file listens: `milepost run`, `milepost serve`, and every program that runs workflows of its own.

mod address;
mod call;
mod hear;
mod listen;
mod messages;
mod operation;
mod signal;

pub use call::{CallError, call};
pub use hear::{Hear, Operations, VERSION, understand, written};
pub use listen::Listener;
pub use messages::{MessageAnswer, MessageOrder, MessageVerb};
pub use operation::{Answer, Done, Name, Order, Request, VerbName, find};
pub use signal::SignalOrder;
