//! Whoever takes messages in for a node, as the rest of it sees them.

pub use milepost_core::api::ConsumerStatus;

/// Takes messages in, until it is paused.
pub trait Consumer: Send + Sync + std::fmt::Debug {
    fn status(&self) -> ConsumerStatus;

    /// No more messages are taken in; what is here goes on. Says nothing when it is paused already.
    fn pause(&self);

    fn resume(&self);
}
