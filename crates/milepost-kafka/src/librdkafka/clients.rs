//! The library's clients, as they are set up, and what they report of themselves.

use std::sync::Arc;

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance, StreamConsumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::producer::FutureProducer;
use rdkafka::{Offset, TopicPartitionList};

use crate::cluster::{Listener, PUBLISH_WITHIN};
use crate::settings::{Settings, SettingsError};

/// Sooner than a record is given up, so that the reason is known.
const MISSING_TOPIC_AFTER_MS: &str = "3000";

/// What the library has to say, put where it belongs.
#[derive(Debug, Clone)]
pub(super) struct Reports {
    listener: Arc<dyn Listener>,
    topic: String,
}

impl Reports {
    pub(super) fn new(settings: &Settings, listener: Arc<dyn Listener>) -> Self {
        Self { listener, topic: settings.topic.clone() }
    }
}

/// Reads the topic as this node: under its name, so that one that is soon back keeps its partitions.
pub(super) fn reader(
    settings: &Settings,
    listener: Arc<dyn Listener>,
    node: &str,
) -> Result<StreamConsumer<Reports>, SettingsError> {
    let mut config = common(settings, node);
    config
        .set("group.id", &settings.group)
        .set("group.instance.id", node)
        .set("session.timeout.ms", "15000")
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("auto.offset.reset", "earliest")
        // A pause throws away what was fetched ahead, so that should not be much.
        .set("queued.min.messages", "1000")
        .set("queued.max.messages.kbytes", "16384");
    add(&mut config, settings);
    config.set("enable.auto.commit", "false").set("enable.auto.offset.store", "false");
    config.create_with_context(Reports::new(settings, listener)).map_err(SettingsError::Client)
}

/// Asks about the group's offsets without being a member.
pub(super) fn onlooker(
    settings: &Settings,
    listener: Arc<dyn Listener>,
    node: &str,
) -> Result<BaseConsumer<Reports>, SettingsError> {
    let mut config = common(settings, node);
    add(&mut config, settings);
    config.set("group.id", &settings.group).set("enable.auto.commit", "false");
    config.create_with_context(Reports::new(settings, listener)).map_err(SettingsError::Client)
}

/// What is published twice by the library is there once, and in order.
pub(super) fn writer(
    settings: &Settings,
    listener: Arc<dyn Listener>,
    node: &str,
) -> Result<FutureProducer<Reports>, SettingsError> {
    let mut config = common(settings, node);
    config
        .set("linger.ms", "5")
        .set("message.timeout.ms", PUBLISH_WITHIN.get().to_string())
        .set("topic.metadata.propagation.max.ms", MISSING_TOPIC_AFTER_MS);
    add(&mut config, settings);
    config.set("acks", "all").set("enable.idempotence", "true");
    config.create_with_context(Reports::new(settings, listener)).map_err(SettingsError::Client)
}

/// For what is asked of the cluster itself.
pub(super) fn plain(settings: &Settings, node: &str) -> ClientConfig {
    let mut config = common(settings, node);
    add(&mut config, settings);
    config
}

fn common(settings: &Settings, node: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", &settings.brokers)
        .set("client.id", format!("milepost-{node}"))
        // A broker that is back should not have to wait.
        .set("reconnect.backoff.max.ms", "2000");
    config
}

fn add(config: &mut ClientConfig, settings: &Settings) {
    for (property, value) in &settings.properties {
        config.set(property, value);
    }
}

impl ClientContext for Reports {
    /// The library says the same thing again and again; what matters of it is said by `Reach`.
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, text: &str) {
        tracing::debug!(target: "milepost_kafka::library", "{facility}: {text}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "milepost_kafka::library", "{error}: {reason}");
        // One connection that is closed is opened again.
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown) {
            self.listener.lost(reason);
        }
    }
}

impl ConsumerContext for Reports {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(_) => {}
            Rebalance::Revoke(partitions) => {
                let last = self.listener.revoked(&numbers(partitions));
                commit(consumer, &self.topic, &last);
            }
            Rebalance::Error(error) => tracing::warn!(%error, "the partitions could not be shared out"),
        }
    }

    /// Only now can those that came be paused; no message of theirs was handed out yet.
    fn post_rebalance(&self, _consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(partitions) => self.listener.assigned(&numbers(partitions)),
            Rebalance::Revoke(_) | Rebalance::Error(_) => {}
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, offsets: &TopicPartitionList) {
        match result {
            Ok(()) => {
                self.listener.found();
                let known = offsets.elements().into_iter().filter_map(|element| match element.offset() {
                    Offset::Offset(offset) if element.error().is_ok() => Some((element.partition(), offset)),
                    _ => None,
                });
                self.listener.committed(&known.collect::<Vec<_>>());
            }
            // What is not committed is committed with the next ones, or read again and known.
            Err(error) => tracing::debug!(%error, "offsets were not committed"),
        }
    }
}

fn numbers(partitions: &TopicPartitionList) -> Vec<i32> {
    partitions.elements().iter().map(|element| element.partition()).collect()
}

/// Sends offsets on their way; what came of it is reported.
pub(super) fn commit<C: ConsumerContext>(consumer: &impl Consumer<C>, topic: &str, offsets: &[(i32, i64)]) {
    if offsets.is_empty() {
        return;
    }
    if let Err(error) = consumer.commit(&list(topic, offsets), CommitMode::Async) {
        tracing::debug!(%error, "offsets were not committed");
    }
}

pub(super) fn list(topic: &str, offsets: &[(i32, i64)]) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for &(partition, offset) in offsets {
        list.add_partition_offset(topic, partition, Offset::Offset(offset)).expect("an offset that was read is one");
    }
    list
}
