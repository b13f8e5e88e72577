//! Between our types and what the tables hold, with a checksum over everything that a task is rebuilt from.

use std::sync::Arc;

use milepost_core::id::{PlanId, TaskId, Tenant};
use milepost_core::plan::{PlanDefinition, Settings, TaskDefinition};
use milepost_core::task::{By, PlanStatus, Record, Task, TaskSpec, TaskStatus};
use milepost_core::time::Timestamp;
use rusqlite::{Connection, Row};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::StoreError;
use crate::model::{Changed, TaskRef};

use super::snapshots::{SHORTEST, read_snapshot};

/// The backend said no: what it was asked for, and its own words.
pub(super) fn unavailable(operation: &'static str) -> impl Fn(rusqlite::Error) -> StoreError {
    move |error| StoreError::Unavailable { backend: "sqlite", operation, source: error.into() }
}

pub(super) fn damaged(what: impl Into<String>, detail: impl ToString) -> StoreError {
    StoreError::Damaged { what: what.into(), detail: detail.to_string() }
}

/// The events of one commit, as one row holds them.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) text: String,
    pub(super) crc: u32,
}

pub(super) fn encode_events(events: &[Record]) -> Body {
    let text = serde_json::to_string(events).expect("events are maps with string keys, which JSON can hold");
    Body { crc: crc32fast::hash(text.as_bytes()), text }
}

pub(super) fn decode_events(text: &str, what: impl Fn() -> String) -> Result<Vec<Record>, StoreError> {
    serde_json::from_str(text).map_err(|error| damaged(what(), error))
}

pub(super) fn check_body(text: &str, crc: u32, what: impl Fn() -> String) -> Result<(), StoreError> {
    if crc32fast::hash(text.as_bytes()) == crc {
        Ok(())
    } else {
        Err(damaged(what(), "its checksum does not fit its content"))
    }
}

/// What a plan has become, as a row of the log holds it. Plans of one task write two of these, so it is short.
#[derive(Serialize, Deserialize)]
struct PlanBody {
    is: PlanStatus,
    at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<By>,
}

pub(super) fn encode_plan_change(status: PlanStatus, by: Option<&By>, at: Timestamp) -> Body {
    let body = PlanBody { is: status, at: at.as_millis(), by: by.cloned() };
    let text = serde_json::to_string(&body).expect("names and numbers are JSON");
    Body { crc: crc32fast::hash(text.as_bytes()), text }
}

pub(super) fn decode_plan_change(text: &str, what: impl Fn() -> String) -> Result<Changed, StoreError> {
    let body: PlanBody = serde_json::from_str(text).map_err(|error| damaged(what(), error))?;
    Ok(Changed::Plan { status: body.is, by: body.by, at: Timestamp::from_millis(body.at) })
}

/// Where in a log to begin: behind this event, and behind this row if it is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Since {
    pub(super) sequence: u64,
    pub(super) position: i64,
}

/// The events of one commit, and the sequence of the first.
pub(super) struct LogRow {
    pub(super) sequence: u64,
    pub(super) records: Vec<Record>,
}

/// Walks a task's log back from its newest row; the rows are answered in that order, the newest first. The last of them
/// may begin before `since`.
pub(super) fn read_log(
    connection: &Connection,
    key: &TaskRef,
    newest: i64,
    since: Since,
) -> Result<Vec<LogRow>, StoreError> {
    let mut statement = connection
        .prepare_cached("SELECT task, seq, prev, crc, body FROM events WHERE pos = ?1")
        .map_err(unavailable("read events"))?;
    let mut log = Vec::new();
    let mut position = newest;
    while position != 0 && position != since.position {
        let what = || format!("event row {position} of task {}", key.id);
        let mut rows = statement.query([position]).map_err(unavailable("read events"))?;
        let Some(row) = rows.next().map_err(unavailable("read events"))? else {
            return Err(damaged(what(), "it is missing"));
        };
        let columns = || {
            let (task, seq, prev) = (row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?);
            Ok((task, seq, prev, row.get::<_, u32>(3)?, row.get_ref(4)?.as_str()?))
        };
        let (task, seq, prev, crc, body) = columns().map_err(unavailable("read events"))?;
        check_body(body, crc, what)?;
        if task != key.no || prev >= position {
            return Err(damaged(what(), "it is another task's, or out of order"));
        }
        let sequence = u64::try_from(seq).unwrap_or(0);
        log.push(LogRow { sequence, records: decode_events(body, what)? });
        if sequence <= since.sequence + 1 {
            break;
        }
        position = prev;
    }
    Ok(log)
}

/// A task rebuilt from its log, and how many events that took.
pub(super) struct Folded {
    pub(super) task: Task,
    pub(super) events: u64,
}

/// Rebuilds a task from its log: from the last snapshot on if there is one, and else from the start.
pub(super) fn fold(
    connection: &Connection,
    key: &TaskRef,
    spec: Arc<TaskSpec>,
    head: &LogHead,
) -> Result<Folded, StoreError> {
    if head.version >= SHORTEST {
        match fold_from_snapshot(connection, key, &spec, head) {
            Ok(Some(folded)) => return Ok(folded),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(task = %key.id, %error, "a snapshot is of no use; the log is read from its start");
            }
        }
    }
    fold_on(connection, key, Task::created(spec), 0, head)
}

fn fold_from_snapshot(
    connection: &Connection,
    key: &TaskRef,
    spec: &Arc<TaskSpec>,
    head: &LogHead,
) -> Result<Option<Folded>, StoreError> {
    let Some(kept) = read_snapshot(connection, key)? else { return Ok(None) };
    let invalid = |error| damaged(format!("the snapshot of task {}", key.id), error);
    let task = Task::from_image(spec.clone(), &kept.text).map_err(invalid)?;
    fold_on(connection, key, task, kept.position, head).map(Some)
}

/// What the log after `position` makes of a task.
fn fold_on(
    connection: &Connection,
    key: &TaskRef,
    mut task: Task,
    position: i64,
    head: &LogHead,
) -> Result<Folded, StoreError> {
    let first = task.version();
    // A log of one event is the creation, and needs no reading.
    if head.version > first {
        let mut log = read_log(connection, key, head.last_event, Since { sequence: first, position })?;
        while let Some(LogRow { sequence, records }) = log.pop() {
            let new = usize::try_from((first + 1).saturating_sub(sequence)).unwrap_or(usize::MAX);
            for (record, sequence) in records.iter().zip(sequence..).skip(new) {
                if sequence != task.version() + 1 {
                    return Err(damaged(
                        format!("the log of task {}", key.id),
                        format!("event {sequence} follows event {}", task.version()),
                    ));
                }
                task = task.apply(record).map_err(|error| damaged(format!("the log of task {}", key.id), error))?;
            }
        }
    }
    if task.version() != head.version || task.status() != head.status {
        let detail = format!(
            "it ends at version {} {}, and the task is at {} {}",
            task.version(),
            task.status(),
            head.version,
            head.status
        );
        return Err(damaged(format!("the log of task {}", key.id), detail));
    }
    Ok(Folded { events: task.version() - first, task })
}

/// What a task's row says of its log.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogHead {
    pub(super) version: u64,
    pub(super) last_event: i64,
    pub(super) status: TaskStatus,
}

impl LogHead {
    /// Version, last event and status: columns 8 to 10 of the statement that reads a task.
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let (version, last_event) = (row.get::<_, i64>(8)?.unsigned_abs(), row.get(9)?);
        Ok(Self { version, last_event, status: task_status(row, 10)? })
    }
}

/// What a plan's tasks share, read once.
#[derive(Debug, Clone)]
pub(super) struct SharedPlan {
    pub(super) definition: Arc<PlanDefinition>,
    pub(super) settings: Arc<Settings>,
}

impl SharedPlan {
    pub(super) fn new(definition: PlanDefinition) -> Self {
        Self { settings: Arc::new(definition.settings.clone()), definition: Arc::new(definition) }
    }

    pub(super) fn id(&self) -> &PlanId {
        &self.definition.id
    }
}

/// The part of a task's definition that columns do not hold.
#[derive(Serialize, Deserialize)]
struct ConfigBody {
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    input: serde_json::Value,
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    matrix: serde_json::Map<String, serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stages: Option<milepost_core::plan::StageList>,
}

pub(super) fn encode_config(task: &TaskDefinition) -> (Option<String>, u32) {
    if task.input.is_null() && task.matrix.is_empty() && task.stages.is_none() {
        return (None, 0);
    }
    let body = ConfigBody { input: task.input.clone(), matrix: task.matrix.clone(), stages: task.stages.clone() };
    let text = serde_json::to_string(&body).expect("a task's definition came from JSON or YAML");
    let crc = crc32fast::hash(text.as_bytes());
    (Some(text), crc)
}

/// A row of `task_configs`: no, id, plan, tenant, created_at, body, crc, in this order.
#[derive(Debug)]
pub(super) struct ConfigRow {
    pub(super) key: TaskRef,
    pub(super) plan: i64,
    pub(super) tenant: Option<Tenant>,
    pub(super) created_at: Timestamp,
    body: Option<String>,
    crc: u32,
}

impl ConfigRow {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            key: TaskRef { no: row.get(0)?, id: name(row, 1)? },
            plan: row.get(2)?,
            tenant: match row.get::<_, Option<String>>(3)? {
                None => None,
                Some(_) => Some(tenant(row, 3)?),
            },
            created_at: Timestamp::from_millis(row.get(4)?),
            body: row.get(5)?,
            crc: row.get(6)?,
        })
    }

    pub(super) fn definition(self, rank: i64) -> Result<TaskDefinition, StoreError> {
        let what = || format!("the definition of task {}", self.key.id);
        let body = match &self.body {
            None => ConfigBody { input: serde_json::Value::Null, matrix: serde_json::Map::new(), stages: None },
            Some(text) if crc32fast::hash(text.as_bytes()) != self.crc => {
                return Err(damaged(what(), "its checksum does not fit its content"));
            }
            Some(text) => serde_json::from_str(text).map_err(|error| damaged(what(), error))?,
        };
        Ok(TaskDefinition {
            id: self.key.id,
            tenant: self.tenant,
            priority: i32::try_from(-rank).unwrap_or(0),
            input: body.input,
            matrix: body.matrix,
            stages: body.stages,
        })
    }

    pub(super) fn spec(self, plan: &SharedPlan, rank: i64) -> Result<Arc<TaskSpec>, StoreError> {
        let created_at = self.created_at;
        let definition = self.definition(rank)?;
        Ok(Arc::new(TaskSpec::new(&plan.definition, plan.settings.clone(), definition, created_at)))
    }
}

/// Names in the file were checked when they came in; one that fails now was changed by another hand.
pub(super) fn name(row: &Row<'_>, index: usize) -> rusqlite::Result<TaskId> {
    let text: String = row.get(index)?;
    TaskId::parse(text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(index, rusqlite::types::Type::Text, error.into()))
}

pub(super) fn plan_id(row: &Row<'_>, index: usize) -> rusqlite::Result<PlanId> {
    let text: String = row.get(index)?;
    PlanId::parse(text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(index, rusqlite::types::Type::Text, error.into()))
}

pub(super) fn tenant(row: &Row<'_>, index: usize) -> rusqlite::Result<Tenant> {
    let text: String = row.get(index)?;
    Tenant::parse(text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(index, rusqlite::types::Type::Text, error.into()))
}

pub(super) fn task_status(row: &Row<'_>, index: usize) -> rusqlite::Result<TaskStatus> {
    let code: i64 = row.get(index)?;
    TaskStatus::from_code(code).ok_or(rusqlite::Error::IntegralValueOutOfRange(index, code))
}

pub(super) fn plan_status(row: &Row<'_>, index: usize) -> rusqlite::Result<PlanStatus> {
    let code: i64 = row.get(index)?;
    PlanStatus::from_code(code).ok_or(rusqlite::Error::IntegralValueOutOfRange(index, code))
}

pub(super) fn time(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(index)?.map(Timestamp::from_millis))
}

/// Tells the same plan from another of the same name.
pub(super) fn digest(definition: &str, tasks: &[TaskDefinition]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(definition);
    let mut text = Vec::new();
    for task in tasks {
        text.clear();
        serde_json::to_writer(&mut text, task).expect("a task's definition came from JSON or YAML");
        hash.update(&text);
    }
    hash.finalize().into()
}
