//! What happens, as it happens, for whoever watches. Watching never slows the work down: who lags is told so.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use milepost_core::id::{PlanId, StageName, TaskId};
use milepost_core::task::{PlanStatus, Record, TaskStatus};
use tokio::sync::{broadcast, oneshot};

use crate::stage::Progress;

/// Items a watcher may be behind before it has to look at the store instead.
const CAPACITY: usize = 4096;

#[derive(Debug, Clone)]
pub enum FeedItem {
    /// Something happened to a task, and is durable.
    Task {
        plan: PlanId,
        task: TaskId,
        status: TaskStatus,
        records: Arc<[Record]>,
        done: usize,
        stages: usize,
    },
    /// A running stage says how far it is.
    Progress {
        plan: PlanId,
        task: TaskId,
        stage: StageName,
        progress: Progress,
    },
    Plan {
        plan: PlanId,
        status: PlanStatus,
    },
}

#[derive(Debug)]
pub struct Feed {
    sender: broadcast::Sender<FeedItem>,
    waiting: Mutex<HashMap<PlanId, Vec<oneshot::Sender<PlanStatus>>>>,
}

impl Feed {
    pub(crate) fn new() -> Self {
        Self { sender: broadcast::channel(CAPACITY).0, waiting: Mutex::default() }
    }

    pub fn subscribe(&self) -> broadcast::Receiver<FeedItem> {
        self.sender.subscribe()
    }

    /// The item is only made when somebody watches.
    pub(crate) fn publish(&self, item: impl FnOnce() -> FeedItem) {
        if self.sender.receiver_count() > 0 {
            // It may have gone in this very moment, which is no error.
            let _ = self.sender.send(item());
        }
    }

    /// Resolves when the plan next changes its status to one that `settled` accepts.
    pub(crate) fn plan_changes(&self, plan: &PlanId) -> oneshot::Receiver<PlanStatus> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).entry(plan.clone()).or_default().push(sender);
        receiver
    }

    pub(crate) fn plan_changed(&self, plan: &PlanId, status: PlanStatus) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(plan);
        for sender in waiting.into_iter().flatten() {
            let _ = sender.send(status);
        }
        self.publish(|| FeedItem::Plan { plan: plan.clone(), status });
    }
}
