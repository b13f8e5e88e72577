//! Changes of a plan's own status.

use milepost_core::id::PlanId;
use milepost_core::plan::next_plan_status;
use milepost_core::task::By;
use milepost_core::time::Timestamp;
use rusqlite::{OptionalExtension, params};

use crate::error::StoreError;
use crate::model::{PlanChange, PlanRow};

use super::read::read_plan;
use super::writer::{Performed, Writer};

impl Writer {
    pub(super) fn change_plan(&mut self, change: PlanChange) -> Performed<PlanRow> {
        let Some(no) = self.plan_number(&change.plan)? else {
            return Ok(Err(StoreError::NotFound { what: "plan", id: change.plan.to_string() }));
        };
        if let Err(error) = self.board.open_plan(&self.connection, no) {
            return Ok(Err(error));
        }
        let changed = self.change_opened(no, change)?;
        // It may have been brought into memory only to be refused.
        let plan = &self.board.plans[&no];
        if plan.ended && plan.counts.open() == 0 {
            self.board.forget_plan(no);
        }
        Ok(changed)
    }

    fn change_opened(&mut self, no: i64, change: PlanChange) -> Performed<PlanRow> {
        let plan = &self.board.plans[&no];
        if let Some(expected) = change.expected.filter(|expected| *expected != plan.version) {
            return Ok(Err(StoreError::PlanConflict { plan: change.plan, expected, found: plan.version }));
        }
        let before = plan.status;
        let status = match next_plan_status(change.plan.as_str(), before, &plan.counts, change.command) {
            Err(rejection) => return Ok(Err(rejection.into())),
            Ok(status) => status,
        };
        let was_held = change.command.lets_go() && self.set_going(no)?;
        if status != before || was_held {
            self.write_plan(no, status, Some(&change.by), change.now)?;
        } else if change.command.always_counts() {
            self.count_change(no, &change.by, change.now)?;
        }
        Ok(Ok(read_plan(&self.connection, no, self.board.plans[&no].counts, self.board.settled)?))
    }

    /// Its version grows, and it is as it was.
    fn count_change(&mut self, no: i64, by: &By, now: Timestamp) -> rusqlite::Result<()> {
        let plan = self.board.plans.get_mut(&no).expect("a plan is opened before it is written");
        plan.version += 1;
        self.connection
            .prepare_cached("UPDATE plans SET version = ?2 WHERE no = ?1")?
            .execute(params![no, plan.version as i64])?;
        self.board.recount(no);
        self.log_plan(no, Some(by), now)
    }

    pub(super) fn plan_number(&self, id: &PlanId) -> rusqlite::Result<Option<i64>> {
        if let Some(no) = self.board.plan_numbers.get(id) {
            return Ok(Some(*no));
        }
        let mut statement = self.connection.prepare_cached("SELECT no FROM plans WHERE id = ?1")?;
        statement.query_row([id.as_str()], |row| row.get(0)).optional()
    }
}
