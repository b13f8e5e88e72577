//! An entry of the outbox, as it goes to its topic.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use milepost_store::{Addressee, Parcel, WrittenAs};
use serde_json::Value;

use crate::cluster::Record;

/// Tells one entry of the outbox from every other.
const ENTRY_HEADER: &str = "milepost-entry";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outgoing {
    pub(crate) entry: String,
    pub(crate) topic: String,
    pub(crate) parcel: Parcel,
}

impl Outgoing {
    pub(crate) fn record(&self) -> Record {
        self.with(bytes(&self.parcel))
    }

    /// Without what may be large; the store has all of it.
    pub(crate) fn shortened(&self) -> Record {
        let Value::Object(mut fields) = self.parcel.body.clone() else { return self.record() };
        fields.shift_remove("originalMessage");
        fields.shift_remove("outputs");
        fields.insert("shortened".to_owned(), Value::Bool(true));
        self.with(Value::Object(fields).to_string().into_bytes())
    }

    /// Not for one of the topics of the settings, which somebody will make again, but for one that a message named.
    pub(crate) fn is_for_a_topic_by_name(&self) -> bool {
        match &self.parcel.to {
            Addressee::Topic { .. } => true,
            Addressee::Tasks | Addressee::Completed | Addressee::Failed | Addressee::DeadLetters => false,
        }
    }

    fn with(&self, payload: Vec<u8>) -> Record {
        let mut headers = vec![(ENTRY_HEADER.to_owned(), self.entry.clone())];
        headers.extend(self.parcel.headers.iter().cloned());
        Record { topic: self.topic.clone(), key: self.parcel.key.clone(), headers, payload }
    }
}

/// What goes back to where it came from goes as it was.
fn bytes(parcel: &Parcel) -> Vec<u8> {
    match (&parcel.to, &parcel.body) {
        (Addressee::Topic { written_as: WrittenAs::Text, .. }, Value::String(text)) => text.clone().into_bytes(),
        (Addressee::Topic { written_as: WrittenAs::Base64, .. }, Value::String(text)) => {
            STANDARD.decode(text).unwrap_or_else(|_| text.clone().into_bytes())
        }
        (_, body) => body.to_string().into_bytes(),
    }
}
