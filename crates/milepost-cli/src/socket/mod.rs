//! The way to the process that owns a store: one JSON line asks, one JSON line answers, over a Unix socket beside it.

mod address;
mod call;
mod listen;
mod operation;

pub(crate) use call::{CallError, call};
pub(crate) use listen::Listener;
pub(crate) use operation::{Answer, Done, Name, Request, VerbName};
