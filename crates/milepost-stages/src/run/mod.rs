//! `run:` one shell command per attempt, in a process group of its own.
//!
//! * `kind`: one attempt from start to outcome
//! * `environment`: the variables a command finds
//! * `files`: where it leaves outputs and progress
//! * `group`: its processes, and ending all of them
//! * `guard`: what ends them when the node itself is gone
//! * `streams`: what it prints
//! * `outputs`, `progress`: what it writes into its two files
//! * `verdict`: what its end means

mod environment;
mod files;
mod group;
mod guard;
mod kind;
mod outputs;
mod progress;
mod streams;
mod verdict;

pub use kind::RunKind;
