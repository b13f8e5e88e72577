//! The clients of the library, and what they report of themselves.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance, StreamConsumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::producer::FutureProducer;
use rdkafka::{Offset, TopicPartitionList};

use crate::settings::{Settings, SettingsError};
use crate::shared::Shared;

pub(crate) type Reader = StreamConsumer<Reports>;
pub(crate) type Writer = FutureProducer<Reports>;

/// How long the brokers may take to acknowledge what is published, before it counts as not published.
pub(crate) const PUBLISH_WITHIN_MS: u64 = 5_000;

/// What the library has to say, put where it belongs.
#[derive(Clone)]
pub(crate) struct Reports {
    shared: Arc<Shared>,
}

impl Reports {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: shared.clone() }
    }
}

/// Reads the topic as this node: under its name, so that one that is soon back keeps its partitions.
pub(crate) fn reader(shared: &Arc<Shared>, node: &str) -> Result<Reader, SettingsError> {
    let mut config = common(&shared.settings, node);
    config
        .set("group.id", &shared.settings.group)
        .set("group.instance.id", node)
        .set("session.timeout.ms", "15000")
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("auto.offset.reset", "earliest")
        // A pause throws away what was fetched ahead, so that should not be much.
        .set("queued.min.messages", "1000")
        .set("queued.max.messages.kbytes", "16384");
    add(&mut config, &shared.settings);
    config.set("enable.auto.commit", "false").set("enable.auto.offset.store", "false");
    config.create_with_context(Reports::new(shared)).map_err(SettingsError::Client)
}

/// Asks about the group's offsets without being a member.
pub(crate) fn onlooker(shared: &Arc<Shared>, node: &str) -> Result<BaseConsumer<Reports>, SettingsError> {
    let mut config = common(&shared.settings, node);
    add(&mut config, &shared.settings);
    config.set("group.id", &shared.settings.group).set("enable.auto.commit", "false");
    config.create_with_context(Reports::new(shared)).map_err(SettingsError::Client)
}

/// What is published twice by the library is there once, and in order.
pub(crate) fn writer(shared: &Arc<Shared>, node: &str) -> Result<Writer, SettingsError> {
    let mut config = common(&shared.settings, node);
    config.set("linger.ms", "5").set("message.timeout.ms", PUBLISH_WITHIN_MS.to_string());
    add(&mut config, &shared.settings);
    config.set("acks", "all").set("enable.idempotence", "true");
    config.create_with_context(Reports::new(shared)).map_err(SettingsError::Client)
}

/// For what is asked of the cluster itself.
pub(crate) fn plain(settings: &Settings, node: &str) -> ClientConfig {
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
            self.shared.reach.lost(&reason);
        }
    }
}

impl ConsumerContext for Reports {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(partitions) => {
                let mut offsets = self.shared.offsets();
                partitions.elements().iter().for_each(|element| offsets.assigned(element.partition()));
                tracing::info!(partitions = partitions.count(), "partitions came");
            }
            Rebalance::Revoke(partitions) => {
                let mut last = Vec::new();
                {
                    let mut offsets = self.shared.offsets();
                    for element in partitions.elements() {
                        let partition = element.partition();
                        last.extend(offsets.revoked(partition).map(|offset| (partition, offset)));
                    }
                }
                tracing::info!(partitions = partitions.count(), "partitions went");
                commit(consumer, &self.shared.settings.topic, &last);
            }
            Rebalance::Error(error) => tracing::warn!(%error, "the partitions could not be shared out"),
        }
    }

    fn post_rebalance(&self, _consumer: &BaseConsumer<Self>, _rebalance: &Rebalance<'_>) {
        self.shared.reassigned.store(true, Ordering::Release);
        self.shared.valve.notify_one();
    }

    fn commit_callback(&self, result: KafkaResult<()>, offsets: &TopicPartitionList) {
        match result {
            Ok(()) => {
                self.shared.reach.found();
                let mut known = self.shared.offsets();
                for element in offsets.elements() {
                    if let (Ok(()), Offset::Offset(offset)) = (element.error(), element.offset()) {
                        known.committed(element.partition(), offset);
                    }
                }
            }
            // What is not committed is committed with the next ones, or read again and known.
            Err(error) => tracing::debug!(%error, "offsets were not committed"),
        }
    }
}

/// Sends offsets on their way; what came of it is reported.
pub(crate) fn commit<C: ConsumerContext>(consumer: &impl Consumer<C>, topic: &str, offsets: &[(i32, i64)]) {
    if offsets.is_empty() {
        return;
    }
    if let Err(error) = consumer.commit(&list(topic, offsets), CommitMode::Async) {
        tracing::debug!(%error, "offsets were not committed");
    }
}

pub(crate) fn list(topic: &str, offsets: &[(i32, i64)]) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for &(partition, offset) in offsets {
        list.add_partition_offset(topic, partition, Offset::Offset(offset)).expect("an offset that was read is one");
    }
    list
}

impl std::fmt::Debug for Reports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reports").finish_non_exhaustive()
    }
}
