//! What a node knows of its place among others.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, Inner};
use crate::health::OnStoreLoss;

use super::cut_off::CutOff;
use super::letters::Dealt;

#[derive(Debug)]
pub(crate) struct Membership {
    shared: bool,
    /// Ends the tasks of this membership, when it is lost; the next one has another.
    current: Mutex<CancellationToken>,
    /// How often the lease was lost, as far as the node has heard.
    losses: AtomicU64,
    /// When the last beat that was answered went out, by what the clock has gone; none yet.
    renewed_at: Mutex<Option<Duration>>,
    /// Not a `watch`, which wakes those who wait in an order that no seed repeats.
    renewal: Notify,
    /// The node has stopped: nobody beats or listens for it any more.
    pub(super) gone: CancellationToken,
    listens: AtomicBool,
    beats: AtomicBool,
    /// Another process may have left something: an answer, say.
    pub(super) called: Notify,
    /// Letters that the next look into the store may find.
    pub(super) open_letters: Mutex<HashMap<i64, Dealt>>,
    /// Messages since it was last seen whether others are to be called for them.
    pub(super) taken_in: AtomicU64,
    /// Why the node has stopped by itself.
    ousted: watch::Sender<Option<String>>,
}

impl Membership {
    pub(crate) fn new(shared: bool) -> Self {
        Self {
            shared,
            current: Mutex::default(),
            losses: AtomicU64::new(0),
            renewed_at: Mutex::default(),
            renewal: Notify::new(),
            gone: CancellationToken::new(),
            listens: AtomicBool::new(false),
            beats: AtomicBool::new(false),
            called: Notify::new(),
            open_letters: Mutex::default(),
            taken_in: AtomicU64::new(0),
            ousted: watch::Sender::new(None),
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// For tasks that are claimed from now on.
    pub(crate) fn cut_off(&self) -> CutOff {
        let current = || self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        CutOff(self.shared.then(current))
    }

    /// Every runner ends its attempts and lets go.
    pub(crate) fn lose(&self) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *current).cancel();
    }

    /// Whether that is news.
    pub(super) fn hears_of(&self, losses: u64) -> bool {
        self.losses.fetch_max(losses, Ordering::AcqRel) < losses
    }

    /// Answers may come in another order than beats went out.
    pub(super) fn renewed(&self, at: Duration) {
        {
            let mut last = self.renewed_at.lock().unwrap_or_else(PoisonError::into_inner);
            *last = (*last).max(Some(at));
        }
        self.renewal.notify_waiters();
    }

    /// True the first time.
    pub(super) fn begins_to_listen(&self) -> bool {
        self.shared && !self.listens.swap(true, Ordering::AcqRel)
    }

    /// True the first time.
    pub(super) fn begins_to_beat(&self) -> bool {
        self.shared && !self.beats.swap(true, Ordering::AcqRel)
    }

    pub(super) fn oust(&self, why: String) {
        self.ousted.send_replace(Some(why));
    }
}

impl Engine {
    /// Resolves if the node has to stop by itself, with the reason: another process has taken its name.
    pub async fn ousted(&self) -> String {
        let mut ousted = self.inner().membership.ousted.subscribe();
        let why = ousted.wait_for(Option::is_some).await.map(|why| why.clone());
        match why {
            Ok(Some(why)) => why,
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }
}

impl Inner {
    /// Whether no other node can have a task by now. Nothing of it begins otherwise, unless the node is to go on without
    /// its store.
    pub(crate) fn may_begin(&self, cut_off: &CutOff) -> bool {
        let goes_on = !self.membership.is_shared() || self.health.on_loss() == OnStoreLoss::Continue;
        (goes_on || self.is_renewed()) && !cut_off.has_come()
    }

    /// Waits until the node is sure of its lease. Whether a task is still its own is for the cut-off to say.
    pub(crate) async fn lease_renewed(&self) {
        loop {
            let renewal = self.membership.renewal.notified();
            if self.is_renewed() {
                return;
            }
            renewal.await;
        }
    }

    fn is_renewed(&self) -> bool {
        let renewed_at = *self.membership.renewed_at.lock().unwrap_or_else(PoisonError::into_inner);
        renewed_at.is_some_and(|at| self.clock.elapsed().saturating_sub(at) < self.lease())
    }

    /// The last thing a node does: others need not wait until its lease has run out.
    pub(crate) async fn leave(self: &Arc<Self>) {
        if !self.membership.is_shared() {
            return;
        }
        self.membership.gone.cancel();
        let left = tokio::time::timeout(self.lease(), self.store.leave()).await;
        if !matches!(left, Ok(Ok(()))) {
            tracing::warn!("the store does not know that this node has left; it will find out in {:?}", self.lease());
        }
    }
}
