//! Questions, answered from a snapshot of the file; they never wait for the writer, nor it for them.

use std::borrow::Cow;

use milepost_core::id::{PlanId, StageName, TaskId, Tenant};
use milepost_core::plan::{Plan, Recovery, TaskCounts};
use milepost_core::task::{PlanStatus, Task, TaskStatus};
use milepost_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Deserialize;

use crate::error::StoreError;
use crate::going::{self, Going};
use crate::model::{
    EventQuery, LockRow, LogChunk, LogQuery, Page, PlanQuery, PlanRow, StoredEvent, StoredTask, TaskQuery, TaskRef,
    TaskRow, TasksOf,
};

use crate::codec::number_events;
use crate::row::{FLAG_AWAITS_MESSAGE, FLAG_INTERRUPTED, FLAG_PAUSE_REQUESTED};

use super::board::{LEASES_PER_EPOCH, Queue, SETTLED, count_tasks};
use super::codec::{
    decode_definition, fold, name, plan_id, plan_status, query_task, read_config, read_head, task_status, tenant, time,
    unavailable,
};
use super::counts::PlanCounts;
use super::log::{Since, read_log};
use super::shared::SharedPlans;

macro_rules! select_plans {
    ($which:literal) => {
        concat!(
            "SELECT id, status, version, definition, first_task, last_task, created_at, started_at, ended_at, changed_by, no, go \
             FROM plans ",
            $which
        )
    };
}

/// A file of an older format, which no owner has opened since, knows of no eras: nothing of it waits for a person.
fn as_stored(sql: &'static str, begun: Option<bool>) -> Cow<'static, str> {
    if begun.is_some() { sql.into() } else { sql.replace(", no, go ", ", no, 1 ").into() }
}

/// A plan's row, with counts that the writer knows.
pub(super) fn read_plan(
    connection: &Connection,
    no: i64,
    counts: TaskCounts,
    begun: bool,
) -> rusqlite::Result<PlanRow> {
    connection.prepare_cached(select_plans!("WHERE no = ?1"))?.query_row([no], |row| plan_row(row, counts, begun))
}

/// The things in a plan's definition that its row shows; what else is there is passed over.
#[derive(Deserialize, Default)]
struct Shown {
    #[serde(default)]
    max_concurrency: u32,
    #[serde(default)]
    recovery: Option<Recovery>,
}

fn plan_row(row: &Row<'_>, counts: TaskCounts, begun: bool) -> rusqlite::Result<PlanRow> {
    let shown: Shown = serde_json::from_str(row.get_ref(3)?.as_str()?).unwrap_or_default();
    let by: Option<String> = row.get(9)?;
    let status = plan_status(row, 1)?;
    let going = Going::of(shown.recovery, row.get(11)?, false);
    Ok(PlanRow {
        id: plan_id(row, 0)?,
        status,
        max_concurrency: shown.max_concurrency,
        counts,
        version: row.get::<_, i64>(2)?.unsigned_abs(),
        waits_for_person: status == PlanStatus::Running && going.is_held(going::HELD, begun),
        changed_by: by.and_then(|by| serde_json::from_str(&by).ok()),
        created_at: Timestamp::from_millis(row.get(6)?),
        started_at: time(row, 7)?,
        ended_at: time(row, 8)?,
    })
}

pub(super) fn read_definition(connection: &Connection, no: i64) -> rusqlite::Result<Result<Plan, StoreError>> {
    let (text, digest, first, last): (String, Vec<u8>, i64, i64) = connection
        .prepare_cached("SELECT definition, digest, first_task, last_task FROM plans WHERE no = ?1")?
        .query_row([no], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
    let definition = match decode_definition(no, &text, &digest) {
        Ok(definition) => definition,
        Err(damage) => return Ok(Err(damage)),
    };
    let mut statement = connection.prepare_cached(
        "SELECT c.no, c.id, c.plan, c.tenant, c.created_at, c.body, c.crc, r.rank FROM task_configs c \
         JOIN task_runtimes r ON r.no = c.no WHERE c.no BETWEEN ?2 AND ?3 AND c.plan = ?1 ORDER BY c.no",
    )?;
    let rows = statement.query_map([no, first, last], |row| Ok((read_config(row)?, row.get::<_, i64>(7)?)))?;
    let mut tasks = Vec::new();
    for row in rows {
        let (config, rank) = row?;
        match config.definition(rank) {
            Ok(task) => tasks.push(task),
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(Plan { definition, tasks }))
}

/// A connection that reads, and the epoch that counts as alive: leases of any other are void.
pub(super) struct Reader<'a> {
    pub(super) connection: &'a Connection,
    /// None: this process is not the owner, and another may be.
    pub(super) live_epoch: Option<u64>,
    pub(super) counts: &'a PlanCounts,
    pub(super) plans: &'a SharedPlans,
}

/// What one look at a thing gives.
#[derive(Debug)]
pub(super) enum Glance<T> {
    Saw(T),
    /// It takes more rows than the look was to cost.
    TooMuch,
}

impl Reader<'_> {
    /// Reads no more than about so many rows.
    pub(super) fn plan(&self, id: &PlanId, most: u64) -> Result<Glance<Option<PlanRow>>, StoreError> {
        let read = || {
            let begun = self.has_begun()?;
            let mut statement = self.connection.prepare_cached(&as_stored(select_plans!("WHERE id = ?1"), begun))?;
            let mut rows = statement.query([id.as_str()])?;
            let Some(row) = rows.next()? else { return Ok(Glance::Saw(None)) };
            let (first, last): (i64, i64) = (row.get(4)?, row.get(5)?);
            let counts = match self.known_counts(row)? {
                Some(counts) => counts,
                None if (last - first).unsigned_abs() >= most => return Ok(Glance::TooMuch),
                None => count_tasks(self.connection, row.get(10)?, first, last)?,
            };
            Ok(Glance::Saw(Some(plan_row(row, counts, begun.unwrap_or(true))?)))
        };
        read().map_err(unavailable("read a plan"))
    }

    fn known_counts(&self, row: &Row<'_>) -> rusqlite::Result<Option<TaskCounts>> {
        Ok(self.counts.find(row.get(10)?, row.get::<_, i64>(2)?.unsigned_abs()))
    }

    pub(super) fn definition(&self, id: &PlanId) -> Result<Option<Plan>, StoreError> {
        let Some(no) = self.plan_number(id)? else { return Ok(None) };
        read_definition(self.connection, no).map_err(unavailable("read a plan"))?.map(Some)
    }

    pub(super) fn plans(&self, query: &PlanQuery) -> Result<Page<PlanRow>, StoreError> {
        let read = || {
            let begun = self.has_begun()?;
            let sql = if query.open_only {
                select_plans!("WHERE no < ?1 AND ended_at IS NULL ORDER BY no DESC LIMIT ?2")
            } else {
                select_plans!("WHERE no < ?1 ORDER BY no DESC LIMIT ?2")
            };
            let mut statement = self.connection.prepare_cached(&as_stored(sql, begun))?;
            let rows =
                statement.query_map(params![query.after.unwrap_or(i64::MAX), query.limit as i64 + 1], |row| {
                    let no: i64 = row.get(10)?;
                    let counts = match self.known_counts(row)? {
                        Some(counts) => counts,
                        None => count_tasks(self.connection, no, row.get(4)?, row.get(5)?)?,
                    };
                    Ok((no, plan_row(row, counts, begun.unwrap_or(true))?))
                })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        Ok(page(read().map_err(unavailable("list plans"))?, query.limit))
    }

    /// Reads no more than about so many rows.
    pub(super) fn task(&self, id: &TaskId, most: u64) -> Result<Glance<Option<StoredTask>>, StoreError> {
        let Some(no) = self.task_number(id)? else { return Ok(Glance::Saw(None)) };
        let (config, rank, head, lease) = query_task(self.connection, no, |row| {
            let lease = row.get::<_, i64>(13)?.unsigned_abs();
            Ok((read_config(row)?, row.get::<_, i64>(12)?, read_head(row)?, lease))
        })
        .map_err(unavailable("read a task"))?;
        if head.version > most {
            return Ok(Glance::TooMuch);
        }
        let (key, tenant) = (config.key.clone(), config.tenant.clone());
        let shared = self.plans.read(self.connection, config.plan)?;
        let spec = config.spec(&shared, rank);
        let task = fold(self.connection, &key, spec, &head)?.task;
        let blocked_by = self.blocked_by(no, head.status, tenant.as_ref()).map_err(unavailable("read a lock"))?;
        let progress = self.progress(no).map_err(unavailable("read progress"))?;
        let orphaned = head.status.is_active() && lease != 0 && !self.is_live(lease)?;
        let set_aside = self.set_aside(no).map_err(unavailable("read a task"))?;
        let unheld = lease == 0 || orphaned;
        let waits_for_person = unheld && self.waits_for_person(&task, no).map_err(unavailable("read a task"))?;
        let stored = StoredTask {
            key,
            task,
            epoch: lease,
            orphaned,
            waits_for_person,
            blocked_by,
            set_aside,
            progress,
            claim_events: Vec::new(),
        };
        Ok(Glance::Saw(Some(stored)))
    }

    /// Whether an owner that is there has claimed, and so begun an era; none where there are no eras.
    fn has_begun(&self) -> rusqlite::Result<Option<bool>> {
        let settled = self.connection.prepare_cached(SETTLED)?.query_row([], |row| row.get::<_, i64>(0)).optional()?;
        let Some(settled) = settled else { return Ok(None) };
        let epoch = match self.live_epoch {
            Some(epoch) => epoch,
            None => self.epoch()?,
        };
        Ok(Some(settled.unsigned_abs() == epoch && epoch != 0))
    }

    fn waits_for_person(&self, task: &Task, no: i64) -> rusqlite::Result<bool> {
        let says = task.spec().settings.recovery;
        let Some(begun) = self.has_begun()?.filter(|_| says != Some(Recovery::Auto)) else { return Ok(false) };
        let sql = "SELECT p.status, p.go, p.ended_at IS NOT NULL, r.go \
                   FROM task_runtimes r JOIN plans p ON p.no = r.plan WHERE r.no = ?1";
        self.connection.prepare_cached(sql)?.query_row([no], |row| {
            let going = Going::of(says, row.get(1)?, row.get(2)?);
            Ok(going.holds(task, row.get(3)?, plan_status(row, 0)?, begun))
        })
    }

    fn progress(&self, no: i64) -> rusqlite::Result<Option<(u64, u64)>> {
        self.connection
            .prepare_cached("SELECT progress, progress_of FROM task_runtimes WHERE no = ?1")?
            .query_row([no], |row| progress(row, 0))
    }

    /// Who holds the tenant of a task that waits, as `planId:taskId`.
    fn blocked_by(&self, no: i64, status: TaskStatus, tenant: Option<&Tenant>) -> rusqlite::Result<Option<String>> {
        let waits = matches!(status, TaskStatus::Pending | TaskStatus::RollingBack);
        let Some(tenant) = tenant.filter(|_| waits) else { return Ok(None) };
        self.connection
            .prepare_cached(
                "SELECT p.id || ':' || c.id FROM locks l JOIN task_configs c ON c.no = l.task JOIN plans p ON p.no = c.plan \
                 WHERE l.tenant = ?1 AND l.task <> ?2",
            )?
            .query_row(params![tenant.as_str(), no], |row| row.get(0))
            .optional()
    }

    fn set_aside(&self, no: i64) -> rusqlite::Result<Option<String>> {
        let reason = self
            .connection
            .prepare_cached("SELECT reason FROM task_runtimes WHERE no = ?1 AND queue = ?2")?
            .query_row(params![no, Queue::Damaged.code()], |row| row.get(0))
            .optional()?;
        Ok(reason.flatten())
    }

    pub(super) fn tasks(&self, query: &TaskQuery) -> Result<Page<TaskRow>, StoreError> {
        const COLUMNS: &str = "SELECT c.no, c.id, p.id, c.tenant, c.created_at, r.status, r.flags, r.version, r.done, r.total, \
            r.stage, r.attempt, r.due_at, r.reason, r.progress, r.progress_of, r.started_at, r.ended_at, r.updated_at, r.lease, r.queue \
            FROM task_runtimes r JOIN task_configs c ON c.no = r.no JOIN plans p ON p.no = r.plan ";
        let wanted: i64 = query.statuses.iter().map(|status| 1 << status.code()).sum();
        let wanted = if wanted == 0 { i64::MAX } else { wanted };
        let limit = query.limit as i64 + 1;
        let read = |mut statement: rusqlite::CachedStatement<'_>, parameters: &[&dyn rusqlite::ToSql]| {
            let rows = statement.query_map(parameters, |row| Ok((row.get::<_, i64>(0)?, self.task_row(row)?)))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        let rows = match &query.of {
            TasksOf::Plan(id) => {
                let missing = || StoreError::NotFound { what: "plan", id: id.to_string() };
                let plan = self.plan_number(id)?.ok_or_else(missing)?;
                let (first, last) = self.task_range(plan).map_err(unavailable("read a plan"))?;
                // The range is walked in order, so that a page costs no more than its rows.
                let sql = format!(
                    "{COLUMNS} WHERE r.no > ?2 AND r.no <= ?5 AND +r.plan = ?1 AND (1 << r.status) & ?3 ORDER BY r.no LIMIT ?4"
                );
                let after = query.after.unwrap_or(0).max(first - 1);
                self.connection
                    .prepare_cached(&sql)
                    .and_then(|statement| read(statement, &[&plan, &after, &wanted, &limit, &last]))
            }
            TasksOf::Tenant(tenant) => {
                let sql = format!(
                    "{COLUMNS} WHERE c.tenant = ?1 AND c.no < ?2 AND (1 << r.status) & ?3 ORDER BY c.no DESC LIMIT ?4"
                );
                let before = query.after.unwrap_or(i64::MAX);
                let tenant = tenant.as_str();
                self.connection
                    .prepare_cached(&sql)
                    .and_then(|statement| read(statement, &[&tenant, &before, &wanted, &limit]))
            }
        };
        Ok(page(rows.map_err(unavailable("list tasks"))?, query.limit))
    }

    fn task_row(&self, row: &Row<'_>) -> rusqlite::Result<TaskRow> {
        let no: i64 = row.get(0)?;
        let status = task_status(row, 5)?;
        let flags: i64 = row.get(6)?;
        let lease = row.get::<_, i64>(19)?.unsigned_abs();
        let tenant = if row.get_ref(3)? == rusqlite::types::ValueRef::Null { None } else { Some(tenant(row, 3)?) };
        let (stage, reason): (Option<String>, Option<String>) = (row.get(10)?, row.get(13)?);
        let queue: Option<i64> = row.get(20)?;
        let orphaned = lease != 0 && !self.is_live(lease).unwrap_or(false);
        Ok(TaskRow {
            key: TaskRef { no, id: name(row, 1)? },
            plan: plan_id(row, 2)?,
            status,
            interrupted: status.is_active() && (flags & FLAG_INTERRUPTED != 0 || orphaned),
            pause_requested: flags & FLAG_PAUSE_REQUESTED != 0,
            awaits_message: flags & FLAG_AWAITS_MESSAGE != 0,
            version: row.get::<_, i64>(7)?.unsigned_abs(),
            done: row.get(8)?,
            stages: row.get(9)?,
            stage: stage.and_then(|stage| StageName::parse(stage).ok()),
            attempt: row.get(11)?,
            next_due: time(row, 12)?,
            blocked_by: self.blocked_by(no, status, tenant.as_ref())?,
            tenant,
            set_aside: reason.clone().filter(|_| queue == Some(Queue::Damaged.code())),
            reason,
            progress: progress(row, 14)?,
            created_at: Timestamp::from_millis(row.get(4)?),
            started_at: time(row, 16)?,
            ended_at: time(row, 17)?,
            updated_at: Timestamp::from_millis(row.get(18)?),
        })
    }

    /// Whether the owner that took a lease still is the owner.
    fn is_live(&self, lease: u64) -> Result<bool, StoreError> {
        match self.live_epoch {
            Some(epoch) => Ok(lease / LEASES_PER_EPOCH == epoch),
            None => {
                let epoch = self.epoch().map_err(unavailable("read the store's epoch"))?;
                Ok(lease / LEASES_PER_EPOCH == epoch)
            }
        }
    }

    /// Of the newest owner.
    fn epoch(&self) -> rusqlite::Result<u64> {
        let mut statement = self.connection.prepare_cached("SELECT value FROM meta WHERE key = 'epoch'")?;
        statement.query_row([], |row| row.get::<_, i64>(0).map(i64::unsigned_abs))
    }

    pub(super) fn events(&self, query: &EventQuery) -> Result<Vec<StoredEvent>, StoreError> {
        let missing = || StoreError::NotFound { what: "task", id: query.task.to_string() };
        let no = self.task_number(&query.task)?.ok_or_else(missing)?;
        let head = "SELECT r.last_event, r.version, c.created_at FROM task_runtimes r JOIN task_configs c ON c.no = r.no \
                    WHERE r.no = ?1";
        let (newest, version, created_at): (i64, i64, i64) = self
            .connection
            .prepare_cached(head)
            .and_then(|mut statement| statement.query_row([no], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))))
            .map_err(unavailable("read a task"))?;
        let key = TaskRef { id: query.task.clone(), no };
        let log = read_log(self.connection, &key, newest, Since { sequence: query.after, position: 0 })?;
        let (version, created_at) = (version.unsigned_abs(), Timestamp::from_millis(created_at));
        Ok(number_events(log.into_iter().rev(), query, Some(version), created_at))
    }

    pub(super) fn logs(&self, query: &LogQuery) -> Result<Vec<LogChunk>, StoreError> {
        let missing = || StoreError::NotFound { what: "task", id: query.task.to_string() };
        let no = self.task_number(&query.task)?.ok_or_else(missing)?;
        let stage = query.stage.as_ref().map(|stage| stage.as_str());
        let read = || {
            let mut statement = self.connection.prepare_cached(
                "SELECT stage, attempt, at, bytes FROM logs WHERE task = ?1 AND (?2 IS NULL OR stage = ?2) \
                 AND (?3 IS NULL OR attempt = ?3) ORDER BY no",
            )?;
            let rows = statement.query_map(params![no, stage, query.attempt], |row| {
                let stage: String = row.get(0)?;
                let parsed = StageName::parse(&stage).map_err(|error| {
                    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, error.into())
                })?;
                let at = Timestamp::from_millis(row.get(2)?);
                Ok(LogChunk { stage: parsed, attempt: row.get(1)?, at, bytes: row.get(3)? })
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(unavailable("read captured output"))
    }

    pub(super) fn locks(&self) -> Result<Vec<LockRow>, StoreError> {
        let read = || {
            let mut statement = self.connection.prepare_cached(
                "SELECT l.tenant, p.id, c.id, l.since, l.fence FROM locks l JOIN task_configs c ON c.no = l.task \
                 JOIN plans p ON p.no = c.plan ORDER BY l.tenant",
            )?;
            let rows = statement.query_map([], |row| {
                Ok(LockRow {
                    tenant: tenant(row, 0)?,
                    plan: plan_id(row, 1)?,
                    task: name(row, 2)?,
                    since: Timestamp::from_millis(row.get(3)?),
                    fence: row.get::<_, i64>(4)?.unsigned_abs(),
                    expires_at: None,
                })
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(unavailable("list tenant locks"))
    }

    /// A file of an older format that no owner has opened since may be without it.
    pub(super) fn has_table(&self, name: &str) -> rusqlite::Result<bool> {
        self.connection
            .prepare_cached("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1")?
            .query_row([name], |row| row.get(0))
    }

    /// Its tasks lie between these two numbers.
    pub(super) fn task_range(&self, plan: i64) -> rusqlite::Result<(i64, i64)> {
        self.connection
            .prepare_cached("SELECT first_task, last_task FROM plans WHERE no = ?1")?
            .query_row([plan], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    pub(super) fn plan_number(&self, id: &PlanId) -> Result<Option<i64>, StoreError> {
        self.number("SELECT no FROM plans WHERE id = ?1", id.as_str())
    }

    fn task_number(&self, id: &TaskId) -> Result<Option<i64>, StoreError> {
        self.number("SELECT no FROM task_configs WHERE id = ?1", id.as_str())
    }

    fn number(&self, sql: &str, id: &str) -> Result<Option<i64>, StoreError> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row([id], |row| row.get(0)).optional())
            .map_err(unavailable("look up an id"))
    }
}

fn progress(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<(u64, u64)>> {
    let (done, total): (Option<i64>, Option<i64>) = (row.get(index)?, row.get(index + 1)?);
    Ok(done.map(|done| (done.unsigned_abs(), total.unwrap_or(0).unsigned_abs())))
}

/// One row more than asked for was read: if it is there, so is a next page.
pub(super) fn page<T>(mut rows: Vec<(i64, T)>, limit: usize) -> Page<T> {
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|(no, _)| *no);
    Page { items: rows.into_iter().map(|(_, item)| item).collect(), next }
}
