//! Live progress over server-sent events. The store is the truth and the engine's feed only a hint that there is news:
//! what a client sees has the store's own positions, so that it can go on after a restart and on another node.

mod coalesce;
mod hub;
mod mailbox;
mod message;
mod stream;

pub(crate) use hub::Hub;
pub(crate) use message::Watched;
pub(crate) use stream::{Resume, Stream};
