//! Watching a run from within: the engine's feed, from a task of its own. Who lags looks at the store instead.

use std::time::Duration;

use milepost_core::api::PlanView;
use milepost_core::task::PlanStatus;
use milepost_engine::{Engine, Handful, Watch};
use milepost_store::PlanRow;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::display::Display;
use super::tracker::Tracker;
use crate::context::Context;

pub(super) const DRAW_EVERY: Duration = Duration::from_millis(100);

/// A watcher at work.
#[derive(Debug)]
pub(crate) struct Progress {
    signals: watch::Sender<Seen>,
    watcher: Option<JoinHandle<()>>,
}

/// What the supervisor knows and the feed does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    plan: PlanStatus,
    stopping: bool,
    over: bool,
}

impl Progress {
    /// Begins to watch; made before the engine starts, it misses nothing.
    pub(crate) fn start(context: &Context, engine: &Engine, row: &PlanRow) -> Self {
        let (signals, seen) = watch::channel(Seen { plan: row.status, stopping: false, over: false });
        let plan = PlanView::from(row);
        let Some(display) = Display::new(context, &plan) else { return Self { signals, watcher: None } };
        let feed = engine.feed().watch();
        let watcher = Watcher { engine: engine.clone(), feed, tracker: Tracker::new(&plan), display, seen };
        Self { signals, watcher: Some(tokio::spawn(watcher.watch())) }
    }

    pub(crate) fn plan(&self, status: PlanStatus) {
        self.signals.send_if_modified(|seen| std::mem::replace(&mut seen.plan, status) != status);
    }

    pub(crate) fn stopping(&self) {
        self.signals.send_modify(|seen| seen.stopping = true);
    }

    /// Clears the screen of bars.
    pub(crate) async fn finish(self) {
        self.signals.send_modify(|seen| seen.over = true);
        if let Some(watcher) = self.watcher {
            // A watcher that panicked has nothing left to clear.
            let _ = watcher.await;
        }
    }
}

struct Watcher {
    engine: Engine,
    feed: Watch,
    tracker: Tracker,
    display: Display,
    seen: watch::Receiver<Seen>,
}

impl Watcher {
    async fn watch(mut self) {
        let mut tick = tokio::time::interval(DRAW_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                handful = self.feed.next() => match handful {
                    Some(handful) => self.take(&handful),
                    None => break,
                },
                _ = tick.tick() => self.draw().await,
                changed = self.seen.changed() => if changed.is_err() || self.seen.borrow().over {
                    break;
                },
            }
        }
        let last = self.feed.now();
        self.take(&last);
        self.display.clear();
    }

    fn take(&mut self, handful: &Handful) {
        let now = self.engine.clock().now();
        for item in &handful.items {
            self.tracker.take(item, now);
            self.display.take(item);
        }
        if handful.lagged {
            self.tracker.lagged();
        }
    }

    async fn draw(&mut self) {
        self.tracker.catch_up(&**self.engine.store()).await;
        let seen = *self.seen.borrow();
        let now = self.engine.clock().now();
        self.display.draw(&self.tracker, seen.plan, seen.stopping, now);
    }
}
