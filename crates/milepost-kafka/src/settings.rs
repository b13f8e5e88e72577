//! What a node needs to know about its brokers, with a default for everything but where they are.

use std::collections::BTreeMap;

use milepost_core::time::Millis;
use milepost_store::Addressee;
use rdkafka::error::KafkaError;

/// Set by Milepost alone: with other values messages could be lost.
const OWN: [&str; 8] = [
    "bootstrap.servers",
    "metadata.broker.list",
    "group.id",
    "group.instance.id",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.idempotence",
    "acks",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `HOST:PORT[,HOST:PORT…]`.
    pub brokers: String,
    /// Where messages that set tasks off are.
    pub topic: String,
    pub dead_letter_topic: String,
    pub completed_topic: String,
    pub failed_topic: String,
    /// The nodes of one group share the topic.
    pub group: String,
    /// Of topics that are missing and so are made.
    pub partitions: i32,
    /// Left out: three, or as many as there are brokers.
    pub replication: Option<i32>,
    /// How long after it was published a message that does not say so itself may still start its task.
    pub deadline: Millis,
    /// How long a message is known again. Left out: a day, or as long as the topic keeps messages if that is longer.
    pub remember: Option<Millis>,
    /// Larger ones are dead letters.
    pub max_message_bytes: usize,
    /// How long a message may wait for its task to be stored.
    pub patience: Millis,
    /// For the client library, by its own names.
    pub properties: BTreeMap<String, String>,
}

#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("`{0}` is for Milepost to set")]
    Own(String),
    #[error("the Kafka client does not take its settings")]
    Client(#[source] KafkaError),
}

impl Settings {
    pub fn new(brokers: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            topic: "file-callback-tasks".to_owned(),
            dead_letter_topic: "file-callback-tasks-dlt".to_owned(),
            completed_topic: "file-task-completed".to_owned(),
            failed_topic: "file-task-failed".to_owned(),
            group: "file-callback-executor".to_owned(),
            partitions: 8,
            replication: None,
            deadline: Millis::from_secs(3600),
            remember: None,
            max_message_bytes: 1024 * 1024,
            patience: Millis::from_secs(30),
            properties: BTreeMap::new(),
        }
    }

    /// Another topic, with its own dead letters beside it.
    #[must_use]
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = topic.into();
        self.dead_letter_topic = format!("{}-dlt", self.topic);
        self
    }

    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        match self.properties.keys().find(|property| OWN.contains(&property.as_str())) {
            Some(own) => Err(SettingsError::Own(own.clone())),
            None => Ok(()),
        }
    }

    pub(crate) fn topic_of<'a>(&'a self, to: &'a Addressee) -> &'a str {
        match to {
            Addressee::Tasks => &self.topic,
            Addressee::Completed => &self.completed_topic,
            Addressee::Failed => &self.failed_topic,
            Addressee::DeadLetters => &self.dead_letter_topic,
            Addressee::Topic { name, .. } => name,
        }
    }

    /// Every topic that Milepost reads or writes, each once.
    pub(crate) fn topics(&self) -> Vec<&str> {
        let mut topics = vec![&*self.topic, &*self.dead_letter_topic, &*self.completed_topic, &*self.failed_topic];
        topics.sort_unstable();
        topics.dedup();
        topics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_messages_safe_cannot_be_set_from_outside() {
        let mut settings = Settings::new("127.0.0.1:9092");
        assert!(settings.check().is_ok());
        settings.properties.insert("enable.auto.commit".to_owned(), "true".to_owned());
        assert!(matches!(settings.check(), Err(SettingsError::Own(property)) if property == "enable.auto.commit"));
    }
}
