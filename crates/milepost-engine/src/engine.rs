//! The node: claims what there is to do, gives each task a runner, and stops in good order.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use milepost_core::id::{IdempotencyKey, PlanId, TaskId};
use milepost_core::plan::{Plan, Recovery, Trigger};
use milepost_core::planted::planted;
use milepost_core::task::PlanStatus;
use milepost_core::time::{Millis, Timestamp};
use milepost_store::{
    ClaimRequest, Entry, LEASE, PlanQuery, PlanRow, RequestKey, Resubmit, Start, Store, StoreError, StoredTask,
    Submission, Submitted,
};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::attempt::CANCEL_GRACE;
use crate::chains::Places;
use crate::clock::Clock;
use crate::feed::{Feed, FeedItem};
use crate::guards::Guards;
use crate::health::{Health, OnStoreLoss};
use crate::identity::StoreIdentity;
use crate::ids::Ids;
use crate::live::Live;
use crate::meters::Meters;
use crate::nodes::{CutOff, Membership};
use crate::registry::Registry;
use crate::runner::{Order, Runner, chain};
use crate::spawner::Spawner;
use crate::workflow::FlowRunner;

/// On a store that others change as well, whoever waits for a plan looks this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const PARK_AFTER: Millis = Millis::from_secs(30);
/// How long a node that is cut off waits for its attempts before it goes without leaving: others then wait for its lease.
const CUT_OFF: Duration = CANCEL_GRACE.saturating_add(Duration::from_secs(2));

/// How a node works.
#[derive(Debug, Clone)]
pub struct Options {
    pub node: Arc<str>,
    /// Tasks this node has in hand at once, of all plans together.
    pub capacity: usize,
    /// Of those, how many that messages set off run at once; at least one. The others in hand wait for their turn.
    pub chains: usize,
    /// Work on this plan only, and also take up what waits for a person to say so.
    pub only: Option<PlanId>,
    /// How long a running task may be silent before the feed says again how far it is.
    pub heartbeat: Duration,
    /// How long the node's lease lasts without a word of it, on a store that it shares: the same as it was opened with.
    pub lease: Duration,
    /// How often it looks for what no word was heard of, on a store that it shares: a write may arrive after whoever sent
    /// it has given up, and whoever cancelled a plan may have died before it came to all of its tasks.
    pub sweep: Duration,
    /// A wait longer than this gives the lease of its task back; the store keeps the time.
    pub park_after: Millis,
    pub on_store_loss: OnStoreLoss,
    /// Who decides, when all nodes were gone, about plans that do not say.
    pub recovery: Recovery,
    pub clock: Clock,
    /// Another at every start, so that a node can be told from the one that had its name before.
    pub boot_id: Arc<str>,
    pub ids: Ids,
    pub spawner: Spawner,
}

impl Options {
    pub fn new(node: impl Into<Arc<str>>) -> Self {
        let (heartbeat, ids) = (Duration::from_secs(10), Ids::default());
        Self {
            node: node.into(),
            capacity: 1024,
            chains: 4,
            only: None,
            heartbeat,
            lease: LEASE.as_duration(),
            sweep: Duration::from_secs(60),
            park_after: PARK_AFTER,
            on_store_loss: OnStoreLoss::default(),
            recovery: Recovery::default(),
            clock: Clock::system(),
            boot_id: ids.next().into(),
            ids,
            spawner: Spawner::default(),
        }
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
    pub(crate) live: Live,
    pub(crate) health: Health,
    pub(crate) membership: Membership,
    pub(crate) store_identity: StoreIdentity,
    /// Stop at the stage boundary.
    pub(crate) stop: CancellationToken,
    /// The same, for a look at every stage's end that costs nothing.
    stopping: AtomicBool,
    options: Options,
    started_at: Timestamp,
    runners: Mutex<HashMap<TaskId, mpsc::UnboundedSender<Order>>>,
    in_hand: AtomicUsize,
    /// Of those, the ones that only wait and let others have their place.
    lent: AtomicUsize,
    /// There may be something to claim.
    wake: Notify,
    pub(crate) chains: Arc<Places>,
    tasks: TaskTracker,
}

impl Engine {
    /// A node that does nothing yet; operator's verbs work on it all the same.
    pub fn new(store: Arc<dyn Store>, registry: Registry, options: Options) -> Self {
        options.clock.follow_opening(&*store);
        let inner = Inner {
            membership: Membership::new(store.is_shared()),
            store_identity: StoreIdentity::default(),
            store,
            registry,
            clock: options.clock.clone(),
            feed: Feed::new(),
            meters: Meters::default(),
            guards: Guards::default(),
            live: Live::default(),
            health: Health::new(options.on_store_loss),
            stop: CancellationToken::new(),
            stopping: AtomicBool::new(false),
            started_at: options.clock.now(),
            chains: Places::new(options.chains),
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
        if self.inner.membership.is_shared() {
            self.inner.begin_to_beat();
            self.inner.listen();
        }
        self.inner.spawn(claim_loop(self.inner.clone()));
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
        self.inner.clock.clone()
    }

    /// Runs something that belongs to this node and that its stop does not wait for.
    pub fn spawn_beside(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.inner.spawn_beside(work);
    }

    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// The node's name.
    pub fn node(&self) -> &str {
        &self.inner.options.node
    }

    pub fn boot_id(&self) -> &str {
        &self.inner.options.boot_id
    }

    pub fn started_at(&self) -> Timestamp {
        self.inner.started_at
    }

    /// What it does with plans that do not say who decides when all nodes were gone.
    pub fn recovery(&self) -> Recovery {
        self.inner.options.recovery
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
        self.submit_with(plan, start, resubmit, request, Vec::new()).await
    }

    /// The same, with what is to be written to the books in the same commit.
    pub(crate) async fn submit_with(
        &self,
        plan: Arc<Plan>,
        start: Start,
        resubmit: Resubmit,
        request: Option<RequestKey>,
        entries: Vec<Entry>,
    ) -> Result<Submitted, EngineError> {
        // Its tasks are started by their messages, so there is nothing else to wait for.
        let start = if plan.definition.settings.trigger == Trigger::Message { Start::AtOnce } else { start };
        let submission = Submission { plan, start, resubmit, request, entries, now: self.inner.clock.now() };
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
        let (sender, receiver) = oneshot::channel();
        self.inner.spawn(async move {
            let _ = sender.send(AssertUnwindSafe(work).catch_unwind().await);
        });
        match receiver.await {
            Ok(Ok(done)) => done,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            // Only a runtime that is being shut down drops it, and then the caller is cancelled as well.
            Err(_) => std::future::pending().await,
        }
    }

    /// Waits until the plan is in a status that `settled` accepts.
    pub async fn wait_for_plan(
        &self,
        plan: &PlanId,
        settled: impl Fn(&PlanRow) -> bool,
    ) -> Result<PlanRow, EngineError> {
        let mut seen = false;
        loop {
            let changes = self.inner.feed.plan_changes(plan);
            match self.inner.store.plan(plan).await {
                Ok(row) => {
                    let row = row.ok_or_else(|| StoreError::NotFound { what: "plan", id: plan.to_string() })?;
                    if settled(&row) {
                        return Ok(row);
                    }
                    seen = true;
                }
                // Whoever has begun to wait goes on waiting while the store is away.
                Err(StoreError::Unavailable { .. }) if seen && self.inner.membership.is_shared() => {}
                Err(error) => return Err(error.into()),
            }
            tokio::select! {
                biased;
                // An error means that the node is being dropped; the next look at the store says how things are.
                _ = changes => {}
                // Another node may have ended it.
                () = tokio::time::sleep(LOOK_EVERY), if self.inner.membership.is_shared() => {}
            }
        }
    }

    /// Resolves at the plan's next change of status; made before a submission it cannot miss one. What another node
    /// does to the plan is noticed within about a second, and only that it has paused or ended.
    pub fn plan_changes(&self, plan: &PlanId) -> oneshot::Receiver<PlanStatus> {
        let changes = self.inner.feed.plan_changes(plan);
        if !self.inner.membership.is_shared() {
            return changes;
        }
        let (sender, receiver) = oneshot::channel();
        self.inner.spawn_beside(look_for_changes(self.inner.store.clone(), plan.clone(), changes, sender));
        receiver
    }

    /// Lets running stages finish, except those that can be cut off, starts nothing new, and gives every task back.
    pub async fn stop(&self) {
        self.inner.begin_to_stop();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
        self.inner.leave().await;
    }

    /// Likewise, for so long; false when that was not enough. On a shared store the attempts that still run are then cut
    /// off, and once they have ended the node leaves, so that others repeat them at once; on one of its own they go on until
    /// the process ends.
    pub async fn stop_within(&self, limit: Duration) -> bool {
        if tokio::time::timeout(limit, self.stop()).await.is_ok() {
            return true;
        }
        if self.inner.membership.is_shared() {
            self.inner.membership.lose();
            match tokio::time::timeout(CUT_OFF, self.inner.tasks.wait()).await {
                Ok(()) => self.inner.leave().await,
                Err(_) => {
                    tracing::warn!("some stages do not end: others take them over when this node's lease is over");
                }
            }
        }
        false
    }

    /// How many tasks are in hand.
    pub fn in_hand(&self) -> usize {
        self.inner.in_hand()
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

    pub(crate) fn node(&self) -> &str {
        &self.options.node
    }

    /// Unique, also among nodes.
    pub(crate) fn new_id(&self) -> String {
        self.options.ids.next()
    }

    /// For a request whose sender gave it none.
    pub(crate) fn new_key(&self) -> IdempotencyKey {
        IdempotencyKey::parse(self.new_id()).expect("an id is short and printable")
    }

    pub(crate) fn boot_id(&self) -> &str {
        &self.options.boot_id
    }

    pub(crate) fn park_after(&self) -> Millis {
        self.options.park_after
    }

    pub(crate) fn lease(&self) -> Duration {
        self.options.lease
    }

    pub(crate) fn sweep_every(&self) -> Duration {
        self.options.sweep
    }

    pub(crate) fn capacity(&self) -> usize {
        self.options.capacity
    }

    pub(crate) fn in_hand(&self) -> usize {
        self.in_hand.load(Ordering::Acquire)
    }

    pub(crate) fn begin_to_stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.stop.cancel();
    }

    pub(crate) fn heartbeat(&self) -> Duration {
        self.options.heartbeat
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Sleeps before the next try at something, and no longer than the node runs.
    pub(crate) async fn rest(&self, pause: Duration) {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
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

    pub(crate) fn is_full(&self) -> bool {
        self.working() >= self.options.capacity
    }

    /// A task that only waits lets another have its place, until this is dropped.
    pub(crate) fn lend(self: &Arc<Self>) -> Lent {
        // Somebody may have been waiting for just this.
        let was_full = self.is_full();
        self.lent.fetch_add(1, Ordering::AcqRel);
        if was_full {
            self.wake();
        }
        Lent { inner: self.clone() }
    }

    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        // What runs a task is kilobytes of state, and is handed on several times from here.
        self.options.spawner.spawn(self.tasks.track_future(Box::pin(work)));
    }

    /// The same for what a stop does not wait for.
    pub(crate) fn spawn_beside(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.options.spawner.spawn(work);
    }

    /// What a claim has to be told; none where the store's clock is the one that counts.
    fn own_time(&self) -> Option<Timestamp> {
        (!self.membership.is_shared()).then(|| self.clock.now())
    }

    /// Something was changed that may have made a task ready.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    pub(crate) fn plan_changed(self: &Arc<Self>, plan: &PlanId, status: PlanStatus) {
        self.feed.plan_changed(plan, status);
        if status == PlanStatus::Paused {
            let (inner, plan) = (self.clone(), plan.clone());
            self.spawn(async move { inner.pause_running(&plan).await });
        }
    }

    fn runners(&self) -> MutexGuard<'_, HashMap<TaskId, mpsc::UnboundedSender<Order>>> {
        self.runners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_on(self: &Arc<Self>, stored: StoredTask, cut_off: CutOff) {
        if planted("a claimed task is forgotten") && self.in_hand() > 0 {
            return;
        }
        let (sender, orders) = mpsc::unbounded_channel();
        self.runners().insert(stored.key.id.clone(), sender);
        self.in_hand.fetch_add(1, Ordering::AcqRel);
        self.announce(&stored);
        let span = span(&stored);
        if stored.task.flow().is_some() {
            self.spawn(FlowRunner::new(self.clone(), stored, orders, cut_off).run().instrument(span));
        } else {
            self.spawn(Runner::new(self.clone(), stored, orders, cut_off).run().instrument(span));
        }
    }

    fn announce(&self, stored: &StoredTask) {
        self.chains.is_here(&stored.key.id);
        self.happened(&stored.claim_events, &stored.task);
        self.feed.publish(|| FeedItem::of(&stored.task, stored.claim_events.clone().into()));
    }
}

/// Passes on what this node does to a plan, and what others did.
async fn look_for_changes(
    store: Arc<dyn Store>,
    plan: PlanId,
    mut changes: oneshot::Receiver<PlanStatus>,
    mut to: oneshot::Sender<PlanStatus>,
) {
    let stands = |row: &PlanRow| row.ended_at.is_some() || row.status == PlanStatus::Paused;
    let mut node_is_there = true;
    let status = loop {
        tokio::select! {
            biased;
            () = to.closed() => return,
            changed = &mut changes, if node_is_there => match changed {
                Ok(status) => break status,
                Err(_) => node_is_there = false,
            },
            () = tokio::time::sleep(LOOK_EVERY) => {
                if let Ok(Some(row)) = store.plan(&plan).await
                    && stands(&row)
                {
                    break row.status;
                }
            }
        }
    };
    let _ = to.send(status);
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
    if inner.membership.is_shared() {
        // Some of their tasks may be with nodes that take their time to answer.
        inner.finish_cancelled_soon();
    } else {
        inner.finish_cancelled_plans().await;
        let children = inner.clone();
        inner.spawn(async move { children.finish_cancelled_children().await });
    }
    let mut pause = Duration::from_millis(50);
    let mut has_said = false;
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
            recovery: inner.options.recovery,
            limit: room,
            now: inner.own_time(),
        };
        let asked = inner.clock.elapsed();
        // From before the claim: if the lease is lost meanwhile, what was claimed under it is lost as well.
        let cut_off = inner.membership.cut_off();
        let claimed = match inner.know_store().await {
            Ok(()) => inner.store.claim(request).await,
            Err(error) => Err(error),
        };
        match claimed {
            Ok(claimed) => {
                inner.health.answered();
                pause = Duration::from_millis(50);
                // One that runs one plan only leaves nothing of it alone, and says nothing about others.
                let says = claimed.knows_era && inner.options.only.is_none();
                if says && !std::mem::replace(&mut has_said, true) {
                    let inner = inner.clone();
                    inner.clone().spawn(async move { inner.say_what_waits_for_a_person().await });
                }
                // When some ended in being claimed, what they had is free for others.
                let all = claimed.tasks.len() < room && claimed.ended.is_empty();
                claimed.tasks.into_iter().for_each(|stored| inner.take_on(stored, cut_off.clone()));
                for stored in &claimed.ended {
                    inner.announce(stored);
                    inner.tell_parent(&stored.task);
                    inner.publish_late(&stored.task);
                }
                for plan in &claimed.settled {
                    if let Ok(Some(row)) = inner.store.plan(plan).await {
                        inner.plan_changed(plan, row.status);
                    }
                }
                if all {
                    // The store's clock is not ours: what is known is for how long there is nothing.
                    let from = if inner.membership.is_shared() { inner.clock.elapsed() } else { asked };
                    let due = claimed.next_due.map(|due| from + due.since(claimed.now).as_duration());
                    wait(&inner, due).await;
                }
            }
            Err(error) => {
                if matches!(error, StoreError::Unavailable { .. }) {
                    inner.health.refused();
                }
                tracing::warn!(error = %chain(&error), "nothing could be claimed; trying again");
                tokio::select! {
                    biased;
                    () = inner.stop.cancelled() => {}
                    () = tokio::time::sleep(pause) => {}
                }
                pause = (pause * 2).min(Duration::from_secs(5));
            }
        }
    }
}

/// Until there may be something to claim, or it is `due` by what the clock has gone.
async fn wait(inner: &Inner, due: Option<Duration>) {
    let due = async {
        match due {
            Some(due) => inner.clock.sleep_until_elapsed(due).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = inner.wake.notified() => {}
        () = inner.stop.cancelled() => {}
        () = due => {}
    }
}

impl Inner {
    pub(crate) fn finish_cancelled_plans_soon(self: &Arc<Self>) {
        let inner = self.clone();
        self.spawn(async move { inner.finish_cancelled_plans().await });
    }

    /// All that a node that is gone may have been cancelling.
    pub(crate) fn finish_cancelled_soon(self: &Arc<Self>) {
        let inner = self.clone();
        self.spawn(async move {
            inner.finish_cancelled_plans().await;
            inner.finish_cancelled_children().await;
        });
    }

    /// A node that has found out which plans it leaves alone names them, and what to do about it.
    async fn say_what_waits_for_a_person(&self) {
        let mut after = None;
        loop {
            let query = PlanQuery { open_only: true, after, limit: 200 };
            let Ok(page) = self.store.plans(query).await else { return };
            for plan in page.items.iter().filter(|plan| plan.waits_for_person) {
                tracing::warn!(
                    plan = %plan.id,
                    "its recovery is manual, so none of its tasks starts by itself; `milepost resume {}` sets it going",
                    plan.id
                );
            }
            after = page.next;
            if after.is_none() {
                return;
            }
        }
    }

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
