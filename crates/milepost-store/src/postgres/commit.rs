//! Commits of many tasks in one round trip: the events that happened to each and the row they leave behind, or nothing.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use milepost_core::id::PlanId;
use milepost_core::plan::{PlanCommand, TaskCounts, next_plan_status};
use milepost_core::task::{Event, TaskStatus, ends_progress, lets_go};
use milepost_core::time::Timestamp;
use tokio::sync::oneshot;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::books::{Book, BookChange, book_changes};
use crate::codec::{Body, damaged, encode_events};
use crate::error::StoreError;
use crate::model::{Commit, Committed, Holder, LeaseChange, LogChunk, Position, TaskRef, Wake};
use crate::row::RowImage;
use crate::snapshot::Snapshot;

use super::books::{BookColumns, names};
use super::codec::plan_status;
use super::columns::{EventColumns, Rules, SnapshotColumns, TaskColumns, call, number};
use super::connect::session_has_ended;
use super::store::Inner;

/// Commits in one round trip: more add latency and no speed.
pub(super) const MOST: usize = 1024;
/// Round trips under way at once. A second would wait on the server for the first to be done, with whatever few commits
/// there were when it left; what waits here instead goes all together.
pub(super) const LANES: usize = 1;

/// A commit in the form the table holds, encoded by its caller, and where its answer goes.
pub(super) struct Waiting {
    key: TaskRef,
    plan_id: PlanId,
    holder: Holder,
    expected: u64,
    body: Option<Body>,
    event: EventColumns,
    /// What the stage reported of itself is of no interest any more.
    clears: bool,
    snapshot: Option<Snapshot>,
    /// None once it is on its way.
    row: Option<RowImage>,
    after: After,
    /// A person set it going by itself.
    lets_go: bool,
    command: Option<PlanCommand>,
    output: Vec<LogChunk>,
    books: BookChange,
    reply: oneshot::Sender<Result<Committed, StoreError>>,
}

/// Where the task goes, if it is still active; the numbers are the function's.
#[derive(Debug, Clone, Copy)]
enum After {
    AsItWas,
    Asleep(Timestamp),
    Recovery,
    ToBeUndone(Timestamp),
}

impl After {
    fn of(commit: &Commit) -> Self {
        let undo = || commit.events.iter().any(|record| matches!(record.event(), Event::RollbackStarted { .. }));
        match (commit.lease, commit.holder) {
            (LeaseChange::Release(Wake::At(at)), _) => After::Asleep(at),
            (LeaseChange::Release(Wake::Recovery), _) => After::Recovery,
            (LeaseChange::Keep, Holder::Operator) if commit.task.status() == TaskStatus::RollingBack && undo() => {
                After::ToBeUndone(commit.task.updated_at())
            }
            (LeaseChange::Keep, Holder::Operator | Holder::Lease(_)) => After::AsItWas,
        }
    }

    fn columns(self) -> (i16, Option<i64>) {
        match self {
            After::AsItWas => (0, None),
            After::Asleep(at) => (1, Some(at.as_millis())),
            After::Recovery => (2, None),
            After::ToBeUndone(at) => (3, Some(at.as_millis())),
        }
    }
}

impl Waiting {
    pub(super) fn new(commit: Commit, reply: oneshot::Sender<Result<Committed, StoreError>>) -> Self {
        Self {
            plan_id: commit.task.spec().plan.clone(),
            holder: commit.holder,
            expected: commit.expected,
            body: (!commit.events.is_empty()).then(|| encode_events(&commit.events)),
            event: EventColumns::of(&commit.events),
            clears: ends_progress(commit.task.status(), &commit.events),
            snapshot: Snapshot::due(&commit.task, commit.expected, &commit.events),
            row: Some(RowImage::of(&commit.task)),
            after: After::of(&commit),
            lets_go: commit.holder == Holder::Operator && lets_go(&commit.events),
            books: book_changes(&commit.task, &commit.events),
            command: commit.plan,
            output: commit.output,
            key: commit.key,
            reply,
        }
    }

    /// For a caller that is gone there is nobody to tell.
    fn answer(self, answer: Result<Committed, StoreError>) {
        let _ = self.reply.send(answer);
    }

    fn fenced(&self, found: i64) -> StoreError {
        let expected = match self.holder {
            Holder::Lease(lease) => lease,
            Holder::Operator => 0,
        };
        StoreError::Fenced { task: self.key.id.clone(), expected, found: found.unsigned_abs() }
    }
}

/// Writes what waits. A commit that asks something of its plan goes alone, because what the next one may do depends on the
/// answer; and so do two of one task, and two that name the same in the books.
pub(super) async fn write(inner: Arc<Inner>, group: Vec<Waiting>) {
    let mut waiting = VecDeque::from(group);
    while let Some(first) = waiting.pop_front() {
        let mut batch = vec![first];
        if batch[0].command.is_none() {
            let mut tasks = HashSet::from([batch[0].key.no]);
            let mut named: HashSet<(Book, String)> = names(&batch[0].books).collect();
            for commit in std::mem::take(&mut waiting) {
                let is_named = names(&commit.books).any(|name| named.contains(&name));
                let joins = tasks.insert(commit.key.no) && commit.command.is_none() && !is_named;
                if joins {
                    named.extend(names(&commit.books));
                    batch.push(commit);
                } else {
                    waiting.push_back(commit);
                }
            }
        }
        write_batch(&inner, batch).await;
    }
}

async fn write_batch(inner: &Inner, mut batch: Vec<Waiting>) {
    inner.stats.count(batch.len(), batch.len());
    match send(inner, &mut batch).await {
        Ok((row, books)) => give_answers(&row, &books, batch),
        // What the session had is somebody else's by now.
        Err(error) if session_has_ended(&error) => {
            for commit in batch {
                let fenced = commit.fenced(0);
                commit.answer(Err(fenced));
            }
        }
        Err(error) => {
            let error = Arc::new(error);
            for commit in batch {
                commit.answer(Err(super::connect::unavailable("commit")(error.clone())));
            }
        }
    }
}

async fn send(inner: &Inner, batch: &mut [Waiting]) -> Result<(Row, BookColumns), StoreError> {
    let (mut numbers, mut holders, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    let (mut afters, mut wakes, mut clears) = (Vec::new(), Vec::new(), Vec::new());
    let (mut tasks, mut snapshots, mut output) =
        (TaskColumns::default(), SnapshotColumns::default(), OutputColumns::default());
    let mut books = BookColumns::default();
    let asked = batch[0].command.map(Rules::of);
    for (commit, ord) in batch.iter_mut().zip(1..) {
        numbers.push(commit.key.no);
        holders.push(match commit.holder {
            Holder::Lease(lease) => i64::try_from(lease).unwrap_or(0),
            Holder::Operator if commit.lets_go => -2,
            Holder::Operator => -1,
        });
        expected.push(commit.expected as i64);
        let (after, wake) = commit.after.columns();
        afters.push(after);
        wakes.push(wake);
        clears.push(commit.clears);
        let row = commit.row.take().expect("a commit is sent once");
        tasks.push(row, commit.body.take(), commit.event.clone());
        if let Some(snapshot) = commit.snapshot.take() {
            snapshots.push(ord, snapshot);
        }
        output.extend(ord, std::mem::take(&mut commit.output));
        books.extend(ord, std::mem::take(&mut commit.books));
    }
    let own = inner.session.number();
    let mut parameters: Vec<(&(dyn tokio_postgres::types::ToSql + Sync), Type)> = vec![
        (&own, Type::INT8),
        (&numbers, Type::INT8_ARRAY),
        (&holders, Type::INT8_ARRAY),
        (&expected, Type::INT8_ARRAY),
        (&afters, Type::INT2_ARRAY),
        (&wakes, Type::INT8_ARRAY),
    ];
    parameters.extend(tasks.image());
    parameters.push((&clears, Type::BOOL_ARRAY));
    parameters.extend(tasks.events());
    parameters.push((&asked, Type::INT2_ARRAY));
    parameters.extend(inner.rules.settling());
    parameters.extend(output.parameters());
    parameters.extend(snapshots.parameters());
    parameters.extend(books.parameters());
    let sql = call("commit_tasks", &parameters);
    let row = inner.server.write("commit", &sql, &parameters).await?.remove(0);
    drop(parameters);
    Ok((row, books))
}

fn give_answers(row: &Row, books: &BookColumns, batch: Vec<Waiting>) {
    let verdicts: Vec<i16> = row.get("verdicts");
    let versions: Vec<Option<i64>> = row.get("found_versions");
    let leases: Vec<Option<i64>> = row.get("found_leases");
    let positions: Vec<Option<i64>> = row.get("positions");
    let plan_statuses: Vec<Option<i16>> = row.get("plan_statuses");
    let changed: Option<Vec<i64>> = row.get("change_ords");
    let statuses: Option<Vec<i16>> = row.get("change_statuses");
    let changed: std::collections::HashMap<i64, i16> =
        changed.unwrap_or_default().into_iter().zip(statuses.unwrap_or_default()).collect();
    for (at, commit) in batch.into_iter().enumerate() {
        let found = versions[at].unwrap_or(0).unsigned_abs();
        let answer = match verdicts[at] {
            0 => {
                let plan = changed.get(&(at as i64 + 1)).map(|code| plan_status(*code)).transpose();
                plan.map(|plan| Committed { position: Position(positions[at].unwrap_or(0)), plan })
            }
            1 => Err(StoreError::NotFound { what: "task", id: commit.key.id.to_string() }),
            2 => Err(StoreError::Conflict { task: commit.key.id.clone(), expected: commit.expected, found }),
            3 => Err(commit.fenced(leases[at].unwrap_or(0))),
            4 => Err(refusal(&commit, plan_statuses[at])),
            _ => Err(books.refusal(at as i64 + 1, row).unwrap_or_else(|| damaged("a verdict", "nothing explains it"))),
        };
        commit.answer(answer);
    }
}

/// What the plan says to what was asked of it.
fn refusal(commit: &Waiting, status: Option<i16>) -> StoreError {
    let status = status.map_or(Err(damaged("a plan's status", "it is missing")), plan_status);
    let command = commit.command.expect("only a commit with a command is refused by its plan");
    let said = status.map(|status| next_plan_status(commit.plan_id.as_str(), status, &TaskCounts::default(), command));
    match said {
        Err(error) => error,
        Ok(Err(rejection)) => rejection.into(),
        Ok(Ok(_)) => damaged("a plan's status", "it refused what it allows"),
    }
}

/// Captured output, each chunk with the place or the number of the task it belongs to.
#[derive(Debug, Default)]
pub(super) struct OutputColumns {
    of: Vec<i64>,
    stages: Vec<String>,
    attempts: Vec<i32>,
    ats: Vec<i64>,
    bytes: Vec<Vec<u8>>,
}

impl OutputColumns {
    pub(super) fn extend(&mut self, of: i64, chunks: Vec<LogChunk>) {
        for chunk in chunks {
            self.of.push(of);
            self.stages.push(chunk.stage.to_string());
            self.attempts.push(number(chunk.attempt));
            self.ats.push(chunk.at.as_millis());
            self.bytes.push(chunk.bytes);
        }
    }

    pub(super) fn parameters(&self) -> [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 5] {
        [
            (&self.of, Type::INT8_ARRAY),
            (&self.stages, Type::TEXT_ARRAY),
            (&self.attempts, Type::INT4_ARRAY),
            (&self.ats, Type::INT8_ARRAY),
            (&self.bytes, Type::BYTEA_ARRAY),
        ]
    }
}
