//! A plan submitted again with other tasks. All of it is worked out here from what is stored, and taken by one statement
//! if that is still so.

use std::collections::HashMap;

use milepost_core::id::TaskId;
use milepost_core::plan::{PlanCommand, TaskCounts, TaskDefinition, next_plan_status};
use milepost_core::task::{PlanStatus, TaskStatus};
use milepost_core::time::Timestamp;
use tokio_postgres::types::Type;

use crate::codec::{Config, LogHead, SharedPlan, damaged, encode_config};
use crate::error::{Clash, StoreError};
use crate::model::{Difference, Start, Submission, Submitted};
use crate::row::RowImage;

use super::books::BookColumns;
use super::claim::workflow_key;
use super::codec::{config, head};
use super::columns::{call, number, plan_code};
use super::connect::unavailable;
use super::fold::{Wanted, fold};
use super::read::FoundPlan;
use super::requests::KeptAnswer;
use super::store::Inner;
use super::submit::{NewTasks, Waiting, automatic, clash, creation};

/// Tasks that stay, in columns: what they are asked for now, and what their rows show of it.
#[derive(Default)]
struct Kept {
    numbers: Vec<i64>,
    versions: Vec<i64>,
    tenants: Vec<Option<String>>,
    ranks: Vec<i64>,
    bodies: Vec<Option<String>>,
    crcs: Vec<i64>,
    dones: Vec<i32>,
    totals: Vec<i32>,
    stages: Vec<Option<String>>,
    attempts: Vec<i32>,
    dues: Vec<Option<i64>>,
    flags: Vec<i16>,
}

/// None when something of the plan has changed since it was looked at.
pub(super) async fn update(inner: &Inner, one: &Waiting, found: FoundPlan) -> Result<Option<Submitted>, StoreError> {
    let Submission { plan, start, request, now, .. } = &one.submission;
    let stored = stored_tasks(inner, found.no).await?;
    let mut wanted: HashMap<&TaskId, &TaskDefinition> = plan.tasks.iter().map(|task| (&task.id, task)).collect();
    let mut counts = TaskCounts::default();
    let (mut staying, mut gone, mut gone_versions) = (Vec::new(), Vec::new(), Vec::new());
    for (config, head) in stored {
        match wanted.remove(&config.key.id) {
            Some(definition) => {
                counts.add(head.status, 1);
                staying.push((config, head, definition));
            }
            None => {
                gone.push(config.key.no);
                gone_versions.push(head.version as i64);
            }
        }
    }
    let added: Vec<TaskDefinition> = plan.tasks.iter().filter(|task| wanted.contains_key(&task.id)).cloned().collect();
    counts.add(TaskStatus::Pending, added.len() as u64);
    let kept = refold(inner, one, staying).await?;
    let difference = Difference { added: added.len() as u64, removed: gone.len() as u64 };

    let mut row = found.row;
    let before = (row.status, row.version);
    settle(&mut row, counts, difference.added > 0, *now);
    let (next, ended) = (plan_code(row.status), row.ended_at.map(Timestamp::as_millis));
    row.max_concurrency = plan.definition.settings.max_concurrency;
    row.version += 1;
    let at_once = *start == Start::AtOnce;
    if at_once && row.status == PlanStatus::Running {
        row.version += u64::from(std::mem::take(&mut row.waits_for_person));
    }
    if at_once && matches!(row.status, PlanStatus::Created | PlanStatus::Ready) {
        row.status = PlanStatus::Running;
        row.version += 1;
        row.started_at.get_or_insert(*now);
    }
    if row.status != before.0 {
        row.changed_by = None;
    }
    let codes: Vec<i32> = counted(&row.counts);
    let answer = Submitted { plan: row, created: false, replayed: false, difference };
    let answered = request.as_ref().map(|request| KeptAnswer::new(request, &answer));
    let (key, digest) = (answered.as_ref().map(|kept| kept.key), answered.as_ref().map(|kept| kept.digest));
    let text = answered.as_ref().map(|kept| kept.text.as_str());

    let (own, expected, at) = (inner.session.number(), before.1 as i64, now.as_millis());
    let settings = &plan.definition.settings;
    let (most, automatic) = (number(settings.max_concurrency), automatic(settings));
    let workflow = plan.definition.workflow.as_ref().map(workflow_key);
    let (refuses, created) = (one.refuses_busy_tenants(), creation(*now));
    let (created_body, created_crc) = (created.text, i64::from(created.crc));
    let plan_digest = one.digest.as_slice();
    let mut tasks = NewTasks::default();
    tasks.extend(plan, added.iter());
    let books = BookColumns::of(one.for_books());
    let mut parameters: Vec<(&(dyn tokio_postgres::types::ToSql + Sync), Type)> = vec![
        (&own, Type::INT8),
        (&found.no, Type::INT8),
        (&expected, Type::INT8),
        (&one.definition, Type::TEXT),
        (&plan_digest, Type::BYTEA),
        (&most, Type::INT4),
        (&automatic, Type::BOOL),
        (&workflow, Type::TEXT),
        (&refuses, Type::BOOL),
        (&at, Type::INT8),
        (&at_once, Type::BOOL),
        (&next, Type::INT2),
        (&ended, Type::INT8),
        (&codes, Type::INT4_ARRAY),
        (&key, Type::TEXT),
        (&digest, Type::BYTEA),
        (&text, Type::TEXT),
        (&gone, Type::INT8_ARRAY),
        (&gone_versions, Type::INT8_ARRAY),
    ];
    parameters.extend(kept.parameters());
    parameters.push((&created_body, Type::TEXT));
    parameters.push((&created_crc, Type::INT8));
    parameters.extend(tasks.parameters());
    parameters.extend(books.parameters());
    let rows = inner.server.write("update a plan", &call("update_plan", &parameters), &parameters).await?;
    inner.stats.count(1, 0);
    match rows[0].get::<_, i32>(0) {
        0 => Ok(Some(answer)),
        1 => Ok(None),
        5 => Err(Clash::Running { plan: plan.definition.id.clone() }.into()),
        6 => books.refusal(1, &rows[0]).map_or(Ok(None), Err),
        _ => match clash(inner, one, &added, Some(found.no)).await? {
            Some(clash) => Err(clash.into()),
            None => Ok(None),
        },
    }
}

/// What becomes of a plan whose tasks are others now.
fn settle(row: &mut crate::model::PlanRow, counts: TaskCounts, gains: bool, now: Timestamp) {
    let before = row.status;
    row.counts = counts;
    if gains && before.is_ended() {
        row.status = PlanStatus::Ready;
    }
    let settled = next_plan_status(row.id.as_str(), row.status, &counts, PlanCommand::Settle);
    row.status = settled.expect("settling refuses nothing");
    let over = row.status.is_ended() && counts.open() == 0;
    row.ended_at = match row.ended_at {
        Some(at) if row.status == before => Some(at),
        _ => over.then_some(now),
    };
}

fn counted(counts: &TaskCounts) -> Vec<i32> {
    let of = |status: &TaskStatus| match status {
        TaskStatus::Pending => counts.pending,
        TaskStatus::Running => counts.running,
        TaskStatus::Paused => counts.paused,
        TaskStatus::Completed => counts.completed,
        TaskStatus::Failed => counts.failed,
        TaskStatus::Cancelled => counts.cancelled,
        TaskStatus::RollingBack => counts.rolling_back,
        TaskStatus::RolledBack => counts.rolled_back,
        TaskStatus::RollbackFailed => counts.rollback_failed,
    };
    TaskStatus::ALL.iter().map(|status| i32::try_from(of(status)).unwrap_or(i32::MAX)).collect()
}

async fn stored_tasks(inner: &Inner, plan: i64) -> Result<Vec<(Config, LogHead)>, StoreError> {
    let sql = "SELECT c.no, c.id, c.plan, c.tenant, c.created_at, c.body, c.crc, r.version, r.last_event, r.status \
               FROM @.plans p JOIN @.task_configs c ON c.no BETWEEN p.first_task AND p.last_task AND c.plan = p.no \
               JOIN @.task_runtimes r ON r.no = c.no WHERE p.no = $1 ORDER BY c.no";
    let rows = inner.server.read("read a plan's tasks", sql, &[(&plan, Type::INT8)]).await?;
    rows.iter().map(|row| Ok((config(row)?, head(row)?))).collect()
}

/// Rows show how far a task is by its stages, which may be others now.
async fn refold(
    inner: &Inner,
    one: &Waiting,
    staying: Vec<(Config, LogHead, &TaskDefinition)>,
) -> Result<Kept, StoreError> {
    let shared = SharedPlan::new(one.submission.plan.definition.clone());
    let mut kept = Kept::default();
    let mut wanted = Vec::with_capacity(staying.len());
    for (old, head, definition) in staying {
        let (body, crc) = encode_config(definition);
        let rank = -i64::from(definition.priority);
        kept.numbers.push(old.key.no);
        kept.versions.push(head.version as i64);
        kept.tenants.push(definition.tenant.as_ref().map(ToString::to_string));
        kept.ranks.push(rank);
        kept.bodies.push(body.clone());
        kept.crcs.push(crc.into());
        let key = old.key.clone();
        let spec = Config { body, crc, tenant: definition.tenant.clone(), ..old }.spec(&shared, rank);
        wanted.push(Wanted { key, spec, head, creation: None });
    }
    for folded in fold(&inner.server, wanted).await? {
        // What cannot be read is not changed either: a person has to look at it first.
        if let Some(reason) = folded.task.damage() {
            return Err(damaged(format!("task {}", folded.task.id()), reason));
        }
        let row = RowImage::of(&folded.task);
        kept.dones.push(i32::try_from(row.done).map_err(unavailable("count stages"))?);
        kept.totals.push(i32::try_from(row.total).map_err(unavailable("count stages"))?);
        kept.stages.push(row.stage);
        kept.attempts.push(number(row.attempt));
        kept.dues.push(row.due_at);
        kept.flags.push(row.flags as i16);
    }
    Ok(kept)
}

impl Kept {
    fn parameters(&self) -> [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 12] {
        [
            (&self.numbers, Type::INT8_ARRAY),
            (&self.versions, Type::INT8_ARRAY),
            (&self.tenants, Type::TEXT_ARRAY),
            (&self.ranks, Type::INT8_ARRAY),
            (&self.bodies, Type::TEXT_ARRAY),
            (&self.crcs, Type::INT8_ARRAY),
            (&self.dones, Type::INT4_ARRAY),
            (&self.totals, Type::INT4_ARRAY),
            (&self.stages, Type::TEXT_ARRAY),
            (&self.attempts, Type::INT4_ARRAY),
            (&self.dues, Type::INT8_ARRAY),
            (&self.flags, Type::INT2_ARRAY),
        ]
    }
}
