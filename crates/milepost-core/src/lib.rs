//! The rules of Milepost, and nothing else: ids, plans, tasks, what may happen to them, and how long to wait.
//!
//! Pure: no clock, no randomness, no I/O, no async. What the world supplies comes in as arguments.

pub mod api;
pub mod breaker;
pub mod failure;
pub mod id;
pub mod message;
pub mod pace;
pub mod plan;
pub mod planted;
pub mod retry;
pub mod task;
pub mod template;
pub mod time;
