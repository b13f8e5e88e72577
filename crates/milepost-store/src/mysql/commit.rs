//! One commit: the events that happened to a task and the row they leave behind, or nothing.

use std::sync::Arc;

use milepost_core::plan::PlanCommand;
use milepost_core::task::{Event, Task, TaskStatus, ends_progress, lets_go};
use milepost_core::time::Timestamp;

use crate::books::{BookChange, book_changes};
use crate::codec::{Body, encode_events};
use crate::error::StoreError;
use crate::model::{Commit, Committed, Holder, LeaseChange, LogChunk, Note, Position, TaskRef, Wake};
use crate::row::RowImage;
use crate::snapshot::Snapshot;

use super::begin::Turn;
use super::codec::session_of;
use super::states::{Queue, Standing, TaskState};

/// A commit with its events in the form the table holds; encoded by the caller, so that the writer only writes.
#[derive(Debug)]
pub(super) struct EncodedCommit {
    pub(super) key: TaskRef,
    holder: Holder,
    expected: u64,
    body: Option<(String, u32)>,
    /// Only of a task with a long log, and rarely.
    snapshot: Option<(u64, String, u32)>,
    task: Arc<Task>,
    clears_progress: bool,
    asks_to_undo: bool,
    /// A person set it going by itself.
    lets_go: bool,
    lease: LeaseChange,
    plan: Option<PlanCommand>,
    output: Vec<LogChunk>,
    pub(super) books: BookChange,
}

impl From<Commit> for EncodedCommit {
    fn from(commit: Commit) -> Self {
        let body = (!commit.events.is_empty()).then(|| encode_events(&commit.events));
        let snapshot = Snapshot::due(&commit.task, commit.expected, &commit.events);
        Self {
            key: commit.key,
            books: book_changes(&commit.task, &commit.events),
            holder: commit.holder,
            expected: commit.expected,
            body: body.map(|body| (body.text, body.crc)),
            snapshot: snapshot.map(|snapshot| (snapshot.version, snapshot.text, snapshot.crc)),
            clears_progress: ends_progress(commit.task.status(), &commit.events),
            task: commit.task,
            asks_to_undo: commit.events.iter().any(|record| matches!(record.event(), Event::RollbackStarted { .. })),
            lets_go: commit.holder == Holder::Operator && lets_go(&commit.events),
            lease: commit.lease,
            plan: commit.plan,
            output: commit.output,
        }
    }
}

impl Turn {
    /// What is refused is refused before anything of it lies on the desk: others share the transaction.
    pub(super) fn commit_one(&mut self, commit: &EncodedCommit) -> Result<Committed, StoreError> {
        let no = commit.key.no;
        let before = self.held_for(commit)?;
        let plan = self.desk.plan(before.plan);
        let asked = commit.plan.map(|command| plan.after(command)).transpose()?;
        self.desk.change_books(&commit.books)?;
        let image = RowImage::of(&commit.task);
        let (status, at) = (image.status, Timestamp::from_millis(image.updated_at));
        if let Some((text, crc)) = &commit.body {
            self.desk.append(no, before.version + 1, Body { text: text.clone(), crc: *crc });
        }
        let position = Position(self.desk.counters.position);
        if let Some((version, text, crc)) = &commit.snapshot {
            let snapshot = Snapshot { version: *version, text: text.clone(), crc: *crc };
            self.desk.keep_snapshot(no, Some(snapshot));
        }
        if commit.lets_go {
            self.let_go(&before, asked);
        }
        let keeps = commit.lease == LeaseChange::Keep && status.is_active() && commit.holder != Holder::Operator;
        let standing = standing_after(commit, &before, status, at, keeps);
        self.desk.transition(no, image, standing, commit.clears_progress);
        // Nothing else tells the others of one that goes on where it is; for one that has its message they are not called.
        if commit.lets_go && before.queue != Some(Queue::AwaitsMessage) {
            self.desk.offer();
        }
        self.desk.writes.output.extend(commit.output.iter().map(|chunk| (no, chunk.clone())));
        let plan = self.desk.plan(before.plan);
        let asked = asked.is_some_and(|status| plan.set_status(status, None, at));
        let changed = plan.settle(at) || asked;
        let status = plan.status;
        if changed {
            self.desk.log_plan(before.plan, None, at);
        }
        Ok(Committed { position, plan: changed.then_some(status) })
    }

    /// The task, if whoever commits may: its holder under a lease that is still good, or an operator while nobody holds
    /// it.
    fn held_for(&self, commit: &EncodedCommit) -> Result<TaskState, StoreError> {
        let key = &commit.key;
        let task = self.desk.tasks.get(&key.no).filter(|task| task.id == key.id);
        let task = task.ok_or_else(|| StoreError::NotFound { what: "task", id: key.id.to_string() })?;
        let fenced = |expected| Err(StoreError::Fenced { task: key.id.clone(), expected, found: task.lease });
        let conflict =
            || Err(StoreError::Conflict { task: key.id.clone(), expected: commit.expected, found: task.version });
        let live = self.desk.is_live(task.lease);
        match commit.holder {
            _ if !self.may_write() => fenced(if let Holder::Lease(lease) = commit.holder { lease } else { 0 }),
            Holder::Operator if live => fenced(0),
            Holder::Operator if task.version != commit.expected => conflict(),
            Holder::Operator => Ok(task.clone()),
            // The holder's own commit may have arrived before and given the lease back.
            Holder::Lease(_) if task.lease == 0 && task.version != commit.expected => conflict(),
            Holder::Lease(ours) if ours != task.lease || !live || Some(session_of(ours)) != self.desk.own => {
                fenced(ours)
            }
            Holder::Lease(_) if task.version != commit.expected => conflict(),
            Holder::Lease(_) => Ok(task.clone()),
        }
    }

    /// Notes of tasks that are gone by now are dropped: nobody can ask for them.
    pub(super) fn note(&mut self, notes: &[Note]) {
        for note in notes {
            let Some(task) = self.desk.tasks.get_mut(&note.key.no) else { continue };
            if let Some(progress) = note.progress {
                task.progress = Some(progress);
                self.desk.writes.progress.insert(task.no, progress);
            }
            self.desk.writes.output.extend(note.output.iter().map(|chunk| (note.key.no, chunk.clone())));
        }
    }
}

fn standing_after(
    commit: &EncodedCommit,
    before: &TaskState,
    status: TaskStatus,
    at: Timestamp,
    keeps: bool,
) -> Standing {
    let unheld = Standing { lease: 0, wake_at: None, asked: false };
    match (commit.lease, commit.holder) {
        _ if keeps => Standing { lease: before.lease, ..unheld },
        _ if !status.is_active() => unheld,
        (LeaseChange::Release(Wake::At(at)), _) => Standing { wake_at: Some(at), ..unheld },
        (LeaseChange::Release(Wake::Recovery), _) => unheld,
        // An operator's rollback waits for slot and tenant; one that a node was in the middle of has both.
        (LeaseChange::Keep, _) if commit.asks_to_undo => Standing { wake_at: Some(at), asked: true, ..unheld },
        (LeaseChange::Keep, _) if before.lease == 0 => {
            Standing { wake_at: before.wake_at, asked: before.queue == Some(Queue::Undo), ..unheld }
        }
        (LeaseChange::Keep, _) => unheld,
    }
}
