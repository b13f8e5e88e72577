//! Taking in a plan: whole, or not at all.

use std::collections::HashSet;

use milepost_core::id::{TaskId, Tenant};
use milepost_core::plan::{
    OnTenantConflict, Plan, PlanCommand, PlanDefinition, TaskCounts, TaskDefinition, Trigger, next_plan_status,
};
use milepost_core::task::{Event, PlanStatus, Record, TaskStatus};
use milepost_core::time::Timestamp;
use rusqlite::{OptionalExtension, params};

use crate::books::BookChange;
use crate::codec::{Body, SharedPlan, encode_config, encode_events};
use crate::error::{Clash, StoreError};
use crate::going;
use crate::model::{Difference, PlanRow, Resubmit, Start, Submission, Submitted};
use crate::row::{FLAG_AWAITS_MESSAGE, RowImage};

use super::board::{OpenPlan, Queue};
use super::codec::{PlanDigest, fold, plan_id, query_task, read_config, read_head};
use super::commit::INSERT_EVENT;
use super::mend::{free_strange_locks, line_up_anew};
use super::read::{read_definition, read_plan};
use super::writer::{Performed, Writer};

/// A submission with its plan in the form the table holds; encoded by the caller, so that the writer only writes.
pub(super) struct EncodedSubmission {
    submission: Submission,
    definition: String,
    digest: PlanDigest,
    /// What the owner keeps in memory of a new plan.
    shared: SharedPlan,
    /// What the log of each new task begins with.
    created: Body,
    for_books: BookChange,
}

impl From<Submission> for EncodedSubmission {
    fn from(mut submission: Submission) -> Self {
        let for_books = BookChange { keep: std::mem::take(&mut submission.entries), strike: Vec::new() };
        let definition = serde_json::to_string(&submission.plan.definition);
        let definition = definition.expect("a plan's definition came from JSON or YAML");
        let digest = PlanDigest::of(&definition, &submission.plan.tasks);
        let created = encode_events(&[Record::new(submission.now, Event::TaskCreated {})]);
        let shared = SharedPlan::new(submission.plan.definition.clone());
        Self { digest, definition, shared, created, submission, for_books }
    }
}

impl Writer {
    pub(super) fn submit(&mut self, encoded: EncodedSubmission) -> Performed<Submitted> {
        let Submission { request, now, .. } = &encoded.submission;
        if let Some(request) = request {
            match self.replay(request, *now)? {
                Ok(None) => {}
                Ok(Some(answer)) => return Ok(Ok(answer)),
                Err(error) => return Ok(Err(error)),
            }
        }
        if let Some(kept) = self.kept(&encoded.for_books)? {
            return Ok(Err(kept));
        }
        let submitted = self.take_in(&encoded)?;
        if let Ok(answer) = &submitted {
            self.write_books(&encoded.for_books)?;
            if let Some(request) = request {
                self.keep_request(request, answer, *now)?;
            }
        }
        Ok(submitted)
    }

    fn take_in(&mut self, encoded: &EncodedSubmission) -> Performed<Submitted> {
        let (submission, digest) = (&encoded.submission, &encoded.digest);
        let plan = &submission.plan;
        let known = self
            .connection
            .prepare_cached("SELECT no, digest FROM plans WHERE id = ?1")?
            .query_row([plan.definition.id.as_str()], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?)))
            .optional()?;
        match known {
            None => self.create(submission, encoded),
            Some((no, stored)) if digest.is_of(&stored) => self.carry_on(no, submission, Difference::default()),
            Some((no, _)) => match submission.resubmit {
                Resubmit::Same => Ok(Err(self.other_content(no, plan)?)),
                Resubmit::Update => self.update(no, submission, encoded),
            },
        }
    }

    fn create(&mut self, submission: &Submission, encoded: &EncodedSubmission) -> Performed<Submitted> {
        let Submission { plan, start, now, .. } = submission;
        let id = &plan.definition.id;
        // Other commits share the transaction, so everything is checked before anything is written.
        if let Some(clash) = self.clash(&plan.definition, &plan.tasks, &HashSet::new())? {
            return Ok(Err(clash));
        }
        let no = self.board.next_plan;
        let first = self.board.next_task;
        let status = if *start == Start::AtOnce { PlanStatus::Running } else { PlanStatus::Ready };
        let started_at = (*start == Start::AtOnce).then_some(*now);
        let recovery = plan.definition.settings.recovery;
        let go = if *start == Start::AtOnce { going::go(recovery, self.board.settled) } else { going::HELD };
        let mut counts = TaskCounts::default();
        counts.add(TaskStatus::Pending, plan.tasks.len() as u64);
        let shared = encoded.shared.clone();
        self.board.plan_numbers.insert(id.clone(), no);
        self.board
            .plans
            .insert(no, OpenPlan { shared, status, version: 1, go, counts, ended: false, may_have_ready: true });
        self.board.next_plan += 1;
        self.board.offer(no);
        self.board.recount(no);
        self.log_plan(no, None, *now)?;
        self.insert_tasks(no, &plan.definition, &plan.tasks, &encoded.created, *now)?;
        self.connection
            .prepare_cached(
                "INSERT INTO plans (no, id, status, version, definition, digest, first_task, last_task, created_at, started_at, go) \
                 VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?
            .execute(params![
                no,
                id.as_str(),
                status.code(),
                encoded.definition,
                encoded.digest.bytes(),
                first,
                self.board.next_task - 1,
                now.as_millis(),
                started_at.map(Timestamp::as_millis),
                go,
            ])?;
        let row = PlanRow {
            id: id.clone(),
            status,
            max_concurrency: plan.definition.settings.max_concurrency,
            counts,
            version: 1,
            waits_for_person: false,
            changed_by: None,
            created_at: *now,
            started_at,
            ended_at: None,
        };
        Ok(Ok(Submitted { plan: row, created: true, replayed: false, difference: Difference::default() }))
    }

    /// The same plan again: it is started if it only waited for that, and otherwise left as it is.
    fn carry_on(&mut self, no: i64, submission: &Submission, difference: Difference) -> Performed<Submitted> {
        if let Err(error) = self.board.open_plan(&self.connection, no) {
            return Ok(Err(error));
        }
        if submission.start == Start::AtOnce {
            let was_held = self.set_going(no)?;
            if was_held || self.board.plans[&no].status == PlanStatus::Ready {
                self.write_plan(no, PlanStatus::Running, None, submission.now)?;
            }
        }
        let plan = read_plan(&self.connection, no, self.board.plans[&no].counts, self.board.settled)?;
        if plan.ended_at.is_some() && self.board.plans[&no].counts.open() == 0 {
            self.board.forget_plan(no);
        }
        Ok(Ok(Submitted { plan, created: false, replayed: false, difference }))
    }

    fn other_content(&self, no: i64, new: &Plan) -> rusqlite::Result<StoreError> {
        let plan = new.definition.id.clone();
        Ok(match read_definition(&self.connection, no)? {
            Ok(old) => Clash::OtherContent { plan, difference: difference(&old, new) }.into(),
            Err(error) => error,
        })
    }

    /// New tasks join as PENDING, missing ones go with their logs, and the others keep what they have done.
    fn update(&mut self, no: i64, submission: &Submission, encoded: &EncodedSubmission) -> Performed<Submitted> {
        let plan = &submission.plan;
        let id = &plan.definition.id;
        if let Err(error) = self.board.open_plan(&self.connection, no) {
            return Ok(Err(error));
        }
        if self.board.leases.values().any(|lease| lease.plan == no) {
            return Ok(Err(Clash::Running { plan: id.clone() }.into()));
        }
        let stored = self.tasks_of(no)?;
        let wanted: HashSet<&TaskId> = plan.tasks.iter().map(|task| &task.id).collect();
        let known: HashSet<&TaskId> = stored.iter().map(|(_, id)| id).collect();
        let added: Vec<TaskDefinition> = plan.tasks.iter().filter(|task| !known.contains(&task.id)).cloned().collect();
        let removed: Vec<i64> = stored.iter().filter(|(_, id)| !wanted.contains(id)).map(|(no, _)| *no).collect();
        let own: HashSet<i64> = stored.iter().map(|(no, _)| *no).collect();
        if let Some(clash) = self.clash(&plan.definition, &added, &own)? {
            return Ok(Err(clash));
        }
        for task in &removed {
            self.remove_task(*task)?;
        }
        for task in plan.tasks.iter().filter(|task| known.contains(&task.id)) {
            self.redefine(task)?;
        }
        for no in &own {
            // It shows stages that may be others now.
            self.forget_snapshot(*no)?;
        }
        free_strange_locks(&self.connection)?;
        line_up_anew(&self.connection)?;
        self.insert_tasks(no, &plan.definition, &added, &encoded.created, submission.now)?;
        self.connection
            .prepare_cached(
                "UPDATE plans SET definition = ?2, digest = ?3, last_task = max(last_task, ?4) WHERE no = ?1",
            )?
            .execute(params![no, encoded.definition, encoded.digest.bytes(), self.board.next_task - 1])?;
        let difference = Difference { added: added.len() as u64, removed: removed.len() as u64 };
        self.reread_after_update(no, &difference, submission.now)?;
        self.carry_on(no, submission, difference)
    }

    /// An update is rare and touches everything: memory is read anew rather than patched.
    fn reread_after_update(&mut self, no: i64, difference: &Difference, now: Timestamp) -> rusqlite::Result<()> {
        let reread = self.board.reload(&self.connection).and_then(|mut board| {
            board.open_plan(&self.connection, no)?;
            Ok(board)
        });
        self.board = reread.map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
        self.refold(no)?;
        let plan = &self.board.plans[&no];
        let id = plan.shared.id().as_str().to_owned();
        let settled = match (difference.added > 0, plan.status) {
            (true, PlanStatus::Completed | PlanStatus::Failed | PlanStatus::Cancelled) => PlanStatus::Ready,
            (_, status) => next_plan_status(&id, status, &plan.counts, PlanCommand::Settle).unwrap_or(status),
        };
        // Also when its status is the same: the tasks that it speaks for are others now, and what was removed may have
        // been the end of the log, whose positions must not be given again.
        self.write_plan(no, settled, None, now)
    }

    /// Rows show how far a task is by its stages, and whether it waits for a message; both may be others now.
    fn refold(&mut self, plan: i64) -> rusqlite::Result<()> {
        let shared = self.board.plans[&plan].shared.clone();
        for (no, _) in self.tasks_of(plan)? {
            let (config, rank, head) = query_task(&self.connection, no, |row| {
                Ok((read_config(row)?, row.get::<_, i64>(12)?, read_head(row)?))
            })?;
            let key = config.key.clone();
            let folded = fold(&self.connection, &key, config.spec(&shared, rank), &head);
            // What cannot be read is set aside when it is claimed.
            if let Ok(folded) = folded
                && !folded.is_damaged()
            {
                self.reshow(no, &RowImage::of(&folded.task))?;
            }
        }
        Ok(())
    }

    fn tasks_of(&self, plan: i64) -> rusqlite::Result<Vec<(i64, TaskId)>> {
        self.connection
            .prepare_cached(
                "SELECT c.no, c.id FROM plans p JOIN task_configs c ON c.no BETWEEN p.first_task AND p.last_task \
                 WHERE p.no = ?1 AND c.plan = ?1",
            )?
            .query_map([plan], |row| Ok((row.get(0)?, super::codec::name(row, 1)?)))?
            .collect()
    }

    fn remove_task(&mut self, no: i64) -> rusqlite::Result<()> {
        let mut position: i64 = self
            .connection
            .prepare_cached("SELECT last_event FROM task_runtimes WHERE no = ?1")?
            .query_row([no], |row| row.get(0))?;
        while position != 0 {
            let previous = self
                .connection
                .prepare_cached("DELETE FROM events WHERE pos = ?1 RETURNING prev")?
                .query_row([position], |row| row.get(0))
                .optional()?;
            position = previous.unwrap_or(0);
        }
        for sql in [
            "DELETE FROM task_configs WHERE no = ?1",
            "DELETE FROM task_runtimes WHERE no = ?1",
            "DELETE FROM locks WHERE task = ?1",
            "DELETE FROM logs WHERE task = ?1",
        ] {
            self.connection.prepare_cached(sql)?.execute([no])?;
        }
        self.board.let_go.remove(&no);
        self.forget_snapshot(no)
    }

    /// The task keeps its log; its checkpoint is checked against the new stages when it next runs.
    fn redefine(&mut self, task: &TaskDefinition) -> rusqlite::Result<()> {
        let (body, crc) = encode_config(task);
        let tenant = task.tenant.as_ref().map(|tenant| tenant.as_str());
        self.connection
            .prepare_cached("UPDATE task_configs SET body = ?2, crc = ?3, tenant = ?4 WHERE id = ?1")?
            .execute(params![task.id.as_str(), body, crc, tenant])?;
        self.connection
            .prepare_cached(
                "UPDATE task_runtimes SET rank = ?2 WHERE no = (SELECT no FROM task_configs WHERE id = ?1)",
            )?
            .execute(params![task.id.as_str(), -i64::from(task.priority)])?;
        Ok(())
    }

    /// Held by a task that is not one of the plan's own.
    fn busy_tenants(&self, tasks: &[TaskDefinition], own: &HashSet<i64>) -> Vec<String> {
        let is_busy = |tenant: &&Tenant| self.board.held.get(*tenant).is_some_and(|holder| !own.contains(holder));
        let busy = tasks.iter().filter_map(|task| task.tenant.as_ref()).filter(is_busy);
        let mut busy: Vec<String> = busy.map(ToString::to_string).collect();
        busy.sort();
        busy.dedup();
        busy
    }

    fn insert_tasks(
        &mut self,
        plan: i64,
        definition: &PlanDefinition,
        tasks: &[TaskDefinition],
        created: &Body,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        let mut configs = self.connection.prepare_cached(
            "INSERT INTO task_configs (no, id, plan, tenant, created_at, body, crc) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?;
        let mut runtimes = self.connection.prepare_cached(
            "INSERT INTO task_runtimes (no, plan, queue, rank, status, version, lease, last_event, done, total, attempt, flags, \
             updated_at, stage) VALUES (?1, ?2, ?3, ?4, ?5, 1, 0, ?6, 0, ?7, 0, ?10, ?8, ?9)",
        )?;
        let mut events = self.connection.prepare_cached(INSERT_EVENT)?;
        for task in tasks {
            let (no, position) = (self.board.next_task, self.board.next_event);
            let (body, crc) = encode_config(task);
            let tenant = task.tenant.as_ref().map(|tenant| tenant.as_str());
            configs.execute(params![no, task.id.as_str(), plan, tenant, now.as_millis(), body, crc])?;
            let stages = task.stages.as_ref().unwrap_or(&definition.stages);
            let first = stages.first().map(|stage| stage.name.as_str());
            let rank = -i64::from(task.priority);
            let awaits_message = definition.settings.trigger == Trigger::Message && task.message.is_none();
            let (queue, flags) =
                if awaits_message { (Queue::AwaitsMessage, FLAG_AWAITS_MESSAGE) } else { (Queue::Ready, 0) };
            runtimes.execute(params![
                no,
                plan,
                queue.code(),
                rank,
                TaskStatus::Pending.code(),
                position,
                stages.len() as i64,
                now.as_millis(),
                first,
                flags,
            ])?;
            events.execute(params![position, no, 1, 0, created.crc, created.text])?;
            self.board.next_task += 1;
            self.board.next_event += 1;
        }
        Ok(())
    }

    /// A task id that some plan in the store has already, or a busy tenant of a plan that refuses those.
    fn clash(
        &self,
        plan: &PlanDefinition,
        tasks: &[TaskDefinition],
        own: &HashSet<i64>,
    ) -> rusqlite::Result<Option<StoreError>> {
        if let Some(clash) = self.task_clash(tasks)? {
            return Ok(Some(clash.into()));
        }
        if plan.settings.on_tenant_conflict == OnTenantConflict::Refuse {
            let busy = self.busy_tenants(tasks, own);
            if !busy.is_empty() {
                return Ok(Some(Clash::TenantsBusy { plan: plan.id.clone(), busy }.into()));
            }
        }
        Ok(None)
    }

    /// A task id that some plan in the store has already.
    pub(super) fn task_clash(&self, tasks: &[TaskDefinition]) -> rusqlite::Result<Option<Clash>> {
        let sql = "SELECT p.id FROM task_configs c JOIN plans p ON p.no = c.plan WHERE c.id = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        for task in tasks {
            let owner = statement.query_row([task.id.as_str()], |row| plan_id(row, 0)).optional()?;
            if let Some(owner) = owner {
                return Ok(Some(Clash::TaskId { task: task.id.clone(), owner }));
            }
        }
        Ok(None)
    }
}

/// The digests differ, so there is one; a store written by a version with other defaults may leave it unnamed.
fn difference(old: &Plan, new: &Plan) -> String {
    milepost_core::plan::first_difference(old, new).unwrap_or_else(|| "its content differs".to_owned())
}
