//! How fast a plan goes and when it will end: as its server says, else by what was seen of it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use milepost_core::pace::{Outlook, Underway};
use milepost_core::task::TaskStatus;

use super::active::ActiveTask;
use crate::text::{pace, seconds};

/// The last completed tasks are what the next are judged by.
const MOST_MEASURED: usize = 1000;
/// An estimate from less than this is no better than a guess.
const ESTIMATE_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct PlanOutlook {
    /// Completed since we began to watch, and since when.
    completed: u64,
    since: Instant,
    took: VecDeque<Duration>,
    /// What somebody said who knows more: the rate, and the seconds that are left.
    told: (Option<f64>, Option<u64>),
}

impl PlanOutlook {
    pub(super) fn new() -> Self {
        Self { completed: 0, since: Instant::now(), took: VecDeque::new(), told: (None, None) }
    }

    pub(super) fn told(&mut self, rate: Option<f64>, eta_seconds: Option<u64>) {
        self.told = (rate, eta_seconds);
    }

    pub(super) fn count(&mut self, completed: u64) {
        self.completed += completed;
    }

    pub(super) fn completed(&mut self, took: Duration) {
        if self.took.len() == MOST_MEASURED {
            self.took.pop_front();
        }
        self.took.push_back(took);
    }

    /// `12500/s` of what the stages count or `1.3 tasks/s`, and `eta 1m 20s`; as far as that can be said.
    pub(super) fn words<'a>(&self, active: impl Iterator<Item = &'a ActiveTask> + Clone, left: u64) -> Vec<String> {
        let rates = active.clone().filter_map(|task| task.said?.rate);
        let rate = rates.reduce(|sum, rate| sum + rate).or(self.told.0);
        let tasks = self.tasks_a_second();
        let eta = match (self.told.1, rate) {
            (Some(eta), _) => Some(eta),
            (None, Some(_)) => self.by_what_is_left(active, left),
            // Tasks that say nothing of themselves are judged by how many of them end.
            (None, None) => tasks.map(|rate| (left as f64 / rate).ceil() as u64),
        };
        let rate = rate.map(pace).or_else(|| tasks.map(|rate| format!("{rate:.1} tasks/s")));
        let eta = eta.filter(|_| left > 0).map(|eta| format!("eta {}", seconds(eta)));
        rate.into_iter().chain(eta).collect()
    }

    fn tasks_a_second(&self) -> Option<f64> {
        let elapsed = self.since.elapsed();
        (self.completed > 0 && elapsed > ESTIMATE_AFTER).then(|| self.completed as f64 / elapsed.as_secs_f64())
    }

    fn by_what_is_left<'a>(&self, active: impl Iterator<Item = &'a ActiveTask>, left: u64) -> Option<u64> {
        let running: Vec<Underway> = active.filter(|task| task.status == TaskStatus::Running).map(underway).collect();
        let at_once = running.len() as u64;
        let took = self.took.iter().copied().collect();
        Outlook { took, running, at_once, waiting: left.saturating_sub(at_once) }.eta_seconds()
    }
}

fn underway(task: &ActiveTask) -> Underway {
    let is_last = task.stages == task.done + 1;
    let eta_seconds = task.said.and_then(|said| said.eta_seconds).filter(|_| is_last);
    Underway { since: task.since.elapsed(), share: task.percent / 100.0, eta_seconds }
}

#[cfg(test)]
mod tests {
    use milepost_core::id::TaskId;
    use milepost_core::task::StageProgress;

    use super::*;

    fn task(id: &str, said: Option<StageProgress>, percent: f64) -> ActiveTask {
        ActiveTask { said, percent, stages: 1, ..ActiveTask::new(TaskId::parse(id).unwrap()) }
    }

    #[test]
    fn a_plan_is_as_fast_as_its_tasks_together_and_ends_with_those_that_wait() {
        let far = |done| Some(StageProgress::new(done, 1000, Some(100.0)));
        let active = [task("a", far(500), 50.0), task("b", far(0), 0.0)];
        let mut outlook = PlanOutlook::new();
        outlook.completed(Duration::from_secs(30));
        // 5 and 10 seconds are left of these, and 4 tasks of 30 seconds each, two at a time.
        assert_eq!(outlook.words(active.iter(), 6), ["200/s", "eta 1m 08s"]);
        outlook.told(Some(900.0), Some(7));
        assert_eq!(outlook.words(active.iter(), 6), ["200/s", "eta 7s"], "who runs it knows better");
    }

    #[test]
    fn nothing_is_said_of_a_plan_of_which_nothing_is_known() {
        let outlook = PlanOutlook::new();
        assert_eq!(outlook.words([task("a", None, 0.0)].iter(), 3), [""; 0]);
    }
}
