//! Questions, each answered by one statement, so that an answer is of one moment.

use milepost_core::id::{PlanId, StageName, TaskId};
use milepost_core::plan::{Plan, PlanDefinition, TaskCounts};
use milepost_core::task::TaskStatus;
use milepost_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::codec::{LogRow, damaged, number_events};
use crate::error::StoreError;
use crate::model::{EventQuery, LockRow, LogChunk, LogQuery, Page, PlanQuery, PlanRow, StoredEvent};

use super::claim::missing_task;
use super::codec::{config, crc, plan_id, plan_status, task_id, tenant, time};
use super::store::Inner;

/// What a plan's row shows, and what else is needed to change it.
pub(super) struct FoundPlan {
    pub(super) no: i64,
    pub(super) row: PlanRow,
    pub(super) digest: Vec<u8>,
}

const PLANS: &str = "SELECT p.no, p.id, p.status, p.version, p.max_concurrency, p.counts, p.created_at, p.started_at, \
    p.ended_at, p.changed_by, p.status = 2 AND @.is_held(p.automatic, p.go) AS waits_for_person FROM @.plans p";

impl Inner {
    pub(super) async fn plan_number(&self, id: &PlanId) -> Result<Option<i64>, StoreError> {
        self.number("SELECT no FROM @.plans WHERE id = $1", id.as_str()).await
    }

    pub(super) async fn task_number(&self, id: &TaskId) -> Result<Option<i64>, StoreError> {
        self.number("SELECT no FROM @.task_configs WHERE id = $1", id.as_str()).await
    }

    async fn number(&self, sql: &str, id: &str) -> Result<Option<i64>, StoreError> {
        let rows = self.server.read("look up an id", sql, &[(&id, Type::TEXT)]).await?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    pub(super) async fn plan(&self, id: &PlanId) -> Result<Option<PlanRow>, StoreError> {
        let sql = format!("{PLANS} WHERE p.id = $1");
        let rows = self.server.read("read a plan", &sql, &[(&id.as_str(), Type::TEXT)]).await?;
        rows.first().map(plan_row).transpose()
    }

    pub(super) async fn find_plan(&self, id: &PlanId) -> Result<Option<FoundPlan>, StoreError> {
        let columns =
            PLANS.replace(" FROM @.plans p", ", d.digest FROM @.plans p JOIN @.plan_definitions d ON d.no = p.no");
        let sql = format!("{columns} WHERE p.id = $1");
        let rows = self.server.read("read a plan", &sql, &[(&id.as_str(), Type::TEXT)]).await?;
        let found = |row: &Row| Ok(FoundPlan { no: row.get("no"), row: plan_row(row)?, digest: row.get("digest") });
        rows.first().map(found).transpose()
    }

    pub(super) async fn plans_page(&self, query: &PlanQuery) -> Result<Page<PlanRow>, StoreError> {
        let open = if query.open_only { "AND p.ended_at IS NULL" } else { "" };
        let sql = format!("{PLANS} WHERE p.no < $1 {open} ORDER BY p.no DESC LIMIT $2");
        let (before, limit) = (query.after.unwrap_or(i64::MAX), one_more(query.limit));
        let rows = self.server.read("list plans", &sql, &[(&before, Type::INT8), (&limit, Type::INT8)]).await?;
        let rows = rows.iter().map(|row| Ok((row.get("no"), plan_row(row)?))).collect::<Result<_, StoreError>>()?;
        Ok(page(rows, query.limit))
    }

    pub(super) async fn definition(&self, id: &PlanId) -> Result<Option<Plan>, StoreError> {
        let sql = "SELECT d.definition, c.no, c.id, c.plan, c.tenant, c.created_at, c.body, c.crc, r.rank \
                   FROM @.plans p JOIN @.plan_definitions d ON d.no = p.no \
                   LEFT JOIN (@.task_configs c JOIN @.task_runtimes r ON r.no = c.no) \
                   ON c.no BETWEEN p.first_task AND p.last_task AND c.plan = p.no WHERE p.id = $1 ORDER BY c.no";
        let rows = self.server.read("read a plan", sql, &[(&id.as_str(), Type::TEXT)]).await?;
        let Some(first) = rows.first() else { return Ok(None) };
        let definition: PlanDefinition = serde_json::from_str(first.get("definition"))
            .map_err(|error| damaged(format!("the definition of plan {id}"), error))?;
        let with_task = rows.iter().filter(|row| row.get::<_, Option<i64>>("no").is_some());
        let tasks = with_task.map(|row| config(row)?.definition(row.get("rank"))).collect::<Result<_, _>>()?;
        Ok(Some(Plan { definition, tasks }))
    }

    pub(super) async fn events(&self, query: &EventQuery) -> Result<Vec<StoredEvent>, StoreError> {
        let sql = "SELECT c.no, c.created_at, r.version FROM @.task_configs c JOIN @.task_runtimes r ON r.no = c.no \
                   WHERE c.id = $1";
        let rows = self.server.read("read a task", sql, &[(&query.task.as_str(), Type::TEXT)]).await?;
        let found = rows.first().ok_or_else(|| missing_task(&query.task))?;
        let (no, created_at, version): (i64, i64, i64) = (found.get(0), found.get(1), found.get(2));
        // The row that the first wanted event is in may begin before it.
        let sql = "SELECT pos, seq, crc, body FROM @.events WHERE task = $1 AND pos >= coalesce(\
                   (SELECT max(pos) FROM @.events WHERE task = $1 AND seq <= $2), 0) ORDER BY pos LIMIT $3";
        let (first, limit) = (i64::try_from(query.after + 1).unwrap_or(i64::MAX), one_more(query.limit));
        let parameters: &super::connect::Parameters<'_> =
            &[(&no, Type::INT8), (&first, Type::INT8), (&limit, Type::INT8)];
        let rows = self.server.read("read events", sql, parameters).await?;
        let end = ((rows.len() as i64) < limit).then(|| version.unsigned_abs());
        let log = rows.iter().map(|row| {
            let (position, sequence, text): (i64, i64, &str) = (row.get(0), row.get(1), row.get(3));
            let what = || format!("event row {position} of task {}", query.task);
            LogRow::read(sequence.unsigned_abs(), text, crc(row, "crc"), what)
        });
        Ok(number_events(log, query, end, Timestamp::from_millis(created_at)))
    }

    pub(super) async fn logs(&self, query: &LogQuery) -> Result<Vec<LogChunk>, StoreError> {
        let no = self.task_number(&query.task).await?.ok_or_else(|| missing_task(&query.task))?;
        let sql = "SELECT stage, attempt, at, bytes FROM @.logs WHERE task = $1 AND ($2 IS NULL OR stage = $2) \
                   AND ($3 IS NULL OR attempt = $3) ORDER BY no";
        let stage = query.stage.as_ref().map(StageName::as_str);
        let attempt = query.attempt.map(super::columns::number);
        let parameters: &super::connect::Parameters<'_> =
            &[(&no, Type::INT8), (&stage, Type::TEXT), (&attempt, Type::INT4)];
        let rows = self.server.read("read captured output", sql, parameters).await?;
        rows.iter().map(log_chunk).collect()
    }

    pub(super) async fn locks(&self) -> Result<Vec<LockRow>, StoreError> {
        let sql = "SELECT l.tenant, p.id AS plan, c.id AS task, l.since, l.fence, l.expires_at FROM @.locks l \
                   JOIN @.task_configs c ON c.no = l.task JOIN @.plans p ON p.no = c.plan \
                   WHERE l.expires_at >= @.now_ms() ORDER BY l.tenant";
        let rows = self.server.read("list tenant locks", sql, &[]).await?;
        rows.iter().map(lock_row).collect()
    }
}

pub(super) fn plan_row(row: &Row) -> Result<PlanRow, StoreError> {
    let mut counts = TaskCounts::default();
    for (status, count) in TaskStatus::ALL.iter().zip(row.get::<_, Vec<i32>>("counts")) {
        counts.add(*status, count.max(0).unsigned_abs().into());
    }
    let by: Option<&str> = row.get("changed_by");
    Ok(PlanRow {
        id: plan_id(row.get("id"))?,
        status: plan_status(row.get("status"))?,
        max_concurrency: row.get::<_, i32>("max_concurrency").unsigned_abs(),
        counts,
        version: row.get::<_, i64>("version").unsigned_abs(),
        waits_for_person: row.get("waits_for_person"),
        changed_by: by.and_then(|by| serde_json::from_str(by).ok()),
        created_at: Timestamp::from_millis(row.get("created_at")),
        started_at: time(row, "started_at"),
        ended_at: time(row, "ended_at"),
    })
}

fn log_chunk(row: &Row) -> Result<LogChunk, StoreError> {
    Ok(LogChunk {
        stage: StageName::parse(row.get::<_, &str>("stage")).map_err(|error| damaged("a stage's name", error))?,
        attempt: row.get::<_, i32>("attempt").unsigned_abs(),
        at: Timestamp::from_millis(row.get("at")),
        bytes: row.get("bytes"),
    })
}

fn lock_row(row: &Row) -> Result<LockRow, StoreError> {
    let held = tenant(row.get("tenant"))?.ok_or_else(|| damaged("a tenant lock", "it has no tenant"))?;
    Ok(LockRow {
        tenant: held,
        plan: plan_id(row.get("plan"))?,
        task: task_id(row.get("task"))?,
        since: Timestamp::from_millis(row.get("since")),
        fence: row.get::<_, i64>("fence").unsigned_abs(),
        expires_at: time(row, "expires_at"),
    })
}

/// A page is read with one row more than asked for: if it is there, so is a next page.
pub(super) fn one_more(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1)
}

pub(super) fn page<T>(mut rows: Vec<(i64, T)>, limit: usize) -> Page<T> {
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|(no, _)| *no);
    Page { items: rows.into_iter().map(|(_, item)| item).collect(), next }
}
