//! The way to the process that owns a store, as the command line goes it: to the owner, or else by being it for a moment.

mod ask;
mod incoming;
mod tokens;

pub(crate) use ask::ask;
pub(crate) use incoming::listen;
pub(crate) use milepost_engine::owner::{
    Answer, Done, Listener, MessageAnswer, MessageOrder, MessageVerb, Name, Request, SignalOrder, VerbName,
};
pub(crate) use tokens::{TokenAnswer, TokenOrder, TokenVerb};
