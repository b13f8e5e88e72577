//! A thread that asks the cluster what only blocking calls can: whether the topics are there, and how much is unread.
//! Nobody waits for it: when the brokers are away it hangs alone.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::executor::block_on;
use milepost_core::time::Millis;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};

use crate::clients::{self, Reports};
use crate::settings::SettingsError;
use crate::shared::Shared;

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Ids of messages are kept for at least so long unless somebody says otherwise.
const REMEMBER: Millis = Millis::from_secs(24 * 3600);
/// And for no longer than this, for a topic that keeps its messages for ever.
const REMEMBER_AT_MOST: Millis = Millis::from_secs(100 * 365 * 24 * 3600);

/// Goes on until whatever it works for is gone.
pub(crate) fn start(shared: &Arc<Shared>, node: &str) -> Result<(), SettingsError> {
    let onlooker = clients::onlooker(shared, node)?;
    let config = clients::plain(&shared.settings, node);
    let admin: AdminClient<Reports> =
        config.create_with_context(Reports::new(shared)).map_err(SettingsError::Client)?;
    // Its own clients hold it as well, so it lives until `stopped`.
    let shared = shared.clone();
    std::thread::Builder::new()
        .name("milepost-kafka".to_owned())
        .spawn(move || attend(&shared, &onlooker, &admin))
        .expect("a thread can be started");
    Ok(())
}

fn attend(shared: &Shared, onlooker: &BaseConsumer<Reports>, admin: &AdminClient<Reports>) {
    while !shared.is_closed() {
        match make_topics(shared, onlooker, admin).and_then(|()| remember(shared, admin)) {
            Ok(remember) => {
                shared.reach.found();
                shared.ready.send_replace(Some(remember));
                break;
            }
            Err(error) => {
                match &error {
                    KafkaError::MetadataFetch(_) => shared.reach.lost(&error),
                    _ => shared.reach.troubled("the topics are not there yet", &error),
                }
                std::thread::sleep(TRY_AGAIN_AFTER);
            }
        }
    }
    while !shared.is_closed() {
        // Serves what the library has to report.
        let _ = onlooker.poll(Duration::ZERO);
        match lag(shared, onlooker) {
            Ok(lag) => {
                shared.reach.found();
                shared.lag.store(lag, Ordering::Release);
            }
            Err(error) => {
                shared.lag.store(-1, Ordering::Release);
                shared.reach.lost(&error);
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn make_topics(shared: &Shared, onlooker: &BaseConsumer<Reports>, admin: &AdminClient<Reports>) -> KafkaResult<()> {
    let settings = &shared.settings;
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
fn remember(shared: &Shared, admin: &AdminClient<Reports>) -> KafkaResult<Millis> {
    if let Some(remember) = shared.settings.remember {
        return Ok(remember);
    }
    let topic = ResourceSpecifier::Topic(&shared.settings.topic);
    let answers = block_on(admin.describe_configs([&topic], &options()))?;
    let topic = answers.into_iter().next().ok_or(KafkaError::Canceled)?.map_err(KafkaError::AdminOp)?;
    let retention = topic.get("retention.ms").and_then(|entry| entry.value.as_deref());
    let retention = match retention.and_then(|value| value.parse::<i64>().ok()) {
        Some(millis) => u64::try_from(millis).map_or(REMEMBER_AT_MOST, Millis::new),
        None => REMEMBER,
    };
    Ok(retention.clamp(REMEMBER, REMEMBER_AT_MOST))
}

/// What is in this node's partitions and has not been acknowledged.
fn lag(shared: &Shared, onlooker: &BaseConsumer<Reports>) -> KafkaResult<i64> {
    let (topic, partitions) = (&shared.settings.topic, shared.offsets().partitions());
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
        lag += (high - begin.max(low)).max(0);
    }
    Ok(lag)
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(ANSWER_WITHIN)).operation_timeout(Some(ANSWER_WITHIN))
}
