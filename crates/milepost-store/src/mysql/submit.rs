//! Taking in a plan: whole, or not at all.

use milepost_core::plan::{PlanDefinition, TaskCounts, TaskDefinition, Trigger};
use milepost_core::task::{Event, PlanStatus, Record, TaskStatus};
use milepost_core::time::Timestamp;

use crate::books::BookChange;
use crate::codec::{digest, encode_config, encode_events};
use crate::error::StoreError;
use crate::going;
use crate::model::{Difference, Resubmit, Start, Submission, Submitted};
use crate::row::FLAG_AWAITS_MESSAGE;

use super::begin::Turn;
use super::claim::workflow_word;
use super::codec::{Sql, plan_word};
use super::eras::recovery_word;
use super::known::{Known, owners_of};
use super::sql::{PACKET, bytes, number_or_null, push_text, text, text_or_null, texts};
use super::states::{PlanState, Queue};

/// A submission with its plan in the form the table holds; encoded by the caller, so that the writer only writes.
#[derive(Debug)]
pub(super) struct EncodedSubmission {
    pub(super) submission: Submission,
    pub(super) definition: String,
    pub(super) digest: [u8; 32],
    pub(super) books: BookChange,
}

impl From<Submission> for EncodedSubmission {
    fn from(mut submission: Submission) -> Self {
        let books = BookChange { keep: std::mem::take(&mut submission.entries), strike: Vec::new() };
        let definition = serde_json::to_string(&submission.plan.definition);
        let definition = definition.expect("a plan's definition came from JSON or YAML");
        Self { digest: digest(&definition, &submission.plan.tasks), definition, submission, books }
    }
}

impl Turn {
    pub(super) async fn submit(
        &mut self,
        encoded: &EncodedSubmission,
        known: &mut Known,
    ) -> Sql<Result<Submitted, StoreError>> {
        let Submission { request, now, .. } = &encoded.submission;
        if let Some(request) = request {
            match known.requests.replay(request, *now) {
                Ok(None) => {}
                Ok(Some(answer)) => return Ok(Ok(answer)),
                Err(error) => return Ok(Err(error)),
            }
        }
        if let Err(error) = self.desk.books.refuse_kept(&encoded.books) {
            return Ok(Err(error));
        }
        let submitted = self.take_in(encoded, known).await?;
        if submitted.is_ok() {
            self.desk.write_books(&encoded.books);
        }
        if let (Some(request), Ok(answer)) = (request, &submitted) {
            self.keep_request(&mut known.requests, request, answer, *now);
        }
        Ok(submitted)
    }

    async fn take_in(&mut self, encoded: &EncodedSubmission, known: &mut Known) -> Sql<Result<Submitted, StoreError>> {
        let submission = &encoded.submission;
        let plan = &submission.plan;
        let Some(found) = known.plans.get(&plan.definition.id) else { return self.create(encoded, known).await };
        let (no, same) = (found.no, found.digest == encoded.digest);
        self.desk.plans.entry(no).or_insert_with(|| found.clone());
        let difference = match (same, submission.resubmit) {
            (true, _) => Difference::default(),
            (false, Resubmit::Same) => {
                self.flush().await?;
                return Ok(Err(self.other_content(no, plan).await?));
            }
            (false, Resubmit::Update) => match self.update(no, encoded).await? {
                Ok(difference) => difference,
                Err(error) => return Ok(Err(error)),
            },
        };
        if difference != Difference::default() {
            for task in &plan.tasks {
                known.owners.insert(task.id.clone(), plan.definition.id.clone());
            }
        }
        if submission.start == Start::AtOnce {
            let was_held = self.set_going(no).await?;
            let state = self.desk.plan(no);
            if matches!(state.status, PlanStatus::Created | PlanStatus::Ready) {
                state.set_status(PlanStatus::Running, None, submission.now);
                self.desk.log_plan(no, None, submission.now);
                self.prepare_units(no, submission.now).await?;
            } else if was_held {
                self.log_going(no, None, submission.now);
            }
        }
        let state = self.desk.plan(no).clone();
        let row = state.row();
        known.plans.insert(state.id.clone(), state);
        Ok(Ok(Submitted { plan: row, created: false, replayed: false, difference }))
    }

    async fn create(&mut self, encoded: &EncodedSubmission, known: &mut Known) -> Sql<Result<Submitted, StoreError>> {
        let Submission { plan, start, now, .. } = &encoded.submission;
        let definition = &plan.definition;
        for tasks in plan.tasks.chunks(PACKET / 256).skip(1) {
            let sql = owners_of(&texts(tasks.iter().map(|task| task.id.as_str())));
            known.add_owners(self.ask_one(&sql).await?)?;
        }
        if let Some(clash) = known.clash(definition, &plan.tasks, None) {
            return Ok(Err(clash.into()));
        }
        self.desk.counters.plans += 1;
        let no = self.desk.counters.plans;
        let status = if *start == Start::AtOnce { PlanStatus::Running } else { PlanStatus::Ready };
        let mut counts = TaskCounts::default();
        counts.add(TaskStatus::Pending, plan.tasks.len() as u64);
        let state = PlanState {
            no,
            id: definition.id.clone(),
            status,
            version: 1,
            max_concurrency: definition.settings.max_concurrency,
            recovery: definition.settings.recovery,
            go: if *start == Start::AtOnce { self.go_now(definition.settings.recovery).await? } else { going::HELD },
            begun: true,
            workflow: definition.workflow.as_ref().map(workflow_word),
            counts,
            slotless: 0,
            ready: plan.tasks.iter().filter(|task| !awaits_message(definition, task)).count() as u64,
            created_at: *now,
            started_at: (*start == Start::AtOnce).then_some(*now),
            ended_at: None,
            changed_by: None,
            digest: encoded.digest.to_vec(),
        };
        let row = state.row();
        self.insert_plan(&state, &encoded.definition);
        self.desk.plans.insert(no, state.clone());
        self.desk.log_plan(no, None, *now);
        self.desk.writes.plans.remove(&no);
        self.insert_tasks(no, definition, &plan.tasks, *now);
        known.owners.extend(plan.tasks.iter().map(|task| (task.id.clone(), definition.id.clone())));
        known.plans.insert(definition.id.clone(), state);
        Ok(Ok(Submitted { plan: row, created: true, replayed: false, difference: Difference::default() }))
    }

    pub(super) fn insert_plan(&mut self, plan: &PlanState, definition: &str) {
        let recovery = recovery_word(plan.recovery);
        let counts = &plan.counts;
        let [pending, running, paused, completed] = [counts.pending, counts.running, counts.paused, counts.completed];
        let [failed, cancelled, rolling_back] = [counts.failed, counts.cancelled, counts.rolling_back];
        let [rolled_back, rollback_failed] = [counts.rolled_back, counts.rollback_failed];
        self.desk.writes.inserts.plans.push(|sql| {
            sql.push_str(&format!("{},{},", plan.no, text(plan.id.as_str())));
            push_text(sql, definition);
            sql.push_str(&format!(
                ",{},'{}',{},{},{recovery},{},{pending},{running},{paused},{completed},{failed},{cancelled},\
                 {rolling_back},{rolled_back},{rollback_failed},{},{},{},{created},{created},{},{},{},{}",
                bytes(&plan.digest),
                plan_word(plan.status),
                plan.version,
                plan.max_concurrency,
                text_or_null(plan.workflow.as_deref()),
                plan.slotless,
                plan.ready,
                u8::from(plan.offers()),
                number_or_null(plan.started_at.map(Timestamp::as_millis)),
                number_or_null(plan.ended_at.map(Timestamp::as_millis)),
                text_or_null(plan.changed_by.as_deref()),
                plan.go,
                created = plan.created_at.as_millis(),
            ));
        });
    }

    pub(super) fn insert_tasks(
        &mut self,
        plan: i64,
        definition: &PlanDefinition,
        tasks: &[TaskDefinition],
        now: Timestamp,
    ) {
        let created = [Record::new(now, Event::TaskCreated {})];
        for task in tasks {
            self.desk.counters.tasks += 1;
            let no = self.desk.counters.tasks;
            self.insert_config(no, plan, task, now);
            let (queue, flags) = if awaits_message(definition, task) {
                (Queue::AwaitsMessage, FLAG_AWAITS_MESSAGE)
            } else {
                (Queue::Ready, 0)
            };
            let stages = task.stages.as_ref().unwrap_or(&definition.stages);
            let first = text_or_null(stages.first().map(|stage| stage.name.as_str()));
            let (tenant, turn) =
                (text_or_null(task.tenant.as_ref().map(|tenant| tenant.as_str())), -i64::from(task.priority));
            self.desk.writes.inserts.runtimes.push(|sql| {
                sql.push_str(&format!(
                    "{no},{plan},{},{tenant},{turn},'pending',{},1,0,NULL,0,{},{first},0,NULL,{flags},NULL,NULL,{},NULL",
                    text(task.id.as_str()),
                    queue as i64,
                    stages.len(),
                    now.as_millis()
                ));
            });
            self.desk.append(no, 1, encode_events(&created));
        }
    }

    pub(super) fn insert_config(&mut self, no: i64, plan: i64, task: &TaskDefinition, created_at: Timestamp) {
        let (body, crc) = encode_config(task);
        let tenant = text_or_null(task.tenant.as_ref().map(|tenant| tenant.as_str()));
        let turn = -i64::from(task.priority);
        self.desk.writes.inserts.configs.push(|sql| {
            sql.push_str(&format!(
                "{no},{plan},{},{tenant},{turn},{},",
                text(task.id.as_str()),
                created_at.as_millis()
            ));
            match &body {
                Some(body) => push_text(sql, body),
                None => sql.push_str("NULL"),
            }
            sql.push_str(&format!(",{crc}"));
        });
    }
}

/// A new task of this definition may not be claimed before its message is here.
fn awaits_message(plan: &PlanDefinition, task: &TaskDefinition) -> bool {
    plan.settings.trigger == Trigger::Message && task.message.is_none()
}
