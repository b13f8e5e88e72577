//! Claims of which nobody knows whether they have arrived: their tasks may be this node's, and then no other node would run
//! them. The next claim finds out.

use std::sync::{Mutex, PoisonError};

use crate::model::StoredTask;

#[derive(Debug, Default)]
pub(crate) struct Doubtful(Mutex<Vec<StoredTask>>);

impl Doubtful {
    /// Only what would be held is of interest; what ended in being claimed has ended, or is there to be claimed.
    pub(crate) fn keep(&self, tasks: impl IntoIterator<Item = StoredTask>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(tasks.into_iter().filter(|stored| stored.epoch != 0));
    }

    pub(crate) fn take(&self) -> Vec<StoredTask> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
