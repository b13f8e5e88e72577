//! A task as its log makes it, and lists of tasks without their logs.

use milepost_core::id::{StageName, TaskId, Tenant};
use milepost_core::task::Task;
use milepost_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::codec::damaged;
use crate::error::StoreError;
use crate::going::Going;
use crate::model::{Page, StoredTask, TaskQuery, TaskRef, TaskRow, TasksOf};
use crate::row::{FLAG_AWAITS_MESSAGE, FLAG_INTERRUPTED, FLAG_PAUSE_REQUESTED};

use super::claim::missing_plan;
use super::codec::{config, creation, head, plan_id, plan_status, task_id, task_status, tenant, time};
use super::fold::{Wanted, fold};
use super::read::{one_more, page};
use super::store::Inner;

/// Who else has the tenant that a task waits for, as `planId:taskId`; why it was set aside, if it was; and whether the node
/// that has it is gone.
const STANDING: &str = "CASE WHEN r.tenant IS NOT NULL AND (r.status = 0 OR r.status IN (1, 6) AND r.lease = 0) THEN (\
            SELECT q.id || ':' || h.id FROM @.locks l JOIN @.task_configs h ON h.no = l.task JOIN @.plans q ON q.no = h.plan \
            WHERE l.tenant = r.tenant AND l.task <> r.no AND l.expires_at >= @.now_ms()) END AS blocked_by, \
    CASE WHEN r.queue = 4 THEN r.reason END AS set_aside, \
    r.status IN (1, 6) AND r.lease <> 0 AND NOT EXISTS (SELECT FROM @.nodes n WHERE n.session = r.lease >> 40 \
        AND NOT n.ended AND n.expires_at >= @.now_ms()) AS orphaned, r.progress, r.progress_of, r.lease";

pub(super) async fn task(inner: &Inner, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
    match look(inner, id).await {
        // An update of its plan may have taken its log away under our eyes.
        Ok(Some(stored)) if stored.task.damage().is_some() => look(inner, id).await,
        Err(StoreError::Damaged { .. }) => look(inner, id).await,
        found => found,
    }
}

async fn look(inner: &Inner, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
    let sql = format!(
        "SELECT c.no, c.id, c.plan, c.tenant, c.created_at, c.body, c.crc, r.rank, r.version, r.last_event, r.status, \
         p.revision, e.crc AS creation_crc, e.body AS creation, p.status AS plan_status, \
         p.go AS plan_go, p.ended_at IS NOT NULL AS has_ended, r.go, \
         CASE WHEN NOT p.automatic THEN @.has_begun() END AS begun, {STANDING} \
         FROM @.task_configs c JOIN @.task_runtimes r ON r.no = c.no JOIN @.plans p ON p.no = c.plan \
         LEFT JOIN @.events e ON r.version = 1 AND e.pos = r.last_event WHERE c.id = $1"
    );
    let rows = inner.server.read("read a task", &sql, &[(&id.as_str(), Type::TEXT)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (config, head) = (config(row)?, head(row)?);
    let (key, plan) = (config.key.clone(), config.plan);
    let mut shared = inner.plans.read(&inner.server, &[(plan, row.get("revision"))]).await?;
    let missing = || Err("it is missing".to_owned());
    let shared = shared.remove(&plan).unwrap_or_else(missing);
    let shared = shared.map_err(|why| damaged(format!("the plan of task {id}"), why))?;
    let spec = config.spec(&shared, row.get("rank"));
    let wanted = Wanted { creation: creation(row, &key), key: key.clone(), spec, head };
    let folded = fold(&inner.server, vec![wanted]).await?.remove(0);
    let (epoch, orphaned) = (row.get::<_, i64>("lease").unsigned_abs(), row.get("orphaned"));
    let waits_for_person = (epoch == 0 || orphaned) && waits_for_person(row, &folded.task)?;
    Ok(Some(StoredTask {
        key,
        task: folded.task,
        epoch,
        orphaned,
        waits_for_person,
        blocked_by: row.get("blocked_by"),
        set_aside: row.get("set_aside"),
        progress: progress(row),
        claim_events: Vec::new(),
    }))
}

fn waits_for_person(row: &Row, task: &Task) -> Result<bool, StoreError> {
    let go = |column| u8::try_from(row.get::<_, i16>(column)).map_err(|error| damaged("a task's recovery", error));
    let going = Going::of(task.spec().settings.recovery, go("plan_go")?, row.get("has_ended"));
    let begun = row.get::<_, Option<bool>>("begun").unwrap_or(true);
    Ok(going.holds(task, go("go")?, plan_status(row.get("plan_status"))?, begun))
}

pub(super) async fn tasks(inner: &Inner, query: &TaskQuery) -> Result<Page<TaskRow>, StoreError> {
    let columns = format!(
        "SELECT c.no, c.id, p.id AS plan_id, c.tenant, c.created_at, r.status, r.flags, r.version, r.done, r.total, r.stage, \
         r.attempt, r.due_at, r.reason, r.started_at, r.ended_at, r.updated_at, {STANDING} \
         FROM @.task_configs c JOIN @.task_runtimes r ON r.no = c.no JOIN @.plans p ON p.no = c.plan"
    );
    let statuses: Option<Vec<i16>> = (!query.statuses.is_empty())
        .then(|| query.statuses.iter().map(|status| super::columns::task_code(*status)).collect());
    let limit = one_more(query.limit);
    let rows = match &query.of {
        TasksOf::Plan(id) => {
            let plan = inner.plan_number(id).await?.ok_or_else(|| missing_plan(id))?;
            let sql = format!(
                "{columns} WHERE p.no = $1 AND c.plan = $1 AND c.no > $2 AND c.no BETWEEN p.first_task AND p.last_task \
                 AND ($3 IS NULL OR r.status = ANY ($3)) ORDER BY c.no LIMIT $4"
            );
            list(inner, &sql, (&plan, Type::INT8), query.after.unwrap_or(0), &statuses, limit).await?
        }
        TasksOf::Tenant(tenant) => {
            let sql = format!(
                "{columns} WHERE c.tenant = $1 AND c.no < $2 AND ($3 IS NULL OR r.status = ANY ($3)) \
                 ORDER BY c.no DESC LIMIT $4"
            );
            let tenant = Tenant::as_str(tenant);
            list(inner, &sql, (&tenant, Type::TEXT), query.after.unwrap_or(i64::MAX), &statuses, limit).await?
        }
    };
    let rows = rows.iter().map(|row| Ok((row.get("no"), task_row(row)?))).collect::<Result<_, StoreError>>()?;
    Ok(page(rows, query.limit))
}

async fn list(
    inner: &Inner,
    sql: &str,
    of: (&(dyn tokio_postgres::types::ToSql + Sync), Type),
    after: i64,
    statuses: &Option<Vec<i16>>,
    limit: i64,
) -> Result<Vec<Row>, StoreError> {
    let parameters: &super::connect::Parameters<'_> =
        &[of, (&after, Type::INT8), (statuses, Type::INT2_ARRAY), (&limit, Type::INT8)];
    inner.server.read("list tasks", sql, parameters).await
}

fn task_row(row: &Row) -> Result<TaskRow, StoreError> {
    let status = task_status(row.get("status"))?;
    let flags = i64::from(row.get::<_, i16>("flags"));
    let orphaned: bool = row.get("orphaned");
    let stage: Option<&str> = row.get("stage");
    Ok(TaskRow {
        key: TaskRef { no: row.get("no"), id: task_id(row.get("id"))? },
        plan: plan_id(row.get("plan_id"))?,
        tenant: tenant(row.get("tenant"))?,
        status,
        interrupted: status.is_active() && (flags & FLAG_INTERRUPTED != 0 || orphaned),
        pause_requested: flags & FLAG_PAUSE_REQUESTED != 0,
        awaits_message: flags & FLAG_AWAITS_MESSAGE != 0,
        version: row.get::<_, i64>("version").unsigned_abs(),
        done: row.get::<_, i32>("done").unsigned_abs(),
        stages: row.get::<_, i32>("total").unsigned_abs(),
        stage: stage.and_then(|stage| StageName::parse(stage).ok()),
        attempt: row.get::<_, i32>("attempt").unsigned_abs(),
        next_due: time(row, "due_at"),
        blocked_by: row.get("blocked_by"),
        set_aside: row.get("set_aside"),
        reason: row.get("reason"),
        progress: progress(row),
        created_at: Timestamp::from_millis(row.get("created_at")),
        started_at: time(row, "started_at"),
        ended_at: time(row, "ended_at"),
        updated_at: Timestamp::from_millis(row.get("updated_at")),
    })
}

fn progress(row: &Row) -> Option<(u64, u64)> {
    let (done, total): (Option<i64>, Option<i64>) = (row.get("progress"), row.get("progress_of"));
    done.map(|done| (done.unsigned_abs(), total.unwrap_or(0).unsigned_abs()))
}
