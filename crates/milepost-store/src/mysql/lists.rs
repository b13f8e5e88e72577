//! Plans and tasks in pages.

use milepost_core::id::StageName;
use mysql_async::Row;

use crate::error::StoreError;
use crate::model::{Page, PlanQuery, PlanRow, TaskQuery, TaskRef, TaskRow, TasksOf};
use crate::row::{FLAG_AWAITS_MESSAGE, FLAG_INTERRUPTED, FLAG_PAUSE_REQUESTED};

use super::codec::{Columns, Sql, task_word, unavailable};
use super::read::{Around, joins};
use super::sql::{text, texts};
use super::states::{PLAN, PlanState, TASK, TaskState};
use super::store::Shared;

impl Shared {
    pub(super) async fn list_plans(&self, query: &PlanQuery) -> Result<Page<PlanRow>, StoreError> {
        let open = if query.open_only { " AND p.ended_at IS NULL" } else { "" };
        let sql = format!(
            "SELECT {PLAN} FROM sync_tasks p WHERE p.id < {}{open} ORDER BY p.id DESC LIMIT {}",
            query.after.unwrap_or(i64::MAX),
            one_more(query.limit)
        );
        let rows = self.server.ask("list plans", &sql).await?.concat();
        let plan = |row: Row| PlanState::read(&mut Columns::from(row)).map(|plan| (plan.no, plan.row()));
        let rows = rows.into_iter().map(plan).collect::<Sql<_>>().map_err(unavailable("list plans"))?;
        Ok(page(rows, query.limit))
    }

    pub(super) async fn list_tasks(&self, query: &TaskQuery) -> Result<Page<TaskRow>, StoreError> {
        let select = format!(
            "SELECT {TASK}, p.name, c.created_at, r.flags, r.done, r.total, r.stage, r.attempt, r.due_at, r.started_at, \
             r.ended_at, r.updated_at, {} FROM task_unit_configs c JOIN task_unit_runtimes r ON r.id = c.id \
             JOIN sync_tasks p ON p.id = c.task_id {}",
            Around::COLUMNS,
            joins()
        );
        let statuses = if query.statuses.is_empty() {
            String::new()
        } else {
            format!(" AND r.status IN ({})", texts(query.statuses.iter().map(|status| task_word(*status))))
        };
        let limit = one_more(query.limit);
        let (found, sql) = match &query.of {
            TasksOf::Plan(id) => {
                let (name, after) = (text(id.as_str()), query.after.unwrap_or(0));
                let plan = format!("SELECT id FROM sync_tasks WHERE name = {name}");
                let sql = format!(
                    "{plan}; {select} WHERE c.task_id = ({plan}) AND c.id > {after}{statuses} ORDER BY c.id LIMIT {limit}"
                );
                (Some(id), sql)
            }
            TasksOf::Tenant(tenant) => {
                let (tenant, before) = (text(tenant.as_str()), query.after.unwrap_or(i64::MAX));
                let sql = format!(
                    "{select} WHERE c.tenant = {tenant} AND c.id < {before}{statuses} ORDER BY c.id DESC LIMIT {limit}"
                );
                (None, sql)
            }
        };
        let mut answers = self.server.look("list tasks", &sql).await?.into_iter();
        if let Some(id) = found
            && answers.next().unwrap_or_default().is_empty()
        {
            return Err(StoreError::NotFound { what: "plan", id: id.to_string() });
        }
        let rows = answers.next().unwrap_or_default().into_iter().map(task_row);
        Ok(page(rows.collect::<Sql<_>>().map_err(unavailable("list tasks"))?, query.limit))
    }
}

fn task_row(row: Row) -> Sql<(i64, TaskRow)> {
    let mut columns = Columns::from(row);
    let task = TaskState::read(&mut columns)?;
    let (plan, created_at, flags) = (columns.plan_id()?, columns.time()?, columns.next::<i64>()?);
    let (done, stages, stage, attempt) =
        (columns.next()?, columns.next()?, columns.maybe::<String>()?, columns.next()?);
    let (next_due, started_at, ended_at) = (columns.maybe_time()?, columns.maybe_time()?, columns.maybe_time()?);
    let updated_at = columns.time()?;
    let around = Around::read(&mut columns)?;
    let orphaned = task.lease != 0 && !around.live;
    let row = TaskRow {
        key: TaskRef { no: task.no, id: task.id },
        plan,
        tenant: task.tenant,
        status: task.status,
        interrupted: task.status.is_active() && (flags & FLAG_INTERRUPTED != 0 || orphaned),
        pause_requested: flags & FLAG_PAUSE_REQUESTED != 0,
        awaits_message: flags & FLAG_AWAITS_MESSAGE != 0,
        version: task.version,
        done,
        stages,
        stage: stage.and_then(|stage| StageName::parse(stage).ok()),
        attempt,
        next_due,
        blocked_by: around.blocked_by(task.status),
        set_aside: around.set_aside(task.queue),
        reason: around.reason,
        progress: task.progress,
        created_at,
        started_at,
        ended_at,
        updated_at,
    };
    Ok((task.no, row))
}

/// One row more than asked for is read: if it is there, so is a next page.
pub(super) fn one_more(limit: usize) -> usize {
    limit.min(1 << 30) + 1
}

pub(super) fn page<T>(mut rows: Vec<(i64, T)>, limit: usize) -> Page<T> {
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|(no, _)| *no);
    Page { items: rows.into_iter().map(|(_, item)| item).collect(), next }
}
