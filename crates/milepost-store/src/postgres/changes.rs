//! The log as one: every commit of every task, and every change of a plan's status, in the order of their positions.
//!
//! Whoever writes numbers its rows under a lock that it keeps until they are committed, so whoever sees a position has
//! seen all before it.

use milepost_core::id::PlanId;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::codec::{check_body, decode_events, decode_plan_change};
use crate::error::StoreError;
use crate::model::{Change, ChangeQuery, Changed, Changes, Position};

use super::claim::missing_plan;
use super::codec::{crc, plan_id, task_id, tenant};
use super::store::Inner;

/// One call looks at no more than this.
const MOST_ROWS: i64 = 4096;
/// Nor does it answer with much more than this: results may be large.
const MOST_BYTES: i64 = 4 << 20;

impl Inner {
    pub(super) async fn newest(&self) -> Result<Position, StoreError> {
        let sql = "SELECT coalesce(max(pos), 0) FROM @.events";
        let rows = self.server.read("find the newest event", sql, &[]).await?;
        Ok(Position(rows[0].get(0)))
    }

    pub(super) async fn changes(&self, query: &ChangeQuery) -> Result<Changes, StoreError> {
        let only = match &query.plan {
            None => None,
            Some(id) => Some(self.plan_number(id).await?.ok_or_else(|| missing_plan(id))?),
        };
        // Bodies of rows that are not wanted stay where they are; of those that are, the sum so far says where to stop.
        let sql = "SELECT e.pos, e.seq, e.crc, e.wanted, e.task < 0 AS of_plan, c.id AS task, c.tenant, p.id AS plan, \
                   CASE WHEN e.wanted THEN e.body END AS body, \
                   (sum(CASE WHEN e.wanted THEN octet_length(e.body) ELSE 0 END) OVER (ORDER BY e.pos))::bigint AS bytes \
                   FROM (SELECT e.*, $2::bigint IS NULL OR e.task = -$2 OR EXISTS (SELECT FROM @.task_configs o \
                       WHERE o.no = e.task AND o.plan = $2) AS wanted \
                       FROM @.events e WHERE e.pos > $1 ORDER BY e.pos LIMIT $3) e \
                   LEFT JOIN @.task_configs c ON c.no = e.task \
                   LEFT JOIN @.plans p ON p.no = CASE WHEN e.task < 0 THEN -e.task ELSE c.plan END ORDER BY e.pos";
        let limit = match only {
            None => super::read::one_more(query.limit).min(MOST_ROWS),
            Some(_) => MOST_ROWS,
        };
        let parameters: &super::connect::Parameters<'_> =
            &[(&query.after.0, Type::INT8), (&only, Type::INT8), (&limit, Type::INT8)];
        let rows = self.server.read("read what has changed", sql, parameters).await?;
        let mut changes = Changes { items: Vec::new(), upto: query.after, more: rows.len() as i64 == limit };
        for row in &rows {
            let bytes: i64 = row.get("bytes");
            if changes.items.len() == query.limit || (bytes > MOST_BYTES && !changes.items.is_empty()) {
                changes.more = true;
                break;
            }
            changes.upto = Position(row.get("pos"));
            if row.get("wanted") {
                changes.items.extend(change(row)?);
            }
        }
        Ok(changes)
    }
}

/// None when its task is gone, or it cannot be read: one damaged row must not keep everybody from all that follows.
/// Whoever asks for the task itself is told.
fn change(row: &Row) -> Result<Option<Change>, StoreError> {
    let position: i64 = row.get("pos");
    let plan: Option<&str> = row.get("plan");
    let Some(plan) = plan else { return Ok(None) };
    let plan: PlanId = plan_id(plan)?;
    let what = || format!("event row {position}");
    let text: &str = row.get("body");
    let decoded = if row.get("of_plan") {
        decode_plan_change(text, what)
    } else {
        check_body(text, crc(row, "crc"), what).and_then(|()| {
            let (task, tenant) = (task_id(row.get("task"))?, tenant(row.get("tenant"))?);
            let sequence = row.get::<_, i64>("seq").unsigned_abs();
            Ok(Changed::Task { task, tenant, sequence, records: decode_events(text, what)? })
        })
    };
    match decoded {
        Ok(what) => Ok(Some(Change { position: Position(position), plan, what })),
        Err(error) => {
            tracing::warn!(position, %error, "a change is left out, because it cannot be read");
            Ok(None)
        }
    }
}
