//! The last round trip of a transaction: all that it has to write, in as few statements as there are tables, and the commit.

use mysql_async::Row;

use super::begin::Turn;
use super::codec::Sql;
use super::desk::Desk;
use super::images::{ADVANCE, PLAN_ROW, ROW, SET_ADVANCE, SET_ROW, push_plan, push_row};
use super::sql::{JsonRows, PACKET, Rows, numbers, push_text, text};
use super::states::Counters;

/// How long the server keeps a connection that nobody uses; its own default.
const IDLE: u32 = 28_800;

impl Turn {
    /// Writes, and commits.
    pub(super) async fn commit(&mut self) -> Sql<()> {
        let end = format!("COMMIT; SET SESSION wait_timeout = {IDLE}");
        self.send(&end).await?;
        Ok(())
    }

    /// Writes what there is to write, so that what is asked next sees it.
    pub(super) async fn flush(&mut self) -> Sql<()> {
        self.send("").await?;
        Ok(())
    }

    /// Likewise, and asks in the same round trip.
    pub(super) async fn flush_and_ask(&mut self, question: &str) -> Sql<Vec<Row>> {
        Ok(self.send(question).await?.pop().unwrap_or_default())
    }

    async fn send(&mut self, last: &str) -> Sql<Vec<Vec<Row>>> {
        let mut statements = self.desk.statements();
        if !last.is_empty() {
            statements.push(last.to_owned());
        }
        let mut answer = Vec::new();
        let mut sql = String::new();
        for statement in statements {
            if !sql.is_empty() && sql.len() + statement.len() > PACKET {
                self.ask(&sql).await?;
                sql.clear();
            }
            if !sql.is_empty() {
                sql.push_str("; ");
            }
            sql.push_str(&statement);
        }
        if !sql.is_empty() {
            answer = self.ask(&sql).await?;
        }
        Ok(answer)
    }
}

impl Desk {
    /// All that is to be written, in the order of the tables; nothing of it is left here.
    fn statements(&mut self) -> Vec<String> {
        let inserts = std::mem::take(&mut self.writes.inserts);
        let mut statements: Vec<String> = inserts.plans.statements().collect();
        statements.extend(inserts.configs.statements());
        statements.extend(inserts.runtimes.statements());
        statements.append(&mut self.writes.others);
        let (before, now) = (self.flushed, self.counters);
        let guards = self.row_statements(&mut statements);
        self.event_statements(&mut statements);
        self.plan_statements(&mut statements);
        self.lock_statements(&mut statements);
        self.minor_statements(&mut statements);
        statements.extend(self.books.statements());
        if !guards && changed(&before, &now) {
            statements.push(set_counters(&now, "position = "));
        }
        self.flushed = now;
        statements
    }

    /// A row is written only if its version and its lease are those that were decided on. Nobody else can have changed
    /// them, because we hold the lock; should anybody have, the count of rows is not ours, the statement behind it
    /// fails, and the commit is never reached.
    fn row_statements(&mut self, statements: &mut Vec<String>) -> bool {
        let rows = std::mem::take(&mut self.writes.rows);
        if rows.is_empty() {
            return false;
        }
        for (no, row) in &rows {
            if let Some(task) = self.tasks.get_mut(no) {
                task.stored = (row.image.version, row.lease);
            }
        }
        let (advancing, others): (Vec<_>, Vec<_>) = rows.iter().partition(|(_, row)| row.advances);
        for (rows, columns, set) in [(advancing, ADVANCE, SET_ADVANCE), (others, ROW, SET_ROW)] {
            let mut table = JsonRows::default();
            let mut rows = rows.into_iter().peekable();
            while let Some((no, row)) = rows.next() {
                push_row(&mut table, *no, row);
                if table.is_full() || rows.peek().is_none() {
                    let table = std::mem::take(&mut table);
                    let count = table.count;
                    statements.push(format!(
                        "UPDATE task_unit_runtimes r JOIN {} b ON r.id = b.id SET {set} \
                         WHERE r.version = b.old_version AND r.lease = b.old_lease",
                        table.table(columns)
                    ));
                    let guard = format!("position = IF(ROW_COUNT() <> {count}, NULL, ");
                    statements.push(set_counters(&self.counters, &guard));
                }
            }
        }
        true
    }

    fn event_statements(&mut self, statements: &mut Vec<String>) {
        let mut rows = Rows::new("INSERT INTO milepost_events (position, task, sequence, crc, body) VALUES ", "");
        for event in self.writes.events.drain(..) {
            rows.push(|sql| {
                sql.push_str(&format!("{},{},{},{},", event.position, event.task, event.sequence, event.body.crc));
                push_text(sql, &event.body.text);
            });
        }
        statements.extend(rows.statements());
        let mut rows = Rows::new(
            "INSERT INTO milepost_snapshots (task, sequence, crc, body) VALUES ",
            " ON DUPLICATE KEY UPDATE sequence = VALUES(sequence), crc = VALUES(crc), body = VALUES(body)",
        );
        for (task, snapshot) in std::mem::take(&mut self.writes.snapshots) {
            rows.push(|sql| {
                sql.push_str(&format!("{task},{},{},", snapshot.version, snapshot.crc));
                push_text(sql, &snapshot.text);
            });
        }
        statements.extend(rows.statements());
    }

    fn plan_statements(&mut self, statements: &mut Vec<String>) {
        let mut plans = std::mem::take(&mut self.writes.plans).into_iter().peekable();
        let mut table = JsonRows::default();
        while let Some(no) = plans.next() {
            push_plan(&mut table, &self.plans[&no], self.now);
            if table.is_full() || plans.peek().is_none() {
                let set: Vec<String> =
                    PLAN_ROW[1..].iter().map(|(column, _)| format!("p.{column} = b.{column}")).collect();
                statements.push(format!(
                    "UPDATE sync_tasks p JOIN {} b ON p.id = b.id SET {}",
                    std::mem::take(&mut table).table(PLAN_ROW),
                    set.join(", ")
                ));
            }
        }
    }

    fn lock_statements(&mut self, statements: &mut Vec<String>) {
        let unlocked = std::mem::take(&mut self.writes.unlocked);
        if !unlocked.is_empty() {
            statements.push(format!("DELETE FROM milepost_locks WHERE task IN ({})", numbers(unlocked)));
        }
        let expires_at = (self.now + self.lock_ttl).as_millis();
        let mut rows = Rows::new(
            "INSERT INTO milepost_locks (tenant, task, since, fence, expires_at) VALUES ",
            " ON DUPLICATE KEY UPDATE task = VALUES(task), since = VALUES(since), fence = VALUES(fence), \
             expires_at = VALUES(expires_at)",
        );
        for (tenant, lock) in std::mem::take(&mut self.writes.locks) {
            rows.push(|sql| {
                push_text(sql, tenant.as_str());
                sql.push_str(&format!(",{},{},{},{expires_at}", lock.task, lock.since.as_millis(), lock.fence));
            });
        }
        statements.extend(rows.statements());
    }

    fn minor_statements(&mut self, statements: &mut Vec<String>) {
        for (queue, tasks) in [(1, &mut self.writes.lined_up), (0, &mut self.writes.woken)] {
            if !tasks.is_empty() {
                let tasks = numbers(tasks.drain(..));
                statements.push(format!("UPDATE task_unit_runtimes SET queue = {queue} WHERE id IN ({tasks})"));
            }
        }
        for (no, reason) in self.writes.set_aside.drain(..) {
            let reason = text(&reason);
            statements
                .push(format!("UPDATE task_unit_runtimes SET queue = 4, error_message = {reason} WHERE id = {no}"));
        }
        let mut rows = JsonRows::default();
        for (no, (done, total)) in std::mem::take(&mut self.writes.progress) {
            rows.row().number(no).number(done as i64).number(total as i64);
        }
        if rows.count > 0 {
            let columns = [("id", "BIGINT"), ("done", "BIGINT"), ("total", "BIGINT")];
            statements.push(format!(
                "UPDATE task_unit_runtimes r JOIN {} b ON r.id = b.id SET r.processed_records = b.done, \
                 r.total_records = b.total",
                rows.table(&columns)
            ));
        }
        let mut rows = Rows::new("INSERT INTO milepost_logs (task, stage, attempt, at, bytes) VALUES ", "");
        for (task, chunk) in self.writes.output.drain(..) {
            rows.push(|sql| {
                let (attempt, at) = (chunk.attempt, chunk.at.as_millis());
                sql.push_str(&format!("{task},{},{attempt},{at},", text(chunk.stage.as_str())));
                sql.push_str(&super::sql::bytes(&chunk.bytes));
            });
        }
        statements.extend(rows.statements());
    }
}

fn changed(before: &Counters, now: &Counters) -> bool {
    let all = |counters: &Counters| {
        let Counters { position, sessions, fence, offered, plans, tasks, entries } = *counters;
        (position, sessions, fence, offered, plans, tasks, entries)
    };
    all(before) != all(now)
}

fn set_counters(counters: &Counters, position: &str) -> String {
    let Counters { position: newest, sessions, fence, offered, plans, tasks, entries } = counters;
    let close = if position.ends_with("NULL, ") { ")" } else { "" };
    format!(
        "UPDATE milepost_counters SET {position}{newest}{close}, sessions = {sessions}, fence = {fence}, \
         offered = {offered}, plans = {plans}, tasks = {tasks}, entries = {entries} WHERE id = 1"
    )
}
