//! What a person sees of a plan while it runs: bars on a terminal, plain lines elsewhere, nothing with `-q`.

mod active;
mod bars;
mod display;
mod heard;
mod lines;
mod outlook;
mod spectator;
mod tracker;
mod watcher;
mod words;

pub(crate) use spectator::Spectator;
pub(crate) use watcher::Progress;
pub(crate) use words::{begins, paused};
