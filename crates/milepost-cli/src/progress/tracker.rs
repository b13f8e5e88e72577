//! Where a plan is, followed event by event: how many tasks are in which state, and what the running ones do.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use milepost_core::api::{PlanView, ProgressMessage, Snapshot};
use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::TaskCounts;
use milepost_core::task::{Event, Record, StageProgress, TaskStatus};
use milepost_core::time::Timestamp;
use milepost_engine::FeedItem;
use milepost_store::{Store, TaskQuery, TasksOf};

use super::active::ActiveTask;
use super::outlook::PlanOutlook;
use crate::views::failed;

/// Counting a large plan takes the store a while: it is not asked more often than this, nor for more than a tenth of
/// the time.
const CATCH_UP_EVERY: Duration = Duration::from_millis(500);
/// Running tasks that are read again after lagging; more than fit on any screen.
const MOST_REREAD: usize = 200;

#[derive(Debug)]
pub(super) struct Tracker {
    plan: PlanId,
    /// Pending and running ones are not followed: what has ended, and what is active, says enough.
    pub(super) counts: TaskCounts,
    pub(super) retries: u64,
    /// In the order in which they were taken on.
    active: BTreeMap<u64, ActiveTask>,
    places: HashMap<TaskId, u64>,
    next_place: u64,
    pub(super) outlook: PlanOutlook,
    /// The counts may be wrong: something happened whose effect on them takes more than the event to know.
    doubtful: bool,
    catch_up_at: Instant,
}

impl Tracker {
    pub(super) fn new(plan: &PlanView) -> Self {
        Self {
            plan: plan.plan_id.clone(),
            counts: plan.tasks,
            retries: 0,
            active: BTreeMap::new(),
            places: HashMap::new(),
            next_place: 0,
            outlook: PlanOutlook::new(),
            doubtful: false,
            catch_up_at: Instant::now(),
        }
    }

    pub(super) fn plan(&self) -> &PlanId {
        &self.plan
    }

    /// Tasks that have not ended.
    pub(super) fn left(&self) -> u64 {
        let counts = &self.counts;
        let ended = counts.completed + counts.cancelled + failed(counts);
        counts.total.saturating_sub(ended)
    }

    pub(super) fn active(&self) -> impl Iterator<Item = &ActiveTask> + Clone {
        self.active.values()
    }

    pub(super) fn active_count(&self) -> usize {
        self.active.len()
    }

    pub(super) fn lagged(&mut self) {
        self.doubtful = true;
    }

    pub(super) fn take(&mut self, item: &FeedItem, now: Timestamp) {
        match item {
            FeedItem::Task { plan, task, status, records, done, stages } if *plan == self.plan => {
                records.iter().for_each(|record| self.count(record));
                if status.is_active() {
                    let entry = self.entry(task);
                    (entry.status, entry.done, entry.stages) = (*status, *done, *stages);
                    records.iter().for_each(|record| entry.follow(record, now));
                } else {
                    self.ended(task, *status);
                }
            }
            FeedItem::Progress { plan, task, progress: Some(said), rate, percent, .. } if *plan == self.plan => {
                if let Some(entry) = self.places.get(task).and_then(|place| self.active.get_mut(place)) {
                    entry.said = Some(StageProgress::new(said.done, said.total, *rate));
                    entry.percent = *percent;
                }
            }
            FeedItem::Task { .. } | FeedItem::Progress { .. } | FeedItem::Durability { .. } | FeedItem::Plan { .. } => {
            }
        }
    }

    /// Everything as it is, whatever was followed before.
    pub(super) fn snapshot(&mut self, snapshot: &Snapshot) {
        self.counts = snapshot.plan.tasks;
        self.outlook.told(snapshot.rate, snapshot.eta_seconds);
        self.active.clear();
        self.places.clear();
        for task in snapshot.tasks.iter().filter(|task| task.status.is_active()) {
            self.put(ActiveTask::from(task));
        }
    }

    /// What somebody counted who knows.
    pub(super) fn progress(&mut self, message: &ProgressMessage) {
        if let Some(counts) = message.tasks {
            self.counts = counts;
            self.outlook.told(message.rate, message.eta_seconds);
        }
        match &message.task {
            Some(task) if task.status.is_active() => {
                let entry = self.entry(&task.task_id);
                let told = ActiveTask::from(task);
                // An attempt and its retry are told by events; the rest is as it was told just now.
                *entry = ActiveTask { attempt: entry.attempt, retry: entry.retry.take(), since: entry.since, ..told };
            }
            Some(task) => self.forget(&task.task_id),
            None => {}
        }
    }

    /// Asks the store when the events were not enough.
    pub(super) async fn catch_up(&mut self, store: &dyn Store) {
        let asked_at = Instant::now();
        if !self.doubtful || asked_at < self.catch_up_at {
            return;
        }
        self.doubtful = false;
        self.reread(store).await;
        self.catch_up_at = Instant::now() + CATCH_UP_EVERY.max(asked_at.elapsed() * 9);
    }

    async fn reread(&mut self, store: &dyn Store) {
        let Ok(Some(row)) = store.plan(&self.plan).await else { return };
        let query = TaskQuery {
            of: TasksOf::Plan(self.plan.clone()),
            statuses: vec![TaskStatus::Running, TaskStatus::RollingBack],
            after: None,
            limit: MOST_REREAD,
        };
        let Ok(page) = store.tasks(query).await else { return };
        self.outlook.count(row.counts.completed.saturating_sub(self.counts.completed));
        self.counts = row.counts;
        self.active.clear();
        self.places.clear();
        for task in page.items {
            self.put(ActiveTask::from(task));
        }
    }

    fn put(&mut self, task: ActiveTask) {
        let place = self.next_place();
        self.places.insert(task.id.clone(), place);
        self.active.insert(place, task);
    }

    /// What is common is counted as it comes; what is rare makes the counts doubtful.
    fn count(&mut self, record: &Record) {
        match record.event() {
            Event::TaskCompleted { .. } => {
                self.counts.completed += 1;
                self.outlook.count(1);
            }
            Event::TaskFailed { .. } => {
                self.counts.failed += 1;
                self.doubtful = true;
            }
            Event::RetryScheduled { .. } => self.retries += 1,
            Event::TaskCreated {}
            | Event::TaskPaused { .. }
            | Event::TaskResumed { .. }
            | Event::TaskCancelled { .. }
            | Event::TaskInterrupted { .. }
            | Event::TaskRetried { .. }
            | Event::RollbackStarted { .. }
            | Event::TaskRolledBack {}
            | Event::RollbackFailed { .. }
            | Event::EventLost { .. }
            | Event::TaskRepaired { .. } => self.doubtful = true,
            Event::TaskStarted { .. }
            | Event::StageStarted { .. }
            | Event::StageCompleted { .. }
            | Event::StageSkipped { .. }
            | Event::StageFailed { .. }
            | Event::PauseRequested { .. }
            | Event::StageRolledBack { .. }
            | Event::CheckpointDiscarded { .. }
            | Event::MessageReceived { .. }
            | Event::DeadLettered { .. }
            | Event::SignalReceived { .. }
            | Event::ValueRecorded { .. }
            | Event::TaskContinued { .. } => {}
        }
    }

    fn entry(&mut self, task: &TaskId) -> &mut ActiveTask {
        let place = match self.places.get(task) {
            Some(place) => *place,
            None => {
                let place = self.next_place();
                self.places.insert(task.clone(), place);
                place
            }
        };
        self.active.entry(place).or_insert_with(|| ActiveTask::new(task.clone()))
    }

    fn ended(&mut self, task: &TaskId, status: TaskStatus) {
        let known = self.places.get(task).and_then(|place| self.active.get(place));
        if let Some(known) = known.filter(|_| status == TaskStatus::Completed) {
            self.outlook.completed(known.since.elapsed());
        }
        self.forget(task);
    }

    fn forget(&mut self, task: &TaskId) {
        if let Some(place) = self.places.remove(task) {
            self.active.remove(&place);
        }
    }

    fn next_place(&mut self) -> u64 {
        self.next_place += 1;
        self.next_place
    }
}
