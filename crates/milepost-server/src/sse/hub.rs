//! One reader of the store for all clients of this process. It reads whenever the feed says that there is news, and now
//! and then for what other nodes committed, but only while somebody watches; what it finds is written out once and put
//! into the mailboxes of those who watch that plan.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use milepost_core::api::EndMessage;
use milepost_core::id::{PlanId, TaskId};
use milepost_engine::Engine;
use milepost_store::{ChangeQuery, Changes, PlanRow, Position, Store, StoreError};
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::coalesce::Coalesced;
use super::mailbox::{Closed, Mailbox, Weight};
use super::message::{Batch, Sealed, Watched};
use crate::app::plan_progress;
use crate::problem::Problem;

/// What there is to show is shown at most this often. A node says how far a task is at most four times a second, so this
/// only gathers what many tasks say.
const SHOW_EVERY: Duration = Duration::from_millis(100);
/// The counts of plans are asked for at most this often.
const COUNT_EVERY: Duration = Duration::from_millis(250);
/// What other nodes commit is found this much later at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Changes that are read at once.
const PAGE: usize = 200;

#[derive(Debug)]
pub(crate) struct Hub {
    engine: Engine,
    closing: CancellationToken,
    /// Held while a page is read and handed out: who joins, joins between two pages.
    board: Mutex<Board>,
    /// Somebody has left.
    left: Notify,
}

#[derive(Debug, Default)]
struct Board {
    /// All up to here has been handed out; none while nobody reads.
    upto: Option<Position>,
    watchers: HashMap<PlanId, Vec<Watcher>>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Watcher {
    task: Option<TaskId>,
    mailbox: Arc<Mailbox>,
}

/// A place in the hub; given up when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    hub: Arc<Hub>,
    mailbox: Arc<Mailbox>,
}

impl Seat {
    pub(super) async fn next(&self) -> Result<Arc<Sealed>, Closed> {
        self.mailbox.next().await
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.mailbox.leave();
        self.hub.left.notify_one();
    }
}

impl Hub {
    pub(crate) fn new(engine: Engine, closing: CancellationToken) -> Arc<Self> {
        Arc::new(Self { engine, closing, board: Mutex::default(), left: Notify::new() })
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(super) fn store(&self) -> &dyn Store {
        &**self.engine.store()
    }

    pub(super) fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// Everything that is committed after this has returned comes into the seat's mailbox.
    pub(super) async fn join(self: &Arc<Self>, watched: &Watched) -> Result<Seat, StoreError> {
        let mut board = self.board.lock().await;
        let reads = board.upto.is_some() && board.reader.as_ref().is_some_and(|reader| !reader.is_finished());
        if !reads {
            board.upto = Some(self.store().newest().await?);
            board.reader = Some(tokio::spawn(Reader::new(self.clone()).run()));
        }
        let mailbox = Arc::new(Mailbox::default());
        let watcher = Watcher { task: watched.task.clone(), mailbox: mailbox.clone() };
        board.watchers.entry(watched.plan.clone()).or_default().push(watcher);
        Ok(Seat { hub: self.clone(), mailbox })
    }
}

impl Board {
    /// The plan, if all watch the same one: then the store need not look at any other.
    fn only_plan(&self) -> Option<PlanId> {
        let mut plans = self.watchers.keys();
        plans.next().filter(|_| plans.next().is_none()).cloned()
    }

    fn hand_out(&mut self, plan: &PlanId, batch: Batch, weight: Weight) {
        let Some(watchers) = self.watchers.get_mut(plan) else { return };
        if batch.is_empty() {
            return;
        }
        let batch = Arc::new(batch.sealed());
        watchers.retain(|watcher| !batch.concerns(watcher.task.as_ref()) || watcher.mailbox.offer(&batch, weight));
    }

    /// False when nobody is left.
    fn prune(&mut self) -> bool {
        self.watchers.retain(|_, watchers| {
            watchers.retain(|watcher| watcher.mailbox.is_open());
            !watchers.is_empty()
        });
        !self.watchers.is_empty()
    }

    fn watched_tasks(&self) -> HashSet<TaskId> {
        self.watchers.values().flatten().filter_map(|watcher| watcher.task.clone()).collect()
    }

    fn watches_plan(&self, plan: &PlanId) -> bool {
        self.watchers.get(plan).is_some_and(|watchers| watchers.iter().any(|watcher| watcher.task.is_none()))
    }
}

/// The one task that reads for everybody.
struct Reader {
    hub: Arc<Hub>,
    waiting: Coalesced,
    /// Plans are not counted again before this.
    count_after: Instant,
    /// The store could not be read, and watchers know.
    in_trouble: bool,
}

impl Reader {
    fn new(hub: Arc<Hub>) -> Self {
        Self { hub, waiting: Coalesced::default(), count_after: Instant::now(), in_trouble: false }
    }

    async fn run(mut self) {
        let mut feed = self.hub.engine.feed().watch();
        let (mut show, mut look) = (interval(SHOW_EVERY), interval(LOOK_EVERY));
        show.set_missed_tick_behavior(MissedTickBehavior::Delay);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let closing = self.hub.closing.clone();
        loop {
            let read = tokio::select! {
                () = closing.cancelled() => return,
                handful = feed.next() => match handful {
                    Some(handful) => { self.waiting.heard(&handful); Some(self.read().await) }
                    None => return,
                },
                _ = show.tick(), if self.waiting.is_due() => Some(self.show().await),
                _ = look.tick() => Some(self.read().await),
                () = self.hub.left.notified() => None,
            };
            match read {
                Some(Ok(())) => self.in_trouble = false,
                Some(Err(error)) => self.say_trouble(error).await,
                None => {}
            }
            let mut board = self.hub.board.lock().await;
            if !board.prune() {
                board.upto = None;
                return;
            }
            self.waiting.keep(|plan| board.watchers.contains_key(plan));
        }
    }

    /// Hands out what was committed since the last time.
    async fn read(&mut self) -> Result<(), StoreError> {
        loop {
            let mut board = self.hub.board.lock().await;
            let Some(after) = board.upto else { return Ok(()) };
            let query = ChangeQuery { after, plan: board.only_plan(), limit: PAGE };
            let Changes { items, upto, more } = self.hub.store().changes(query).await?;
            let mut batches: HashMap<&PlanId, Batch> = HashMap::new();
            for change in items.iter().filter(|change| board.watchers.contains_key(&change.plan)) {
                self.waiting.committed(change);
                batches.entry(&change.plan).or_default().state(change);
            }
            for (plan, batch) in batches {
                board.hand_out(plan, batch, Weight::State);
            }
            board.upto = Some(upto);
            if !more {
                return Ok(());
            }
        }
    }

    /// Shows how far things are, and ends the streams of what has ended.
    async fn show(&mut self) -> Result<(), StoreError> {
        self.show_progress().await;
        if Instant::now() >= self.count_after {
            self.count().await?;
        }
        // All that was committed before a plan's row was read is handed out before that plan's end.
        self.read().await?;
        self.show_ends().await;
        Ok(())
    }

    async fn show_progress(&mut self) {
        let mut batches: HashMap<PlanId, Batch> = HashMap::new();
        for progress in self.waiting.take_progress() {
            batches.entry(progress.plan_id.clone()).or_default().task_progress(progress);
        }
        let mut board = self.hub.board.lock().await;
        for (plan, batch) in batches {
            board.hand_out(&plan, batch, Weight::Progress);
        }
    }

    /// Counting a large plan takes the store a while: it is not asked for more than a tenth of the time.
    async fn count(&mut self) -> Result<(), StoreError> {
        let asked_at = Instant::now();
        while let Some(plan) = self.waiting.changed.iter().next().cloned() {
            if self.hub.board.lock().await.watches_plan(&plan)
                && let Some(row) = self.hub.store().plan(&plan).await?
            {
                self.show_counts(&row).await?;
                if row.ended_at.is_some() {
                    self.waiting.ended_plans.insert(plan.clone(), row.status);
                }
            }
            self.waiting.changed.remove(&plan);
        }
        self.count_after = Instant::now() + COUNT_EVERY.max(asked_at.elapsed() * 9);
        Ok(())
    }

    async fn show_counts(&mut self, row: &PlanRow) -> Result<(), StoreError> {
        if self.waiting.counted(&row.id, row.counts) {
            let mut batch = Batch::default();
            batch.plan_progress(&plan_progress(&self.hub.engine, row).await?);
            self.hub.board.lock().await.hand_out(&row.id, batch, Weight::Progress);
        }
        Ok(())
    }

    async fn show_ends(&mut self) {
        let mut board = self.hub.board.lock().await;
        let Some(upto) = board.upto else { return };
        let watched = board.watched_tasks();
        let ended = std::mem::take(&mut self.waiting.ended_tasks);
        for (task, (plan, status)) in ended.into_iter().filter(|(task, _)| watched.contains(task)) {
            let message =
                EndMessage { plan_id: plan.clone(), plan_status: None, task_id: Some(task), task_status: Some(status) };
            let mut batch = Batch::default();
            batch.end(&message, upto);
            board.hand_out(&plan, batch, Weight::State);
        }
        for (plan, status) in std::mem::take(&mut self.waiting.ended_plans) {
            let message =
                EndMessage { plan_id: plan.clone(), plan_status: Some(status), task_id: None, task_status: None };
            let mut batch = Batch::default();
            batch.end(&message, upto);
            board.hand_out(&plan, batch, Weight::State);
        }
    }

    /// Once, until it is over: the streams stay, and go on without a gap.
    async fn say_trouble(&mut self, error: StoreError) {
        let problem = Problem::from(error);
        if std::mem::replace(&mut self.in_trouble, true) {
            return;
        }
        let mut board = self.hub.board.lock().await;
        let plans: Vec<PlanId> = board.watchers.keys().cloned().collect();
        for plan in plans {
            let mut batch = Batch::default();
            batch.trouble(&problem);
            board.hand_out(&plan, batch, Weight::Progress);
        }
    }
}
