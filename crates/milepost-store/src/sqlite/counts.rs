//! How many tasks of a large plan are in each state, as of the last commit, so that nobody has to count them to say so.
//!
//! The owner has these numbers anyway; here it leaves them for those who read. A number is good for one version of its
//! plan only: a status must not be seen with the counts of another.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use milepost_core::plan::TaskCounts;

/// Plans with fewer tasks are counted as fast as looked up.
pub(super) const LARGE: u64 = 128;
/// Plans remembered; so many that all of them are in use would be news.
const MOST: usize = 10_000;

#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    pub(super) version: u64,
    pub(super) counts: TaskCounts,
}

#[derive(Debug, Default)]
pub(super) struct PlanCounts(Mutex<HashMap<i64, Counted>>);

impl PlanCounts {
    /// After a commit, and before anybody is told of it.
    pub(super) fn publish(&self, counted: impl IntoIterator<Item = (i64, Counted)>) {
        let mut plans = self.plans();
        if plans.len() > MOST {
            // Whoever asks for one of them counts, until it changes again.
            plans.clear();
        }
        plans.extend(counted);
    }

    pub(super) fn find(&self, plan: i64, version: u64) -> Option<TaskCounts> {
        self.plans().get(&plan).filter(|counted| counted.version == version).map(|counted| counted.counts)
    }

    fn plans(&self) -> MutexGuard<'_, HashMap<i64, Counted>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
