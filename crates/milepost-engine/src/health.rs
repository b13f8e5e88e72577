//! How this node's store is, as far as the node's own work has shown, and what becomes of work without it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use milepost_core::id::TaskId;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::engine::Engine;

/// What a node does with the tasks it has in hand while the store is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnStoreLoss {
    /// Running stages finish, nothing new starts, and what happened is written when the store is back.
    #[default]
    Hold,
    /// Tasks go on, in memory, and what happened is written when the store is back. A crash meanwhile loses that: the
    /// stages since then run again.
    Continue,
    /// Tasks stop at the end of their stage, and are FAILED when the store is back; a person may retry them.
    Fail,
}

impl OnStoreLoss {
    pub fn as_str(self) -> &'static str {
        match self {
            OnStoreLoss::Hold => "hold",
            OnStoreLoss::Continue => "continue",
            OnStoreLoss::Fail => "fail",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Health {
    on_loss: OnStoreLoss,
    /// A look that costs nothing, for every commit.
    away: AtomicBool,
    away_since: Mutex<Option<Instant>>,
    /// Tasks that have gone on without the store.
    ahead: Mutex<HashSet<TaskId>>,
}

impl Health {
    pub(crate) fn new(on_loss: OnStoreLoss) -> Self {
        Self { on_loss, away: AtomicBool::new(false), away_since: Mutex::default(), ahead: Mutex::default() }
    }

    pub(crate) fn on_loss(&self) -> OnStoreLoss {
        self.on_loss
    }

    /// The store did something.
    pub(crate) fn answered(&self) {
        if self.away.load(Ordering::Acquire) && self.away.swap(false, Ordering::AcqRel) {
            let since = self.away_since.lock().unwrap_or_else(PoisonError::into_inner).take();
            let away_for = since.map(|since| since.elapsed()).unwrap_or_default();
            tracing::warn!(?away_for, "the store is back");
        }
    }

    /// The store could not be reached.
    pub(crate) fn refused(&self) {
        if !self.away.swap(true, Ordering::AcqRel) {
            *self.away_since.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            tracing::error!(on_store_loss = self.on_loss.as_str(), "the store is out of reach");
        }
    }

    pub(crate) fn is_away(&self) -> bool {
        self.away.load(Ordering::Acquire)
    }

    pub(crate) fn goes_ahead(&self, task: &TaskId) {
        self.ahead().insert(task.clone());
    }

    pub(crate) fn is_written(&self, task: &TaskId) {
        self.ahead().remove(task);
    }

    fn ahead(&self) -> MutexGuard<'_, HashSet<TaskId>> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// The store did not take what this node last had for it.
    pub fn store_is_away(&self) -> bool {
        self.inner().health.is_away()
    }

    /// False while the task goes on without the store: the store's word of it is not the last.
    pub fn is_durable(&self, task: &TaskId) -> bool {
        !self.inner().health.ahead().contains(task)
    }

    /// How many tasks go on without the store.
    pub fn not_durable(&self) -> usize {
        self.inner().health.ahead().len()
    }
}
