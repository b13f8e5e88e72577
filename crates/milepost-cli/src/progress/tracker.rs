//! Where a plan is, followed event by event: how many tasks are in which state, and what the running ones do.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use milepost_core::api::{PlanView, ProgressMessage, Snapshot, TaskProgress};
use milepost_core::id::{PlanId, StageName, TaskId};
use milepost_core::plan::TaskCounts;
use milepost_core::task::{Event, Record, TaskStatus};
use milepost_core::time::Timestamp;
use milepost_engine::FeedItem;
use milepost_store::{Store, TaskQuery, TaskRow, TasksOf};

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
    /// Completed since we began to watch, and since when.
    pub(super) completed: u64,
    pub(super) since: Instant,
    /// The counts may be wrong: something happened whose effect on them takes more than the event to know.
    doubtful: bool,
    catch_up_at: Instant,
}

/// A task that somebody works on.
#[derive(Debug, Clone)]
pub(super) struct ActiveTask {
    pub(super) id: TaskId,
    pub(super) status: TaskStatus,
    pub(super) done: usize,
    pub(super) stages: usize,
    pub(super) stage: Option<StageName>,
    pub(super) attempt: u32,
    pub(super) progress: Option<(u64, u64)>,
    pub(super) retry: Option<Retry>,
}

#[derive(Debug, Clone)]
pub(super) struct Retry {
    pub(super) due: Timestamp,
    pub(super) reason: String,
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
            completed: 0,
            since: Instant::now(),
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

    pub(super) fn active(&self) -> impl Iterator<Item = &ActiveTask> {
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
                    self.forget(task);
                }
            }
            FeedItem::Progress { plan, task, progress: Some(progress), .. } if *plan == self.plan => {
                if let Some(entry) = self.places.get(task).and_then(|place| self.active.get_mut(place)) {
                    entry.progress = Some((progress.done, progress.total));
                }
            }
            FeedItem::Task { .. } | FeedItem::Progress { .. } | FeedItem::Durability { .. } | FeedItem::Plan { .. } => {
            }
        }
    }

    /// Everything as it is, whatever was followed before.
    pub(super) fn snapshot(&mut self, snapshot: &Snapshot) {
        self.counts = snapshot.plan.tasks;
        self.active.clear();
        self.places.clear();
        for task in snapshot.tasks.iter().filter(|task| task.status.is_active()) {
            self.put(ActiveTask::from(task));
        }
    }

    /// What somebody counted who knows.
    pub(super) fn progress(&mut self, message: &ProgressMessage) {
        self.counts = message.tasks.unwrap_or(self.counts);
        match &message.task {
            Some(task) if task.status.is_active() => {
                let entry = self.entry(&task.task_id);
                let told = ActiveTask::from(task);
                // An attempt and its retry are told by events; the rest is as it was told just now.
                *entry = ActiveTask { attempt: entry.attempt, retry: entry.retry.take(), ..told };
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
        self.completed += row.counts.completed.saturating_sub(self.counts.completed);
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
                self.completed += 1;
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
            | Event::RollbackFailed { .. } => self.doubtful = true,
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
        self.active.entry(place).or_insert_with(|| ActiveTask {
            id: task.clone(),
            status: TaskStatus::Running,
            done: 0,
            stages: 0,
            stage: None,
            attempt: 0,
            progress: None,
            retry: None,
        })
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

impl ActiveTask {
    fn follow(&mut self, record: &Record, now: Timestamp) {
        match record.event() {
            Event::StageStarted { stage, attempt, .. } => {
                self.stage = Some(stage.clone());
                self.attempt = *attempt;
                self.progress = None;
                self.retry = None;
            }
            Event::RetryScheduled { stage, attempt, delay, cause, .. } => {
                self.stage = Some(stage.clone());
                self.attempt = *attempt;
                self.retry = Some(Retry { due: now + *delay, reason: cause.reason.clone() });
            }
            _ => {}
        }
    }
}

impl From<&TaskProgress> for ActiveTask {
    fn from(task: &TaskProgress) -> Self {
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            id: task.task_id.clone(),
            status: task.status,
            done: size(task.completed_stages),
            stages: size(task.total_stages),
            stage: task.stage.clone(),
            attempt: 0,
            progress: task.done.map(|done| (done, task.total.unwrap_or(0))),
            retry: None,
        }
    }
}

impl From<TaskRow> for ActiveTask {
    fn from(row: TaskRow) -> Self {
        Self {
            id: row.key.id,
            status: row.status,
            done: row.done as usize,
            stages: row.stages as usize,
            stage: row.stage,
            attempt: row.attempt,
            progress: row.progress,
            retry: row.next_due.map(|due| Retry { due, reason: row.reason.unwrap_or_default() }),
        }
    }
}
