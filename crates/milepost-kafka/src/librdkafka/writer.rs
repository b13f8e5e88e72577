//! Publishing by the library, and what its errors mean for what was to be published.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};

use super::clients::{self, Reports};
use crate::cluster::{Listener, Record, SendError, Writer};
use crate::settings::{Settings, SettingsError};

/// The library's own queue may be full for a moment.
const QUEUE_WITHIN: Duration = Duration::from_secs(1);

pub(super) struct TopicWriter {
    /// None while it is dropped.
    producer: Option<FutureProducer<Reports>>,
}

impl TopicWriter {
    pub(super) fn new(settings: &Settings, listener: Arc<dyn Listener>, node: &str) -> Result<Self, SettingsError> {
        Ok(Self { producer: Some(clients::writer(settings, listener, node)?) })
    }

    fn producer(&self) -> &FutureProducer<Reports> {
        self.producer.as_ref().expect("it is there until it is dropped")
    }
}

#[async_trait]
impl Writer for TopicWriter {
    async fn send(&self, record: &Record) -> Result<(), SendError> {
        let headers = record
            .headers
            .iter()
            .fold(OwnedHeaders::new(), |all, (key, value)| all.insert(Header { key, value: Some(value) }));
        let wanted = FutureRecord::to(&record.topic).payload(&record.payload).headers(headers);
        let wanted = if record.key.is_empty() { wanted } else { wanted.key(&record.key) };
        match self.producer().send(wanted, QUEUE_WITHIN).await {
            Ok(_) => Ok(()),
            Err((error, _)) => Err(meaning(&error)),
        }
    }

    fn is_broken(&self) -> bool {
        self.producer().client().fatal_error().is_some()
    }
}

fn meaning(error: &KafkaError) -> SendError {
    use RDKafkaErrorCode as Code;
    let reason = error.to_string();
    if let KafkaError::Nul(_) = error {
        return SendError::Refused(reason);
    }
    match error.rdkafka_error_code() {
        Some(Code::MessageSizeTooLarge | Code::InvalidMessageSize | Code::MessageBatchTooLarge) => {
            SendError::TooLarge(reason)
        }
        Some(Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition | Code::InvalidTopic) => {
            SendError::NoTopic(reason)
        }
        Some(Code::InvalidRecord | Code::InvalidTimestamp | Code::UnsupportedForMessageFormat) => {
            SendError::Refused(reason)
        }
        Some(_) | None => SendError::Passing(reason),
    }
}

impl Drop for TopicWriter {
    /// It waits for what is under way, which without brokers nobody should have to.
    fn drop(&mut self) {
        if let Some(producer) = self.producer.take() {
            std::thread::spawn(move || drop(producer));
        }
    }
}

impl std::fmt::Debug for TopicWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TopicWriter").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_no_later_attempt_can_change_counts_as_refused() {
        use RDKafkaErrorCode as Code;
        let meaning = |code| meaning(&KafkaError::MessageProduction(code));
        assert!(matches!(meaning(Code::MessageSizeTooLarge), SendError::TooLarge(_)));
        assert!(matches!(meaning(Code::UnknownTopic), SendError::NoTopic(_)));
        assert!(matches!(meaning(Code::InvalidRecord), SendError::Refused(_)));
        for passing in [
            Code::MessageTimedOut,
            Code::NotEnoughReplicas,
            Code::AllBrokersDown,
            Code::QueueFull,
            Code::TopicAuthorizationFailed,
            // Another record of its batch was refused.
            Code::InvalidDifferentRecord,
        ] {
            assert!(matches!(meaning(passing), SendError::Passing(_)), "{passing:?}");
        }
    }
}
