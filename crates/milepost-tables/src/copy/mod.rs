//! One table, from one database to another: what is asked for, and what came of it.

mod changes;
mod decide;
mod differences;
mod fit;
mod job;
mod limits;
mod load;
mod near;
mod reader;
mod rejected;
mod run;
mod source;
mod sum;
#[cfg(test)]
mod testing;
mod verify;
mod walk;

pub use job::{Copied, Copy, IfExists, Limits, OnRowError, Resume, Verify, Watch};
pub use run::copy;
