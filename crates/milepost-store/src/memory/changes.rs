//! Everything that was committed, in order: what happened to tasks, and what became of plans.

use std::ops::Bound;

use milepost_core::task::{By, PlanStatus};
use milepost_core::time::Timestamp;

use crate::error::StoreError;
use crate::model::{Change, ChangeQuery, Changed, Changes, Position};

use super::data::Data;

/// One position of the log. A task's events are with the task, and gone when it is.
#[derive(Debug)]
pub(super) enum Logged {
    Task { no: i64, sequence: usize, count: usize },
    Plan { no: i64, status: PlanStatus, by: Option<By>, at: Timestamp },
}

impl Data {
    pub(super) fn log(&mut self, logged: Logged) {
        self.last_position += 1;
        self.log.insert(self.last_position, logged);
    }

    /// The plan as it is now; `by` is the person who asked for that.
    pub(super) fn log_plan(&mut self, no: i64, by: Option<By>, at: Timestamp) {
        let status = self.plan_entry(no).status;
        self.log(Logged::Plan { no, status, by, at });
    }

    pub(super) fn newest(&self) -> Position {
        Position(self.last_position)
    }

    pub(super) fn changes(&self, query: &ChangeQuery) -> Result<Changes, StoreError> {
        let only = query.plan.as_ref().map(|id| self.find_plan(id)).transpose()?;
        let mut changes = Changes { items: Vec::new(), upto: query.after, more: false };
        for (position, logged) in self.log.range((Bound::Excluded(query.after.0), Bound::Unbounded)) {
            if changes.items.len() == query.limit {
                changes.more = true;
                break;
            }
            changes.upto = Position(*position);
            changes.items.extend(self.change(*position, logged, only));
        }
        Ok(changes)
    }

    /// None when it is another plan's, or its task is gone.
    fn change(&self, position: i64, logged: &Logged, only: Option<i64>) -> Option<Change> {
        let (plan, what) = match logged {
            Logged::Task { no, sequence, count } => {
                let entry = self.tasks.get(no)?;
                let what = Changed::Task {
                    task: entry.key.id.clone(),
                    tenant: entry.task.spec().tenant.clone(),
                    sequence: *sequence as u64,
                    records: entry.events[sequence - 1..sequence - 1 + count].to_vec(),
                };
                (entry.plan, what)
            }
            Logged::Plan { no, status, by, at } => (*no, Changed::Plan { status: *status, by: by.clone(), at: *at }),
        };
        if only.is_some_and(|only| only != plan) {
            return None;
        }
        let plan = self.plan_entry(plan).plan.definition.id.clone();
        Some(Change { position: Position(position), plan, what })
    }
}
