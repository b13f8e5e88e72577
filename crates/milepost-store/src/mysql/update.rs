//! Other content under a plan's name: refused with the first difference, or made the plan's own while none of it runs.

use std::collections::{HashMap, HashSet};

use milepost_core::id::{TaskId, Tenant};
use milepost_core::plan::{Plan, PlanDefinition, TaskDefinition, first_difference};
use milepost_core::task::PlanStatus;
use mysql_async::Row;

use crate::codec::{Config, damaged, encode_config};
use crate::error::{Clash, StoreError};
use crate::model::{Difference, TaskRef};
use crate::row::{FLAG_AWAITS_MESSAGE, RowImage};

use super::begin::Turn;
use super::claim::workflow_word;
use super::codec::{Columns, Sql};
use super::known::{Known, busy_among, owners_of, tenants};
use super::sql::{JsonRows, bytes, numbers, text, text_or_null, texts};
use super::submit::EncodedSubmission;
use super::take::Candidate;

/// Tasks whose logs are read at once.
const STEP: usize = 256;

/// The rows of a plan and of all its tasks.
pub(super) fn definition_questions(no: &str) -> String {
    format!(
        "SELECT config FROM sync_tasks WHERE id = {no}; \
         SELECT id, unit_name, task_id, tenant, created_at, body, crc, turn FROM task_unit_configs WHERE task_id = {no} \
         ORDER BY id"
    )
}

pub(super) fn read_definition(plan: &str, config: &str, tasks: Vec<Row>) -> Sql<Result<Plan, StoreError>> {
    let definition: PlanDefinition = match serde_json::from_str(config) {
        Ok(definition) => definition,
        Err(error) => return Ok(Err(damaged(format!("the definition of plan {plan}"), error))),
    };
    let mut definitions = Vec::with_capacity(tasks.len());
    for row in tasks {
        let mut columns = Columns::from(row);
        let key = TaskRef { no: columns.next()?, id: columns.task_id()? };
        let (plan, tenant, created_at) = (columns.next()?, columns.maybe_tenant()?, columns.time()?);
        let (body, crc, turn) = (columns.maybe()?, columns.next()?, columns.next()?);
        match (Config { key, plan, tenant, created_at, body, crc }).definition(turn) {
            Ok(task) => definitions.push(task),
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(Plan { definition, tasks: definitions }))
}

impl Turn {
    pub(super) async fn other_content(&mut self, no: i64, new: &Plan) -> Sql<StoreError> {
        let mut answers = self.ask(&definition_questions(&no.to_string())).await?.into_iter();
        let config = answers.next().unwrap_or_default().into_iter().next();
        let config = config.map_or(Ok(String::new()), |row| Columns::from(row).next())?;
        let plan = new.definition.id.clone();
        Ok(match read_definition(plan.as_str(), &config, answers.next().unwrap_or_default())? {
            Ok(old) => {
                // The digests differ, so there is one; a version with other defaults may leave it unnamed.
                let difference = first_difference(&old, new).unwrap_or_else(|| "its content differs".to_owned());
                Clash::OtherContent { plan, difference }.into()
            }
            Err(error) => error,
        })
    }

    /// New tasks join as PENDING, missing ones go with their logs, and the others keep what they have done.
    pub(super) async fn update(&mut self, no: i64, encoded: &EncodedSubmission) -> Sql<Result<Difference, StoreError>> {
        let submission = &encoded.submission;
        let plan = &submission.plan;
        let sql = format!(
            "SELECT lease FROM task_unit_runtimes WHERE task_id = {no} AND lease <> 0; \
             SELECT id, unit_name, tenant FROM task_unit_configs WHERE task_id = {no} ORDER BY id"
        );
        self.flush().await?;
        let mut answers = self.ask(&sql).await?.into_iter();
        for row in answers.next().unwrap_or_default() {
            if self.desk.is_live(Columns::from(row).natural()?) {
                return Ok(Err(Clash::Running { plan: plan.definition.id.clone() }.into()));
            }
        }
        let mut stored: Vec<(i64, TaskId, Option<Tenant>)> = Vec::new();
        for row in answers.next().unwrap_or_default() {
            let mut columns = Columns::from(row);
            stored.push((columns.next()?, columns.task_id()?, columns.maybe_tenant()?));
        }
        let wanted: HashSet<&TaskId> = plan.tasks.iter().map(|task| &task.id).collect();
        let known: HashMap<&TaskId, (i64, &Option<Tenant>)> =
            stored.iter().map(|(no, id, tenant)| (id, (*no, tenant))).collect();
        let added: Vec<TaskDefinition> =
            plan.tasks.iter().filter(|task| !known.contains_key(&task.id)).cloned().collect();
        if let Some(clash) = self.clash_of(no, &plan.definition, &added).await? {
            return Ok(Err(clash.into()));
        }
        let removed: Vec<&(i64, TaskId, Option<Tenant>)> =
            stored.iter().filter(|(_, id, _)| !wanted.contains(id)).collect();
        self.desk.freed.extend(removed.iter().filter_map(|(_, _, tenant)| tenant.clone()));
        self.remove_tasks(removed.iter().map(|(no, ..)| *no).collect());
        for task in &plan.tasks {
            if let Some((no, tenant)) = known.get(&task.id) {
                self.redefine(*no, tenant.as_ref(), task);
            }
        }
        self.redefine_plan(no, encoded);
        self.insert_tasks(no, &plan.definition, &added, submission.now);
        let difference = Difference { added: added.len() as u64, removed: removed.len() as u64 };
        // What was known of its tasks is not so any more.
        self.flush().await?;
        self.desk.tasks.retain(|_, task| task.plan != no);
        self.reshow(stored.iter().map(|(no, ..)| *no).collect()).await?;
        self.recount(no).await?;
        self.wake_next_in_line().await?;
        let state = self.desk.plan(no);
        state.version += 1;
        if difference.added > 0 && state.status.is_ended() {
            state.set_status(PlanStatus::Ready, None, submission.now);
        }
        state.settle(submission.now);
        // Also when its status is the same: the tasks that it speaks for are others now.
        self.desk.log_plan(no, None, submission.now);
        Ok(Ok(difference))
    }

    async fn clash_of(&mut self, no: i64, plan: &PlanDefinition, added: &[TaskDefinition]) -> Sql<Option<Clash>> {
        let mut known = Known::default();
        for tasks in added.chunks(4096) {
            let sql = owners_of(&texts(tasks.iter().map(|task| task.id.as_str())));
            known.add_owners(self.ask_one(&sql).await?)?;
        }
        let busy = self.ask_one(&busy_among(&texts(tenants(added)))).await?;
        known.add_busy(busy)?;
        Ok(known.clash(plan, added, Some(no)))
    }

    fn remove_tasks(&mut self, tasks: Vec<i64>) {
        if tasks.is_empty() {
            return;
        }
        let list = numbers(tasks);
        for (table, column) in [
            ("milepost_events", "task"),
            ("milepost_snapshots", "task"),
            ("milepost_logs", "task"),
            ("milepost_locks", "task"),
            ("milepost_going", "task"),
            ("task_unit_runtimes", "id"),
            ("task_unit_configs", "id"),
        ] {
            self.desk.writes.others.push(format!("DELETE FROM {table} WHERE {column} IN ({list})"));
        }
    }

    /// The task keeps its log; its checkpoint is checked against the new stages when it next runs.
    fn redefine(&mut self, no: i64, old: Option<&Tenant>, task: &TaskDefinition) {
        let (body, crc) = encode_config(task);
        let (tenant, turn) =
            (text_or_null(task.tenant.as_ref().map(|tenant| tenant.as_str())), -i64::from(task.priority));
        let others = &mut self.desk.writes.others;
        others.push(format!(
            "UPDATE task_unit_configs SET body = {}, crc = {crc}, tenant = {tenant}, turn = {turn} WHERE id = {no}",
            text_or_null(body.as_deref())
        ));
        // Whoever still has to wait lines up again at the next claim.
        others.push(format!(
            "UPDATE task_unit_runtimes SET tenant = {tenant}, turn = {turn}, queue = IF(queue = 1, 0, queue) WHERE id = {no}"
        ));
        // It shows stages that may be others now.
        others.push(format!("DELETE FROM milepost_snapshots WHERE task = {no}"));
        if old != task.tenant.as_ref() {
            others.push(format!("DELETE FROM milepost_locks WHERE task = {no}"));
            self.desk.freed.extend(old.cloned());
        }
    }

    fn redefine_plan(&mut self, no: i64, encoded: &EncodedSubmission) {
        let definition = &encoded.submission.plan.definition;
        let recovery = super::eras::recovery_word(definition.settings.recovery);
        let workflow = definition.workflow.as_ref().map(workflow_word);
        self.desk.writes.others.push(format!(
            "UPDATE sync_tasks SET config = {}, digest = {}, max_concurrency = {}, recovery = {recovery}, \
             workflow = {} WHERE id = {no}",
            text(&encoded.definition),
            bytes(&encoded.digest),
            definition.settings.max_concurrency,
            text_or_null(workflow.as_deref()),
        ));
        let state = self.desk.plan(no);
        state.digest = encoded.digest.to_vec();
        (state.max_concurrency, state.recovery) = (definition.settings.max_concurrency, definition.settings.recovery);
        state.workflow = workflow;
    }

    /// Rows show how far a task is by its stages, and whether it waits for a message; both may be otherwise now.
    async fn reshow(&mut self, tasks: Vec<i64>) -> Sql<()> {
        for step in tasks.chunks(STEP) {
            let sql = format!("{} WHERE r.id IN ({})", Candidate::select(), numbers(step.iter().copied()));
            let candidates: Vec<Candidate> =
                self.ask_one(&sql).await?.into_iter().map(Candidate::read).collect::<Sql<_>>()?;
            let material = self.read_material(&candidates).await?;
            let mut rows = JsonRows::default();
            for candidate in &candidates {
                // What cannot be read is set aside when it is claimed.
                if let Ok((_, folded)) = self.rebuild(candidate, &material).await?
                    && !folded.is_damaged()
                {
                    let image = RowImage::of(&folded.task);
                    rows.row()
                        .number(candidate.task.no)
                        .number(image.done)
                        .number(image.total)
                        .maybe_text(image.stage.as_deref())
                        .number(i64::from(image.attempt))
                        .maybe_number(image.due_at)
                        .number(image.flags);
                }
            }
            if rows.count > 0 {
                let columns = [
                    ("id", "BIGINT"),
                    ("done", "INT UNSIGNED"),
                    ("total", "INT UNSIGNED"),
                    ("stage", "VARCHAR(128)"),
                    ("attempt", "INT UNSIGNED"),
                    ("due_at", "BIGINT"),
                    ("flags", "INT"),
                ];
                let table = rows.table(&columns);
                self.desk.writes.others.push(format!(
                    "UPDATE task_unit_runtimes r JOIN {table} b ON r.id = b.id SET r.done = b.done, r.total = b.total, \
                     r.stage = b.stage, r.attempt = b.attempt, r.due_at = b.due_at, r.flags = b.flags, \
                     r.queue = IF(r.queue IN (0, 8), IF(b.flags & {FLAG_AWAITS_MESSAGE}, 8, 0), r.queue)"
                ));
            }
        }
        self.flush().await
    }
}
