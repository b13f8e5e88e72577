//! A test's own topics: what is written to them, what is in them, and how far its group has read.

use std::time::Duration;

use milepost_core::time::Millis;
use milepost_kafka::Settings;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{Offset, TopicPartitionList};
use serde_json::Value;

use super::{LONG, until};

/// A topic that is not there yet has no answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

pub(crate) struct Topics {
    pub(crate) settings: Settings,
    producer: FutureProducer,
}

/// A message as another program would read it.
#[derive(Debug, Clone)]
pub(crate) struct Read {
    pub(crate) key: String,
    pub(crate) text: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Read {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).expect("what Milepost publishes is JSON")
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(key, _)| key == name);
        &found.unwrap_or_else(|| panic!("no header {name} in {:?}", self.headers)).1
    }
}

impl Topics {
    /// None without a broker.
    pub(crate) fn new(test: &str) -> Option<Self> {
        let Some(brokers) = std::env::var("MILEPOST_TEST_KAFKA").ok().filter(|brokers| !brokers.is_empty()) else {
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "MILEPOST_TEST_KAFKA is not set, and CI skips nothing"
            );
            eprintln!(
                "SKIPPED {test}: MILEPOST_TEST_KAFKA is not set; `./dev/services up kafka` starts a broker and says how"
            );
            return None;
        };
        let own = uuid::Uuid::now_v7().simple().to_string();
        let mut settings = Settings::new(brokers.clone()).topic(format!("tasks-{own}"));
        settings.completed_topic = format!("completed-{own}");
        settings.failed_topic = format!("failed-{own}");
        settings.group = format!("group-{own}");
        settings.partitions = 1;
        settings.remember = Some(Millis::from_secs(3600));
        let producer = ClientConfig::new().set("bootstrap.servers", brokers).create().expect("a producer");
        Some(Self { settings, producer })
    }

    /// Another group that reads the same topics from their beginning.
    pub(crate) fn settings_of_another_group(&self) -> Settings {
        Settings { group: format!("{}-2", self.settings.group), ..self.settings.clone() }
    }

    /// Makes a topic of one partition, with settings of its own.
    pub(crate) async fn make(&self, topic: &str, settings: &[(&str, &str)]) {
        let new = NewTopic::new(topic, 1, TopicReplication::Fixed(1));
        let new = settings.iter().fold(new, |new, (name, value)| new.set(name, value));
        let made = self.admin().create_topics([&new], &AdminOptions::new()).await.expect("a broker");
        made.into_iter().for_each(|made| _ = made.expect("a new topic"));
    }

    pub(crate) async fn delete(&self, topic: &str) {
        let gone = self.admin().delete_topics(&[topic], &AdminOptions::new()).await.expect("a broker");
        gone.into_iter().for_each(|gone| _ = gone.expect("a topic"));
    }

    /// Its settings from now on, all of them.
    pub(crate) async fn set(&self, topic: &str, settings: &[(&str, &str)]) {
        let change = AlterConfig::new(ResourceSpecifier::Topic(topic));
        let change = settings.iter().fold(change, |change, (name, value)| change.set(name, value));
        let set = self.admin().alter_configs([&change], &AdminOptions::new()).await.expect("a broker");
        set.into_iter().for_each(|set| _ = set.expect("a topic"));
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        ClientConfig::new().set("bootstrap.servers", &self.settings.brokers).create().expect("a client")
    }

    pub(crate) async fn send(&self, message: &Value) {
        let key = message["taskId"].as_str().unwrap_or_default().to_owned();
        self.send_bytes(&key, message.to_string().as_bytes()).await;
    }

    pub(crate) async fn send_bytes(&self, key: &str, bytes: &[u8]) {
        let topic = &self.settings.topic;
        let send = async || {
            let record = FutureRecord::to(topic).key(key).payload(bytes);
            self.producer.send(record, ANSWER_WITHIN).await.is_ok()
        };
        // The topic may be about to be made.
        until("the message is in the topic", send).await;
    }

    /// What is in a topic now, in the order of its partitions.
    pub(crate) fn read(&self, topic: &str) -> Vec<Read> {
        let reader = self.onlooker();
        let mut all = Vec::new();
        for partition in 0..self.settings.partitions {
            // One that is not made yet has nothing in it.
            let (low, high) = reader.fetch_watermarks(topic, partition, ANSWER_WITHIN).unwrap_or_default();
            if low == high {
                continue;
            }
            let mut assignment = TopicPartitionList::new();
            assignment.add_partition_offset(topic, partition, Offset::Beginning).expect("a partition");
            reader.assign(&assignment).expect("a partition");
            loop {
                let message = reader.poll(LONG).expect("a message in time").expect("a message");
                let headers = message.headers().map(|headers| headers.iter()).into_iter().flatten();
                let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
                all.push(Read {
                    key: text(message.key()),
                    text: text(message.payload()),
                    headers: headers.map(|header| (header.key.to_owned(), text(header.value))).collect(),
                });
                if message.offset() + 1 >= high {
                    break;
                }
            }
        }
        all
    }

    /// Waits until so many messages are in a topic.
    pub(crate) async fn holds(&self, topic: &str, count: usize) -> Vec<Read> {
        let mut all = Vec::new();
        until(&format!("{count} messages in {topic}"), async || {
            all = self.read(topic);
            all.len() >= count
        })
        .await;
        all
    }

    /// What the group has acknowledged, in all partitions together.
    pub(crate) fn committed(&self) -> i64 {
        let mut list = TopicPartitionList::new();
        (0..self.settings.partitions).for_each(|partition| _ = list.add_partition(&self.settings.topic, partition));
        let committed = self.onlooker().committed_offsets(list, ANSWER_WITHIN).expect("a broker");
        let offset = |offset| if let Offset::Offset(offset) = offset { offset } else { 0 };
        committed.elements().iter().map(|element| offset(element.offset())).sum()
    }

    pub(crate) async fn is_committed(&self, offset: i64) {
        until(&format!("offset {offset} is committed"), async || self.committed() == offset).await;
    }

    /// How many members the broker counts in the group.
    pub(crate) fn members(&self) -> usize {
        let groups = self.onlooker().fetch_group_list(Some(&self.settings.group), ANSWER_WITHIN).expect("a broker");
        groups.groups().iter().map(|group| group.members().len()).sum()
    }

    fn onlooker(&self) -> BaseConsumer {
        ClientConfig::new()
            .set("bootstrap.servers", &self.settings.brokers)
            .set("group.id", &self.settings.group)
            .set("enable.auto.commit", "false")
            .create()
            .expect("a consumer")
    }
}
