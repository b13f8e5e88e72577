//! A plan followed in its store: what another process does to it, as a server would tell it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::BoxStream;
use milepost::WatchEvent;
use milepost_core::api::{EndMessage, PlanView, ProgressMessage, Snapshot, StateMessage, TaskProgress};
use milepost_core::id::{PlanId, TaskId};
use milepost_core::pace::Pace;
use milepost_core::plan::TaskCounts;
use milepost_core::task::{EventView, StageProgress, TaskStatus};
use milepost_store::{Change, ChangeQuery, Changed, PlanRow, Position, Store, StoreError, TaskQuery, TasksOf, report};

use crate::exit::Failure;

/// How often to look for news; and never for more than a tenth of the time, because counting a large plan takes a while.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Changes read at a time.
const PAGE: usize = 500;
/// Running tasks that are looked at; more than fit on any screen.
const MOST_TASKS: usize = 1000;

pub(super) fn follow(store: Arc<dyn Store>, plan: PlanId) -> BoxStream<'static, Result<WatchEvent, Failure>> {
    let following = Following {
        store,
        plan,
        from: None,
        counts: TaskCounts::default(),
        tasks: HashMap::new(),
        waiting: VecDeque::new(),
        look_at: Instant::now(),
        over: false,
    };
    let stream = futures::stream::unfold(following, |mut following| async move {
        let item = following.next().await?;
        Some((item, following))
    });
    stream.boxed()
}

struct Following {
    store: Arc<dyn Store>,
    plan: PlanId,
    /// All up to here has been told; none before the first look.
    from: Option<Position>,
    /// What was last told of the plan and its running tasks.
    counts: TaskCounts,
    tasks: HashMap<TaskId, (TaskProgress, Pace)>,
    waiting: VecDeque<WatchEvent>,
    look_at: Instant,
    over: bool,
}

impl Following {
    async fn next(&mut self) -> Option<Result<WatchEvent, Failure>> {
        while self.waiting.is_empty() && !self.over {
            tokio::time::sleep_until(self.look_at.into()).await;
            let started = Instant::now();
            if let Err(error) = self.look().await {
                self.over = true;
                return Some(Err(error.into()));
            }
            self.look_at = Instant::now() + LOOK_EVERY.max(started.elapsed() * 9);
        }
        self.waiting.pop_front().map(Ok)
    }

    async fn look(&mut self) -> Result<(), StoreError> {
        let from = match self.from {
            Some(from) => from,
            None => self.store.newest().await?,
        };
        // The plan first: what happened to it up to here is then among the changes.
        let row = self.store.plan(&self.plan).await?;
        let row = row.ok_or_else(|| StoreError::NotFound { what: "plan", id: self.plan.to_string() })?;
        let running = self.running(&row).await?;
        if self.from.is_none() {
            self.begin(&row, running);
            self.from = Some(from);
        } else {
            self.tell_changes(from).await?;
            self.tell_progress(&row, running);
        }
        if row.status.is_ended() && row.counts.open() == 0 {
            self.over = true;
            let end = EndMessage { plan_id: row.id, plan_status: Some(row.status), task_id: None, task_status: None };
            self.waiting.push_back(WatchEvent::End(end));
        }
        Ok(())
    }

    fn begin(&mut self, row: &PlanRow, running: Vec<TaskProgress>) {
        self.counts = row.counts;
        self.tell_tasks(&running);
        let (plan, rate, eta_seconds) = (PlanView::from(row), None, None);
        self.waiting.push_back(WatchEvent::Snapshot(Snapshot { plan, rate, eta_seconds, tasks: running }));
    }

    /// The tasks of which something else is told than before. How fast they go follows from when they were how far.
    fn tell_tasks(&mut self, running: &[TaskProgress]) -> Vec<TaskProgress> {
        let (now, mut told, mut tasks) = (Instant::now(), Vec::new(), HashMap::new());
        for task in running {
            let before = self.tasks.remove(&task.task_id);
            let changed = before.as_ref().is_none_or(|(before, _)| before != task);
            let goes_on = |before: &(TaskProgress, Pace)| before.0.stage == task.stage && before.0.done <= task.done;
            let mut pace = before.filter(goes_on).map(|(_, pace)| pace).unwrap_or_default();
            if changed {
                let said = task.done.map(|done| {
                    pace.reached(done, now);
                    StageProgress::new(done, task.total.unwrap_or(0), pace.rate(now))
                });
                told.push(task.clone().with(said));
            }
            tasks.insert(task.task_id.clone(), (task.clone(), pace));
        }
        self.tasks = tasks;
        told
    }

    async fn tell_changes(&mut self, mut from: Position) -> Result<(), StoreError> {
        loop {
            let query = ChangeQuery { after: from, plan: Some(self.plan.clone()), limit: PAGE };
            let changes = self.store.changes(query).await?;
            self.waiting.extend(changes.items.into_iter().map(|change| WatchEvent::State(state(change))));
            from = changes.upto;
            self.from = Some(from);
            if !changes.more {
                return Ok(());
            }
        }
    }

    fn tell_progress(&mut self, row: &PlanRow, running: Vec<TaskProgress>) {
        let nothing = || ProgressMessage::of(row.id.clone());
        for task in self.tell_tasks(&running) {
            self.waiting.push_back(WatchEvent::Progress(ProgressMessage { task: Some(task), ..nothing() }));
        }
        if std::mem::replace(&mut self.counts, row.counts) != row.counts {
            let (tasks, percent) = (Some(row.counts), Some(row.counts.percent()));
            self.waiting.push_back(WatchEvent::Progress(ProgressMessage { tasks, percent, ..nothing() }));
        }
    }

    async fn running(&self, row: &PlanRow) -> Result<Vec<TaskProgress>, StoreError> {
        if row.counts.running + row.counts.rolling_back == 0 {
            return Ok(Vec::new());
        }
        let statuses = vec![TaskStatus::Running, TaskStatus::RollingBack];
        let query = TaskQuery { of: TasksOf::Plan(row.id.clone()), statuses, after: None, limit: MOST_TASKS };
        Ok(self.store.tasks(query).await?.items.iter().map(report::task_progress).collect())
    }
}

fn state(change: Change) -> StateMessage {
    let mut message =
        StateMessage { plan_id: change.plan, plan_status: None, by: None, task_id: None, events: Vec::new() };
    match change.what {
        Changed::Plan { status, by, .. } => {
            message.plan_status = Some(status);
            message.by = by;
        }
        Changed::Task { task, sequence, records, .. } => {
            let view = |(record, sequence)| EventView::new(&message.plan_id, &task, sequence, record);
            message.events = records.iter().zip(sequence..).map(view).collect();
            message.task_id = Some(task);
        }
    }
    message
}
