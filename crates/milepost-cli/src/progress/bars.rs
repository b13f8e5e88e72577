//! Progress on a terminal: one bar for the plan, and one for each running task as far as they fit.

use console::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use milepost_core::task::{PlanStatus, TaskStatus, share};
use milepost_core::time::Timestamp;

use super::active::ActiveTask;
use super::tracker::Tracker;
use crate::output::{BarsShown, show_bars};
use crate::text::{how_far, short, until};
use crate::views::failed;

/// Lines for tasks, however high the terminal is.
const MOST_LINES: usize = 10;
/// Lines of the terminal that are left alone.
const LEFT_ALONE: usize = 4;
/// How wide a stage's bar is.
const BAR: usize = 12;

pub(super) struct Bars {
    all: MultiProgress,
    plan: ProgressBar,
    lines: Vec<ProgressBar>,
    _shown: BarsShown,
}

impl Bars {
    pub(super) fn new() -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let plan = all.add(ProgressBar::new(0));
        plan.set_style(style("{prefix} [{bar:28.cyan}] {pos}/{len} {wide_msg}", "=> "));
        let shown = show_bars(&all);
        Self { all, plan, lines: Vec::new(), _shown: shown }
    }

    pub(super) fn draw(&mut self, tracker: &Tracker, status: PlanStatus, stopping: bool, now: Timestamp) {
        let counts = &tracker.counts;
        self.plan.set_prefix(short(tracker.plan().as_str(), 32));
        self.plan.set_length(counts.total);
        self.plan.set_position(counts.completed);
        self.plan.set_message(plan_line(tracker, status, stopping));
        let (height, _) = Term::stderr().size();
        let room = MOST_LINES.min(usize::from(height).saturating_sub(LEFT_ALONE)).max(1);
        let mut texts: Vec<String> = tracker.active().take(room).map(|task| task_line(task, now)).collect();
        let hidden = tracker.active_count() - texts.len();
        if hidden > 0 {
            texts.pop();
            texts.push(format!("  and {} more", hidden + 1));
        }
        self.show(texts);
    }

    pub(super) fn clear(self) {
        // An error means that the terminal is gone, and with it what there was to clear.
        let _ = self.all.clear();
    }

    fn show(&mut self, texts: Vec<String>) {
        while self.lines.len() > texts.len() {
            if let Some(line) = self.lines.pop() {
                line.finish_and_clear();
                self.all.remove(&line);
            }
        }
        while self.lines.len() < texts.len() {
            let line = self.all.add(ProgressBar::new_spinner());
            line.set_style(style("{wide_msg}", "=> "));
            self.lines.push(line);
        }
        for (line, text) in self.lines.iter().zip(texts) {
            line.set_message(text);
            line.tick();
        }
        self.plan.tick();
    }
}

fn style(template: &str, chars: &str) -> ProgressStyle {
    // A template that does not parse would show in every run; the default is better than none.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars(chars)
}

fn plan_line(tracker: &Tracker, status: PlanStatus, stopping: bool) -> String {
    let counts = &tracker.counts;
    let mut parts = Vec::new();
    if stopping {
        parts.push("stopping".to_owned());
    } else if status != PlanStatus::Running {
        parts.push(status.to_string());
    }
    if status == PlanStatus::Running && !stopping {
        parts.extend(tracker.outlook.words(tracker.active(), tracker.left()));
    }
    let states = [
        (tracker.active_count() as u64, "running"),
        (counts.paused, "paused"),
        (tracker.retries, "retries"),
        (failed(counts), "failed"),
        (counts.cancelled, "cancelled"),
    ];
    parts.extend(states.iter().filter(|(number, _)| *number > 0).map(|(number, name)| format!("{number} {name}")));
    parts.join(", ")
}

fn task_line(task: &ActiveTask, now: Timestamp) -> String {
    let place = format!("{}/{}", (task.done + 1).min(task.stages.max(1)), task.stages.max(1));
    let stage = task.stage.as_ref().map_or("", |stage| stage.as_str());
    let mut line = format!("  {:<20} {place:>5} {stage:<16}", short(task.id.as_str(), 40));
    if task.status == TaskStatus::RollingBack {
        line.push_str(" rolling back");
    }
    if let Some(retry) = &task.retry {
        line.push_str(&format!(" attempt {} {}: {}", task.attempt, until(retry.due, now), short(&retry.reason, 60)));
        return line;
    }
    if task.attempt > 1 {
        line.push_str(&format!(" attempt {}", task.attempt));
    }
    if let Some(said) = &task.said {
        if let Some(total) = said.total {
            line.push_str(&format!(" [{}]", bar(share(said.done, total))));
        }
        line.push_str(&format!(" {}", how_far(said)));
    }
    line
}

/// `=====>      `.
fn bar(share: f64) -> String {
    let full = (share * BAR as f64) as usize;
    let head = if full < BAR { ">" } else { "" };
    format!("{}{head}{}", "=".repeat(full), " ".repeat(BAR.saturating_sub(full + head.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_full_as_its_stage_and_always_as_wide() {
        assert_eq!([bar(0.0), bar(0.5), bar(0.99)], [">           ", "======>     ", "===========>"]);
        assert_eq!(bar(1.0), "============");
    }
}
