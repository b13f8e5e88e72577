//! Watching from outside: what a server or another process tells of a plan, shown like a run of our own.

use milepost::WatchEvent;
use milepost_core::api::{PlanView, StateMessage};
use milepost_core::task::PlanStatus;
use milepost_engine::Clock;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::display::Display;
use super::heard::Heard;
use super::tracker::Tracker;
use super::watcher::DRAW_EVERY;
use super::words::paused;
use crate::context::Context;
use crate::output;

pub(crate) struct Spectator {
    tracker: Tracker,
    display: Display,
    heard: Heard,
    status: PlanStatus,
    tick: Interval,
    clock: Clock,
}

impl Spectator {
    /// None when nobody wants to see anything.
    pub(crate) fn new(context: &Context, plan: &PlanView) -> Option<Self> {
        let mut tick = interval(DRAW_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Some(Self {
            tracker: Tracker::new(plan),
            display: Display::new(context, plan)?,
            heard: Heard::default(),
            status: plan.status,
            tick,
            clock: Clock::system(),
        })
    }

    pub(crate) fn take(&mut self, context: &Context, event: &WatchEvent) {
        match event {
            WatchEvent::Snapshot(snapshot) => {
                self.status = snapshot.plan.status;
                self.heard.snapshot(&snapshot.tasks);
                self.tracker.snapshot(snapshot);
            }
            WatchEvent::Progress(message) => {
                if let Some(task) = &message.task {
                    self.heard.progress(task);
                }
                self.tracker.progress(message);
            }
            WatchEvent::State(message) => self.state(context, message),
            WatchEvent::Error { message } => output::message(&format!("the server has trouble: {message}")),
            WatchEvent::Reconnected => output::message("the connection broke, and stands again"),
            WatchEvent::End(_) => {}
        }
    }

    fn state(&mut self, context: &Context, message: &StateMessage) {
        if let Some(status) = message.plan_status {
            let before = std::mem::replace(&mut self.status, status);
            match status {
                PlanStatus::Paused => output::message(&paused(context, &message.plan_id, message.by.as_ref())),
                PlanStatus::Running if before == PlanStatus::Paused => {
                    output::message(&format!("plan {} goes on", message.plan_id));
                }
                PlanStatus::Created
                | PlanStatus::Ready
                | PlanStatus::Running
                | PlanStatus::Completed
                | PlanStatus::Failed
                | PlanStatus::Cancelled => {}
            }
        }
        if let Some(item) = self.heard.state(message) {
            self.tracker.take(&item, self.clock.now());
            self.display.take(&item);
        }
    }

    pub(crate) async fn time_to_draw(&mut self) {
        self.tick.tick().await;
    }

    pub(crate) fn draw(&mut self) {
        self.display.draw(&self.tracker, self.status, false, self.clock.now());
    }

    /// Clears the screen of bars.
    pub(crate) fn clear(self) {
        self.display.clear();
    }
}
