//! Brokers in memory. Nothing happens in them unless it is asked for, and then at once and always in the same way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use milepost_core::time::Millis;
use milepost_kafka::{
    Cluster, Fetched, Listener, PUBLISH_WITHIN, ReadError, Reader, Record, SendError, Settings, SettingsError, Writer,
};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Records that are sent within so long of each other go in one batch.
const LINGER: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct Brokers {
    pub(crate) settings: Settings,
    state: Mutex<State>,
    /// There may be something to read.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// What Milepost has published, by topic. A topic that is not here does not exist.
    topics: BTreeMap<String, Vec<Record>>,
    /// The topic of tasks, by partition.
    messages: Vec<Vec<Fetched>>,
    committed: BTreeMap<i32, i64>,
    loses_commits: bool,
    /// In the order in which they joined.
    members: Vec<Member>,
    joined: u64,
    /// Topics that take nothing for now.
    failing: Vec<String>,
    /// Topics with a limit for a batch, in bytes.
    limits: BTreeMap<String, usize>,
    /// Keys of records that are refused for what they are.
    refused: Vec<String>,
    /// The size of each batch, by topic and when it began.
    batches: BTreeMap<(String, Instant), usize>,
}

#[derive(Debug)]
struct Member {
    id: u64,
    listener: Arc<dyn Listener>,
    /// Where each of its partitions is read next.
    positions: BTreeMap<i32, i64>,
    paused: Vec<i32>,
}

impl Brokers {
    pub(crate) fn new(partitions: usize) -> Arc<Self> {
        let mut settings = Settings::new("played");
        settings.remember = Some(Millis::from_secs(3600));
        let topics = [&settings.dead_letter_topic, &settings.completed_topic, &settings.failed_topic];
        let topics = topics.into_iter().map(|topic| (topic.clone(), Vec::new())).collect();
        let state = State { topics, messages: vec![Vec::new(); partitions], ..State::default() };
        Arc::new(Self { settings, state: Mutex::new(state), changed: Notify::new() })
    }

    /// A message for whoever reads that partition.
    pub(crate) fn put(&self, partition: usize, payload: &[u8]) {
        {
            let mut state = self.state();
            let messages = &mut state.messages[partition];
            let (offset, partition) = (i64::try_from(messages.len()).unwrap(), i32::try_from(partition).unwrap());
            let key = Some(b"key".to_vec());
            messages.push(Fetched { partition, offset, timestamp: i64::MAX / 2, key, payload: payload.to_vec() });
        }
        self.changed.notify_waiters();
    }

    pub(crate) fn published(&self, topic: &str) -> Vec<Record> {
        self.state().topics.get(topic).cloned().unwrap_or_default()
    }

    pub(crate) fn committed(&self) -> i64 {
        self.state().committed.values().sum()
    }

    pub(crate) fn loses_commits(&self, loses: bool) {
        self.state().loses_commits = loses;
    }

    pub(crate) fn fails(&self, topic: &str, fails: bool) {
        let mut state = self.state();
        state.failing.retain(|failing| failing != topic);
        if fails {
            state.failing.push(topic.to_owned());
        }
    }

    pub(crate) fn limit(&self, topic: &str, bytes: usize) {
        self.state().limits.insert(topic.to_owned(), bytes);
    }

    pub(crate) fn refuses(&self, key: &str) {
        self.state().refused.push(key.to_owned());
    }

    pub(crate) fn delete(&self, topic: &str) {
        self.state().topics.remove(topic);
    }

    pub(crate) fn create(&self, topic: &str) {
        self.state().topics.entry(topic.to_owned()).or_default();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    /// Shares the partitions out anew, one after the other to each member.
    fn rebalance(&mut self) {
        let partitions = i32::try_from(self.messages.len()).unwrap();
        let count = i32::try_from(self.members.len()).unwrap();
        let mine = |index: usize| {
            let all = 0..if count == 0 { 0 } else { partitions };
            all.filter(move |partition| partition % count == i32::try_from(index).unwrap()).collect::<Vec<i32>>()
        };
        let mut commits = Vec::new();
        for (index, member) in self.members.iter_mut().enumerate() {
            let keeps = mine(index);
            let gone: Vec<i32> = member.positions.keys().copied().filter(|held| !keeps.contains(held)).collect();
            if !gone.is_empty() {
                commits.extend(member.listener.revoked(&gone));
                member.positions.retain(|partition, _| keeps.contains(partition));
            }
        }
        self.commit(&commits);
        for (index, member) in self.members.iter_mut().enumerate() {
            let new: Vec<i32> =
                mine(index).into_iter().filter(|wanted| !member.positions.contains_key(wanted)).collect();
            if !new.is_empty() {
                member.paused.retain(|paused| !new.contains(paused));
                let committed = &self.committed;
                member.positions.extend(new.iter().map(|new| (*new, committed.get(new).copied().unwrap_or(0))));
                member.listener.assigned(&new);
            }
        }
    }

    fn commit(&mut self, offsets: &[(i32, i64)]) -> bool {
        if !self.loses_commits {
            self.committed.extend(offsets.iter().copied());
        }
        !self.loses_commits
    }

    /// The next message of a member's partitions that are not paused.
    fn take(&mut self, id: u64) -> Option<Fetched> {
        let member = self.members.iter_mut().find(|member| member.id == id)?;
        for (partition, position) in &mut member.positions {
            let messages = &self.messages[usize::try_from(*partition).unwrap()];
            let next = messages.get(usize::try_from(*position).unwrap());
            if let Some(next) = next.filter(|_| !member.paused.contains(partition)) {
                *position += 1;
                return Some(next.clone());
            }
        }
        None
    }
}

/// One node's way to the brokers.
#[derive(Debug, Clone)]
pub(crate) struct Line(pub(crate) Arc<Brokers>);

impl Cluster for Line {
    fn attend(&self, listener: Arc<dyn Listener>) -> Result<(), SettingsError> {
        listener.ready(Millis::from_secs(3600));
        listener.lag(Some(0));
        Ok(())
    }

    fn reader(&self, listener: Arc<dyn Listener>) -> Result<Box<dyn Reader>, SettingsError> {
        let id = {
            let mut state = self.0.state();
            state.joined += 1;
            state.joined
        };
        Ok(Box::new(PlayedReader { brokers: self.0.clone(), id, listener }))
    }

    fn writer(&self, _: Arc<dyn Listener>) -> Result<Arc<dyn Writer>, SettingsError> {
        Ok(Arc::new(PlayedWriter { brokers: self.0.clone() }))
    }
}

#[derive(Debug)]
struct PlayedReader {
    brokers: Arc<Brokers>,
    id: u64,
    listener: Arc<dyn Listener>,
}

#[async_trait]
impl Reader for PlayedReader {
    fn subscribe(&self) -> Result<(), String> {
        {
            let mut state = self.brokers.state();
            let (listener, positions) = (self.listener.clone(), BTreeMap::new());
            state.members.push(Member { id: self.id, listener, positions, paused: Vec::new() });
            state.rebalance();
        }
        self.brokers.changed.notify_waiters();
        Ok(())
    }

    async fn next(&self) -> Result<Fetched, ReadError> {
        loop {
            let changed = self.brokers.changed.notified();
            if let Some(message) = self.brokers.state().take(self.id) {
                return Ok(message);
            }
            changed.await;
        }
    }

    fn set_paused(&self, paused: bool) {
        {
            let mut state = self.brokers.state();
            let member = state.members.iter_mut().find(|member| member.id == self.id).expect("a member");
            member.paused = if paused { member.positions.keys().copied().collect() } else { Vec::new() };
        }
        self.brokers.changed.notify_waiters();
    }

    fn commit(&self, offsets: &[(i32, i64)]) {
        let taken = self.brokers.state().commit(offsets);
        if taken {
            self.listener.committed(offsets);
        }
    }

    async fn close(self: Box<Self>, offsets: Vec<(i32, i64)>) {
        {
            let mut state = self.brokers.state();
            state.commit(&offsets);
            state.members.retain(|member| member.id != self.id);
            state.rebalance();
        }
        self.brokers.changed.notify_waiters();
    }
}

#[derive(Debug)]
struct PlayedWriter {
    brokers: Arc<Brokers>,
}

#[async_trait]
impl Writer for PlayedWriter {
    async fn send(&self, record: &Record) -> Result<(), SendError> {
        let topic = &record.topic;
        let batch = (topic.clone(), Instant::now());
        let fails = {
            let mut state = self.brokers.state();
            *state.batches.entry(batch.clone()).or_default() += record.payload.len();
            state.failing.contains(topic)
        };
        if fails {
            tokio::time::sleep(PUBLISH_WITHIN.as_duration()).await;
            return Err(SendError::Passing("the message timed out".to_owned()));
        }
        tokio::time::sleep(LINGER).await;
        let mut state = self.brokers.state();
        let size = state.batches[&batch];
        if state.limits.get(topic).is_some_and(|limit| size > *limit) {
            return Err(SendError::TooLarge("the message is too large".to_owned()));
        }
        if state.refused.contains(&record.key) {
            return Err(SendError::Refused("the record is invalid".to_owned()));
        }
        let Some(records) = state.topics.get_mut(topic) else {
            return Err(SendError::NoTopic("the topic is unknown".to_owned()));
        };
        records.push(record.clone());
        Ok(())
    }

    fn is_broken(&self) -> bool {
        false
    }
}
