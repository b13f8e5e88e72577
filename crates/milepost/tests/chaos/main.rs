//! Workflows whose nodes die: whatever happens to them, they end with the same result and the same log.
//!
//! Every case follows from a number. One that fails prints the command that runs it, and it alone, again.

mod generated;
mod matrix;
mod play;
mod program;
mod scenarios;
mod seed;
