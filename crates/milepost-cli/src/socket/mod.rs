//! The way to the process that owns a store: one JSON line asks, one JSON line answers, over a Unix socket beside it.

mod address;
mod ask;
mod call;
mod incoming;
mod listen;
mod operation;
mod tokens;

pub(crate) use ask::ask;
pub(crate) use listen::Listener;
pub(crate) use operation::{Answer, Name, Request, VerbName};
pub(crate) use tokens::{TokenAnswer, TokenOrder, TokenVerb};
