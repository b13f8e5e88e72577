//! Questions about tasks, each answered from one moment.

use std::collections::BTreeMap;

use milepost_core::id::{StageName, TaskId};
use milepost_core::task::{Event, Record, TaskStatus};
use milepost_core::time::Timestamp;

use crate::codec::{LogRow, damaged, number_events};
use crate::error::StoreError;
use crate::going::Going;
use crate::model::{
    EventQuery, LockRow, LogChunk, LogQuery, Page, StoredEvent, StoredTask, TaskQuery, TaskRef, TaskRow, TasksOf,
};
use crate::row::{FLAG_AWAITS_MESSAGE, FLAG_INTERRUPTED, FLAG_PAUSE_REQUESTED};

use super::answer::Answer;
use super::claim::fold;
use super::codec::{Described, Image, decode_output, decode_progress, decode_rows};
use super::commit::{not_found, plan_status};
use super::plans::missing;
use super::shared::Shared;

pub(super) async fn task(shared: &Shared, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
    let mut answer = shared.question("task", &[id.as_str(), "0"], "read a task").await?;
    if answer.is_empty() {
        return Ok(None);
    }
    let (orphaned, blocked_by, set_aside) = (answer.is_set(1)?, some(answer.text(2)?), some(answer.text(3)?));
    let (status, begun) = (plan_status(&answer, 4)?, answer.is_set(7)?);
    let [plan, own] = [answer.number(5)?, answer.number(6)?].map(|go| go.clamp(0, 2) as u8);
    let described = Described::read(answer.list(0)?)?;
    let (key, epoch, progress) = (described.key.clone(), described.lease, described.progress);
    let task = fold(shared, described).await?.task;
    let going = Going::of(task.spec().settings.recovery, plan, false);
    let waits_for_person = (epoch == 0 || orphaned) && going.holds(&task, own, status, begun);
    let claim_events = Vec::new();
    Ok(Some(StoredTask { key, task, epoch, orphaned, waits_for_person, blocked_by, set_aside, progress, claim_events }))
}

pub(super) async fn tasks(shared: &Shared, query: &TaskQuery) -> Result<Page<TaskRow>, StoreError> {
    let (of, name) = match &query.of {
        TasksOf::Plan(plan) => ("plan", plan.as_str()),
        TasksOf::Tenant(tenant) => ("tenant", tenant.as_str()),
    };
    let wanted: String = query.statuses.iter().map(|status| status.code().to_string()).collect();
    let mut after = match (&query.of, query.after) {
        (_, Some(after)) => after.to_string(),
        (TasksOf::Plan(_), None) => "0".to_owned(),
        (TasksOf::Tenant(_), None) => String::new(),
    };
    let mut rows: Vec<TaskRow> = Vec::new();
    loop {
        // One more than asked for, so that the last page says that it is the last.
        let limit = (query.limit + 1 - rows.len()).to_string();
        let arguments = [of, name, &after, &limit, &wanted];
        let mut answer = shared.question("tasks", &arguments, "list tasks").await?;
        if answer.is_empty() {
            return match &query.of {
                TasksOf::Plan(plan) => Err(missing(plan)),
                TasksOf::Tenant(_) => Ok(Page { items: Vec::new(), next: None }),
            };
        }
        after = answer.text(0)?.to_owned();
        let more = answer.is_set(1)?;
        for row in answer.list(2)?.lists()? {
            rows.push(task_row(&row)?);
        }
        if rows.len() > query.limit || !more {
            break;
        }
    }
    let next = (rows.len() > query.limit && query.limit > 0).then(|| rows[query.limit - 1].key.no);
    rows.truncate(query.limit);
    Ok(Page { items: rows, next })
}

fn task_row(answer: &Answer) -> Result<TaskRow, StoreError> {
    let key = TaskRef { no: answer.number(0)?, id: answer.task_id(1)? };
    let broken = |detail: String| damaged(format!("the row of task {}", key.id), detail);
    let status = TaskStatus::from_code(answer.number(4)?).ok_or_else(|| broken("no such status".to_owned()))?;
    let image: Image = serde_json::from_str(answer.text(7)?).map_err(|error| broken(error.to_string()))?;
    let set_aside = some(answer.text(11)?);
    let orphaned = answer.is_set(9)?;
    Ok(TaskRow {
        plan: answer.plan_id(2)?,
        tenant: answer.tenant(3)?,
        status,
        interrupted: status.is_active() && (image.flags & FLAG_INTERRUPTED != 0 || orphaned),
        pause_requested: image.flags & FLAG_PAUSE_REQUESTED != 0,
        awaits_message: image.flags & FLAG_AWAITS_MESSAGE != 0,
        version: answer.unsigned(5)?,
        done: image.done,
        stages: image.total,
        stage: image.stage.and_then(|stage| StageName::parse(stage).ok()),
        attempt: image.attempt,
        next_due: image.due_at.map(Timestamp::from_millis),
        blocked_by: some(answer.text(10)?),
        reason: set_aside.clone().or(image.reason),
        set_aside,
        progress: decode_progress(answer.text(8)?),
        created_at: answer.time(6)?,
        started_at: image.started_at.map(Timestamp::from_millis),
        ended_at: image.ended_at.map(Timestamp::from_millis),
        updated_at: Timestamp::from_millis(image.updated_at),
        key,
    })
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

pub(super) async fn events(shared: &Shared, query: &EventQuery) -> Result<Vec<StoredEvent>, StoreError> {
    let mut events = Vec::new();
    let mut after = query.after;
    loop {
        let arguments = [query.task.as_str(), &after.to_string()];
        let mut answer = shared.question("events", &arguments, "read events").await?;
        if answer.is_empty() {
            return Err(not_found(&query.task));
        }
        let (created_at, more, version) = (answer.time(0)?, answer.is_set(2)?, answer.unsigned(3)?);
        let key = TaskRef { id: query.task.clone(), no: 0 };
        let mut log = decode_rows(&answer.list(1)?, (after + 1).max(2), &key)?;
        if after == 0 {
            // The creation is known without a row.
            let creation = vec![Record::new(created_at, Event::TaskCreated {})];
            log.insert(0, LogRow { sequence: 1, records: creation, lost: None });
        }
        let page = EventQuery { after, limit: query.limit - events.len(), ..query.clone() };
        events.extend(number_events(log, &page, (!more).then_some(version), created_at));
        if events.len() >= query.limit || !more {
            return Ok(events);
        }
        after = events.last().map_or(after, |event| event.sequence);
    }
}

pub(super) async fn logs(shared: &Shared, query: &LogQuery) -> Result<Vec<LogChunk>, StoreError> {
    let mut answer = shared.question("output", &[query.task.as_str()], "read output").await?;
    if answer.is_empty() {
        return Err(not_found(&query.task));
    }
    let chunks = answer.list(0)?;
    let mut wanted = Vec::new();
    for index in 0..chunks.len() {
        let chunk = decode_output(chunks.bytes(index)?)?;
        let of_stage = query.stage.as_ref().is_none_or(|stage| *stage == chunk.stage);
        if of_stage && query.attempt.is_none_or(|attempt| attempt == chunk.attempt) {
            wanted.push(chunk);
        }
    }
    Ok(wanted)
}

/// By tenant. A lock that has opened by itself is none.
pub(super) async fn locks(shared: &Shared) -> Result<Vec<LockRow>, StoreError> {
    let mut locks = BTreeMap::new();
    let mut from = "0".to_owned();
    loop {
        let mut answer = shared.question("locks", &[&from], "list locks").await?;
        from = answer.text(0)?.to_owned();
        for row in answer.list(1)?.lists()? {
            let tenant = row.tenant(0)?.ok_or_else(|| damaged("a lock", "it has no tenant"))?;
            let (plan, task, since) = (row.plan_id(1)?, row.task_id(2)?, row.time(3)?);
            let (fence, expires_at) = (row.unsigned(4)?, Some(row.time(5)?));
            // A page may have what an earlier one had.
            locks.insert(tenant.clone(), LockRow { tenant, plan, task, since, fence, expires_at });
        }
        if from == "0" {
            return Ok(locks.into_values().collect());
        }
    }
}
