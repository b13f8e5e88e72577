//! Chains: tasks that messages set off. Few of them run at once on a node, and it says how many more may come.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use milepost_core::id::TaskId;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::engine::{Engine, Inner, Lent};

/// What was received here is usually claimed here at once. After this long it waits for something else, for its tenant
/// or its plan, or another node has it: it keeps no message out any longer.
const EXPECTED_FOR: Duration = Duration::from_secs(2);

/// How many tasks that messages set off a node has in hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chains {
    /// Running, or about to be tried again.
    pub active: usize,
    /// In hand, and in line for a place.
    pub waiting: usize,
    /// How many may be active.
    pub limit: usize,
}

impl Engine {
    pub fn chains(&self) -> Chains {
        self.inner().chains.count()
    }

    /// How many more messages this node could take in now, as soon as that is at least one. What was received here
    /// counts also while it has not been claimed. Never resolves on a node that is full for good, so it is to be waited
    /// for together with whatever ends the waiting.
    pub fn room_for_chains(&self) -> impl Future<Output = usize> + Send + 'static {
        let places = self.inner().chains.clone();
        async move { places.room().await }
    }
}

/// The places of a node, and who is on the way to one.
#[derive(Debug)]
pub(crate) struct Places {
    limit: usize,
    free: Arc<Semaphore>,
    /// In hand, with a place or without.
    held: AtomicUsize,
    /// Received and not claimed yet, since when.
    expected: Mutex<HashMap<TaskId, Instant>>,
    changed: Notify,
}

impl Places {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        let limit = limit.max(1);
        Arc::new(Self {
            limit,
            free: Arc::new(Semaphore::new(limit)),
            held: AtomicUsize::new(0),
            expected: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Said before its message is durable, so that it cannot be claimed unnoticed.
    pub(crate) fn expect(&self, task: &TaskId) {
        self.expected().insert(task.clone(), Instant::now());
    }

    /// It was claimed, or will not be.
    pub(crate) fn is_here(&self, task: &TaskId) {
        if self.expected().remove(task).is_some() {
            self.changed.notify_waiters();
        }
    }

    fn count(&self) -> Chains {
        let active = self.limit - self.free.available_permits().min(self.limit);
        let waiting = self.held.load(Ordering::Acquire).saturating_sub(active);
        Chains { active, waiting, limit: self.limit }
    }

    async fn room(&self) -> usize {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let (expected, next) = self.count_expected();
            let room = self.limit.saturating_sub(self.held.load(Ordering::Acquire) + expected);
            if room > 0 {
                return room;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = crate::runner::at(next) => {}
            }
        }
    }

    /// How many are expected, and when there is one less if nothing comes of it.
    fn count_expected(&self) -> (usize, Option<Instant>) {
        let mut expected = self.expected();
        expected.retain(|_, since| since.elapsed() < EXPECTED_FOR);
        (expected.len(), expected.values().min().map(|since| *since + EXPECTED_FOR))
    }

    fn expected(&self) -> MutexGuard<'_, HashMap<TaskId, Instant>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One chain in hand: in line for a place, or in it until this is dropped.
pub(crate) struct Chain {
    places: Arc<Places>,
    place: Place,
}

enum Place {
    InLine {
        turn: BoxFuture<'static, OwnedSemaphorePermit>,
        /// Other tasks than chains may have its place on the node meanwhile.
        _lent: Option<Lent>,
    },
    Taken {
        _permit: OwnedSemaphorePermit,
    },
}

impl Chain {
    pub(crate) fn new(inner: &Arc<Inner>) -> Self {
        let places = inner.chains.clone();
        let held = places.held.fetch_add(1, Ordering::AcqRel);
        let place = match places.free.clone().try_acquire_owned() {
            Ok(permit) => Place::Taken { _permit: permit },
            Err(_) => {
                let free = places.free.clone();
                let turn = async move { free.acquire_owned().await.expect("the places are never closed") };
                // Not without bounds: a long line is not to be held by this node alone.
                let lent = (held < inner.capacity()).then(|| inner.lend());
                Place::InLine { turn: turn.boxed(), _lent: lent }
            }
        };
        Self { places, place }
    }

    pub(crate) fn has_place(&self) -> bool {
        matches!(self.place, Place::Taken { .. })
    }

    /// First come, first served.
    pub(crate) async fn wait(&mut self) {
        if let Place::InLine { turn, .. } = &mut self.place {
            let permit = turn.await;
            self.place = Place::Taken { _permit: permit };
        }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        self.places.held.fetch_sub(1, Ordering::AcqRel);
        self.places.changed.notify_waiters();
    }
}
