//! A member of the group: the library's stream of messages.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::Message as _;
use rdkafka::consumer::{CommitMode, Consumer, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::topic_partition_list::TopicPartitionList;

use super::clients::{self, Reports};
use crate::cluster::{Fetched, Listener, ReadError, Reader};
use crate::settings::{Settings, SettingsError};

/// A connection that was closed is opened again meanwhile.
const RECONNECT: Duration = Duration::from_millis(20);

pub(super) struct TopicReader {
    consumer: StreamConsumer<Reports>,
    topic: String,
}

impl TopicReader {
    pub(super) fn new(settings: &Settings, listener: Arc<dyn Listener>, node: &str) -> Result<Self, SettingsError> {
        let consumer = clients::reader(settings, listener, node)?;
        Ok(Self { consumer, topic: settings.topic.clone() })
    }
}

#[async_trait]
impl Reader for TopicReader {
    fn subscribe(&self) -> Result<(), String> {
        self.consumer.subscribe(&[&self.topic]).map_err(|error| error.to_string())
    }

    async fn next(&self) -> Result<Fetched, ReadError> {
        loop {
            let error = match self.consumer.recv().await {
                Ok(message) => {
                    return Ok(Fetched {
                        partition: message.partition(),
                        offset: message.offset(),
                        timestamp: message.timestamp().to_millis().unwrap_or_default(),
                        key: message.key().map(<[u8]>::to_vec),
                        payload: message.payload().unwrap_or_default().to_vec(),
                    });
                }
                Err(KafkaError::MessageConsumptionFatal(code)) => return Err(ReadError::Broken(code.to_string())),
                Err(error) => error,
            };
            match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::AllBrokersDown) => return Err(ReadError::Away(error.to_string())),
                Some(RDKafkaErrorCode::BrokerTransportFailure) => tokio::time::sleep(RECONNECT).await,
                Some(_) | None => return Err(ReadError::Passing(error.to_string())),
            }
        }
    }

    fn set_paused(&self, paused: bool) {
        let consumer = &self.consumer;
        let done = consumer.assignment().and_then(
            |all: TopicPartitionList| {
                if paused { consumer.pause(&all) } else { consumer.resume(&all) }
            },
        );
        if let Err(error) = done {
            tracing::debug!(%error, paused, "the partitions could not be paused or resumed");
        }
    }

    fn commit(&self, offsets: &[(i32, i64)]) {
        clients::commit(&self.consumer, &self.topic, offsets);
    }

    /// On a thread of its own, since nothing can make the library hurry.
    async fn close(self: Box<Self>, offsets: Vec<(i32, i64)>) {
        let (done, waited) = tokio::sync::oneshot::channel();
        let farewell = move || {
            if !offsets.is_empty() {
                let offsets = clients::list(&self.topic, &offsets);
                if let Err(error) = self.consumer.commit(&offsets, CommitMode::Sync) {
                    tracing::debug!(%error, "the last offsets were not committed");
                }
            }
            drop(self);
            let _ = done.send(());
        };
        std::thread::Builder::new()
            .name("milepost-kafka-farewell".to_owned())
            .spawn(farewell)
            .expect("a thread can be started");
        let _ = waited.await;
    }
}

impl std::fmt::Debug for TopicReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TopicReader").field("topic", &self.topic).finish_non_exhaustive()
    }
}
