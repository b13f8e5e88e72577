//! Between our types and what the tables hold.

use std::ops::Deref;
use std::sync::Arc;

use milepost_core::id::{PlanId, TaskId, Tenant};
use milepost_core::plan::{PlanDefinition, TaskDefinition};
use milepost_core::task::{PlanStatus, Task, TaskSpec, TaskStatus};
use milepost_core::time::Timestamp;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use crate::codec::{Config, Folded, LogHead, check_body, damaged, digest, fold_log, fold_rows};
use crate::error::StoreError;
use crate::model::TaskRef;
use crate::snapshot::SHORTEST;

use super::log::{Since, read_log};
use super::snapshots::read_snapshot;

/// The backend said no: what it was asked for, and its own words.
pub(super) fn unavailable(operation: &'static str) -> impl Fn(rusqlite::Error) -> StoreError {
    move |error| StoreError::Unavailable { backend: "sqlite", operation, source: error.into() }
}

/// A plan's digest as its row has it, with the checksum of its definition behind it. Rows of older versions have none.
pub(super) struct PlanDigest(Vec<u8>);

impl PlanDigest {
    pub(super) fn of(definition: &str, tasks: &[TaskDefinition]) -> Self {
        Self([&digest(definition, tasks)[..], &crc32fast::hash(definition.as_bytes()).to_be_bytes()].concat())
    }

    /// What the row has, of this version or an older one, is of the same plan.
    pub(super) fn is_of(&self, stored: &[u8]) -> bool {
        stored.get(..32) == self.0.get(..32)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A plan's definition, if it is what was written: the commands in it would be run as they are.
pub(super) fn decode_definition(no: i64, text: &str, digest: &[u8]) -> Result<PlanDefinition, StoreError> {
    let what = || format!("the definition of plan {no}");
    if let Some(crc) = digest.get(32..).and_then(|crc| crc.try_into().ok()) {
        check_body(text, u32::from_be_bytes(crc), what)?;
    }
    serde_json::from_str(text).map_err(|error| damaged(what(), error))
}

/// Rebuilds a task from its log: from the last snapshot on if there is one, and else from the start.
pub(super) fn fold(
    connection: &Connection,
    key: &TaskRef,
    spec: Arc<TaskSpec>,
    head: &Head,
) -> Result<Folded, StoreError> {
    if head.is_new && spec.damage.is_none() {
        return Ok(Folded { task: Task::created(spec), events: 0 });
    }
    if head.version >= SHORTEST {
        match fold_from_snapshot(connection, key, &spec, head) {
            Ok(Some(folded)) if !folded.is_damaged() => return Ok(folded),
            Ok(Some(_)) => {
                tracing::warn!(task = %key.id, "a snapshot does not lead to the task; the log is read from its start");
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(task = %key.id, %error, "a snapshot is of no use; the log is read from its start");
            }
        }
    }
    let mut log = read_log(connection, key, head.last_event, Since { sequence: 0, position: 0 })?;
    log.reverse();
    Ok(fold_log(key, spec, log, &head.log))
}

fn fold_from_snapshot(
    connection: &Connection,
    key: &TaskRef,
    spec: &Arc<TaskSpec>,
    head: &Head,
) -> Result<Option<Folded>, StoreError> {
    let Some(kept) = read_snapshot(connection, key)? else { return Ok(None) };
    let invalid = |error| damaged(format!("the snapshot of task {}", key.id), error);
    let task = Task::from_image(spec.clone(), &kept.text).map_err(invalid)?;
    let since = Since { sequence: task.version(), position: kept.position };
    let log = read_log(connection, key, head.last_event, since)?;
    Ok(Some(fold_rows(key, task, log.into_iter().rev(), &head.log)))
}

/// A task by its number: its definition in the columns of `read_config`, where its log ends in those of `read_head`, and its
/// place. If nothing has happened to it, its creation comes with it.
macro_rules! task {
    ($creation:literal, $events:literal) => {
        concat!(
            "SELECT c.no, c.id, c.plan, c.tenant, c.created_at, c.body, c.crc, r.version, r.last_event, r.status, ",
            $creation,
            ", r.rank, r.lease, r.wake_at FROM task_configs c JOIN task_runtimes r ON r.no = c.no ",
            $events,
            "WHERE c.no = ?1"
        )
    };
}

const TASK: &str = task!(
    "e.crc, e.body",
    "LEFT JOIN events e ON r.version = 1 AND e.pos = r.last_event AND e.task = c.no AND e.seq = 1 "
);
const TASK_WITHOUT_LOG: &str = task!("NULL, NULL", "");

/// Where the log itself cannot be read, the task is answered without it: its fold then finds what is wrong.
pub(super) fn query_task<T>(
    connection: &Connection,
    no: i64,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let query = |sql| connection.prepare_cached(sql)?.query_row([no], &read);
    query(TASK).or_else(|_| query(TASK_WITHOUT_LOG))
}

/// Where a task's log ends.
pub(super) struct Head {
    pub(super) log: LogHead,
    /// Nothing has happened to it since its creation, whose row is whole: it need not be read again.
    is_new: bool,
}

impl Deref for Head {
    type Target = LogHead;

    fn deref(&self) -> &LogHead {
        &self.log
    }
}

/// Version, last event and status, and the creation's checksum and body if that is all: columns 7 to 11 of `query_task`.
pub(super) fn read_head(row: &Row<'_>) -> rusqlite::Result<Head> {
    let (version, last_event) = (row.get::<_, i64>(7)?.unsigned_abs(), row.get(8)?);
    let log = LogHead { version, last_event, status: task_status(row, 9)? };
    let is_whole = match (row.get_ref(10)?, row.get_ref(11)?) {
        (ValueRef::Integer(crc), ValueRef::Text(body)) => i64::from(crc32fast::hash(body)) == crc,
        _ => false,
    };
    Ok(Head { is_new: is_whole && log.status == TaskStatus::Pending, log })
}

/// A task's definition: no, id, plan, tenant, created_at, body and crc of `task_configs`, in this order.
pub(super) fn read_config(row: &Row<'_>) -> rusqlite::Result<Config> {
    Ok(Config {
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
