//! Between our types and what the tables hold.

use milepost_core::id::{PlanId, TaskId, Tenant};
use milepost_core::task::{PlanStatus, TaskStatus};
use milepost_core::time::Timestamp;
use tokio_postgres::Row;

use crate::codec::{Config, LogHead, LogRow, damaged};
use crate::error::StoreError;
use crate::model::TaskRef;

pub(super) fn time(row: &Row, column: &str) -> Option<Timestamp> {
    row.get::<_, Option<i64>>(column).map(Timestamp::from_millis)
}

/// Names in the store were checked when they came in; one that fails now was changed by another hand.
pub(super) fn task_id(text: &str) -> Result<TaskId, StoreError> {
    TaskId::parse(text).map_err(|error| damaged("a task's id", error))
}

pub(super) fn plan_id(text: &str) -> Result<PlanId, StoreError> {
    PlanId::parse(text).map_err(|error| damaged("a plan's id", error))
}

pub(super) fn tenant(text: Option<&str>) -> Result<Option<Tenant>, StoreError> {
    text.map(Tenant::parse).transpose().map_err(|error| damaged("a tenant", error))
}

pub(super) fn task_status(code: i16) -> Result<TaskStatus, StoreError> {
    TaskStatus::from_code(code.into()).ok_or_else(|| damaged("a task's status", code))
}

pub(super) fn plan_status(code: i16) -> Result<PlanStatus, StoreError> {
    PlanStatus::from_code(code.into()).ok_or_else(|| damaged("a plan's status", code))
}

pub(super) fn crc(row: &Row, column: &str) -> u32 {
    // One that does not fit is no checksum of anything.
    u32::try_from(row.get::<_, i64>(column)).unwrap_or(0)
}

/// A task's definition, and where its log ends: no, id, plan, tenant, created_at, body, crc, version, last_event, status.
pub(super) fn config(row: &Row) -> Result<Config, StoreError> {
    Ok(Config {
        key: TaskRef { no: row.get("no"), id: task_id(row.get("id"))? },
        plan: row.get("plan"),
        tenant: tenant(row.get("tenant"))?,
        created_at: Timestamp::from_millis(row.get("created_at")),
        body: row.get("body"),
        crc: crc(row, "crc"),
    })
}

/// The only row of a log of one event; none of a longer one, which is read by itself.
pub(super) fn creation(row: &Row, key: &TaskRef) -> Option<LogRow> {
    let text: &str = row.get::<_, Option<&str>>("creation")?;
    Some(LogRow::read(1, text, crc(row, "creation_crc"), || format!("the creation of task {}", key.id)))
}

pub(super) fn head(row: &Row) -> Result<LogHead, StoreError> {
    let (version, last_event) = (row.get::<_, i64>("version").unsigned_abs(), row.get("last_event"));
    Ok(LogHead { version, last_event, status: task_status(row.get("status"))? })
}
