//! Workflows: what is recorded, what is replayed, and what comes of code that changes in between.

mod breakers;
mod children;
mod crashing;
mod determinism;
mod failing;
mod replaying;
mod waiting;
