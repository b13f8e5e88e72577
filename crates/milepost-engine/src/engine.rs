//! The node: claims what there is to do, gives each task a runner, and stops in good order.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::Plan;
use milepost_core::task::PlanStatus;
use milepost_core::time::Timestamp;
use milepost_store::{
    ClaimRequest, PlanQuery, PlanRow, RequestKey, Resubmit, Start, Store, StoreError, StoredTask, Submission, Submitted,
};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::clock::Clock;
use crate::feed::{Feed, FeedItem};
use crate::guards::Guards;
use crate::meters::Meters;
use crate::registry::Registry;
use crate::runner::{Order, Runner, chain};
use crate::workflow::FlowRunner;

/// How a node works.
#[derive(Debug, Clone)]
pub struct Options {
    pub node: Arc<str>,
    /// Tasks this node has in hand at once, of all plans together.
    pub capacity: usize,
    /// Work on this plan only, and also take up what waits for a person to say so.
    pub only: Option<PlanId>,
    /// How long a running task may be silent before the feed says again how far it is.
    pub heartbeat: Duration,
    pub clock: Clock,
}

impl Options {
    pub fn new(node: impl Into<Arc<str>>) -> Self {
        let heartbeat = Duration::from_secs(10);
        Self { node: node.into(), capacity: 1024, only: None, heartbeat, clock: Clock::system() }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the plan was refused: {0}")]
    Plan(String),
}

/// A node over a store. Clones are handles to the same node.
#[derive(Debug, Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Registry,
    pub(crate) clock: Clock,
    pub(crate) feed: Feed,
    pub(crate) meters: Meters,
    pub(crate) guards: Guards,
    /// Stop at the stage boundary.
    pub(crate) stop: CancellationToken,
    /// The same, for a look at every stage's end that costs nothing.
    stopping: AtomicBool,
    options: Options,
    /// Another at every start, so that a node can be told from the one that had its name before.
    boot_id: String,
    started_at: Timestamp,
    runners: Mutex<HashMap<TaskId, mpsc::UnboundedSender<Order>>>,
    in_hand: AtomicUsize,
    /// Of those, the ones that only wait and let others have their place.
    lent: AtomicUsize,
    /// There may be something to claim.
    wake: Notify,
    tasks: TaskTracker,
}

impl Engine {
    /// A node that does nothing yet; operator's verbs work on it all the same.
    pub fn new(store: Arc<dyn Store>, registry: Registry, options: Options) -> Self {
        let inner = Inner {
            store,
            registry,
            clock: options.clock,
            feed: Feed::new(),
            meters: Meters::default(),
            guards: Guards::default(),
            stop: CancellationToken::new(),
            stopping: AtomicBool::new(false),
            boot_id: uuid::Uuid::now_v7().to_string(),
            started_at: options.clock.now(),
            options,
            runners: Mutex::default(),
            in_hand: AtomicUsize::new(0),
            lent: AtomicUsize::new(0),
            wake: Notify::new(),
            tasks: TaskTracker::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Begins to claim and run tasks.
    pub fn start(&self) {
        self.inner.tasks.spawn(claim_loop(self.inner.clone()));
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    pub fn feed(&self) -> &Feed {
        &self.inner.feed
    }

    /// What this node has counted of itself.
    pub fn meters(&self) -> &Meters {
        &self.inner.meters
    }

    pub fn clock(&self) -> Clock {
        self.inner.clock
    }

    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// The node's name.
    pub fn node(&self) -> &str {
        &self.inner.options.node
    }

    pub fn boot_id(&self) -> &str {
        &self.inner.boot_id
    }

    pub fn started_at(&self) -> Timestamp {
        self.inner.started_at
    }

    /// How many tasks it takes in hand at once.
    pub fn capacity(&self) -> usize {
        self.inner.options.capacity
    }

    pub async fn submit(&self, plan: Arc<Plan>, start: Start, resubmit: Resubmit) -> Result<Submitted, EngineError> {
        self.submit_under(plan, start, resubmit, None).await
    }

    /// A submission that its sender may repeat under the same key, and get the same answer.
    pub async fn submit_under(
        &self,
        plan: Arc<Plan>,
        start: Start,
        resubmit: Resubmit,
        request: Option<RequestKey>,
    ) -> Result<Submitted, EngineError> {
        let submission = Submission { plan, start, resubmit, request, now: self.inner.clock.now() };
        let inner = self.inner.clone();
        let submitted = self.see_through(async move {
            let submitted = inner.store.submit(submission).await?;
            inner.wake();
            Ok(submitted)
        });
        submitted.await
    }

    /// Does something to its end, also when the caller goes away in the middle of it.
    pub(crate) async fn see_through<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        match self.inner.tasks.spawn(work).await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // Only a runtime that is being shut down cancels it, and then the caller is cancelled as well.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// Waits until the plan is in a status that `settled` accepts.
    pub async fn wait_for_plan(
        &self,
        plan: &PlanId,
        settled: impl Fn(&PlanRow) -> bool,
    ) -> Result<PlanRow, EngineError> {
        loop {
            let changes = self.inner.feed.plan_changes(plan);
            let row = self.inner.store.plan(plan).await?;
            let row = row.ok_or_else(|| StoreError::NotFound { what: "plan", id: plan.to_string() })?;
            if settled(&row) {
                return Ok(row);
            }
            // An error means that the node is being dropped; the next look at the store says how things are.
            let _ = changes.await;
        }
    }

    /// Resolves at the plan's next change of status; made before a submission it cannot miss one.
    pub fn plan_changes(&self, plan: &PlanId) -> tokio::sync::oneshot::Receiver<PlanStatus> {
        self.inner.feed.plan_changes(plan)
    }

    /// Lets running stages finish, starts nothing new, and gives every task back.
    pub async fn stop(&self) {
        self.inner.stopping.store(true, Ordering::Release);
        self.inner.stop.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    /// How many tasks are in hand.
    pub fn in_hand(&self) -> usize {
        self.inner.in_hand.load(Ordering::Acquire)
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl Inner {
    /// The runner's mailbox, if the task is in hand.
    pub(crate) fn runner(&self, task: &TaskId) -> Option<mpsc::UnboundedSender<Order>> {
        self.runners().get(task).cloned()
    }

    pub(crate) fn heartbeat(&self) -> Duration {
        self.options.heartbeat
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Closes a runner's mailbox. The task may have been claimed again already: its new runner's mailbox stays.
    pub(crate) fn forget(&self, task: &TaskId, orders: &mut mpsc::UnboundedReceiver<Order>) {
        let mut runners = self.runners();
        orders.close();
        if runners.get(task).is_some_and(mpsc::UnboundedSender::is_closed) {
            runners.remove(task);
        }
    }

    /// A runner is done: its slot, its tenant and its place here are free.
    pub(crate) fn released(&self) {
        self.in_hand.fetch_sub(1, Ordering::AcqRel);
        self.wake.notify_one();
    }

    /// How many tasks take up a place of the node's capacity.
    fn working(&self) -> usize {
        self.in_hand.load(Ordering::Acquire).saturating_sub(self.lent.load(Ordering::Acquire))
    }

    /// A task that only waits lets another have its place, until this is dropped.
    pub(crate) fn lend(self: &Arc<Self>) -> Lent {
        // Somebody may have been waiting for just this.
        let was_full = self.working() >= self.options.capacity;
        self.lent.fetch_add(1, Ordering::AcqRel);
        if was_full {
            self.wake();
        }
        Lent { inner: self.clone() }
    }

    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    /// Something was changed that may have made a task ready.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    pub(crate) fn plan_changed(self: &Arc<Self>, plan: &PlanId, status: PlanStatus) {
        self.feed.plan_changed(plan, status);
        if status == PlanStatus::Paused {
            let (inner, plan) = (self.clone(), plan.clone());
            self.tasks.spawn(async move { inner.pause_running(&plan).await });
        }
    }

    fn runners(&self) -> MutexGuard<'_, HashMap<TaskId, mpsc::UnboundedSender<Order>>> {
        self.runners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_on(self: &Arc<Self>, stored: StoredTask) {
        let (sender, orders) = mpsc::unbounded_channel();
        self.runners().insert(stored.key.id.clone(), sender);
        self.in_hand.fetch_add(1, Ordering::AcqRel);
        self.announce(&stored);
        let span = span(&stored);
        if stored.task.flow().is_some() {
            self.tasks.spawn(FlowRunner::new(self.clone(), stored, orders).run().instrument(span));
        } else {
            self.tasks.spawn(Runner::new(self.clone(), stored, orders).run().instrument(span));
        }
    }

    fn announce(&self, stored: &StoredTask) {
        self.meters.happened(&stored.claim_events, &stored.task);
        self.feed.publish(|| FeedItem::Task {
            plan: stored.task.spec().plan.clone(),
            task: stored.key.id.clone(),
            status: stored.task.status(),
            records: stored.claim_events.clone().into(),
            done: stored.task.done().len(),
            stages: stored.task.stages().len(),
        });
    }
}

/// One run of a task, for a trace. Its target of its own keeps it from being made unless somebody collects traces.
fn span(stored: &StoredTask) -> tracing::Span {
    tracing::trace_span!(
        target: "milepost::trace",
        "task",
        otel.name = "task",
        milepost.plan = %stored.task.spec().plan,
        milepost.task = %stored.key.id,
        milepost.epoch = stored.epoch,
    )
}

/// A place of the node that its task does not need for now.
pub(crate) struct Lent {
    inner: Arc<Inner>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.inner.lent.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Claims whenever there may be something, and otherwise costs nothing.
async fn claim_loop(inner: Arc<Inner>) {
    inner.finish_cancelled_plans().await;
    let mut pause = Duration::from_millis(50);
    while !inner.stop.is_cancelled() {
        let room = inner.options.capacity.saturating_sub(inner.working());
        if room == 0 {
            wait(&inner, None).await;
            continue;
        }
        let request = ClaimRequest {
            node: inner.options.node.clone(),
            only: inner.options.only.clone(),
            plans: inner.registry.runs_plans(),
            workflows: inner.registry.workflows(),
            limit: room,
            now: inner.clock.now(),
        };
        match inner.store.claim(request).await {
            Ok(claimed) => {
                pause = Duration::from_millis(50);
                let full = claimed.tasks.len() + claimed.ended.len() == room;
                claimed.tasks.into_iter().for_each(|stored| inner.take_on(stored));
                for stored in &claimed.ended {
                    inner.announce(stored);
                    inner.tell_parent(&stored.task);
                }
                for plan in &claimed.settled {
                    if let Ok(Some(row)) = inner.store.plan(plan).await {
                        inner.plan_changed(plan, row.status);
                    }
                }
                if !full {
                    wait(&inner, claimed.next_due).await;
                }
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), "nothing could be claimed; trying again");
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = inner.stop.cancelled() => {}
                }
                pause = (pause * 2).min(Duration::from_secs(5));
            }
        }
    }
}

async fn wait(inner: &Inner, due: Option<Timestamp>) {
    let due = async {
        match due {
            Some(due) => inner.clock.sleep_until(due).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = inner.wake.notified() => {}
        () = inner.stop.cancelled() => {}
        () = due => {}
    }
}

impl Inner {
    /// Open plans whose cancelling a crash may have cut short.
    async fn finish_cancelled_plans(self: &Arc<Self>) {
        let mut after = None;
        loop {
            let query = PlanQuery { open_only: true, after, limit: 200 };
            let Ok(page) = self.store.plans(query).await else { return };
            for plan in page.items.iter().filter(|plan| plan.status == PlanStatus::Cancelled) {
                let by = plan.changed_by.clone().unwrap_or_else(|| milepost_core::task::By::new("milepost"));
                if let Err(error) = self.cancel_tasks(&plan.id, &by).await {
                    tracing::error!(plan = %plan.id, %error, "some tasks of the cancelled plan could not be cancelled");
                }
            }
            after = page.next;
            if after.is_none() {
                return;
            }
        }
    }
}
