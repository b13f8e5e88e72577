//! Real brokers, by way of librdkafka. Its threads, its callbacks and its blocking calls are all in here.

mod attendant;
mod clients;
mod reader;
mod writer;

use std::sync::Arc;

use crate::cluster::{Cluster, Listener, Reader, Writer};
use crate::settings::{Settings, SettingsError};

#[derive(Debug)]
pub(crate) struct Librdkafka {
    settings: Arc<Settings>,
    node: String,
}

impl Librdkafka {
    pub(crate) fn new(settings: Settings, node: &str) -> Self {
        Self { settings: Arc::new(settings), node: node.to_owned() }
    }
}

impl Cluster for Librdkafka {
    fn attend(&self, listener: Arc<dyn Listener>) -> Result<(), SettingsError> {
        attendant::start(&self.settings, listener, &self.node)
    }

    fn reader(&self, listener: Arc<dyn Listener>) -> Result<Box<dyn Reader>, SettingsError> {
        Ok(Box::new(reader::TopicReader::new(&self.settings, listener, &self.node)?))
    }

    fn writer(&self, listener: Arc<dyn Listener>) -> Result<Arc<dyn Writer>, SettingsError> {
        Ok(Arc::new(writer::TopicWriter::new(&self.settings, listener, &self.node)?))
    }
}
