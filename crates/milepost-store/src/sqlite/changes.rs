//! The log as one: every commit of every task, and every change of a plan's status, in the order of their positions.
//!
//! One writer numbers the rows in the transaction that brings them, so whoever sees a position has seen all before it.

use std::collections::HashMap;

use milepost_core::id::{PlanId, TaskId, Tenant};
use milepost_core::task::By;
use milepost_core::time::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

use crate::codec::{check_body, decode_events, decode_plan_change, encode_plan_change};
use crate::error::StoreError;
use crate::model::{Change, ChangeQuery, Changed, Changes, Position};

use super::codec::{name, plan_id, tenant, unavailable};
use super::commit::INSERT_EVENT;
use super::read::Reader;
use super::writer::Writer;

/// One call looks at no more than this, so that a reader who is far behind holds no snapshot for long.
const MOST_ROWS: usize = 4096;
/// Nor does it answer with much more than this: results may be large.
const MOST_BYTES: usize = 4 << 20;

impl Writer {
    /// Tells the log what a plan has become. Its rows have the plan's number, negated, where others have the task's.
    pub(super) fn log_plan(&mut self, no: i64, by: Option<&By>, at: Timestamp) -> rusqlite::Result<()> {
        let plan = self.board.plans.get(&no).expect("a plan is opened before it is written");
        let body = encode_plan_change(plan.status, by, at);
        let row = params![self.board.next_event, -no, plan.version as i64, 0, body.crc, body.text];
        self.connection.prepare_cached(INSERT_EVENT)?.execute(row)?;
        self.board.next_event += 1;
        Ok(())
    }
}

impl Reader<'_> {
    pub(super) fn newest(&self) -> Result<Position, StoreError> {
        self.connection
            .prepare_cached("SELECT coalesce(max(pos), 0) FROM events")
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
            .map(Position)
            .map_err(unavailable("find the newest event"))
    }

    pub(super) fn changes(&self, query: &ChangeQuery) -> Result<Changes, StoreError> {
        let only = match &query.plan {
            None => None,
            Some(id) => {
                let missing = || StoreError::NotFound { what: "plan", id: id.to_string() };
                let no = self.plan_number(id)?.ok_or_else(missing)?;
                let (first, last) = self.task_range(no).map_err(unavailable("read a plan"))?;
                Some(Only { no, first, last })
            }
        };
        self.read_changes(query, only).map_err(unavailable("read what has changed"))
    }

    fn read_changes(&self, query: &ChangeQuery, only: Option<Only>) -> rusqlite::Result<Changes> {
        let mut names = Names { reader: self, plans: HashMap::new(), tasks: HashMap::new() };
        let mut changes = Changes { items: Vec::new(), upto: query.after, more: false };
        let (mut looked_at, mut bytes) = (0, 0);
        let mut statement = self
            .connection
            .prepare_cached("SELECT pos, task, seq, crc, body FROM events WHERE pos > ?1 ORDER BY pos")?;
        let mut rows = statement.query([query.after.0])?;
        while let Some(row) = rows.next()? {
            if changes.items.len() == query.limit || looked_at == MOST_ROWS || bytes >= MOST_BYTES {
                changes.more = true;
                break;
            }
            looked_at += 1;
            changes.upto = Position(row.get(0)?);
            let subject = row.get(1)?;
            if only.as_ref().is_none_or(|only| only.may_include(subject))
                && let Some(change) = names.change(row, subject, only.as_ref())?
            {
                bytes += row.get_ref(4)?.as_bytes().map_or(0, <[u8]>::len);
                changes.items.push(change);
            }
        }
        Ok(changes)
    }
}

/// The one plan whose changes are wanted.
struct Only {
    no: i64,
    first: i64,
    last: i64,
}

impl Only {
    /// The tasks of others may lie between its own.
    fn may_include(&self, subject: i64) -> bool {
        subject == -self.no || (self.first..=self.last).contains(&subject)
    }
}

/// What numbers stand for, each looked up once.
struct Names<'a> {
    reader: &'a Reader<'a>,
    plans: HashMap<i64, PlanId>,
    tasks: HashMap<i64, Option<TaskName>>,
}

#[derive(Clone)]
struct TaskName {
    id: TaskId,
    tenant: Option<Tenant>,
    plan: i64,
}

impl Names<'_> {
    /// None when it is not wanted, or cannot be read: one damaged row must not keep everybody from all that follows.
    /// Whoever asks for the task itself is told.
    fn change(&mut self, row: &Row<'_>, subject: i64, only: Option<&Only>) -> rusqlite::Result<Option<Change>> {
        let position: i64 = row.get(0)?;
        let task = if subject < 0 { None } else { self.task(subject)? };
        let plan = match &task {
            None if subject < 0 => -subject,
            Some(task) => task.plan,
            None => return Ok(None),
        };
        if only.is_some_and(|only| only.no != plan) {
            return Ok(None);
        }
        let what = || format!("event row {position}");
        let text = row.get_ref(4)?.as_str()?;
        let decoded = check_body(text, row.get(3)?, what).and_then(|()| match task {
            Some(TaskName { id, tenant, .. }) => {
                let sequence = row.get::<_, i64>(2).map_err(unavailable("read a sequence"))?.unsigned_abs();
                Ok(Changed::Task { task: id, tenant, sequence, records: decode_events(text, what)? })
            }
            None => decode_plan_change(text, what),
        });
        match decoded {
            Ok(what) => Ok(Some(Change { position: Position(position), plan: self.plan(plan)?, what })),
            Err(error) => {
                tracing::warn!(position, %error, "a change is left out, because it cannot be read");
                Ok(None)
            }
        }
    }

    fn plan(&mut self, no: i64) -> rusqlite::Result<PlanId> {
        if let Some(id) = self.plans.get(&no) {
            return Ok(id.clone());
        }
        let mut statement = self.reader.connection.prepare_cached("SELECT id FROM plans WHERE no = ?1")?;
        let id = statement.query_row([no], |row| plan_id(row, 0))?;
        self.plans.insert(no, id.clone());
        Ok(id)
    }

    fn task(&mut self, no: i64) -> rusqlite::Result<Option<TaskName>> {
        if let Some(known) = self.tasks.get(&no) {
            return Ok(known.clone());
        }
        let mut statement =
            self.reader.connection.prepare_cached("SELECT id, tenant, plan FROM task_configs WHERE no = ?1")?;
        let found = statement
            .query_row([no], |row| {
                let tenant =
                    if row.get_ref(1)? == rusqlite::types::ValueRef::Null { None } else { Some(tenant(row, 1)?) };
                Ok(TaskName { id: name(row, 0)?, tenant, plan: row.get(2)? })
            })
            .optional()?;
        self.tasks.insert(no, found.clone());
        Ok(found)
    }
}
