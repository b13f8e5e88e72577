//! A plan followed in its store: what another process does to it, as a server would tell it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::BoxStream;
use milepost::WatchEvent;
use milepost_core::api::{EndMessage, PlanView, ProgressMessage, Snapshot, StateMessage, TaskProgress};
use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::TaskCounts;
use milepost_core::task::{EventView, TaskStatus};
use milepost_store::{Change, ChangeQuery, Changed, PlanRow, Position, Store, StoreError, TaskQuery, TaskRow, TasksOf};

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
    tasks: HashMap<TaskId, TaskProgress>,
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
        self.tasks = running.iter().map(|task| (task.task_id.clone(), task.clone())).collect();
        self.waiting.push_back(WatchEvent::Snapshot(Snapshot { plan: PlanView::from(row), tasks: running }));
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
        let message = |task| ProgressMessage { plan_id: row.id.clone(), tasks: None, percent: None, task };
        let changed = running.iter().filter(|task| self.tasks.get(&task.task_id) != Some(task));
        let told: Vec<_> = changed.map(|task| WatchEvent::Progress(message(Some(task.clone())))).collect();
        self.waiting.extend(told);
        self.tasks = running.into_iter().map(|task| (task.task_id.clone(), task)).collect();
        if std::mem::replace(&mut self.counts, row.counts) != row.counts {
            let (tasks, percent) = (Some(row.counts), Some(row.counts.percent()));
            self.waiting.push_back(WatchEvent::Progress(ProgressMessage { tasks, percent, ..message(None) }));
        }
    }

    async fn running(&self, row: &PlanRow) -> Result<Vec<TaskProgress>, StoreError> {
        if row.counts.running + row.counts.rolling_back == 0 {
            return Ok(Vec::new());
        }
        let statuses = vec![TaskStatus::Running, TaskStatus::RollingBack];
        let query = TaskQuery { of: TasksOf::Plan(row.id.clone()), statuses, after: None, limit: MOST_TASKS };
        Ok(self.store.tasks(query).await?.items.into_iter().map(progress).collect())
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

fn progress(row: TaskRow) -> TaskProgress {
    let (done, stages) = (f64::from(row.done), f64::from(row.stages.max(1)));
    let within = match row.progress {
        Some((done, total)) if total > 0 => (done as f64 / total as f64).clamp(0.0, 1.0),
        Some(_) | None => 0.0,
    };
    TaskProgress {
        task_id: row.key.id,
        plan_id: row.plan,
        status: row.status,
        stage: row.stage,
        completed_stages: row.done.into(),
        total_stages: row.stages.into(),
        // 100 only when it is completed, and then it does not run.
        percent: ((done + within).min(stages) / stages * 1000.0).floor().min(999.0) / 10.0,
        done: row.progress.map(|(done, _)| done),
        total: row.progress.map(|(_, total)| total),
    }
}
