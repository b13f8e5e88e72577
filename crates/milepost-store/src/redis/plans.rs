//! Plans: their rows, their definitions, and changes of their own status.

use milepost_core::id::PlanId;
use milepost_core::plan::{Plan, PlanDefinition, TaskCounts};
use milepost_core::task::{By, TaskStatus};

use crate::codec::{Config, damaged};
use crate::error::StoreError;
use crate::model::{Page, PlanChange, PlanQuery, PlanRow, TaskRef};

use super::answer::Answer;
use super::commit::{plan_status, refused};
use super::script::{CHANGE_PLAN, becomes};
use super::shared::Shared;

/// A row that `plan_row` in `common.lua` made, from a place on; and the plan's number.
pub(super) fn plan_row(answer: &Answer, from: usize) -> Result<(PlanRow, i64), StoreError> {
    let mut counts = TaskCounts::default();
    for (index, status) in TaskStatus::ALL.iter().enumerate() {
        counts.add(*status, answer.unsigned(from + 9 + index)?);
    }
    let by = answer.text(from + 4)?;
    let row = PlanRow {
        id: answer.plan_id(from)?,
        status: plan_status(answer, from + 1)?,
        max_concurrency: u32::try_from(answer.number(from + 2)?).unwrap_or(u32::MAX),
        counts,
        version: answer.unsigned(from + 3)?,
        waits_for_person: answer.is_set(from + 18)?,
        changed_by: serde_json::from_str::<By>(by).ok(),
        created_at: answer.time(from + 5)?,
        started_at: answer.time_if_any(from + 6)?,
        ended_at: answer.time_if_any(from + 7)?,
    };
    Ok((row, answer.number(from + 8)?))
}

pub(super) fn missing(plan: &PlanId) -> StoreError {
    StoreError::NotFound { what: "plan", id: plan.to_string() }
}

pub(super) async fn plan(shared: &Shared, id: &PlanId) -> Result<Option<PlanRow>, StoreError> {
    let answer = shared.question("plan", &[id.as_str()], "read a plan").await?;
    if answer.is_empty() { Ok(None) } else { plan_row(&answer, 0).map(|(row, _)| Some(row)) }
}

pub(super) async fn plans(shared: &Shared, query: &PlanQuery) -> Result<Page<PlanRow>, StoreError> {
    let (open, before) = (if query.open_only { "1" } else { "0" }, query.after.map(|no| no.to_string()));
    let limit = (query.limit + 1).to_string();
    let arguments = [open, before.as_deref().unwrap_or(""), &limit];
    let rows = shared.question("plans", &arguments, "list plans").await?.lists()?;
    let rows = rows.iter().map(|row| plan_row(row, 0)).collect::<Result<Vec<_>, _>>()?;
    let next = (rows.len() > query.limit).then(|| rows[query.limit - 1].1);
    Ok(Page { items: rows.into_iter().take(query.limit).map(|(row, _)| row).collect(), next })
}

/// A plan as it is stored, with what an update needs to know besides.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) no: i64,
    pub(super) digest: String,
    pub(super) plan: Plan,
    /// One for each task of the plan.
    pub(super) tasks: Vec<StoredRef>,
}

#[derive(Debug)]
pub(super) struct StoredRef {
    pub(super) key: TaskRef,
    pub(super) version: u64,
}

/// Read in pages; when somebody changes the plan in between, from its start again.
pub(super) async fn stored(shared: &Shared, id: &PlanId) -> Result<Option<Stored>, StoreError> {
    'whole: loop {
        let mut found: Option<Stored> = None;
        let mut after = 0;
        loop {
            let arguments = [id.as_str(), &after.to_string()];
            let mut answer = shared.question("definition", &arguments, "read a plan").await?;
            if answer.is_empty() {
                return Ok(None);
            }
            let (no, digest) = (answer.number(0)?, answer.text(2)?.to_owned());
            let stored = match found.take() {
                Some(stored) if stored.digest != digest => continue 'whole,
                Some(stored) => found.insert(stored),
                None => {
                    let definition: PlanDefinition = serde_json::from_str(answer.text(1)?)
                        .map_err(|error| damaged(format!("the definition of plan {id}"), error))?;
                    let plan = Plan { definition, tasks: Vec::new() };
                    found.insert(Stored { no, digest, plan, tasks: Vec::new() })
                }
            };
            let tasks = answer.list(4)?.lists()?;
            for task in &tasks {
                after = task.number(0)?;
                read_task(task, no, stored)?;
            }
            if tasks.is_empty() {
                return Ok(found);
            }
        }
    }
}

fn read_task(answer: &Answer, plan: i64, stored: &mut Stored) -> Result<(), StoreError> {
    let key = TaskRef { no: answer.number(0)?, id: answer.task_id(1)? };
    let body = Some(answer.text(5)?).filter(|body| !body.is_empty()).map(str::to_owned);
    let config = Config {
        key: key.clone(),
        plan,
        tenant: answer.tenant(2)?,
        created_at: answer.time(4)?,
        body,
        crc: u32::try_from(answer.number(6)?).unwrap_or(0),
    };
    stored.plan.tasks.push(config.definition(answer.number(3)?)?);
    stored.tasks.push(StoredRef { key, version: answer.unsigned(7)? });
    Ok(())
}

pub(super) async fn change_plan(shared: &Shared, change: PlanChange) -> Result<PlanRow, StoreError> {
    let by = serde_json::to_string(&change.by).expect("two strings are JSON");
    let mut call = shared.call(&CHANGE_PLAN);
    call.arg(change.plan.as_str()).arg(becomes(change.command)).arg(by);
    call.arg(change.expected.map(|version| version.to_string()).unwrap_or_default()).arg(change.now.as_millis());
    call.arg(u8::from(change.command.lets_go())).arg(u8::from(change.command.always_counts()));
    shared.stats.count(1, 0);
    let mut answer = shared.answer(&CHANGE_PLAN, &call, "change a plan").await?;
    match answer.text(0)? {
        "ok" => plan_row(&answer.list(1)?, 0).map(|(row, _)| row),
        "lost" => Err(Shared::lost("change a plan")),
        "missing" => Err(missing(&change.plan)),
        "conflict" => {
            let (expected, found) = (change.expected.unwrap_or(0), answer.unsigned(1)?);
            Err(StoreError::PlanConflict { plan: change.plan, expected, found })
        }
        _ => Err(refused(&change.plan, plan_status(&answer, 1)?, Some(change.command))),
    }
}
