//! Bars or lines, whichever suits where stderr goes.

use std::io::IsTerminal;

use milepost_core::api::PlanView;
use milepost_core::task::PlanStatus;
use milepost_core::time::Timestamp;
use milepost_engine::FeedItem;

use super::bars::Bars;
use super::lines::Lines;
use super::tracker::Tracker;
use crate::context::Context;

pub(super) enum Display {
    Bars(Bars),
    Lines(Lines),
}

impl Display {
    /// None when nobody wants to see anything.
    pub(super) fn new(context: &Context, plan: &PlanView) -> Option<Self> {
        if context.quiet {
            return None;
        }
        let terminal = std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Some(if terminal { Self::Bars(Bars::new()) } else { Self::Lines(Lines::new(plan)) })
    }

    pub(super) fn take(&mut self, item: &FeedItem) {
        match self {
            Self::Bars(_) => {}
            Self::Lines(lines) => lines.take(item),
        }
    }

    pub(super) fn draw(&mut self, tracker: &Tracker, status: PlanStatus, stopping: bool, now: Timestamp) {
        match self {
            Self::Bars(bars) => bars.draw(tracker, status, stopping, now),
            Self::Lines(lines) => lines.tick(tracker),
        }
    }

    pub(super) fn clear(self) {
        match self {
            Self::Bars(bars) => bars.clear(),
            Self::Lines(_) => {}
        }
    }
}
