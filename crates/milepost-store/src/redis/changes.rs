//! The log as one: every commit of every task, and every change of a plan's status, in the order of their positions.
//!
//! A script numbers what it brings while nobody else can, so whoever sees a position has seen all before it.

use milepost_core::task::{Event, PlanStatus, Record};
use milepost_core::time::Timestamp;

use crate::codec::damaged;
use crate::error::StoreError;
use crate::model::{Change, ChangeQuery, Changed, Changes, Position, TaskRef};

use super::answer::Answer;
use super::codec::decode_row;
use super::link::unavailable;
use super::plans::missing;
use super::shared::Shared;

/// A position is a place in the list.
pub(super) async fn newest(shared: &Shared) -> Result<Position, StoreError> {
    let mut call = redis::cmd("LLEN");
    call.arg(shared.prelude.key("log"));
    let found = shared.link.ask(&call).await.map_err(unavailable("find the newest event"))?;
    let number: i64 = redis::from_redis_value(found).map_err(|error| damaged("the log", error))?;
    Ok(Position(number))
}

pub(super) async fn changes(shared: &Shared, query: &ChangeQuery) -> Result<Changes, StoreError> {
    let (after, limit) = (query.after.0.to_string(), query.limit.to_string());
    let arguments = [after.as_str(), query.plan.as_ref().map_or("", |plan| plan.as_str()), &limit];
    let mut answer = shared.question("changes", &arguments, "read what has changed").await?;
    if answer.is_empty() {
        return Err(query.plan.as_ref().map_or_else(|| damaged("the log", "it cannot be read"), missing));
    }
    let (upto, more) = (Position(answer.number(0)?), answer.is_set(1)?);
    let mut items = Vec::new();
    for found in answer.list(2)?.lists()? {
        match change(&found) {
            Ok(change) => items.push(change),
            // One damaged row must not keep everybody from all that follows. Whoever asks for the task itself is told.
            Err(error) => {
                let position = found.number(0)?;
                tracing::warn!(position, %error, "a change is left out, because it cannot be read");
            }
        }
    }
    Ok(Changes { items, upto, more })
}

fn change(answer: &Answer) -> Result<Change, StoreError> {
    let (position, plan, body) = (Position(answer.number(0)?), answer.plan_id(1)?, answer.text(5)?);
    let what = match answer.text(2)? {
        "p" => plan_change(body)?,
        kind => {
            let (task, tenant) = (answer.task_id(3)?, answer.tenant(4)?);
            let (sequence, records) = if kind == "c" {
                (1, vec![Record::new(answer.time(5)?, Event::TaskCreated {})])
            } else {
                let row = decode_row(body.as_bytes(), 0, &TaskRef { id: task.clone(), no: 0 });
                match row.lost {
                    Some(reason) => return Err(damaged(format!("a row of task {task}"), reason)),
                    None => (row.sequence, row.records),
                }
            };
            Changed::Task { task, tenant, sequence, records }
        }
    };
    Ok(Change { position, plan, what })
}

/// Status, time, and who asked for it, if somebody did.
fn plan_change(body: &str) -> Result<Changed, StoreError> {
    let broken = || damaged("a plan's entry in the log", format!("`{body}` is no status, time and name"));
    let mut parts = body.splitn(3, ' ');
    let mut number = || parts.next().and_then(|part| part.parse::<i64>().ok()).ok_or_else(broken);
    let (status, at) = (number()?, number()?);
    let by = parts.next().filter(|by| !by.is_empty());
    let by = by.map(|by| serde_json::from_str(by).map_err(|_| broken())).transpose()?;
    let status = PlanStatus::from_code(status).ok_or_else(broken)?;
    Ok(Changed::Plan { status, by, at: Timestamp::from_millis(at) })
}
