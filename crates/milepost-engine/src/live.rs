//! What this node knows of how far its tasks are before the store does, and better: their pace. Of the tasks of other nodes
//! it knows what the store has, and from one look to the next how fast that grows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use milepost_core::api::TaskProgress;
use milepost_core::id::{StageName, TaskId};
use milepost_core::pace::Pace;
use milepost_core::task::{StageProgress, TaskView, percent_with};
use tokio::time::Instant;

use crate::engine::Engine;
use crate::report::AttemptReport;

/// Looks that are no further apart may come in another order than they were taken in.
const A_MOMENT: Duration = Duration::from_secs(1);
/// What nobody has looked at for so long is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Tasks of other nodes that are remembered before old ones are looked for.
const MANY: usize = 1000;

/// The reports of running attempts, of tasks that say how far they are.
#[derive(Debug, Default)]
pub(crate) struct Live {
    tasks: Mutex<HashMap<TaskId, Vec<Arc<AttemptReport>>>>,
    elsewhere: Mutex<HashMap<TaskId, Elsewhere>>,
}

/// A task of another node, as it was last seen.
#[derive(Debug)]
struct Elsewhere {
    stage: Option<StageName>,
    /// Tells the counts of stages apart that run at once.
    total: Option<u64>,
    done: u64,
    pace: Pace,
    seen: Instant,
}

impl Live {
    /// None: nothing of the task runs here any more.
    pub(crate) fn set(&self, task: &TaskId, reports: Vec<Arc<AttemptReport>>) {
        let mut tasks = self.tasks();
        match reports.is_empty() {
            true => drop(tasks.remove(task)),
            false => drop(tasks.insert(task.clone(), reports)),
        }
    }

    fn of(&self, task: &TaskId) -> Vec<Arc<AttemptReport>> {
        self.tasks().get(task).cloned().unwrap_or_default()
    }

    /// How fast it goes, by what was seen of it before.
    fn seen_elsewhere(&self, progress: &TaskProgress) -> Option<f64> {
        let mut elsewhere = self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner);
        let before = elsewhere.remove(&progress.task_id);
        let (now, done) = (Instant::now(), progress.done?);
        let goes_on = |before: &Elsewhere| {
            let is_known = now.duration_since(before.seen) < FORGOTTEN_AFTER;
            let is_same = is_known && before.stage == progress.stage && before.total == progress.total;
            // Two who ask in the same moment may have looked in another order.
            is_same && (before.done <= done || now.duration_since(before.seen) < A_MOMENT)
        };
        let mut seen = before.filter(goes_on).unwrap_or_else(|| Elsewhere {
            stage: progress.stage.clone(),
            total: progress.total,
            done,
            pace: Pace::default(),
            seen: now,
        });
        if done >= seen.done {
            (seen.done, seen.seen) = (done, now);
            seen.pace.reached(done, now.into_std());
        }
        let rate = seen.pace.rate(now.into_std());
        if elsewhere.len() >= MANY {
            elsewhere.retain(|_, task| now.duration_since(task.seen) < FORGOTTEN_AFTER);
        }
        elsewhere.insert(progress.task_id.clone(), seen);
        rate
    }

    fn tasks(&self) -> MutexGuard<'_, HashMap<TaskId, Vec<Arc<AttemptReport>>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// How far a task is by what the store has of it, and by what this node knows of it.
    pub fn live_progress(&self, progress: TaskProgress) -> TaskProgress {
        if !progress.status.is_active() {
            return progress;
        }
        let reports = self.inner().live.of(&progress.task_id);
        // Of several stages the one that moves fastest.
        let said: Vec<_> = reports.iter().filter_map(|report| Some((report, report.said()?, report.rate()))).collect();
        let moves = |rate: Option<f64>| rate.unwrap_or(0.0);
        let fastest = said.iter().max_by(|(_, _, one), (_, _, other)| moves(*one).total_cmp(&moves(*other)));
        let Some(&(report, newest, rate)) = fastest else {
            let rate = self.inner().live.seen_elsewhere(&progress);
            let said = progress.done.map(|done| StageProgress::new(done, progress.total.unwrap_or(0), rate));
            return progress.with(said);
        };
        let shares = said.iter().map(|(_, said, _)| said.share);
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let (done, stages) = (size(progress.completed_stages), size(progress.total_stages));
        let percent = percent_with(progress.status, done, stages, shares);
        let said = StageProgress::new(newest.progress.done, newest.progress.total, rate);
        TaskProgress { stage: Some(report.stage.clone()), percent, ..progress }.with(Some(said))
    }

    /// The same for all that is shown of a task.
    pub fn live_view(&self, task: TaskView) -> TaskView {
        let live = self.live_progress(TaskProgress::from(&task));
        let TaskProgress { percent, done, total, rate, eta_seconds, .. } = live;
        let progress = done.map(|done| StageProgress { done, total, rate, eta_seconds });
        TaskView { percent, progress, ..task }
    }
}
