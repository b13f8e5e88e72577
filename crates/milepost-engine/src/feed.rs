//! What happens, as it happens, for whoever watches. Watching never slows the work down: who lags is told so.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use milepost_core::id::{PlanId, StageName, TaskId};
use milepost_core::task::{PlanStatus, Record, Task, TaskStatus};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, oneshot};

use crate::stage::Progress;

/// Items a watcher may be behind before it has to look at the store instead.
const CAPACITY: usize = 4096;
/// How long a watcher lets things gather after the first.
const GATHER_FOR: Duration = Duration::from_millis(20);

#[derive(Debug, Clone)]
pub enum FeedItem {
    /// Something happened to a task, and is durable.
    Task { plan: PlanId, task: TaskId, status: TaskStatus, records: Arc<[Record]>, done: usize, stages: usize },
    /// How far a running task is: because a stage said so, because it goes on from a checkpoint, or because it has
    /// been silent for as long as a heartbeat. At most four a second of a task, and the last word of a stage that ends.
    Progress {
        plan: PlanId,
        task: TaskId,
        status: TaskStatus,
        /// The stage that has something new to say, else the one the task is at.
        stage: Option<StageName>,
        /// What that stage last said of itself.
        progress: Option<Progress>,
        /// Units a second of that stage, in the last few seconds.
        rate: Option<f64>,
        done: usize,
        stages: usize,
        /// Of the whole task, with all of its running stages.
        percent: f64,
    },
    /// The task goes on without the store, which is away; or the store knows all of it again.
    Durability { plan: PlanId, task: TaskId, durable: bool },
    /// Its end may come before the last word of a task that ended in the same moment.
    Plan { plan: PlanId, status: PlanStatus },
}

impl FeedItem {
    /// This happened to the task, and is durable.
    pub(crate) fn of(task: &Task, records: Arc<[Record]>) -> Self {
        FeedItem::Task {
            plan: task.spec().plan.clone(),
            task: task.id().clone(),
            status: task.status(),
            records,
            done: task.done().len(),
            stages: task.stages().len(),
        }
    }
}

/// A watcher that is woken a few dozen times a second at most, however much happens.
#[derive(Debug)]
pub struct Watch {
    receiver: broadcast::Receiver<FeedItem>,
    /// Received, and waiting for others to join it.
    first: Option<Result<FeedItem, RecvError>>,
}

/// What happened since the last handful.
#[derive(Debug, Default)]
pub struct Handful {
    pub items: Vec<FeedItem>,
    /// More happened than could be kept: look at the store.
    pub lagged: bool,
}

impl Watch {
    /// Waits until something has happened; none when the node is gone. Dropping the wait loses nothing.
    pub async fn next(&mut self) -> Option<Handful> {
        if self.first.is_none() {
            self.first = Some(self.receiver.recv().await);
        }
        if matches!(self.first, Some(Err(RecvError::Closed))) {
            return None;
        }
        tokio::time::sleep(GATHER_FOR).await;
        Some(self.now())
    }

    /// What has happened by now, without waiting.
    pub fn now(&mut self) -> Handful {
        let mut handful = Handful::default();
        match self.first.take() {
            Some(Ok(item)) => handful.items.push(item),
            Some(Err(RecvError::Lagged(_))) => handful.lagged = true,
            Some(Err(RecvError::Closed)) | None => {}
        }
        loop {
            match self.receiver.try_recv() {
                Ok(item) => handful.items.push(item),
                Err(TryRecvError::Lagged(_)) => handful.lagged = true,
                Err(TryRecvError::Empty | TryRecvError::Closed) => return handful,
            }
        }
    }
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

    /// What happens from now on, in handfuls: for people, who need not see every item in its own moment.
    pub fn watch(&self) -> Watch {
        Watch { receiver: self.subscribe(), first: None }
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
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = waiting.entry(plan.clone()).or_default();
        // Whoever looks at the store now and then comes back again and again.
        waiting.retain(|sender| !sender.is_closed());
        waiting.push(sender);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn change(feed: &Feed, status: PlanStatus) {
        feed.plan_changed(&PlanId::parse("p").unwrap(), status);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watcher_that_stops_waiting_loses_nothing() {
        let feed = Feed::new();
        let mut watch = feed.watch();
        change(&feed, PlanStatus::Running);
        // Long enough to receive the first item, too short to be handed it.
        assert!(tokio::time::timeout(GATHER_FOR / 2, watch.next()).await.is_err());
        change(&feed, PlanStatus::Completed);
        assert_eq!(watch.now().items.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_happens_within_a_moment_comes_in_one_handful() {
        let feed = Feed::new();
        let mut watch = feed.watch();
        (0..100).for_each(|_| change(&feed, PlanStatus::Running));
        assert_eq!(watch.next().await.unwrap().items.len(), 100);
        (0..=CAPACITY).for_each(|_| change(&feed, PlanStatus::Running));
        assert!(watch.next().await.unwrap().lagged);
        drop(feed);
        assert!(watch.next().await.is_none());
    }
}
