//! What a node asks of its brokers, and what it hears from them. Everything above this is the same over librdkafka and
//! over brokers that a test or a simulator plays: no thread, no clock but tokio's, nothing random.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use milepost_core::time::Millis;

use crate::settings::SettingsError;

/// How long `Writer::send` may take before it gives up.
pub const PUBLISH_WITHIN: Millis = Millis::from_secs(5);

/// The brokers, as one node and its group reach them.
pub trait Cluster: Send + Sync + Debug {
    /// Begins to tell the listener how the brokers are, until it is closed: that the topics are there, and how much is
    /// unread.
    fn attend(&self, listener: Arc<dyn Listener>) -> Result<(), SettingsError>;

    /// A member of the group that has not joined it yet.
    fn reader(&self, listener: Arc<dyn Listener>) -> Result<Box<dyn Reader>, SettingsError>;

    fn writer(&self, listener: Arc<dyn Listener>) -> Result<Arc<dyn Writer>, SettingsError>;
}

/// A member of the group. It reads one topic, and its listener hears of its partitions before their first message comes.
#[async_trait]
pub trait Reader: Send + Sync + Debug {
    fn subscribe(&self) -> Result<(), String>;

    /// The next message. Dropped before it is ready, it has taken none.
    async fn next(&self) -> Result<Fetched, ReadError>;

    /// Pauses or resumes all partitions that it has now. Those that come later come open.
    fn set_paused(&self, paused: bool);

    /// Sends offsets on their way: of each partition, what is to be read next. What came of it is for the listener.
    fn commit(&self, offsets: &[(i32, i64)]);

    /// Commits these and leaves. Without brokers that may take for ever.
    async fn close(self: Box<Self>, offsets: Vec<(i32, i64)>);
}

/// Publishes records, each at least once; those of one key in the order in which they are sent one after the other.
#[async_trait]
pub trait Writer: Send + Sync + Debug {
    /// Returns when the brokers have it, or have it not.
    async fn send(&self, record: &Record) -> Result<(), SendError>;

    /// It has met an error after which nothing goes well any more.
    fn is_broken(&self) -> bool;
}

/// Hears what happens, from any thread, and answers at once.
pub trait Listener: Send + Sync + Debug {
    /// The topics are there, and a message may come again for so long.
    fn ready(&self, remember: Millis);

    fn assigned(&self, partitions: &[i32]);

    /// They are about to go. What is durable of them and not committed yet.
    fn revoked(&self, partitions: &[i32]) -> Vec<(i32, i64)>;

    fn committed(&self, offsets: &[(i32, i64)]);

    /// Messages of its partitions that are not acknowledged; none while nobody knows.
    fn lag(&self, lag: Option<u64>);

    /// The brokers are out of reach, and are not any more. Said again and again.
    fn lost(&self, why: &str);
    fn found(&self);

    /// Something else went wrong, and is tried again.
    fn troubled(&self, what: &str);

    /// Those that this node reads now.
    fn partitions(&self) -> Vec<i32>;

    /// Nobody is interested any more.
    fn is_closed(&self) -> bool;
}

/// A message as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    pub partition: i32,
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub payload: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The reader is of no use any more: close it and begin with another.
    #[error("{0}")]
    Broken(String),
    /// No broker answers: ask again.
    #[error("{0}")]
    Away(String),
    /// Ask again.
    #[error("{0}")]
    Passing(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub topic: String,
    /// Empty: none.
    pub key: String,
    pub headers: Vec<(String, String)>,
    pub payload: Vec<u8>,
}

/// The first three may be about another record that happened to go in the same batch; sent alone, the answer is about
/// this one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// More than its topic takes.
    #[error("{0}")]
    TooLarge(String),
    #[error("{0}")]
    NoTopic(String),
    /// The broker does not take such a record, now or later.
    #[error("{0}")]
    Refused(String),
    /// It may go well the next time.
    #[error("{0}")]
    Passing(String),
}
