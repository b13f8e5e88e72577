//! Whoever waits for a tenant, and is told when it has become free.

use std::collections::BTreeMap;

use super::begin::Turn;
use super::codec::{Columns, Sql};
use super::sql::{NOW, text, texts};
use super::states::{Queue, TASK, TaskState};

impl Turn {
    /// Tells the first in line of each plan, for tenants that have become free: a plan that is paused must not keep
    /// another plan's task waiting, and waking everybody would cost as much as there are waiters.
    pub(super) async fn wake_next_in_line(&mut self) -> Sql<()> {
        let freed = std::mem::take(&mut self.desk.freed);
        let tenants = texts(freed.iter().map(|tenant| tenant.as_str()));
        let waiting = self
            .flush_and_ask(&format!(
                "SELECT DISTINCT w.tenant, w.task_id FROM task_unit_runtimes w LEFT JOIN milepost_locks l \
                 ON l.tenant = w.tenant AND l.expires_at >= {NOW} \
                 WHERE w.tenant IN ({tenants}) AND w.queue = 1 AND l.tenant IS NULL"
            ))
            .await?;
        let mut lines: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        for row in waiting {
            let mut columns = Columns::from(row);
            let (tenant, plan): (String, i64) = (columns.next()?, columns.next()?);
            lines.entry(plan).or_default().push(tenant);
        }
        if lines.is_empty() {
            return Ok(());
        }
        let first = |(plan, tenants): (&i64, &Vec<String>)| -> Vec<String> {
            let one = |tenant: &String| {
                format!(
                    "(SELECT {TASK} FROM task_unit_runtimes r WHERE r.tenant = {} AND r.queue = 1 AND r.task_id = {plan} ORDER BY r.turn, r.id LIMIT 1)",
                    text(tenant)
                )
            };
            tenants.iter().map(one).collect()
        };
        let questions: Vec<String> = lines.iter().flat_map(first).collect();
        let rows = self.ask_one(&questions.join(" UNION ALL ")).await?;
        self.read_plans(lines.into_keys()).await?;
        for row in rows {
            let task = TaskState::read(&mut Columns::from(row))?;
            let no = task.no;
            self.desk.tasks.insert(no, task);
            self.desk.requeue(no, Queue::Ready);
        }
        self.desk.offer();
        Ok(())
    }
}
