//! A task rebuilt from its log: from its last snapshot on if it has one, and else from the start.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use milepost_core::id::TaskId;
use milepost_core::task::{Task, TaskSpec};
use mysql_async::Row;

use crate::codec::{Folded, LogHead, LogRow, SharedPlan, check_body, damaged, fold_log, fold_rows};
use crate::error::StoreError;
use crate::model::TaskRef;

use super::codec::{Columns, Sql};

/// A row of text with its checksum, not yet looked at.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) sequence: u64,
    crc: u32,
    text: String,
}

impl Stored {
    /// `sequence, crc, body`.
    pub(super) fn read(columns: &mut Columns) -> Sql<Self> {
        Ok(Self { sequence: columns.natural()?, crc: columns.next()?, text: columns.next()? })
    }

    /// The same of an outer join.
    pub(super) fn read_if_any(columns: &mut Columns) -> Sql<Option<Self>> {
        let (sequence, crc, text) = (columns.maybe::<u64>()?, columns.maybe()?, columns.maybe()?);
        let all = sequence.zip(crc).zip(text);
        Ok(all.map(|((sequence, crc), text)| Self { sequence, crc, text }))
    }

    pub(super) fn row(&self, task: &TaskId) -> LogRow {
        LogRow::read(self.sequence, &self.text, self.crc, || format!("event {} of task {task}", self.sequence))
    }

    pub(super) fn checked(&self, what: impl Fn() -> String) -> Result<&str, StoreError> {
        check_body(&self.text, self.crc, what)?;
        Ok(&self.text)
    }
}

pub(super) fn read_stored(rows: Vec<Row>) -> Sql<Vec<Stored>> {
    rows.into_iter().map(|row| Stored::read(&mut Columns::from(row))).collect()
}

/// What a whole log makes of a task.
pub(super) fn fold(key: &TaskRef, spec: Arc<TaskSpec>, head: &LogHead, log: &[Stored]) -> Folded {
    fold_log(key, spec, log.iter().map(|stored| stored.row(&key.id)).collect(), head)
}

/// What the log behind a snapshot makes of it; none when the snapshot is of no use, and all of the log has to be read.
pub(super) fn fold_from_snapshot(
    key: &TaskRef,
    spec: &Arc<TaskSpec>,
    head: &LogHead,
    snapshot: &Stored,
    log: &[Stored],
) -> Option<Folded> {
    let what = || format!("the snapshot of task {}", key.id);
    let read = |text: &str| Task::from_image(spec.clone(), text).map_err(|error| damaged(what(), error));
    match snapshot.checked(what).and_then(read) {
        Ok(task) => {
            let folded = fold_rows(key, task, log.iter().map(|stored| stored.row(&key.id)), head);
            if !folded.is_damaged() {
                return Some(folded);
            }
            tracing::warn!(task = %key.id, "a snapshot does not lead to the task; the log is read from its start");
        }
        Err(error) => {
            tracing::warn!(task = %key.id, %error, "a snapshot is of no use; the log is read from its start");
        }
    }
    None
}

/// What the tasks of a plan share, kept for the next who asks for one of them: reading it costs more than the task does.
/// By number, each with the digest of the definition it was read from: an update may have changed that since.
#[derive(Debug, Default)]
pub(super) struct SharedPlans(Mutex<HashMap<i64, (Vec<u8>, SharedPlan)>>);

impl SharedPlans {
    /// Plans kept, and how long a definition may be to be kept: some megabytes in all.
    const MOST: usize = 256;
    const LONGEST: usize = 64 << 10;

    pub(super) fn find(&self, no: i64, digest: &[u8]) -> Option<SharedPlan> {
        let plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plans.get(&no).filter(|(of, _)| of == digest).map(|(_, plan)| plan.clone())
    }

    pub(super) fn read(&self, no: i64, digest: Vec<u8>, text: &str) -> Result<SharedPlan, StoreError> {
        let definition =
            serde_json::from_str(text).map_err(|error| damaged(format!("the definition of plan {no}"), error))?;
        let plan = SharedPlan::new(definition);
        if text.len() <= Self::LONGEST {
            let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if plans.len() >= Self::MOST {
                plans.clear();
            }
            plans.insert(no, (digest, plan.clone()));
        }
        Ok(plan)
    }
}
