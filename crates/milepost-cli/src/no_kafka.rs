//! A build that cannot speak Kafka says so to whoever asks for it, and how to get one that can.

use std::sync::Arc;

use milepost_engine::{Engine, Registry};
use milepost_server::App;

use crate::config;
use crate::exit::{Exit, Failure};

/// There is none.
#[derive(Debug)]
pub(crate) enum Kafka {}

pub(crate) fn wanted(
    brokers: Option<&str>,
    config: &config::Kafka,
    _registry: &Registry,
) -> Result<Option<Kafka>, Failure> {
    match brokers.or(config.brokers.as_deref()) {
        None => Ok(None),
        Some(_) => Err(not_in_this_build()),
    }
}

pub(crate) fn not_in_this_build() -> Failure {
    Failure::new(Exit::Usage, "this build cannot read messages from Kafka")
        .help("`cargo build --release --features kafka` makes one that can")
}

pub(crate) fn start(wanted: Kafka, _engine: &Engine, _app: &App) -> Result<Arc<Kafka>, Failure> {
    match wanted {}
}

impl Kafka {
    pub(crate) async fn stop_intake(&self) {
        match *self {}
    }

    pub(crate) async fn close(&self) {
        match *self {}
    }
}
