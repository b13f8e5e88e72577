//! What the parts of a node's Kafka side know of each other.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use milepost_core::time::Millis;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::offsets::Offsets;
use crate::reach::Reach;
use crate::settings::Settings;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) reach: Reach,
    pub(crate) counts: Counts,
    offsets: Mutex<Offsets>,
    /// Partitions came or went: those that came are not paused yet.
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
        }
    }

    pub(crate) fn offsets(&self) -> MutexGuard<'_, Offsets> {
        self.offsets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Release);
        self.valve.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
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
