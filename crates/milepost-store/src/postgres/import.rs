//! A plan that another store has had until now, with its history: one transaction, in steps of many tasks each.

use milepost_core::task::{PlanStatus, Record, TaskStatus};
use milepost_core::time::Timestamp;
use tokio_postgres::Transaction;
use tokio_postgres::types::{ToSql, Type};

use crate::codec::{digest, encode_config, encode_events};
use crate::error::{Clash, StoreError};
use crate::model::Wake;
use crate::moved::{MovedPlan, MovedTask};
use crate::row::RowImage;
use crate::snapshot::{SHORTEST, Snapshot};

use super::claim::workflow_key;
use super::columns::{EventColumns, TaskColumns, number, plan_code};
use super::commit::OutputColumns;
use super::connect::{Place, unavailable};
use super::store::Inner;

/// Tasks, or rows of the log, in one statement.
const AT_ONCE: usize = 2000;

pub(super) async fn import(inner: &Inner, moved: MovedPlan) -> Result<(), StoreError> {
    let failed = unavailable("import a plan");
    let mut client = inner.server.writer().await?;
    let transaction = client.transaction().await.map_err(&failed)?;
    let mut importing = Importing {
        transaction: &transaction,
        place: &inner.server.place,
        lock_ms: inner.session.lock_ms(),
        position: 0,
        plan: 0,
        first_task: 0,
    };
    // Whoever freezes in here must not keep everybody from writing for ever.
    importing.run("SET LOCAL idle_in_transaction_session_timeout = '30s'", &[]).await?;
    importing.begin(inner.session.number()).await?;
    importing.check(&moved).await?;
    importing.plan(&moved).await?;
    importing.tasks(&moved).await?;
    importing.locks(&moved).await?;
    importing.finish(&moved).await?;
    transaction.commit().await.map_err(&failed)
}

struct Importing<'a> {
    transaction: &'a Transaction<'a>,
    place: &'a Place,
    lock_ms: i64,
    /// The last one given.
    position: i64,
    plan: i64,
    first_task: i64,
}

impl Importing<'_> {
    async fn run(
        &self,
        sql: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<tokio_postgres::Row>, StoreError> {
        self.transaction.query_typed(&self.place.sql(sql), parameters).await.map_err(unavailable("import a plan"))
    }

    async fn begin(&mut self, own: Option<i64>) -> Result<(), StoreError> {
        self.position = self.run("SELECT @.begin_write($1)", &[(&own, Type::INT8)]).await?[0].get(0);
        // Before locks are looked at, and before there are new ones, which no node has kept anybody waiting with.
        self.run("SELECT @.forgive(@.now_ms())", &[]).await?;
        let row = self.run("SELECT plan, task FROM @.counters", &[]).await?.remove(0);
        (self.plan, self.first_task) = (row.get::<_, i64>(0) + 1, row.get::<_, i64>(1) + 1);
        Ok(())
    }

    async fn check(&self, moved: &MovedPlan) -> Result<(), StoreError> {
        let id = moved.plan.definition.id.as_str();
        if !self.run("SELECT 1 FROM @.plans WHERE id = $1", &[(&id, Type::TEXT)]).await?.is_empty() {
            let (plan, difference) = (moved.plan.definition.id.clone(), "it has one already".to_owned());
            return Err(Clash::OtherContent { plan, difference }.into());
        }
        let ids: Vec<&str> = moved.plan.tasks.iter().map(|task| task.id.as_str()).collect();
        let sql =
            "SELECT c.id, p.id FROM @.task_configs c JOIN @.plans p ON p.no = c.plan WHERE c.id = ANY ($1) LIMIT 1";
        if let Some(row) = self.run(sql, &[(&ids, Type::TEXT_ARRAY)]).await?.first() {
            let (task, owner) = (super::codec::task_id(row.get(0))?, super::codec::plan_id(row.get(1))?);
            return Err(Clash::TaskId { task, owner }.into());
        }
        let tenants: Vec<&str> = moved.locks.iter().map(|lock| lock.tenant.as_str()).collect();
        let sql = "SELECT tenant FROM @.locks WHERE tenant = ANY ($1) AND expires_at >= @.now_ms() ORDER BY 1";
        let rows = self.run(sql, &[(&tenants, Type::TEXT_ARRAY)]).await?;
        if rows.is_empty() {
            return Ok(());
        }
        let (plan, busy) = (moved.plan.definition.id.clone(), rows.iter().map(|row| row.get(0)).collect());
        Err(Clash::TenantsBusy { plan, busy }.into())
    }

    async fn plan(&self, moved: &MovedPlan) -> Result<(), StoreError> {
        let MovedPlan { plan, row, tasks, .. } = moved;
        let definition = serde_json::to_string(&plan.definition).expect("a plan's definition came from JSON or YAML");
        let digest = digest(&definition, &plan.tasks);
        let digest = digest.as_slice();
        let settings = &plan.definition.settings;
        let (most, automatic) = (number(settings.max_concurrency), super::submit::automatic(settings));
        let go = i16::from(crate::going::when_moved(settings.recovery));
        let workflow = plan.definition.workflow.as_ref().map(workflow_key);
        let of = |status: &TaskStatus| tasks.iter().filter(|moved| moved.task.status() == *status).count();
        let counts: Vec<i32> = TaskStatus::ALL.iter().map(|status| i32::try_from(of(status)).unwrap_or(0)).collect();
        let slots = i32::try_from(tasks.iter().filter(|moved| Standing::of(moved).slot).count()).unwrap_or(0);
        let last_task = self.first_task + tasks.len() as i64 - 1;
        let (id, status, version) = (row.id.as_str(), plan_code(row.status), row.version as i64);
        let by = row.changed_by.as_ref().map(|by| serde_json::to_string(by).expect("two strings are JSON"));
        let created = row.created_at.as_millis();
        let (started, ended) = (row.started_at.map(Timestamp::as_millis), row.ended_at.map(Timestamp::as_millis));
        let sql =
            "INSERT INTO @.plans VALUES ($1, $2, $3, $4, 1, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";
        let parameters: &[(&(dyn ToSql + Sync), Type)] = &[
            (&self.plan, Type::INT8),
            (&id, Type::TEXT),
            (&status, Type::INT2),
            (&version, Type::INT8),
            (&most, Type::INT4),
            (&automatic, Type::BOOL),
            (&workflow, Type::TEXT),
            (&counts, Type::INT4_ARRAY),
            (&slots, Type::INT4),
            (&self.first_task, Type::INT8),
            (&last_task, Type::INT8),
            (&created, Type::INT8),
            (&started, Type::INT8),
            (&ended, Type::INT8),
            (&by, Type::TEXT),
            (&go, Type::INT2),
        ];
        self.run(sql, parameters).await?;
        let sql = "INSERT INTO @.plan_definitions VALUES ($1, $2, $3)";
        self.run(sql, &[(&self.plan, Type::INT8), (&definition, Type::TEXT), (&digest, Type::BYTEA)]).await?;
        Ok(())
    }

    async fn tasks(&mut self, moved: &MovedPlan) -> Result<(), StoreError> {
        let definitions = moved.plan.tasks.chunks(AT_ONCE);
        for (step, (definitions, tasks)) in definitions.zip(moved.tasks.chunks(AT_ONCE)).enumerate() {
            let first = self.first_task + (step * AT_ONCE) as i64;
            let mut last_events = Vec::with_capacity(tasks.len());
            let mut rows = LogColumns::default();
            for (task, no) in tasks.iter().zip(first..) {
                for (record, sequence) in task.events.iter().zip(1..) {
                    self.position += 1;
                    rows.push(self.position, no, sequence, record);
                    if rows.positions.len() >= AT_ONCE {
                        self.events(std::mem::take(&mut rows)).await?;
                    }
                }
                last_events.push(self.position);
            }
            self.events(rows).await?;
            self.configs(first, definitions, tasks).await?;
            self.runtimes(first, definitions, tasks, &last_events).await?;
            self.output(first, tasks).await?;
            self.snapshots(first, tasks, &last_events).await?;
        }
        Ok(())
    }

    async fn events(&self, rows: LogColumns) -> Result<(), StoreError> {
        let sql = "INSERT INTO @.events SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8)";
        let array = Type::INT8_ARRAY;
        let parameters: &[(&(dyn ToSql + Sync), Type)] = &[
            (&rows.positions, array.clone()),
            (&rows.tasks, array.clone()),
            (&rows.sequences, array.clone()),
            (&rows.crcs, array.clone()),
            (&rows.attempts, Type::INT4_ARRAY),
            (&rows.backoffs, array),
            (&rows.failures, Type::TEXT_ARRAY),
            (&rows.bodies, Type::TEXT_ARRAY),
        ];
        self.run(sql, parameters).await.map(|_| ())
    }

    async fn configs(
        &self,
        first: i64,
        definitions: &[milepost_core::plan::TaskDefinition],
        tasks: &[MovedTask],
    ) -> Result<(), StoreError> {
        let ids: Vec<&str> = definitions.iter().map(|task| task.id.as_str()).collect();
        let tenants: Vec<Option<&str>> =
            definitions.iter().map(|task| task.tenant.as_ref().map(|t| t.as_str())).collect();
        let created: Vec<i64> = tasks.iter().map(|moved| moved.task.spec().created_at.as_millis()).collect();
        let (bodies, crcs): (Vec<Option<String>>, Vec<u32>) = definitions.iter().map(encode_config).unzip();
        let crcs: Vec<i64> = crcs.into_iter().map(i64::from).collect();
        let sql = "INSERT INTO @.task_configs SELECT $1 + t.i - 1, t.id, $2, t.tenant, t.created, t.body, t.crc \
                   FROM unnest($3, $4, $5, $6, $7) WITH ORDINALITY t (id, tenant, created, body, crc, i)";
        let parameters: &[(&(dyn ToSql + Sync), Type)] = &[
            (&first, Type::INT8),
            (&self.plan, Type::INT8),
            (&ids, Type::TEXT_ARRAY),
            (&tenants, Type::TEXT_ARRAY),
            (&created, Type::INT8_ARRAY),
            (&bodies, Type::TEXT_ARRAY),
            (&crcs, Type::INT8_ARRAY),
        ];
        self.run(sql, parameters).await.map(|_| ())
    }

    async fn runtimes(
        &self,
        first: i64,
        definitions: &[milepost_core::plan::TaskDefinition],
        tasks: &[MovedTask],
        last_events: &[i64],
    ) -> Result<(), StoreError> {
        let mut columns = TaskColumns::default();
        let nothing = || EventColumns { attempt: 1, backoff_ms: None, failure: None };
        for moved in tasks {
            columns.push(RowImage::of(&moved.task), None, nothing());
        }
        let standings: Vec<Standing> = tasks.iter().map(Standing::of).collect();
        let queues: Vec<Option<i16>> = standings.iter().map(|standing| standing.queue).collect();
        let slots: Vec<bool> = standings.iter().map(|standing| standing.slot).collect();
        let wakes: Vec<Option<i64>> = standings.iter().map(|standing| standing.wake_at).collect();
        let ranks: Vec<i64> = definitions.iter().map(|task| -i64::from(task.priority)).collect();
        let tenants: Vec<Option<&str>> =
            definitions.iter().map(|task| task.tenant.as_ref().map(|t| t.as_str())).collect();
        let sql = "INSERT INTO @.task_runtimes (no, plan, lease, queue, slot, wake_at, rank, tenant, last_event, status, version, \
                   done, total, stage, attempt, due_at, flags, reason, started_at, updated_at, ended_at) \
                   SELECT $1 + t.i - 1, $2, t.lease, t.queue, t.slot, t.wake, t.rank, t.tenant, t.last, t.status, t.version, t.done, \
                   t.total, t.stage, t.attempt, t.due, t.flags, t.reason, t.started, t.updated, t.ended \
                   FROM unnest($3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21) \
                   WITH ORDINALITY t (queue, slot, wake, rank, tenant, last, status, version, done, total, stage, attempt, due, \
                   flags, reason, started, updated, ended, lease, i)";
        let mut parameters: Vec<(&(dyn ToSql + Sync), Type)> = vec![
            (&first, Type::INT8),
            (&self.plan, Type::INT8),
            (&queues, Type::INT2_ARRAY),
            (&slots, Type::BOOL_ARRAY),
            (&wakes, Type::INT8_ARRAY),
            (&ranks, Type::INT8_ARRAY),
            (&tenants, Type::TEXT_ARRAY),
            (&last_events, Type::INT8_ARRAY),
        ];
        parameters.extend(columns.image());
        // Of a node that is gone, and never comes back.
        let leases: Vec<i64> = tasks.iter().map(|moved| i64::from(moved.is_orphan())).collect();
        parameters.push((&leases, Type::INT8_ARRAY));
        self.run(sql, &parameters).await.map(|_| ())
    }

    async fn output(&self, first: i64, tasks: &[MovedTask]) -> Result<(), StoreError> {
        let mut output = OutputColumns::default();
        for (moved, no) in tasks.iter().zip(first..) {
            output.extend(no, moved.output.clone());
        }
        let sql = "INSERT INTO @.logs (task, stage, attempt, at, bytes) SELECT t.no, t.stage, t.attempt, t.at, t.bytes \
                   FROM unnest($1, $2, $3, $4, $5) WITH ORDINALITY t (no, stage, attempt, at, bytes, i) ORDER BY t.i";
        self.run(sql, &output.parameters()).await.map(|_| ())
    }

    async fn snapshots(&self, first: i64, tasks: &[MovedTask], last_events: &[i64]) -> Result<(), StoreError> {
        for ((moved, no), position) in tasks.iter().zip(first..).zip(last_events) {
            if moved.task.version() < SHORTEST {
                continue;
            }
            let Some(snapshot) = Snapshot::of(&moved.task) else { continue };
            let (sequence, crc) = (snapshot.version as i64, i64::from(snapshot.crc));
            let parameters: &[(&(dyn ToSql + Sync), Type)] = &[
                (&no, Type::INT8),
                (&sequence, Type::INT8),
                (position, Type::INT8),
                (&crc, Type::INT8),
                (&snapshot.text, Type::TEXT),
            ];
            self.run("INSERT INTO @.snapshots VALUES ($1, $2, $3, $4, $5)", parameters).await?;
        }
        Ok(())
    }

    /// Their time begins anew here, by the clock of this server. A position is the next one's fence, so none may be
    /// smaller than these.
    async fn locks(&mut self, moved: &MovedPlan) -> Result<(), StoreError> {
        let tenants: Vec<&str> = moved.locks.iter().map(|lock| lock.tenant.as_str()).collect();
        let tasks: Vec<&str> = moved.locks.iter().map(|lock| lock.task.as_str()).collect();
        let since: Vec<i64> = moved.locks.iter().map(|lock| lock.since.as_millis()).collect();
        let fences: Vec<i64> = moved.locks.iter().map(|lock| i64::try_from(lock.fence).unwrap_or(i64::MAX)).collect();
        let sql = "INSERT INTO @.locks SELECT t.tenant, c.no, t.since, t.fence, @.now_ms() + $5 \
                   FROM unnest($1, $2, $3, $4) t (tenant, task, since, fence) JOIN @.task_configs c ON c.id = t.task \
                   ON CONFLICT (tenant) DO UPDATE SET task = excluded.task, since = excluded.since, \
                   fence = excluded.fence, expires_at = excluded.expires_at";
        let parameters: &[(&(dyn ToSql + Sync), Type)] = &[
            (&tenants, Type::TEXT_ARRAY),
            (&tasks, Type::TEXT_ARRAY),
            (&since, Type::INT8_ARRAY),
            (&fences, Type::INT8_ARRAY),
            (&self.lock_ms, Type::INT8),
        ];
        self.run(sql, parameters).await?;
        self.position = fences.into_iter().fold(self.position, i64::max);
        Ok(())
    }

    /// The plan as it is now, at the end of its log, and the numbers that are taken.
    async fn finish(&mut self, moved: &MovedPlan) -> Result<(), StoreError> {
        let row = &moved.row;
        self.position += 1;
        let (status, version, subject) = (plan_code(row.status), row.version as i64, -self.plan);
        let at = row.ended_at.or(row.started_at).unwrap_or(row.created_at).as_millis();
        let by = row.changed_by.as_ref().map(|by| serde_json::to_string(by).expect("two strings are JSON"));
        let sql = "INSERT INTO @.events (pos, task, seq, crc, body) VALUES ($1, $2, $3, 0, @.plan_body($4, $5, $6))";
        let parameters: &[(&(dyn ToSql + Sync), Type)] = &[
            (&self.position, Type::INT8),
            (&subject, Type::INT8),
            (&version, Type::INT8),
            (&status, Type::INT2),
            (&at, Type::INT8),
            (&by, Type::TEXT),
        ];
        self.run(sql, parameters).await?;
        let last_task = self.first_task + moved.tasks.len() as i64 - 1;
        let sql = "UPDATE @.counters SET position = $1, plan = $2, task = $3";
        let array: &[(&(dyn ToSql + Sync), Type)] =
            &[(&self.position, Type::INT8), (&self.plan, Type::INT8), (&last_task, Type::INT8)];
        self.run(sql, array).await?;
        if row.status == PlanStatus::Running {
            self.run("SELECT @.call_others(NULL)", &[]).await?;
        }
        Ok(())
    }
}

/// Where a task stands that nobody holds.
struct Standing {
    queue: Option<i16>,
    slot: bool,
    wake_at: Option<i64>,
}

impl Standing {
    fn of(moved: &MovedTask) -> Self {
        let status = moved.task.status();
        let idle = |queue| Self { queue, slot: false, wake_at: None };
        match (status, moved.wake) {
            (TaskStatus::Pending, _) if moved.task.awaits_message() => idle(None),
            (TaskStatus::Pending, _) => idle(Some(0)),
            (TaskStatus::Paused, _) => idle(Some(3)),
            // A rollback that somebody asked for and nobody has begun has no slot yet.
            (TaskStatus::RollingBack, Wake::At(at)) if at <= moved.task.updated_at() => {
                Self { queue: Some(5), slot: false, wake_at: Some(at.as_millis()) }
            }
            (TaskStatus::Running | TaskStatus::RollingBack, Wake::At(at)) => {
                Self { queue: Some(6), slot: true, wake_at: Some(at.as_millis()) }
            }
            (TaskStatus::Running | TaskStatus::RollingBack, Wake::Recovery) => {
                Self { queue: Some(7), slot: true, wake_at: None }
            }
            (
                TaskStatus::Completed
                | TaskStatus::Failed
                | TaskStatus::Cancelled
                | TaskStatus::RolledBack
                | TaskStatus::RollbackFailed,
                _,
            ) => idle(None),
        }
    }
}

/// Rows of the log, one for each event.
#[derive(Default)]
struct LogColumns {
    positions: Vec<i64>,
    tasks: Vec<i64>,
    sequences: Vec<i64>,
    crcs: Vec<i64>,
    attempts: Vec<i32>,
    backoffs: Vec<Option<i64>>,
    failures: Vec<Option<String>>,
    bodies: Vec<String>,
}

impl LogColumns {
    fn push(&mut self, position: i64, task: i64, sequence: i64, record: &Record) {
        let body = encode_events(std::slice::from_ref(record));
        let columns = EventColumns::of(std::slice::from_ref(record));
        self.positions.push(position);
        self.tasks.push(task);
        self.sequences.push(sequence);
        self.crcs.push(body.crc.into());
        self.attempts.push(columns.attempt);
        self.backoffs.push(columns.backoff_ms);
        self.failures.push(columns.failure.map(super::columns::text));
        self.bodies.push(body.text);
    }
}
