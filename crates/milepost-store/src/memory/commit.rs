//! What happened to one task, and what a person or the engine asks of a plan.

use std::sync::Arc;

use milepost_core::plan::next_plan_status;
use milepost_core::planted::planted;
use milepost_core::task::{Event, TaskStatus, lets_go};

use crate::books::book_changes;
use crate::error::StoreError;
use crate::model::{Commit, Committed, Holder, LeaseChange, Note, PlanChange, PlanRow, Wake};

use super::data::{Data, Held, Hold};

impl Data {
    /// `from` is the session that it comes from, unless it is a visitor's.
    pub(super) fn commit(&mut self, from: Option<u64>, commit: Commit) -> Result<Committed, StoreError> {
        let no = self.find_task(&commit.key.id)?;
        if no != commit.key.no {
            return Err(StoreError::NotFound { what: "task", id: commit.key.id.to_string() });
        }
        if !planted("a commit minds no lease") {
            self.check_holder(no, from, &commit)?;
        }
        let entry = self.entry(no);
        let minds_version = !planted("a commit minds no version");
        if minds_version && entry.task.version() != commit.expected {
            return Err(self.conflict(no, &commit));
        }
        if minds_version {
            self.check_events(no, &commit)?;
        }
        let plan = entry.plan;
        let plan_status = match commit.plan {
            Some(command) => {
                let entry = self.plan_entry(plan);
                let id = entry.plan.definition.id.as_str();
                Some(next_plan_status(id, entry.status, &entry.counts(), command)?)
            }
            None => None,
        };
        let for_books = book_changes(&commit.task, &commit.events);
        self.books.check(&for_books)?;

        self.books.write(for_books);
        let at = commit.task.updated_at();
        let hold = self.hold_after(no, &commit);
        if commit.holder == Holder::Operator && lets_go(&commit.events) {
            self.let_go(from, no, plan_status);
        }
        self.store(no, Arc::unwrap_or_clone(commit.task), &commit.events, hold);
        let position = self.newest();
        self.entry_mut(no).output.extend(commit.output);
        let asked = plan_status.and_then(|status| self.set_status(plan, status, None, at));
        let changed = self.settle(plan, at).or(asked);
        if changed.is_some() {
            self.log_plan(plan, None, at);
        }
        self.count_commit();
        Ok(Committed { position, plan: changed })
    }

    pub(super) fn change_plan(&mut self, from: Option<u64>, change: PlanChange) -> Result<PlanRow, StoreError> {
        let plan = self.find_plan(&change.plan)?;
        let entry = self.plan_entry(plan);
        if let Some(expected) = change.expected.filter(|expected| *expected != entry.version) {
            return Err(StoreError::PlanConflict { plan: change.plan, expected, found: entry.version });
        }
        let status = next_plan_status(change.plan.as_str(), entry.status, &entry.counts(), change.command)?;
        let was_held = change.command.lets_go() && self.set_going(from, plan);
        let counts = was_held || change.command.always_counts();
        if self.set_status(plan, status, Some(change.by.clone()), change.now).is_some() {
            self.log_plan(plan, Some(change.by), change.now);
        } else if counts {
            let entry = self.plan_entry_mut(plan);
            entry.version += 1;
            if was_held {
                entry.changed_by = Some(change.by.clone());
            }
            self.log_plan(plan, Some(change.by), change.now);
        }
        Ok(self.plan_row(plan))
    }

    /// Notes of tasks that are gone by now are dropped: nobody can ask for them.
    pub(super) fn note(&mut self, notes: Vec<Note>) {
        for note in notes {
            let Some(entry) = self.tasks.get_mut(&note.key.no) else { continue };
            entry.progress = note.progress.or(entry.progress);
            entry.output.extend(note.output);
        }
    }

    fn check_holder(&self, no: i64, from: Option<u64>, commit: &Commit) -> Result<(), StoreError> {
        let held = self.held(no);
        let expected = match commit.holder {
            Holder::Lease(lease) => lease,
            Holder::Operator => 0,
        };
        let fenced =
            || Err(StoreError::Fenced { task: commit.key.id.clone(), expected, found: self.entry(no).lease() });
        // Lost, it has nothing to say any more; a visitor speaks for people.
        if from.is_some_and(|session| !self.sessions.is_live(session)) {
            return fenced();
        }
        if let (Holder::Lease(_), Hold::By { owner, .. }) = (commit.holder, self.entry(no).hold)
            && from != Some(owner)
        {
            return fenced();
        }
        match (commit.holder, held) {
            (Holder::Lease(lease), Held::Live { lease: found }) if lease == found => Ok(()),
            // A commit that gave its lease back and is sent again hears that the first one had arrived.
            (Holder::Lease(_), Held::Nobody) if self.entry(no).task.version() != commit.expected => {
                Err(self.conflict(no, commit))
            }
            (Holder::Lease(_), Held::Live { .. } | Held::Orphaned { .. } | Held::Nobody) => fenced(),
            (Holder::Operator, Held::Live { .. }) => fenced(),
            (Holder::Operator, Held::Orphaned { .. } | Held::Nobody) => Ok(()),
        }
    }

    fn conflict(&self, no: i64, commit: &Commit) -> StoreError {
        let found = self.entry(no).task.version();
        StoreError::Conflict { task: commit.key.id.clone(), expected: commit.expected, found }
    }

    /// The log is the truth: a task that its events do not make would be another one after the next restart.
    fn check_events(&self, no: i64, commit: &Commit) -> Result<(), StoreError> {
        let damaged =
            |detail: String| StoreError::Damaged { what: format!("a commit of task {}", commit.key.id), detail };
        let folded = commit.events.iter().try_fold(self.entry(no).task.clone(), |task, record| task.apply(record));
        match folded {
            Ok(task) if task == *commit.task => Ok(()),
            Ok(_) => Err(damaged("its events do not make its task".to_owned())),
            Err(corrupt) => Err(damaged(corrupt.to_string())),
        }
    }

    fn hold_after(&self, no: i64, commit: &Commit) -> Hold {
        let before = self.entry(no).hold;
        let undo_asked = commit.events.iter().any(|record| matches!(record.event(), Event::RollbackStarted { .. }));
        match (commit.lease, commit.holder, before) {
            (LeaseChange::Release(wake), _, _) => Hold::Nobody(wake),
            (LeaseChange::Keep, Holder::Lease(_), _) => before,
            (LeaseChange::Keep, Holder::Operator, _)
                if undo_asked && commit.task.status() == TaskStatus::RollingBack =>
            {
                Hold::Nobody(Wake::At(commit.task.updated_at()))
            }
            (LeaseChange::Keep, Holder::Operator, Hold::By { .. }) => Hold::Nobody(Wake::Recovery),
            (LeaseChange::Keep, Holder::Operator, Hold::Nobody(_)) => before,
        }
    }
}
