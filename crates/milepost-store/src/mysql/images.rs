//! The rows of tasks and plans in the form in which many of them are written at once.

use milepost_core::time::Timestamp;

use super::codec::{plan_word, task_word};
use super::sql::JsonRows;
use super::states::PlanState;
use super::writes::NewRow;

/// What every commit changes of a task's row, behind the version and the lease that must be there.
pub(super) const ADVANCE: &[(&str, &str)] = &[
    ("id", "BIGINT"),
    ("old_version", "BIGINT"),
    ("old_lease", "BIGINT"),
    ("version", "BIGINT"),
    ("done", "INT UNSIGNED"),
    ("total", "INT UNSIGNED"),
    ("stage", "VARCHAR(128)"),
    ("attempt", "INT UNSIGNED"),
    ("due_at", "BIGINT"),
    ("flags", "INT"),
    ("reason", "MEDIUMTEXT"),
    ("updated_at", "BIGINT"),
    ("clears", "TINYINT"),
];

pub(super) const SET_ADVANCE: &str = "r.version = b.version, r.done = b.done, r.total = b.total, r.stage = b.stage, \
    r.attempt = b.attempt, r.due_at = b.due_at, r.flags = b.flags, r.error_message = b.reason, \
    r.updated_at = b.updated_at, r.processed_records = IF(b.clears, NULL, r.processed_records), \
    r.total_records = IF(b.clears, NULL, r.total_records)";

/// The same, and what only some change.
pub(super) const ROW: &[(&str, &str)] = &[
    ("id", "BIGINT"),
    ("old_version", "BIGINT"),
    ("old_lease", "BIGINT"),
    ("version", "BIGINT"),
    ("done", "INT UNSIGNED"),
    ("total", "INT UNSIGNED"),
    ("stage", "VARCHAR(128)"),
    ("attempt", "INT UNSIGNED"),
    ("due_at", "BIGINT"),
    ("flags", "INT"),
    ("reason", "MEDIUMTEXT"),
    ("updated_at", "BIGINT"),
    ("clears", "TINYINT"),
    ("status", "VARCHAR(32)"),
    ("queue", "TINYINT"),
    ("lease", "BIGINT"),
    ("wake_at", "BIGINT"),
    ("started_at", "BIGINT"),
    ("ended_at", "BIGINT"),
];

pub(super) const SET_ROW: &str = "r.version = b.version, r.done = b.done, r.total = b.total, r.stage = b.stage, \
    r.attempt = b.attempt, r.due_at = b.due_at, r.flags = b.flags, r.error_message = b.reason, \
    r.updated_at = b.updated_at, r.processed_records = IF(b.clears, NULL, r.processed_records), \
    r.total_records = IF(b.clears, NULL, r.total_records), \
    r.status = b.status, r.queue = b.queue, r.lease = b.lease, r.wake_at = b.wake_at, r.started_at = b.started_at, \
    r.ended_at = b.ended_at";

pub(super) const PLAN_ROW: &[(&str, &str)] = &[
    ("id", "BIGINT"),
    ("status", "VARCHAR(32)"),
    ("version", "BIGINT"),
    ("pending", "BIGINT"),
    ("running", "BIGINT"),
    ("paused", "BIGINT"),
    ("completed", "BIGINT"),
    ("failed", "BIGINT"),
    ("cancelled", "BIGINT"),
    ("rolling_back", "BIGINT"),
    ("rolled_back", "BIGINT"),
    ("rollback_failed", "BIGINT"),
    ("slotless", "BIGINT"),
    ("ready", "BIGINT"),
    ("offers", "TINYINT"),
    ("started_at", "BIGINT"),
    ("ended_at", "BIGINT"),
    ("changed_by", "TEXT"),
    ("updated_at", "BIGINT"),
];

pub(super) fn push_row(table: &mut JsonRows, no: i64, row: &NewRow) {
    let image = &row.image;
    let mut columns = table.row();
    columns
        .number(no)
        .number(row.stored.0 as i64)
        .number(row.stored.1 as i64)
        .number(image.version as i64)
        .number(image.done)
        .number(image.total)
        .maybe_text(image.stage.as_deref())
        .number(i64::from(image.attempt))
        .maybe_number(image.due_at)
        .number(image.flags)
        .maybe_text(image.reason.as_deref())
        .number(image.updated_at)
        .number(i64::from(row.clears_progress));
    if !row.advances {
        columns
            .maybe_text(Some(task_word(image.status)))
            .maybe_number(row.queue.map(|queue| queue as i64))
            .number(row.lease as i64)
            .maybe_number(row.wake_at.map(Timestamp::as_millis))
            .maybe_number(image.started_at)
            .maybe_number(image.ended_at);
    }
}

pub(super) fn push_plan(table: &mut JsonRows, plan: &PlanState, now: Timestamp) {
    let counts = &plan.counts;
    let mut row = table.row();
    row.number(plan.no).maybe_text(Some(plan_word(plan.status))).number(plan.version as i64);
    for count in [
        counts.pending,
        counts.running,
        counts.paused,
        counts.completed,
        counts.failed,
        counts.cancelled,
        counts.rolling_back,
        counts.rolled_back,
        counts.rollback_failed,
        plan.slotless,
        plan.ready,
    ] {
        row.number(count as i64);
    }
    row.number(i64::from(plan.offers()))
        .maybe_number(plan.started_at.map(Timestamp::as_millis))
        .maybe_number(plan.ended_at.map(Timestamp::as_millis))
        .maybe_text(plan.changed_by.as_deref())
        .number(now.as_millis());
}
