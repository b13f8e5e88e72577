//! What a transaction has to write, until it is sent.

use std::collections::{BTreeMap, BTreeSet};

use milepost_core::id::Tenant;
use milepost_core::time::Timestamp;

use crate::codec::Body;
use crate::model::LogChunk;
use crate::row::RowImage;
use crate::snapshot::Snapshot;

use super::sql::Rows;
use super::states::Queue;

/// A tenant that a task has taken or taken again.
#[derive(Debug)]
pub(super) struct TakenLock {
    pub(super) task: i64,
    pub(super) since: Timestamp,
    pub(super) fence: u64,
}

/// A row of the log.
#[derive(Debug)]
pub(super) struct EventRow {
    pub(super) position: i64,
    pub(super) task: i64,
    pub(super) sequence: u64,
    pub(super) body: Body,
}

/// What a task's row becomes.
#[derive(Debug)]
pub(super) struct NewRow {
    pub(super) image: RowImage,
    pub(super) queue: Option<Queue>,
    pub(super) wake_at: Option<Timestamp>,
    pub(super) clears_progress: bool,
    /// Nothing that an index looks at changes, as for every stage but the first and the last.
    pub(super) advances: bool,
    pub(super) stored: (u64, u64),
    pub(super) lease: u64,
}

/// Rows of plans and tasks that are new.
#[derive(Debug)]
pub(super) struct Inserts {
    pub(super) plans: Rows,
    pub(super) configs: Rows,
    pub(super) runtimes: Rows,
}

impl Default for Inserts {
    fn default() -> Self {
        Self {
            plans: Rows::new(
                "INSERT INTO sync_tasks (id, name, config, digest, status, version, max_concurrency, recovery, workflow, \
                 pending, running, paused, completed, failed, cancelled, rolling_back, rolled_back, rollback_failed, \
                 slotless, ready, offers, created_at, updated_at, started_at, ended_at, changed_by, go) VALUES ",
                "",
            ),
            configs: Rows::new(
                "INSERT INTO task_unit_configs (id, task_id, unit_name, tenant, turn, created_at, body, crc) VALUES ",
                "",
            ),
            runtimes: Rows::new(
                "INSERT INTO task_unit_runtimes (id, task_id, unit_name, tenant, turn, status, queue, version, lease, \
                 wake_at, done, total, stage, attempt, due_at, flags, error_message, started_at, updated_at, ended_at) \
                 VALUES ",
                "",
            ),
        }
    }
}

/// All that a transaction has to write, until it is sent.
#[derive(Debug, Default)]
pub(super) struct Writes {
    pub(super) inserts: Inserts,
    pub(super) events: Vec<EventRow>,
    pub(super) rows: BTreeMap<i64, NewRow>,
    pub(super) plans: BTreeSet<i64>,
    pub(super) snapshots: BTreeMap<i64, Snapshot>,
    pub(super) output: Vec<(i64, LogChunk)>,
    pub(super) progress: BTreeMap<i64, (u64, u64)>,
    pub(super) lined_up: Vec<i64>,
    pub(super) woken: Vec<i64>,
    pub(super) set_aside: Vec<(i64, String)>,
    pub(super) locks: BTreeMap<Tenant, TakenLock>,
    pub(super) unlocked: Vec<i64>,
    /// Statements that fit nowhere else.
    pub(super) others: Vec<String>,
}
