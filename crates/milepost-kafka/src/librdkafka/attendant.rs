//! A thread that asks the cluster what only blocking calls can: whether the topics are there, and how much is unread.
//! Nobody waits for it: when the brokers are away it hangs alone.

use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use milepost_core::time::Millis;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};

use super::clients::{self, Reports};
use crate::cluster::Listener;
use crate::settings::{Settings, SettingsError};

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Ids of messages are kept for at least so long unless somebody says otherwise.
const REMEMBER: Millis = Millis::from_secs(24 * 3600);
/// And for no longer than this, for a topic that keeps its messages for ever.
const REMEMBER_AT_MOST: Millis = Millis::from_secs(100 * 365 * 24 * 3600);

struct Attendant {
    settings: Arc<Settings>,
    listener: Arc<dyn Listener>,
    onlooker: BaseConsumer<Reports>,
    admin: AdminClient<Reports>,
}

/// Goes on until whoever listens is gone.
pub(super) fn start(settings: &Arc<Settings>, listener: Arc<dyn Listener>, node: &str) -> Result<(), SettingsError> {
    let onlooker = clients::onlooker(settings, listener.clone(), node)?;
    let admin = clients::plain(settings, node)
        .create_with_context(Reports::new(settings, listener.clone()))
        .map_err(SettingsError::Client)?;
    let attendant = Attendant { settings: settings.clone(), listener, onlooker, admin };
    std::thread::Builder::new()
        .name("milepost-kafka".to_owned())
        .spawn(move || attendant.attend())
        .expect("a thread can be started");
    Ok(())
}

impl Attendant {
    fn attend(&self) {
        while !self.listener.is_closed() {
            match self.make_topics().and_then(|()| self.remember()) {
                Ok(remember) => {
                    self.listener.found();
                    self.listener.ready(remember);
                    break;
                }
                Err(error) => {
                    match &error {
                        KafkaError::MetadataFetch(_) => self.listener.lost(&error.to_string()),
                        _ => self.listener.troubled(&format!("the topics are not there yet: {error}")),
                    }
                    std::thread::sleep(TRY_AGAIN_AFTER);
                }
            }
        }
        while !self.listener.is_closed() {
            // Serves what the library has to report.
            let _ = self.onlooker.poll(Duration::ZERO);
            match self.lag() {
                Ok(lag) => {
                    self.listener.found();
                    self.listener.lag(Some(lag));
                }
                Err(error) => {
                    self.listener.lag(None);
                    self.listener.lost(&error.to_string());
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn make_topics(&self) -> KafkaResult<()> {
        let Self { settings, onlooker, admin, .. } = self;
        let metadata = onlooker.fetch_metadata(None, ANSWER_WITHIN)?;
        let brokers = i32::try_from(metadata.brokers().len()).unwrap_or(i32::MAX);
        let replication = settings.replication.unwrap_or_else(|| brokers.clamp(1, 3));
        let is_there = |name: &&str| metadata.topics().iter().any(|topic| topic.name() == *name);
        let missing: Vec<NewTopic<'_>> = settings
            .topics()
            .into_iter()
            .filter(|name| !is_there(name))
            .map(|name| NewTopic::new(name, settings.partitions, TopicReplication::Fixed(replication)))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        for made in block_on(admin.create_topics(&missing, &options()))? {
            match made {
                Ok(topic) => tracing::info!(topic, partitions = settings.partitions, replication, "a topic was made"),
                // Another node was faster.
                Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((_, code)) => return Err(KafkaError::AdminOp(code)),
            }
        }
        Ok(())
    }

    /// A message may come again for as long as the topic keeps it.
    fn remember(&self) -> KafkaResult<Millis> {
        if let Some(remember) = self.settings.remember {
            return Ok(remember);
        }
        let topic = ResourceSpecifier::Topic(&self.settings.topic);
        let answers = block_on(self.admin.describe_configs([&topic], &options()))?;
        let topic = answers.into_iter().next().ok_or(KafkaError::Canceled)?.map_err(KafkaError::AdminOp)?;
        let retention = topic.get("retention.ms").and_then(|entry| entry.value.as_deref());
        let retention = match retention.and_then(|value| value.parse::<i64>().ok()) {
            Some(millis) => u64::try_from(millis).map_or(REMEMBER_AT_MOST, Millis::new),
            None => REMEMBER,
        };
        Ok(retention.clamp(REMEMBER, REMEMBER_AT_MOST))
    }

    /// What is in this node's partitions and has not been acknowledged.
    fn lag(&self) -> KafkaResult<u64> {
        let onlooker = &self.onlooker;
        let (topic, partitions) = (&self.settings.topic, self.listener.partitions());
        let mut wanted = TopicPartitionList::new();
        partitions.iter().for_each(|&partition| _ = wanted.add_partition(topic, partition));
        if partitions.is_empty() {
            onlooker.fetch_metadata(Some(topic), ANSWER_WITHIN)?;
            return Ok(0);
        }
        let mut lag = 0;
        for element in onlooker.committed_offsets(wanted, ANSWER_WITHIN)?.elements() {
            let (low, high) = onlooker.fetch_watermarks(topic, element.partition(), ANSWER_WITHIN)?;
            let begin = if let Offset::Offset(committed) = element.offset() { committed } else { low };
            lag += u64::try_from(high - begin.max(low)).unwrap_or(0);
        }
        Ok(lag)
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(ANSWER_WITHIN)).operation_timeout(Some(ANSWER_WITHIN))
}
