//! Questions about one thing, each answered from one snapshot; they never wait for whoever writes.

use milepost_core::id::{PlanId, StageName, TaskId};
use milepost_core::plan::Plan;
use milepost_core::task::{PlanStatus, TaskStatus};
use mysql_async::{Error, Row};

use crate::codec::{Config, Folded, LogHead, SharedPlan, number_events};
use crate::error::StoreError;
use crate::going::Going;
use crate::model::{EventQuery, LockRow, LogChunk, LogQuery, PlanRow, Position, StoredEvent, StoredTask, TaskRef};

use super::codec::{Columns, LEASES_PER_SESSION, Sql, unavailable};
use super::eras::has_begun;
use super::log::{fold, fold_from_snapshot, read_stored};
use super::sql::{NOW, text, text_or_null};
use super::states::{PLAN, PlanState, Queue, TASK, TaskState};
use super::store::Shared;
use super::update::{definition_questions, read_definition};

/// The node that holds a task, if it is there, and whoever has the tenant that it waits for.
pub(super) fn joins() -> String {
    format!(
        "LEFT JOIN milepost_nodes n ON n.session = r.lease DIV {LEASES_PER_SESSION} AND n.ended = 0 \
         AND n.expires_at >= {NOW} \
         LEFT JOIN milepost_locks l ON l.tenant = r.tenant AND l.task <> r.id AND l.expires_at >= {NOW} \
         LEFT JOIN task_unit_configs h ON h.id = l.task LEFT JOIN sync_tasks hp ON hp.id = h.task_id"
    )
}

/// What `joins` tells of a task: `n.session IS NOT NULL, hp.name, h.unit_name, r.error_message`.
#[derive(Debug)]
pub(super) struct Around {
    pub(super) live: bool,
    holder: Option<String>,
    pub(super) reason: Option<String>,
}

impl Around {
    pub(super) const COLUMNS: &str = "n.session IS NOT NULL, hp.name, h.unit_name, r.error_message";

    pub(super) fn read(columns: &mut Columns) -> Sql<Self> {
        let live = columns.flag()?;
        let (plan, task) = (columns.maybe::<String>()?, columns.maybe::<String>()?);
        let holder = plan.zip(task).map(|(plan, task)| format!("{plan}:{task}"));
        Ok(Self { live, holder, reason: columns.maybe()? })
    }

    /// Who holds the tenant of a task that waits, as `planId:taskId`.
    pub(super) fn blocked_by(&self, status: TaskStatus) -> Option<String> {
        let waits = status == TaskStatus::Pending || (status.is_active() && !self.live);
        self.holder.clone().filter(|_| waits)
    }

    pub(super) fn set_aside(&self, queue: Option<Queue>) -> Option<String> {
        self.reason.clone().filter(|_| queue == Some(Queue::Damaged))
    }
}

/// How far a task and its plan are set going.
struct SetGoing {
    status: PlanStatus,
    plan: u8,
    has_ended: bool,
    own: u8,
    begun: bool,
}

impl SetGoing {
    const COLUMNS: &str = concat!(
        "p.status, p.go, p.ended_at IS NOT NULL, \
         COALESCE((SELECT g.go FROM milepost_going g WHERE g.task = r.id), 0), IF(p.recovery = 'manual', ",
        has_begun!(),
        ", 1)"
    );

    fn read(columns: &mut Columns) -> Sql<Self> {
        let (status, plan, has_ended) = (columns.plan_status()?, columns.next()?, columns.flag()?);
        Ok(Self { status, plan, has_ended, own: columns.next()?, begun: columns.flag()? })
    }
}

impl Shared {
    pub(super) async fn plan(&self, id: &PlanId) -> Result<Option<PlanRow>, StoreError> {
        let sql = format!("SELECT {PLAN} FROM sync_tasks p WHERE p.name = {}", text(id.as_str()));
        let row = first(self.server.ask("read a plan", &sql).await?);
        let plan = row.map(|row| PlanState::read(&mut Columns::from(row))).transpose();
        Ok(plan.map_err(unavailable("read a plan"))?.map(|plan| plan.row()))
    }

    pub(super) async fn definition(&self, id: &PlanId) -> Result<Option<Plan>, StoreError> {
        let no = format!("(SELECT id FROM sync_tasks WHERE name = {})", text(id.as_str()));
        let mut answers = self.server.look("read a plan", &definition_questions(&no)).await?.into_iter();
        let Some(row) = answers.next().unwrap_or_default().into_iter().next() else { return Ok(None) };
        let read =
            || read_definition(id.as_str(), &Columns::from(row).next::<String>()?, answers.next().unwrap_or_default());
        read().map_err(unavailable("read a plan"))?.map(Some)
    }

    pub(super) async fn task(&self, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
        let name = text(id.as_str());
        let sql = format!(
            "SELECT {TASK}, c.created_at, c.body, c.crc, p.digest, {around}, {going} FROM task_unit_configs c \
             JOIN task_unit_runtimes r ON r.id = c.id JOIN sync_tasks p ON p.id = r.task_id {joins} \
             WHERE c.unit_name = {name}; \
             SELECT s.sequence, s.crc, s.body FROM milepost_snapshots s JOIN task_unit_configs c ON c.id = s.task \
             WHERE c.unit_name = {name}; \
             SELECT e.sequence, e.crc, e.body FROM task_unit_configs c JOIN milepost_events e ON e.task = c.id \
             LEFT JOIN milepost_snapshots s ON s.task = c.id \
             WHERE c.unit_name = {name} AND e.sequence > COALESCE(s.sequence, 0) ORDER BY e.sequence",
            around = Around::COLUMNS,
            going = SetGoing::COLUMNS,
            joins = joins(),
        );
        let unavailable = unavailable("read a task");
        let mut answers = self.server.look("read a task", &sql).await?.into_iter();
        let Some(row) = answers.next().unwrap_or_default().into_iter().next() else { return Ok(None) };
        let (found, config, digest, around, set) = read_task(row).map_err(&unavailable)?;
        let snapshot = read_stored(answers.next().unwrap_or_default()).map_err(&unavailable)?.pop();
        let log = read_stored(answers.next().unwrap_or_default()).map_err(&unavailable)?;
        let key = config.key.clone();
        let spec = config.spec(&self.shared_plan(found.plan, &digest).await?, found.turn);
        let head = LogHead { version: found.version, last_event: 0, status: found.status };
        let Folded { task, .. } = match snapshot {
            None => fold(&key, spec, &head, &log),
            Some(snapshot) => match fold_from_snapshot(&key, &spec, &head, &snapshot, &log) {
                Some(folded) => folded,
                None => {
                    let (no, version) = (found.no, found.version);
                    let sql = format!(
                        "SELECT sequence, crc, body FROM milepost_events WHERE task = {no} AND sequence <= {version} \
                         ORDER BY sequence"
                    );
                    let rows = self.server.ask("read a task", &sql).await?.concat();
                    fold(&key, spec, &head, &read_stored(rows).map_err(&unavailable)?)
                }
            },
        };
        let orphaned = found.status.is_active() && found.lease != 0 && !around.live;
        let (blocked_by, set_aside) = (around.blocked_by(found.status), around.set_aside(found.queue));
        let (epoch, progress, claim_events) = (found.lease, found.progress, Vec::new());
        let going = Going::of(task.spec().settings.recovery, set.plan, set.has_ended);
        let waits_for_person = (epoch == 0 || orphaned) && going.holds(&task, set.own, set.status, set.begun);
        Ok(Some(StoredTask {
            key,
            task,
            epoch,
            orphaned,
            waits_for_person,
            blocked_by,
            set_aside,
            progress,
            claim_events,
        }))
    }

    async fn shared_plan(&self, no: i64, digest: &[u8]) -> Result<SharedPlan, StoreError> {
        if let Some(plan) = self.plans.find(no, digest) {
            return Ok(plan);
        }
        let sql = format!("SELECT digest, config FROM sync_tasks WHERE id = {no}");
        let row = first(self.server.ask("read a plan", &sql).await?);
        let row = row.ok_or_else(|| StoreError::NotFound { what: "plan", id: no.to_string() })?;
        let read = || {
            let mut columns = Columns::from(row);
            Ok((columns.next()?, columns.next::<String>()?))
        };
        let (digest, text): (Vec<u8>, String) = read().map_err(unavailable("read a plan"))?;
        self.plans.read(no, digest, &text)
    }

    pub(super) async fn events(&self, query: &EventQuery) -> Result<Vec<StoredEvent>, StoreError> {
        let name = text(query.task.as_str());
        let next = i64::try_from(query.after.saturating_add(1)).unwrap_or(i64::MAX);
        let limit = query.limit.saturating_add(1).min(1 << 30);
        // A row holds the events of one commit: the one that the next event lies in may begin before it.
        let sql = format!(
            "SELECT r.version, c.created_at FROM task_unit_configs c JOIN task_unit_runtimes r ON r.id = c.id \
             WHERE c.unit_name = {name}; \
             SELECT e.sequence, e.crc, e.body FROM task_unit_configs c JOIN milepost_events e ON e.task = c.id \
             WHERE c.unit_name = {name} AND e.sequence >= COALESCE((SELECT MAX(b.sequence) FROM milepost_events b \
             WHERE b.task = c.id AND b.sequence <= {next}), 0) ORDER BY e.sequence LIMIT {limit}"
        );
        let mut answers = self.server.look("read events", &sql).await?.into_iter();
        let Some(row) = answers.next().unwrap_or_default().into_iter().next() else {
            return Err(StoreError::NotFound { what: "task", id: query.task.to_string() });
        };
        let read = || {
            let mut columns = Columns::from(row);
            Ok((columns.natural()?, columns.time()?, read_stored(answers.next().unwrap_or_default())?))
        };
        let (version, created_at, log) = read().map_err(unavailable("read events"))?;
        let end = (log.len() < limit).then_some(version);
        Ok(number_events(log.iter().map(|stored| stored.row(&query.task)), query, end, created_at))
    }

    pub(super) async fn logs(&self, query: &LogQuery) -> Result<Vec<LogChunk>, StoreError> {
        let name = text(query.task.as_str());
        let stage = text_or_null(query.stage.as_ref().map(|stage| stage.as_str()));
        let attempt = super::sql::number_or_null(query.attempt.map(i64::from));
        let sql = format!(
            "SELECT id FROM task_unit_configs WHERE unit_name = {name}; \
             SELECT o.stage, o.attempt, o.at, o.bytes FROM task_unit_configs c JOIN milepost_logs o ON o.task = c.id \
             WHERE c.unit_name = {name} AND ({stage} IS NULL OR o.stage = {stage}) \
             AND ({attempt} IS NULL OR o.attempt = {attempt}) ORDER BY o.no"
        );
        let mut answers = self.server.look("read captured output", &sql).await?.into_iter();
        if answers.next().unwrap_or_default().is_empty() {
            return Err(StoreError::NotFound { what: "task", id: query.task.to_string() });
        }
        let chunk = |row: Row| {
            let mut columns = Columns::from(row);
            let stage = StageName::parse(columns.next::<String>()?).map_err(|error| Error::Other(error.into()))?;
            Ok(LogChunk { stage, attempt: columns.next()?, at: columns.time()?, bytes: columns.next()? })
        };
        let chunks = answers.next().unwrap_or_default().into_iter().map(chunk);
        chunks.collect::<Sql<_>>().map_err(unavailable("read captured output"))
    }

    pub(super) async fn locks(&self) -> Result<Vec<LockRow>, StoreError> {
        let sql = format!(
            "SELECT l.tenant, p.name, c.unit_name, l.since, l.fence, l.expires_at FROM milepost_locks l \
             JOIN task_unit_configs c ON c.id = l.task JOIN sync_tasks p ON p.id = c.task_id \
             WHERE l.expires_at >= {NOW} ORDER BY l.tenant"
        );
        let rows = self.server.ask("list tenant locks", &sql).await?.concat();
        let lock = |row: Row| {
            let mut columns = Columns::from(row);
            let tenant = columns.maybe_tenant()?.ok_or_else(|| Error::Other("a lock without a tenant".into()))?;
            let (plan, task, since) = (columns.plan_id()?, columns.task_id()?, columns.time()?);
            Ok(LockRow { tenant, plan, task, since, fence: columns.natural()?, expires_at: columns.maybe_time()? })
        };
        rows.into_iter().map(lock).collect::<Sql<_>>().map_err(unavailable("list tenant locks"))
    }

    pub(super) async fn newest(&self) -> Result<Position, StoreError> {
        let sql = "SELECT position FROM milepost_counters WHERE id = 1";
        let row = first(self.server.ask("find the newest event", sql).await?);
        let position = row.map_or(Ok(0), |row| Columns::from(row).next());
        Ok(Position(position.map_err(unavailable("find the newest event"))?))
    }
}

fn read_task(row: Row) -> Sql<(TaskState, Config, Vec<u8>, Around, SetGoing)> {
    let mut columns = Columns::from(row);
    let task = TaskState::read(&mut columns)?;
    let config = Config {
        key: TaskRef { id: task.id.clone(), no: task.no },
        plan: task.plan,
        tenant: task.tenant.clone(),
        created_at: columns.time()?,
        body: columns.maybe()?,
        crc: columns.next()?,
    };
    Ok((task, config, columns.next()?, Around::read(&mut columns)?, SetGoing::read(&mut columns)?))
}

pub(super) fn first(answers: Vec<Vec<Row>>) -> Option<Row> {
    answers.into_iter().next().unwrap_or_default().into_iter().next()
}
