//! Between our types and what the keys hold.

use std::sync::Arc;

use milepost_core::id::TaskId;
use milepost_core::task::{Checkpoint, Event, Record, Task, TaskSpec, TaskStatus, ends_progress};
use milepost_core::time::Timestamp;
use redis::Cmd;
use serde::{Deserialize, Serialize};

use crate::books::book_changes;
use crate::codec::{Config, Folded, LogHead, LogRow, SharedPlan, check_body, damaged, encode_events, fold_rows};
use crate::error::StoreError;
use crate::model::{LogChunk, TaskRef};
use crate::row::RowImage;
use crate::snapshot::Snapshot;

use super::answer::Answer;
use super::books::Lines;

/// What lists show of a task, in one field of its hash.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Image {
    pub(super) done: u32,
    pub(super) total: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stage: Option<String>,
    #[serde(default)]
    pub(super) attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) due_at: Option<i64>,
    #[serde(default)]
    pub(super) flags: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) started_at: Option<i64>,
    pub(super) updated_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ended_at: Option<i64>,
}

impl Image {
    pub(super) fn of(task: &Task) -> Self {
        let row = RowImage::of(task);
        Self {
            done: u32::try_from(row.done).unwrap_or(u32::MAX),
            total: u32::try_from(row.total).unwrap_or(u32::MAX),
            stage: row.stage,
            attempt: row.attempt,
            due_at: row.due_at,
            flags: row.flags,
            reason: row.reason,
            started_at: row.started_at,
            updated_at: row.updated_at,
            ended_at: row.ended_at,
        }
    }

    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).expect("numbers and names are JSON")
    }
}

/// What becomes of a task, in the form that scripts read: `read_change` in `tasks.lua`.
#[derive(Debug)]
pub(super) struct Change {
    status: TaskStatus,
    version: u64,
    pub(super) at: Timestamp,
    row: String,
    image: String,
    clears_progress: bool,
    checkpoint: String,
    node: String,
    pause_requested: bool,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    awaits_message: bool,
    snapshot: String,
    output: Vec<Vec<u8>>,
    books: Lines,
}

impl Change {
    pub(super) fn new(task: &Task, before: u64, events: &[Record], output: &[LogChunk]) -> Self {
        Self::with_snapshot(task, before, events, output, Snapshot::due(task, before, events))
    }

    fn with_snapshot(
        task: &Task,
        before: u64,
        events: &[Record],
        output: &[LogChunk],
        snapshot: Option<Snapshot>,
    ) -> Self {
        Self {
            status: task.status(),
            version: task.version(),
            at: task.updated_at(),
            row: encode_row(before + 1, events),
            image: Image::of(task).text(),
            clears_progress: ends_progress(task.status(), events),
            checkpoint: checkpoint(task),
            node: task.node().map(|node| node.to_string()).unwrap_or_default(),
            pause_requested: task.pause_requested().is_some(),
            started_at: task.started_at(),
            ended_at: task.ended_at(),
            awaits_message: task.awaits_message(),
            snapshot: snapshot.map(|kept| encode_snapshot(&kept)).unwrap_or_default(),
            output: output.iter().map(encode_output).collect(),
            books: Lines::of(&book_changes(task, events)),
        }
    }

    /// A claim, for which so many events were read, writes the checkpoint only if that is what it has changed.
    pub(super) fn of_claim(task: &Task, before: u64, events: &[Record], read: u64) -> Self {
        let discards = events.iter().any(|record| matches!(record.event(), Event::CheckpointDiscarded { .. }));
        let snapshot = Snapshot::due_at_claim(task, before, events, read);
        let change = Self::with_snapshot(task, before, events, &[], snapshot);
        let ends = task.status().is_ended();
        Self { checkpoint: if discards || ends { change.checkpoint } else { String::new() }, ..change }
    }

    /// For a task that stays what it is, under the lease that it has. It means nothing for the books.
    pub(super) fn write_stage(&self, call: &mut Cmd, id: &TaskId, lease: u64) {
        call.arg(u8::from(self.clears_progress)).arg(format!("{} {lease}", self.version)).arg(id.as_str());
        call.arg(self.version).arg(&self.row).arg(&self.image).arg(&self.checkpoint).arg(&self.node);
        self.write_rest(call);
    }

    pub(super) fn write(&self, call: &mut Cmd) {
        call.arg(self.status.code()).arg(self.version).arg(self.at.as_millis()).arg(&self.row).arg(&self.image);
        call.arg(u8::from(self.clears_progress)).arg(&self.checkpoint).arg(&self.node);
        call.arg(u8::from(self.pause_requested)).arg(shown(self.started_at)).arg(shown(self.ended_at));
        call.arg(u8::from(self.awaits_message));
        self.write_rest(call);
        self.books.write(call);
    }

    fn write_rest(&self, call: &mut Cmd) {
        call.arg(&self.snapshot).arg(self.output.len());
        for chunk in &self.output {
            call.arg(chunk);
        }
    }
}

/// A time for scripts; nothing when there is none.
pub(super) fn time(at: Option<Timestamp>) -> String {
    at.map(|at| at.as_millis().to_string()).unwrap_or_default()
}

/// A time as the outside reads it; nothing when there is none.
pub(super) fn shown(at: Option<Timestamp>) -> String {
    at.map(|at| at.to_string()).unwrap_or_default()
}

/// Of a task with more stages than this the checkpoint is written now and then while it runs: it holds them all.
const MANY: usize = 256;
const NOW_AND_THEN: usize = 64;

/// The checkpoint as the outside reads it; `none` when there is none any more, nothing when it stays as it is.
fn checkpoint(task: &Task) -> String {
    let done = task.done().len();
    if done > MANY && task.status().is_active() && !done.is_multiple_of(NOW_AND_THEN) {
        return String::new();
    }
    let text = |checkpoint| serde_json::to_string(&checkpoint).expect("names, numbers and outputs are JSON");
    Checkpoint::of(task).map_or_else(|| "none".to_owned(), text)
}

/// The events of one commit: the sequence of the first, a checksum, and the events. Nothing for none.
pub(super) fn encode_row(sequence: u64, events: &[Record]) -> String {
    if events.is_empty() {
        return String::new();
    }
    let body = encode_events(events);
    format!("{sequence} {} {}", body.crc, body.text)
}

/// One without a sequence of its own comes right behind the row before it, which ends before `next`.
pub(super) fn decode_row(row: &[u8], next: u64, key: &TaskRef) -> LogRow {
    let text = String::from_utf8_lossy(row);
    let what = || format!("an event row of task {}", key.id);
    let mut parts = text.splitn(3, ' ');
    let (Some(sequence), Some(crc), Some(body)) = (parts.next(), parts.next(), parts.next()) else {
        return LogRow::lost(next, &damaged(what(), "it is cut off"));
    };
    match (sequence.parse(), crc.parse()) {
        (Ok(sequence), Ok(crc)) => LogRow::read(sequence, body, crc, what),
        _ => LogRow::lost(next, &damaged(what(), "it does not begin with its sequence and checksum")),
    }
}

/// Rows in order, of which the first is expected to begin with event `next`.
pub(super) fn decode_rows(rows: &Answer, mut next: u64, key: &TaskRef) -> Result<Vec<LogRow>, StoreError> {
    let mut log = Vec::with_capacity(rows.len());
    for index in 0..rows.len() {
        let row = decode_row(rows.bytes(index)?, next, key);
        next = row.sequence + (row.records.len() as u64).max(1);
        log.push(row);
    }
    Ok(log)
}

pub(super) fn encode_snapshot(snapshot: &Snapshot) -> String {
    format!("{} {}", snapshot.crc, snapshot.text)
}

fn decode_snapshot(spec: &Arc<TaskSpec>, text: &str, key: &TaskRef) -> Result<Task, StoreError> {
    let what = || format!("the snapshot of task {}", key.id);
    let Some((crc, body)) = text.split_once(' ') else { return Err(damaged(what(), "it is cut off")) };
    let crc = crc.parse().map_err(|_| damaged(what(), "it does not begin with its checksum"))?;
    check_body(body, crc, what)?;
    Task::from_image(spec.clone(), body).map_err(|error| damaged(what(), error))
}

#[derive(Serialize, Deserialize)]
struct OutputHead {
    stage: milepost_core::id::StageName,
    attempt: u32,
    at: i64,
}

/// A line that says where it comes from, and the bytes.
pub(super) fn encode_output(chunk: &LogChunk) -> Vec<u8> {
    let head = OutputHead { stage: chunk.stage.clone(), attempt: chunk.attempt, at: chunk.at.as_millis() };
    let mut bytes = serde_json::to_vec(&head).expect("names and numbers are JSON");
    bytes.push(b'\n');
    bytes.extend_from_slice(&chunk.bytes);
    bytes
}

pub(super) fn decode_output(bytes: &[u8]) -> Result<LogChunk, StoreError> {
    let broken = |detail: String| damaged("a piece of output", detail);
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(|| broken("it has no head".to_owned()))?;
    let head: OutputHead = serde_json::from_slice(&bytes[..end]).map_err(|error| broken(error.to_string()))?;
    let (stage, attempt, at) = (head.stage, head.attempt, Timestamp::from_millis(head.at));
    Ok(LogChunk { stage, attempt, at, bytes: bytes[end + 1..].to_vec() })
}

/// What `describe.lua` tells of a task.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) key: TaskRef,
    pub(super) plan: i64,
    pub(super) config: Config,
    pub(super) rank: i64,
    pub(super) head: LogHead,
    pub(super) lease: u64,
    pub(super) wake: String,
    pub(super) progress: Option<(u64, u64)>,
    pub(super) image: String,
    pub(super) digest: String,
    snapshot: String,
    rows: Answer,
}

impl Described {
    pub(super) fn read(mut answer: Answer) -> Result<Self, StoreError> {
        let key = TaskRef { no: answer.number(0)?, id: answer.task_id(1)? };
        let plan = answer.number(2)?;
        let body = Some(answer.text(5)?).filter(|body| !body.is_empty()).map(str::to_owned);
        let crc = u32::try_from(answer.number(6)?).unwrap_or(0);
        let (tenant, created_at) = (answer.tenant(3)?, answer.time(4)?);
        let status = TaskStatus::from_code(answer.number(8)?)
            .ok_or_else(|| damaged(format!("task {}", key.id), "there is no such status"))?;
        Ok(Self {
            config: Config { key: key.clone(), plan, tenant, created_at, body, crc },
            key,
            plan,
            rank: answer.number(7)?,
            head: LogHead { version: answer.unsigned(9)?, last_event: 0, status },
            lease: answer.unsigned(10)?,
            wake: answer.text(11)?.to_owned(),
            progress: decode_progress(answer.text(12)?),
            image: answer.text(13)?.to_owned(),
            digest: answer.text(14)?.to_owned(),
            snapshot: answer.text(15)?.to_owned(),
            rows: answer.list(16)?,
        })
    }

    pub(super) fn has_snapshot(&self) -> bool {
        !self.snapshot.is_empty()
    }

    /// The task that its log makes, from the snapshot on if there is one.
    pub(super) fn fold(self, plan: &SharedPlan) -> Result<Folded, StoreError> {
        let Self { key, config, rank, head, snapshot, rows, .. } = self;
        let spec = config.spec(plan, rank);
        let task = if snapshot.is_empty() { Task::created(spec) } else { decode_snapshot(&spec, &snapshot, &key)? };
        let rows = decode_rows(&rows, task.version() + 1, &key)?;
        Ok(fold_rows(&key, task, rows, &head))
    }
}

pub(super) fn decode_progress(text: &str) -> Option<(u64, u64)> {
    let (done, total) = text.split_once('/')?;
    Some((done.parse().ok()?, total.parse().ok()?))
}
