//! The log as one: every commit of every task, and every change of a plan's status, in the order of their positions.
//!
//! Positions are given under the lock that every writer holds until its commit, so whoever sees one has seen all before.

use mysql_async::Row;

use crate::codec::{decode_events, decode_plan_change};
use crate::error::StoreError;
use crate::model::{Change, ChangeQuery, Changed, Changes, Position};

use super::codec::{Columns, Sql, unavailable};
use super::log::Stored;
use super::sql::text;
use super::store::Shared;

/// One call looks at no more positions than this, and answers with no more rows: results may be large.
const MOST_POSITIONS: i64 = 4096;
const MOST_ROWS: usize = 512;

impl Shared {
    pub(super) async fn changes(&self, query: &ChangeQuery) -> Result<Changes, StoreError> {
        let unavailable = unavailable("read what has changed");
        let after = query.after.0;
        let most = query.limit.min(MOST_ROWS);
        let only = query.plan.as_ref().map(|id| text(id.as_str()));
        let found = only
            .as_ref()
            .map_or_else(|| "1".to_owned(), |name| format!("EXISTS (SELECT 1 FROM sync_tasks WHERE name = {name})"));
        let wanted = only.map_or_else(String::new, |name| format!(" AND p.name = {name}"));
        let sql = format!(
            "SELECT position, {found} FROM milepost_counters WHERE id = 1; \
             SELECT e.position, e.task, c.unit_name, c.tenant, p.name, e.sequence, e.crc, e.body FROM milepost_events e \
             LEFT JOIN task_unit_configs c ON c.id = e.task \
             LEFT JOIN sync_tasks p ON p.id = IF(e.task < 0, -e.task, c.task_id) \
             WHERE e.position > {after} AND e.position <= {last}{wanted} ORDER BY e.position LIMIT {limit}",
            last = after.saturating_add(MOST_POSITIONS),
            limit = most + 1,
        );
        let mut answers = self.server.look("read what has changed", &sql).await?.into_iter();
        let (newest, found) = read_newest(answers.next().unwrap_or_default()).map_err(&unavailable)?;
        if let (Some(id), false) = (&query.plan, found) {
            return Err(StoreError::NotFound { what: "plan", id: id.to_string() });
        }
        let mut rows = answers.next().unwrap_or_default();
        let cut = rows.len() > most;
        rows.truncate(most);
        let mut changes = Changes { items: Vec::new(), upto: query.after, more: cut };
        for row in rows {
            let mut columns = Columns::from(row);
            changes.upto = Position(columns.next().map_err(&unavailable)?);
            let change = read_change(changes.upto, columns).map_err(&unavailable)?;
            changes.items.extend(change);
        }
        if !cut {
            changes.upto = Position(newest.min(after.saturating_add(MOST_POSITIONS)).max(after));
            changes.more = changes.upto.0 < newest;
        }
        Ok(changes)
    }
}

fn read_newest(rows: Vec<Row>) -> Sql<(i64, bool)> {
    let Some(row) = rows.into_iter().next() else { return Ok((0, false)) };
    let mut columns = Columns::from(row);
    Ok((columns.next()?, columns.flag()?))
}

/// None when it cannot be read: one damaged row must not keep everybody from all that follows. Whoever asks for the task
/// itself is told.
fn read_change(position: Position, mut columns: Columns) -> Sql<Option<Change>> {
    let subject: i64 = columns.next()?;
    let task = columns.maybe::<String>()?;
    let tenant = columns.maybe_tenant()?;
    let Some(plan) = columns.maybe::<String>()? else { return Ok(None) };
    let stored = Stored::read(&mut columns)?;
    let what = || format!("event row {}", position.0);
    let decoded = stored.checked(what).and_then(|text| match task {
        Some(task) => {
            let task = milepost_core::id::TaskId::parse(task).map_err(|error| crate::codec::damaged(what(), error))?;
            Ok(Changed::Task { task, tenant, sequence: stored.sequence, records: decode_events(text, what)? })
        }
        None if subject < 0 => decode_plan_change(text, what),
        None => Err(crate::codec::damaged(what(), "its task is gone")),
    });
    let plan = milepost_core::id::PlanId::parse(plan).map_err(|error| mysql_async::Error::Other(error.into()))?;
    match decoded {
        Ok(what) => Ok(Some(Change { position, plan, what })),
        Err(error) => {
            tracing::warn!(position = position.0, %error, "a change is left out, because it cannot be read");
            Ok(None)
        }
    }
}
