//! A task rebuilt from its log: from its last snapshot on if it has one, and else from the start.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use milepost_core::task::{Task, TaskSpec};
use mysql_async::Row;

use crate::codec::{Folded, LogHead, LogRow, SharedPlan, check_body, damaged, decode_events, fold_rows};
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

    pub(super) fn checked(&self, what: impl Fn() -> String) -> Result<&str, StoreError> {
        check_body(&self.text, self.crc, what)?;
        Ok(&self.text)
    }
}

pub(super) fn read_stored(rows: Vec<Row>) -> Sql<Vec<Stored>> {
    rows.into_iter().map(|row| Stored::read(&mut Columns::from(row))).collect()
}

/// What a log, or the part of it behind a snapshot, makes of a task.
pub(super) fn fold(
    key: &TaskRef,
    spec: Arc<TaskSpec>,
    head: &LogHead,
    snapshot: Option<&Stored>,
    log: &[Stored],
) -> Result<Folded, StoreError> {
    let task = match snapshot {
        None => Task::created(spec),
        Some(stored) => {
            let what = || format!("the snapshot of task {}", key.id);
            Task::from_image(spec, stored.checked(what)?).map_err(|error| damaged(what(), error))?
        }
    };
    // A log of one event is the creation, and needs no reading.
    if head.version <= 1 {
        return fold_rows(key, task, [], head);
    }
    let mut rows = Vec::with_capacity(log.len());
    for stored in log {
        let what = || format!("event {} of task {}", stored.sequence, key.id);
        let records = decode_events(stored.checked(what)?, what)?;
        rows.push(LogRow { sequence: stored.sequence, records });
    }
    fold_rows(key, task, rows, head)
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
