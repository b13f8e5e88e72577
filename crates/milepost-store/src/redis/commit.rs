//! Commits in groups: what waits goes in one round trip and is answered one by one.

use std::sync::Arc;

use milepost_core::id::TaskId;
use milepost_core::plan::{PlanCommand, next_plan_status};
use milepost_core::task::{Event, PlanStatus, lets_go};
use redis::Cmd;
use tokio::sync::oneshot;

use crate::codec::damaged;
use crate::error::StoreError;
use crate::group::Group;
use crate::model::{Commit, Committed, Holder, LeaseChange, Note, Position, TaskRef, Wake};

use super::answer::Answer;
use super::books::kept;
use super::codec::{Change, encode_output};
use super::script::{COMMIT, NOTE, becomes};
use super::session::is_of;
use super::shared::Shared;

/// Groups on their way at once: while Redis works on one, the next is packed.
const LANES: usize = 2;
/// Commits in a group. Nobody else is served while a script runs, so that it has to be short.
const MOST: usize = 128;

pub(super) type Commits = Group<Waiting>;

#[derive(Debug)]
pub(super) struct Waiting {
    commit: EncodedCommit,
    answer: oneshot::Sender<Result<Committed, StoreError>>,
}

/// A commit with everything in the form that the script reads; encoded by the caller, so that a group is only packed.
#[derive(Debug)]
struct EncodedCommit {
    key: TaskRef,
    holder: Holder,
    expected: u64,
    lease: LeaseChange,
    undo_asked: bool,
    /// A person set it going by itself.
    lets_go: bool,
    plan: Option<PlanCommand>,
    /// Its status, its hold and its plan stay as they are.
    only_moves_on: bool,
    change: Change,
}

impl From<Commit> for EncodedCommit {
    fn from(commit: Commit) -> Self {
        let Commit { key, holder, expected, events, task, lease, plan, output } = commit;
        let undo_asked = events.iter().any(|record| matches!(record.event(), Event::RollbackStarted { .. }));
        let lets_go = holder == Holder::Operator && lets_go(&events);
        let change = Change::new(&task, expected, &events, &output);
        let only_moves_on = matches!(lease, LeaseChange::Keep)
            && plan.is_none()
            && task.status().is_active()
            && events.iter().all(|record| is_of_stages(record.event()));
        Self { key, holder, expected, lease, undo_asked, lets_go, plan, only_moves_on, change }
    }
}

impl EncodedCommit {
    /// What only moves a task from stage to stage is written in a shorter form, if the lease is one of this session.
    fn write(&self, call: &mut Cmd, session: u64) {
        if let Holder::Lease(lease) = self.holder
            && self.only_moves_on
            && is_of(lease, session)
        {
            call.arg("stage").arg(self.key.no).arg(format!("{} {lease}", self.expected));
            return self.change.write_stage(call, &self.key.id, lease);
        }
        call.arg("task").arg(self.key.no).arg(self.expected);
        match self.holder {
            Holder::Lease(lease) => call.arg(lease),
            Holder::Operator => call.arg(""),
        };
        match self.lease {
            LeaseChange::Keep => call.arg("keep").arg(""),
            LeaseChange::Release(Wake::At(at)) => call.arg("release").arg(at.as_millis()),
            LeaseChange::Release(Wake::Recovery) => call.arg("release").arg(""),
        };
        call.arg(u8::from(self.undo_asked) + 2 * u8::from(self.lets_go))
            .arg(self.plan.map(becomes).unwrap_or_default());
        self.change.write(call);
    }

    /// A number alone is the position of a commit that has changed nothing else.
    fn read(&self, answers: &mut Answer, index: usize) -> Result<Committed, StoreError> {
        if let Ok(position) = answers.number(index) {
            return Ok(Committed { position: Position(position), plan: None });
        }
        let answer = answers.list(index)?;
        let task = || self.key.id.clone();
        let lease = match self.holder {
            Holder::Lease(lease) => lease,
            Holder::Operator => 0,
        };
        match answer.text(0)? {
            "ok" => {
                let plan = match answer.time_if_any(2)? {
                    None => None,
                    Some(_) => Some(plan_status(&answer, 2)?),
                };
                Ok(Committed { position: Position(answer.number(1)?), plan })
            }
            "conflict" => {
                Err(StoreError::Conflict { task: task(), expected: self.expected, found: answer.unsigned(1)? })
            }
            "fenced" => Err(StoreError::Fenced { task: task(), expected: lease, found: answer.unsigned(1)? }),
            "missing" => Err(not_found(&self.key.id)),
            "kept" => Err(kept(&answer)?),
            "refused" => Err(refused(&answer.plan_id(2)?, plan_status(&answer, 1)?, self.plan)),
            other => Err(damaged("an answer of redis", format!("`{other}` to a commit"))),
        }
    }
}

/// Neither the task's status nor whether a pause was asked for can be another after it.
fn is_of_stages(event: &Event) -> bool {
    match event {
        Event::StageStarted { .. }
        | Event::StageCompleted { .. }
        | Event::StageSkipped { .. }
        | Event::StageFailed { .. }
        | Event::RetryScheduled { .. }
        | Event::StageRolledBack { .. }
        | Event::SignalReceived { .. }
        | Event::ValueRecorded { .. } => true,
        Event::TaskCreated { .. }
        | Event::TaskStarted { .. }
        | Event::PauseRequested { .. }
        | Event::TaskPaused { .. }
        | Event::TaskResumed { .. }
        | Event::TaskCompleted { .. }
        | Event::TaskFailed { .. }
        | Event::TaskCancelled { .. }
        | Event::TaskInterrupted { .. }
        | Event::TaskRetried { .. }
        | Event::RollbackStarted { .. }
        | Event::TaskRolledBack { .. }
        | Event::RollbackFailed { .. }
        | Event::EventLost { .. }
        | Event::TaskRepaired { .. }
        | Event::CheckpointDiscarded { .. }
        | Event::DeadLettered { .. }
        | Event::MessageReceived { .. }
        | Event::TaskContinued { .. } => false,
    }
}

pub(super) fn not_found(task: &TaskId) -> StoreError {
    StoreError::NotFound { what: "task", id: task.to_string() }
}

pub(super) fn plan_status(answer: &Answer, index: usize) -> Result<PlanStatus, StoreError> {
    let code = answer.number(index)?;
    PlanStatus::from_code(code).ok_or_else(|| damaged("a plan's status", code))
}

/// In the core's own words, which it has for the status that the script found.
pub(super) fn refused(
    plan: &milepost_core::id::PlanId,
    status: PlanStatus,
    command: Option<PlanCommand>,
) -> StoreError {
    let asked = command.map(|command| next_plan_status(plan.as_str(), status, &Default::default(), command));
    match asked {
        Some(Err(rejection)) => rejection.into(),
        Some(Ok(_)) | None => damaged("an answer of redis", format!("plan {plan} refused what it allows")),
    }
}

pub(super) fn start(shared: &Arc<Shared>) -> Commits {
    let shared = shared.clone();
    Group::start(LANES, MOST, move |group| write(shared.clone(), group))
}

pub(super) async fn commit(commits: &Commits, commit: Commit) -> Result<Committed, StoreError> {
    let (answer, answered) = oneshot::channel();
    commits.send(Waiting { commit: commit.into(), answer });
    let closed = || StoreError::Unavailable { backend: "redis", operation: "commit", source: "it was closed".into() };
    answered.await.unwrap_or_else(|_| Err(closed()))
}

async fn write(shared: Arc<Shared>, group: Vec<Waiting>) {
    let session = shared.session.number();
    let mut call = shared.prelude.call(&COMMIT, session);
    for waiting in &group {
        waiting.commit.write(&mut call, session);
    }
    shared.stats.count(group.len() as u64, group.len() as u64);
    match shared.answer(&COMMIT, &call, "commit").await {
        Ok(mut answers) => {
            for (index, waiting) in group.into_iter().enumerate() {
                // Whoever has stopped waiting reads the task again.
                let _ = waiting.answer.send(waiting.commit.read(&mut answers, index));
            }
        }
        Err(error) => {
            let cause = describe(&error);
            for waiting in group {
                let source = cause.clone().into();
                let _ =
                    waiting.answer.send(Err(StoreError::Unavailable { backend: "redis", operation: "commit", source }));
            }
        }
    }
}

/// An error of a whole group, for each of its members: with its cause, which cannot be shared.
fn describe(error: &StoreError) -> String {
    match error {
        StoreError::Unavailable { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}

pub(super) async fn note(shared: &Shared, notes: Vec<Note>) -> Result<(), StoreError> {
    let mut call = shared.call(&NOTE);
    for note in &notes {
        call.arg(note.key.no);
        call.arg(note.progress.map(|(done, total)| format!("{done}/{total}")).unwrap_or_default());
        call.arg(note.output.len());
        for chunk in &note.output {
            call.arg(encode_output(chunk));
        }
    }
    shared.stats.count(1, 0);
    match shared.answer(&NOTE, &call, "note").await?.text(0)? {
        "ok" => Ok(()),
        _ => Err(Shared::lost("note")),
    }
}
