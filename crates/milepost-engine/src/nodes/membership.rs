//! What a node knows of its place among others.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, Inner};

use super::cut_off::CutOff;
use super::letters::Dealt;

#[derive(Debug)]
pub(crate) struct Membership {
    shared: bool,
    /// Ends the tasks of this membership, when it is lost; the next one has another.
    current: Mutex<CancellationToken>,
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
    pub(super) fn lose(&self) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *current).cancel();
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
