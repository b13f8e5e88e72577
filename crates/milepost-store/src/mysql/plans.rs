//! Changes of a plan's own status, and what DataTrace does with a plan's units whenever one is started or resumed.

use milepost_core::plan::{PlanCommand, TaskCounts};
use milepost_core::task::{Event, Record, Task};
use milepost_core::time::Timestamp;

use crate::codec::{Config, decode_events, encode_events};
use crate::error::StoreError;
use crate::model::{PlanChange, PlanRow, TaskRef};
use crate::row::RowImage;

use super::begin::Turn;
use super::codec::{Columns, Sql, task_word};
use super::log::read_stored;
use super::sql::{number_or_null, numbers, text, text_or_null};
use super::states::{PLAN, Queue, Standing};

impl Turn {
    pub(super) async fn change_plan(&mut self, change: &PlanChange) -> Sql<Result<PlanRow, StoreError>> {
        let sql = format!("SELECT {PLAN} FROM sync_tasks p WHERE p.name = {}", text(change.plan.as_str()));
        let rows = self.flush_and_ask(&sql).await?;
        let Some(no) = self.take_plans(rows)?.first().copied() else {
            return Ok(Err(StoreError::NotFound { what: "plan", id: change.plan.to_string() }));
        };
        let plan = self.desk.plan(no);
        if let Some(expected) = change.expected.filter(|expected| *expected != plan.version) {
            return Ok(Err(StoreError::PlanConflict { plan: change.plan.clone(), expected, found: plan.version }));
        }
        let status = match plan.after(change.command) {
            Ok(status) => status,
            Err(rejection) => return Ok(Err(rejection.into())),
        };
        let was_held = change.command.lets_go() && self.set_going(no).await?;
        if self.desk.plan(no).set_status(status, Some(&change.by), change.now) {
            self.desk.log_plan(no, Some(&change.by), change.now);
        } else if was_held {
            self.log_going(no, Some(&change.by), change.now);
        } else if change.command.always_counts() {
            self.count_change(no, Some(&change.by), change.now);
        }
        if matches!(change.command, PlanCommand::Start | PlanCommand::Resume) {
            self.prepare_units(no, change.now).await?;
        }
        Ok(Ok(self.desk.plan(no).row()))
    }

    /// Every unit that was asked for has a runtime row, PENDING unless its log tells more of it, and no other unit has
    /// one. A unit that is RUNNING without a live lease needs no change: it can be claimed as it is, and its log goes on.
    pub(super) async fn prepare_units(&mut self, plan: i64, now: Timestamp) -> Sql<()> {
        let sql = format!(
            "SELECT c.id, c.unit_name, c.tenant, c.created_at, c.body, c.crc, c.turn FROM task_unit_configs c \
             LEFT JOIN task_unit_runtimes r ON r.id = c.id WHERE c.task_id = {plan} AND r.id IS NULL ORDER BY c.id; \
             SELECT r.id FROM task_unit_runtimes r LEFT JOIN task_unit_configs c ON c.id = r.id \
             WHERE r.task_id = {plan} AND c.id IS NULL"
        );
        self.flush().await?;
        let mut answers = self.ask(&sql).await?.into_iter();
        let (missing, orphans) = (answers.next().unwrap_or_default(), answers.next().unwrap_or_default());
        if missing.is_empty() && orphans.is_empty() {
            return Ok(());
        }
        for row in missing {
            let mut columns = Columns::from(row);
            let key = TaskRef { no: columns.next()?, id: columns.task_id()? };
            let (tenant, created_at) = (columns.maybe_tenant()?, columns.time()?);
            let (body, crc, turn) = (columns.maybe()?, columns.next()?, columns.next()?);
            self.add_missing_unit(Config { key, plan, tenant, created_at, body, crc }, turn, now).await?;
        }
        let orphans = orphans.into_iter().map(|row| Columns::from(row).next()).collect::<Sql<Vec<i64>>>()?;
        if !orphans.is_empty() {
            let orphans = numbers(orphans);
            tracing::warn!(plan, orphans, "runtime rows of units that nobody asked for are removed");
            let others = &mut self.desk.writes.others;
            others.push(format!("DELETE FROM milepost_locks WHERE task IN ({orphans})"));
            others.push(format!("DELETE FROM task_unit_runtimes WHERE id IN ({orphans})"));
        }
        self.recount(plan).await
    }

    async fn add_missing_unit(&mut self, config: Config, turn: i64, now: Timestamp) -> Sql<()> {
        let (key, plan, tenant) = (config.key.clone(), config.plan, config.tenant.clone());
        let no = key.no;
        let sql = format!(
            "SELECT id, digest, config FROM sync_tasks WHERE id = {plan}; \
             SELECT sequence, crc, body FROM milepost_events WHERE task = {no} ORDER BY sequence"
        );
        let mut answers = self.ask(&sql).await?.into_iter();
        let Some(row) = answers.next().unwrap_or_default().into_iter().next() else { return Ok(()) };
        let mut columns = Columns::from(row);
        let (_, digest, text_of): (i64, Vec<u8>, String) = (columns.next()?, columns.next()?, columns.next()?);
        let log = read_stored(answers.next().unwrap_or_default())?;
        let rebuilt = self.shared.plans.read(plan, digest, &text_of).and_then(|shared| {
            let mut task = Task::created(config.spec(&shared, turn));
            for stored in &log {
                let what = || format!("event {} of task {}", stored.sequence, key.id);
                let records = decode_events(stored.checked(what)?, what)?;
                // The first event is the creation, which the task begins with.
                for (record, sequence) in records.iter().zip(stored.sequence..).filter(|(_, sequence)| *sequence > 1) {
                    let applied = task.apply(record);
                    task = applied.map_err(|error| crate::codec::damaged(format!("event {sequence}"), error))?;
                }
            }
            match task.damage() {
                Some(reason) => Err(crate::codec::damaged(format!("task {}", key.id), reason)),
                None => Ok(task),
            }
        });
        let task = match rebuilt {
            Ok(task) => task,
            Err(error) => {
                tracing::error!(task = %key.id, %error, "a unit without a runtime row cannot be rebuilt");
                return Ok(());
            }
        };
        if log.is_empty() {
            self.desk.append(no, 1, encode_events(&[Record::new(now, Event::TaskCreated {})]));
        }
        let standing = Standing { lease: 0, wake_at: None, asked: false };
        let tenant = tenant.as_ref().map(|tenant| tenant.as_str());
        self.insert_runtime(&key, plan, tenant, turn, &RowImage::of(&task), standing);
        Ok(())
    }

    pub(super) fn insert_runtime(
        &mut self,
        key: &TaskRef,
        plan: i64,
        tenant: Option<&str>,
        turn: i64,
        image: &RowImage,
        standing: Standing,
    ) {
        self.desk.writes.inserts.runtimes.push(|sql| {
            sql.push_str(&format!(
                "{},{plan},{},{},{turn},'{}',{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
                key.no,
                text(key.id.as_str()),
                text_or_null(tenant),
                task_word(image.status),
                number_or_null(standing.queue(image).map(|queue| queue as i64)),
                image.version,
                standing.lease,
                number_or_null(standing.wake_at.map(Timestamp::as_millis)),
                image.done,
                image.total,
                text_or_null(image.stage.as_deref()),
                image.attempt,
                number_or_null(image.due_at),
                image.flags,
                text_or_null(image.reason.as_deref()),
                number_or_null(image.started_at),
                image.updated_at,
                number_or_null(image.ended_at),
            ));
        });
    }

    /// Counts a plan's tasks anew, after more was changed than single steps.
    pub(super) async fn recount(&mut self, plan: i64) -> Sql<()> {
        let sql = format!(
            "SELECT status, COALESCE(queue, -1), COUNT(*) FROM task_unit_runtimes WHERE task_id = {plan} \
             GROUP BY status, queue"
        );
        let rows = self.flush_and_ask(&sql).await?;
        let (mut counts, mut slotless, mut ready) = (TaskCounts::default(), 0, 0);
        for row in rows {
            let mut columns = Columns::from(row);
            let (status, queue, count) = (columns.task_status()?, columns.next::<i64>()?, columns.natural()?);
            counts.add(status, count);
            let slots_left = Queue::of_code(queue).is_some_and(|queue| queue.is_slotless(status));
            slotless += if slots_left { count } else { 0 };
            ready += if queue == Queue::Ready as i64 { count } else { 0 };
        }
        let state = self.desk.plan(plan);
        (state.counts, state.slotless, state.ready) = (counts, slotless, ready);
        self.desk.writes.plans.insert(plan);
        self.desk.offer();
        Ok(())
    }
}
