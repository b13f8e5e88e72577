//! `recovery: manual`: which plans and tasks may be claimed without a person's word, and which wait for it.
//!
//! While nodes are there, a plan that was set going goes on, on whichever of them. When the last of them is gone, the next
//! one begins a new era, and nothing of a manual plan starts in it before a person says so. What is kept for that is a small
//! number with each plan, and with each task that a person set going by itself: how many eras it is good for.
//!
//! The rule is here once; stores keep the numbers, and the shared ones say it again in their own language.

use milepost_core::plan::Recovery;
use milepost_core::task::{PlanStatus, Task, TaskStatus};
use milepost_core::time::Millis;

/// It waits for a person's word.
pub(crate) const HELD: u8 = 0;
/// It goes on for as long as nodes are there.
pub(crate) const GOING: u8 = 1;
/// Set going while no node was there: it is good for the era that begins with the next one.
pub(crate) const GOING_NEXT: u8 = 2;

/// How soon a node that cannot tell which era it is in asks again.
pub(crate) const LOOK_AGAIN: Millis = Millis::from_secs(1);

/// What a person's word is worth. `settled`: whoever takes it belongs to an era, so that is the one it is for. Anybody else
/// cannot tell whether the last node is there or gone; the word is good in either case until a node of the era is seen.
pub(crate) fn go(says: Option<Recovery>, settled: bool) -> u8 {
    if settled || says == Some(Recovery::Auto) { GOING } else { GOING_NEXT }
}

/// What any number comes to when a node of the era is seen, with a beat or when it leaves: all words were for that era.
pub(crate) fn once_seen(go: u8) -> u8 {
    go.min(GOING)
}

/// The least that a claim must find: one that cannot tell yet which era it is in takes what is good in either. A claim of
/// one plan only looks at no number, begins no era, and uses up what was said for that plan alone.
pub(crate) fn needed(settled: bool) -> u8 {
    if settled { GOING } else { GOING_NEXT }
}

/// What is left of a plan's number in a new era that a node with this default begins.
pub(crate) fn in_new_era(says: Option<Recovery>, default: Recovery, go: u8) -> u8 {
    match says.unwrap_or(default) {
        Recovery::Manual => go.saturating_sub(1),
        Recovery::Auto => GOING,
    }
}

/// What a plan has that was moved here from another store, where a node may be or not: a person says when it goes on.
pub(crate) fn when_moved(says: Option<Recovery>) -> u8 {
    if says == Some(Recovery::Manual) { HELD } else { GOING }
}

/// What one plan is to claims.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Going {
    pub(crate) says: Option<Recovery>,
    /// The plan's own number.
    pub(crate) plan: u8,
}

impl Going {
    /// A plan that has ended is not set going, whatever it was for.
    pub(crate) fn of(says: Option<Recovery>, go: u8, has_ended: bool) -> Self {
        Self { says, plan: if has_ended { HELD } else { go } }
    }

    /// Whether a word for one of its tasks has to be kept with the task: the plan is set going for less.
    pub(crate) fn lacks(self, word: u8) -> bool {
        self.says != Some(Recovery::Auto) && self.plan < word
    }

    /// Whether a task may be taken by a claim of no particular plan. `task` is its own number.
    pub(crate) fn may_start(self, default: Recovery, task: u8, needed: u8) -> bool {
        self.says.unwrap_or(default) == Recovery::Auto || self.plan.max(task) >= needed
    }

    /// Whether it waits for a person's word: as far as a look at the store can tell, which knows no node's default.
    pub(crate) fn is_held(self, task: u8, begun: bool) -> bool {
        let needed = match self.says {
            Some(Recovery::Auto) => return false,
            Some(Recovery::Manual) => needed(begun),
            None => GOING,
        };
        self.plan.max(task) < needed
    }

    /// Whether a person's word is all that a task waits for which no live node has.
    pub(crate) fn holds(self, task: &Task, own: u8, status: PlanStatus, begun: bool) -> bool {
        let could_run = match task.status() {
            TaskStatus::Pending => status == PlanStatus::Running && !task.awaits_message(),
            TaskStatus::Running => status == PlanStatus::Running,
            TaskStatus::RollingBack => true,
            TaskStatus::Paused
            | TaskStatus::Completed
            | TaskStatus::Failed
            | TaskStatus::Cancelled
            | TaskStatus::RolledBack
            | TaskStatus::RollbackFailed => false,
        };
        could_run && self.is_held(own, begun)
    }
}
