//! Kafka at the edge: messages are taken into the store, and what the store has to say is published.
//!
//! Nothing runs from here. An offset is committed when the store has the message, and an entry of the outbox is struck
//! when the brokers have it; a crash in between repeats what the other side knows again.

mod chain;
mod cluster;
mod incoming;
mod intake;
mod kafka;
mod librdkafka;
mod lines;
mod offsets;
mod outgoing;
mod reach;
mod relay;
mod settings;
mod shared;
mod taker;
mod turn;
mod valve;

pub use chain::Chains;
pub use cluster::{Cluster, Fetched, Listener, PUBLISH_WITHIN, ReadError, Reader, Record, SendError, Writer};
pub use kafka::Kafka;
pub use settings::{Settings, SettingsError};
