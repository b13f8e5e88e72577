//! A plan that another store has had until now, with its history: loaded in steps, and there when the last is made.

use std::time::{Duration, Instant};

use milepost_core::task::Checkpoint;
use milepost_core::time::Timestamp;
use redis::Cmd;

use crate::codec::{damaged, digest, encode_config};
use crate::error::{Clash, StoreError};
use crate::model::Wake;
use crate::moved::{MovedPlan, MovedTask};
use crate::snapshot::{SHORTEST, Snapshot};

use super::answer::Answer;
use super::codec::{Image, encode_output, encode_row, encode_snapshot, shown, time};
use super::script::IMPORT;
use super::shared::Shared;
use super::submit::{hex, write_plan};

/// Tasks in one step, and events in one row of a log.
const TASKS: usize = 100;
const EVENTS: usize = 100;
const PATIENCE: Duration = Duration::from_secs(60);

struct Import<'a> {
    shared: &'a Shared,
    moved: &'a MovedPlan,
    definition: String,
    digest: String,
}

pub(super) async fn import(shared: &Shared, moved: &MovedPlan) -> Result<(), StoreError> {
    let definition = serde_json::to_string(&moved.plan.definition).expect("a plan's definition came from JSON or YAML");
    let digest = hex(&digest(&definition, &moved.plan.tasks));
    let import = Import { shared, moved, definition, digest };
    let asked = Instant::now();
    while !import.once().await? {
        if asked.elapsed() > PATIENCE {
            let source = "another process is still bringing a plan of this name".into();
            return Err(StoreError::Unavailable { backend: "redis", operation: "import a plan", source });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

impl Import<'_> {
    /// False when somebody else is at it.
    async fn once(&self) -> Result<bool, StoreError> {
        let plan = self.moved.plan.definition.id.clone();
        let begun = self.step("begin", 0, 0, |_| {}).await?;
        match begun.text(0)? {
            "begun" => {}
            "known" => {
                let difference = "the store has a plan of this name already".to_owned();
                return Err(Clash::OtherContent { plan, difference }.into());
            }
            "loading" => {
                let (no, since) = begun.text(1)?.split_once(' ').unwrap_or(("0", "0"));
                if begun.number(2)? - since.parse::<i64>().unwrap_or(0) > begun.number(3)? {
                    self.drop_load(no.parse().unwrap_or(0)).await?;
                }
                return Ok(false);
            }
            other => return Err(damaged("an answer of redis", format!("`{other}` to an import"))),
        }
        let (no, first) = (begun.number(1)?, begun.number(2)?);
        let mut next = first;
        for tasks in self.moved.tasks.chunks(TASKS) {
            let loaded = self.step("tasks", no, next, |call| tasks.iter().for_each(|task| self.task(call, task)));
            let loaded = loaded.await?;
            match loaded.text(0)? {
                "loaded" => next += tasks.len() as i64,
                "taken" => {
                    self.drop_load(no).await?;
                    return Err(Clash::TaskId { task: loaded.task_id(1)?, owner: loaded.plan_id(2)? }.into());
                }
                _ => return Ok(false),
            }
        }
        let opened = self.step("open", no, first, |call| self.row_and_locks(call)).await?;
        if opened.text(0)? == "busy" {
            self.drop_load(no).await?;
            return Err(Clash::TenantsBusy { plan, busy: vec![opened.text(1)?.to_owned()] }.into());
        }
        Ok(opened.text(0)? == "ok")
    }

    async fn drop_load(&self, no: i64) -> Result<(), StoreError> {
        while self.step("drop", no, 0, |_| {}).await?.text(0)? == "more" {}
        Ok(())
    }

    async fn step(&self, step: &str, no: i64, first: i64, write: impl FnOnce(&mut Cmd)) -> Result<Answer, StoreError> {
        let mut call = self.shared.call(&IMPORT);
        let plan = &self.moved.plan;
        call.arg(step).arg(no).arg(plan.definition.id.as_str()).arg(first).arg(self.moved.tasks.len());
        write_plan(&mut call, plan, &self.definition, &self.digest);
        write(&mut call);
        self.shared.answer(&IMPORT, &call, "import a plan").await
    }

    fn task(&self, call: &mut Cmd, moved: &MovedTask) {
        let (task, spec) = (&moved.task, moved.task.spec());
        let definition = self.moved.plan.tasks.iter().find(|definition| definition.id == spec.id);
        let (body, crc) = definition.map(encode_config).unwrap_or_default();
        call.arg(spec.id.as_str()).arg(spec.tenant.as_ref().map_or("", |tenant| tenant.as_str()));
        call.arg(-i64::from(spec.priority)).arg(body.unwrap_or_default()).arg(crc).arg(Image::of(task).text());
        call.arg(u8::from(task.awaits_message()));
        let wake = match moved.wake {
            Wake::At(at) if task.status().is_active() => Some(at),
            Wake::At(_) | Wake::Recovery => None,
        };
        call.arg(spec.created_at.as_millis()).arg(task.status().code()).arg(task.version()).arg(time(wake));
        call.arg(u8::from(task.status().is_active() && !moved.is_asked()))
            .arg(u8::from(task.pause_requested().is_some()));
        call.arg(shown(task.started_at())).arg(shown(task.ended_at()));
        let text = |checkpoint| serde_json::to_string(&checkpoint).expect("names, numbers and outputs are JSON");
        call.arg(Checkpoint::of(task).map_or_else(|| "none".to_owned(), text));
        call.arg(task.node().map(|node| node.to_string()).unwrap_or_default());
        let long = task.version() >= SHORTEST;
        let snapshot = if long { Snapshot::of(task) } else { None };
        call.arg(snapshot.map(|kept| encode_snapshot(&kept)).unwrap_or_default());
        // Of a node that is gone, and never comes back.
        call.arg(u8::from(moved.is_orphan()));
        // The creation is known without a row.
        let rows: Vec<_> = moved.events.get(1..).unwrap_or_default().chunks(EVENTS).collect();
        call.arg(rows.len());
        for (index, events) in rows.into_iter().enumerate() {
            call.arg(encode_row((2 + index * EVENTS) as u64, events));
        }
        call.arg(moved.output.len());
        for chunk in &moved.output {
            call.arg(encode_output(chunk));
        }
    }

    fn row_and_locks(&self, call: &mut Cmd) {
        let row = &self.moved.row;
        let by = row.changed_by.as_ref().map(|by| serde_json::to_string(by).expect("two strings are JSON"));
        call.arg(row.status.code()).arg(row.version).arg(by.unwrap_or_default()).arg(row.created_at.as_millis());
        call.arg(time(row.started_at)).arg(time(row.ended_at)).arg(self.last_word().as_millis());
        for lock in &self.moved.locks {
            call.arg(lock.tenant.as_str()).arg(lock.task.as_str()).arg(lock.since.as_millis()).arg(lock.fence);
            call.arg(self.shared.membership.lock_ttl.get());
        }
    }

    /// When the plan became what it is.
    fn last_word(&self) -> Timestamp {
        let row = &self.moved.row;
        row.ended_at.or(row.started_at).unwrap_or(row.created_at)
    }
}
