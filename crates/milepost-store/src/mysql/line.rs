//! Whoever waits for a tenant, and is told when it has become free.

use std::collections::{BTreeMap, BTreeSet};

use super::begin::Turn;
use super::codec::{Columns, Sql};
use super::sql::{NOW, text, texts};
use super::states::{Queue, TASK, TaskState};

impl Turn {
    /// Tells the first in line of each plan, for tenants that have become free: a plan that is paused must not keep
    /// another plan's task waiting, and waking everybody would cost as much as there are waiters. What was set going by itself
    /// waits for none of its plan that was not.
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
        let mut questions: Vec<String> = lines.iter().flat_map(first).collect();
        let free = texts(lines.values().flatten().map(String::as_str));
        questions.push(format!("({} AND r.tenant IN ({free}) AND p.go = 0)", let_go_in_line()));
        self.wake(&questions.join(" UNION ALL ")).await?;
        self.desk.offer();
        Ok(())
    }

    /// Whoever is still set going in a new era does not stay in line among those that are not.
    pub(super) async fn wake_let_go(&mut self) -> Sql<()> {
        self.wake(&let_go_in_line()).await?;
        self.flush().await
    }

    /// Tasks in line, of which some may be found twice.
    async fn wake(&mut self, question: &str) -> Sql<()> {
        let mut found = BTreeMap::new();
        for row in self.ask_one(question).await? {
            let task = TaskState::read(&mut Columns::from(row))?;
            found.insert(task.no, task);
        }
        let plans: BTreeSet<i64> = found.values().map(|task| task.plan).collect();
        self.read_plans(plans).await?;
        for (no, task) in found {
            self.desk.tasks.insert(no, task);
            self.desk.requeue(no, Queue::Ready);
        }
        Ok(())
    }
}

/// Tasks in line that were set going by themselves, with their plans.
fn let_go_in_line() -> String {
    format!(
        "SELECT {TASK} FROM task_unit_runtimes r JOIN milepost_going g ON g.task = r.id \
         JOIN sync_tasks p ON p.id = r.task_id WHERE r.queue = 1 AND g.go > 0"
    )
}
