//! What the parts of a node's Kafka side know of each other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use milepost_core::time::Millis;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::cluster::Listener;
use crate::offsets::Offsets;
use crate::reach::Reach;
use crate::settings::Settings;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) reach: Reach,
    pub(crate) counts: Counts,
    offsets: Mutex<Offsets>,
    /// Partitions came, and are not paused yet.
    pub(crate) reassigned: AtomicBool,
    /// A person said so.
    pub(crate) paused: AtomicBool,
    /// That may have changed.
    pub(crate) valve: Notify,
    /// The topics are there, and messages of theirs are remembered for so long.
    pub(crate) ready: watch::Sender<Option<Millis>>,
    /// No more messages are read.
    pub(crate) stopped: CancellationToken,
    /// Nothing is published either.
    pub(crate) closed: CancellationToken,
    /// Messages that nobody has taken in yet; below zero when nobody knows.
    pub(crate) lag: AtomicI64,
    /// Topics that take nothing for now, and why. What is for them waits in the outbox.
    failing: Mutex<BTreeMap<String, String>>,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Messages that were acknowledged, whatever came of them.
    pub(crate) consumed: AtomicU64,
    /// Of those, dead letters.
    pub(crate) failed: AtomicU64,
    /// Waiting for their tasks.
    pub(crate) parked: AtomicUsize,
    /// Writes that the store has refused and that are tried again.
    pub(crate) refused: AtomicUsize,
}

impl Shared {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            reach: Reach::default(),
            counts: Counts::default(),
            offsets: Mutex::default(),
            reassigned: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            valve: Notify::new(),
            ready: watch::channel(None).0,
            stopped: CancellationToken::new(),
            closed: CancellationToken::new(),
            lag: AtomicI64::new(-1),
            failing: Mutex::default(),
        }
    }

    pub(crate) fn offsets(&self) -> MutexGuard<'_, Offsets> {
        self.offsets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Release);
        self.valve.notify_one();
    }

    /// Said once for each reason, not at every attempt.
    pub(crate) fn fails(&self, topic: &str, why: &str) {
        let known = self.failing().insert(topic.to_owned(), why.to_owned());
        if known.as_deref() != Some(why) {
            tracing::warn!(
                topic,
                why,
                "a topic takes nothing; what is for it waits in the store, and the rest goes on"
            );
        }
    }

    pub(crate) fn takes_again(&self, topic: &str) {
        if self.failing().remove(topic).is_some() {
            tracing::info!(topic, "the topic takes what is published again");
        }
    }

    /// Nothing waits for any topic, whoever has published it.
    pub(crate) fn nothing_waits(&self) {
        self.failing().clear();
    }

    pub(crate) fn failing_topics(&self) -> Vec<String> {
        self.failing().keys().cloned().collect()
    }

    fn failing(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the topics are there.
    pub(crate) async fn ready(&self) -> Millis {
        let mut ready = self.ready.subscribe();
        match ready.wait_for(Option::is_some).await.map(|ready| *ready) {
            Ok(Some(remember)) => remember,
            // The sender is a part of this.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }
}

impl Listener for Shared {
    fn ready(&self, remember: Millis) {
        self.ready.send_replace(Some(remember));
    }

    fn assigned(&self, partitions: &[i32]) {
        {
            let mut offsets = self.offsets();
            partitions.iter().for_each(|&partition| offsets.assigned(partition));
        }
        tracing::info!(partitions = partitions.len(), "partitions came");
        self.reassigned.store(true, Ordering::Release);
        self.valve.notify_one();
    }

    fn revoked(&self, partitions: &[i32]) -> Vec<(i32, i64)> {
        tracing::info!(partitions = partitions.len(), "partitions went");
        let mut offsets = self.offsets();
        partitions.iter().filter_map(|&partition| Some((partition, offsets.revoked(partition)?))).collect()
    }

    fn committed(&self, offsets: &[(i32, i64)]) {
        let mut known = self.offsets();
        offsets.iter().for_each(|&(partition, offset)| known.committed(partition, offset));
    }

    fn lag(&self, lag: Option<u64>) {
        let lag = lag.map_or(-1, |lag| i64::try_from(lag).unwrap_or(i64::MAX));
        self.lag.store(lag, Ordering::Release);
    }

    fn lost(&self, why: &str) {
        self.reach.lost(&why);
    }

    fn found(&self) {
        self.reach.found();
    }

    fn troubled(&self, what: &str) {
        self.reach.troubled(what);
    }

    fn partitions(&self) -> Vec<i32> {
        self.offsets().partitions()
    }

    fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }
}

/// One of a number, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    pub(crate) fn one(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
