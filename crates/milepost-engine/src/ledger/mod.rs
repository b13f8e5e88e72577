//! Writing what happened to a task that is held here: at once, or as the node is told to when the store is away.

mod behind;
mod entry;
mod page;
mod writer;

pub(crate) use entry::{Entry, NotWritten};
pub(crate) use page::Ledger;
