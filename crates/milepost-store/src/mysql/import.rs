//! Taking in a plan that another store has had until now, whole and with its history.

use std::collections::HashMap;

use milepost_core::id::TaskId;
use milepost_core::plan::{Plan, TaskCounts};
use milepost_core::task::Record;

use crate::codec::{digest, encode_events};
use crate::error::{Clash, StoreError};
use crate::model::{LockRow, TaskRef, Wake};
use crate::moved::{MovedPlan, MovedTask};
use crate::row::RowImage;
use crate::snapshot::{SHORTEST, Snapshot};

use super::begin::Turn;
use super::claim::workflow_word;
use super::codec::Sql;
use super::known::{Known, busy_among, owners_of};
use super::sql::{PACKET, text, texts};
use super::states::{PlanState, Standing};
use super::writes::TakenLock;

/// Events that one row of the log holds.
const EVENTS_PER_ROW: usize = 100;
/// Tasks that are sent at once.
const STEP: usize = 256;

impl Turn {
    /// One transaction, sent in steps: nobody sees any of it before the last.
    pub(super) async fn import(&mut self, moved: &MovedPlan) -> Sql<Result<(), StoreError>> {
        let Plan { definition, tasks } = &moved.plan;
        let taken = format!("SELECT id FROM sync_tasks WHERE name = {}", text(definition.id.as_str()));
        if !self.flush_and_ask(&taken).await?.is_empty() {
            let difference = "a plan of that name is there already".to_owned();
            return Ok(Err(Clash::OtherContent { plan: definition.id.clone(), difference }.into()));
        }
        let mut known = Known::default();
        for step in tasks.chunks(4096) {
            known.add_owners(self.ask_one(&owners_of(&texts(step.iter().map(|task| task.id.as_str())))).await?)?;
        }
        for step in moved.locks.chunks(4096) {
            let tenants = texts(step.iter().map(|lock| lock.tenant.as_str()));
            known.add_busy(self.ask_one(&busy_among(&tenants)).await?)?;
        }
        if let Some((task, owner)) = known.owners.into_iter().next() {
            return Ok(Err(Clash::TaskId { task, owner }.into()));
        }
        if !known.busy.is_empty() {
            let mut busy: Vec<String> = known.busy.into_keys().collect();
            busy.sort();
            return Ok(Err(Clash::TenantsBusy { plan: definition.id.clone(), busy }.into()));
        }
        self.desk.counters.plans += 1;
        let no = self.desk.counters.plans;
        let text = serde_json::to_string(definition).expect("a plan's definition came from JSON or YAML");
        let state = PlanState {
            no,
            id: definition.id.clone(),
            status: moved.row.status,
            version: moved.row.version,
            max_concurrency: definition.settings.max_concurrency,
            recovery: definition.settings.recovery,
            go: crate::going::when_moved(definition.settings.recovery),
            begun: true,
            workflow: definition.workflow.as_ref().map(workflow_word),
            counts: TaskCounts::default(),
            slotless: 0,
            ready: 0,
            created_at: moved.row.created_at,
            started_at: moved.row.started_at,
            ended_at: moved.row.ended_at,
            changed_by: moved
                .row
                .changed_by
                .as_ref()
                .map(|by| serde_json::to_string(by).expect("two strings are JSON")),
            digest: digest(&text, tasks).to_vec(),
        };
        self.insert_plan(&state, &text);
        self.desk.plans.insert(no, state);
        let locks: HashMap<&TaskId, &LockRow> = moved.locks.iter().map(|lock| (&lock.task, lock)).collect();
        for (step, definitions) in moved.tasks.chunks(STEP).zip(tasks.chunks(STEP)) {
            let mut unsent = 0;
            for (task, definition) in step.iter().zip(definitions) {
                self.desk.counters.tasks += 1;
                let key = TaskRef { no: self.desk.counters.tasks, id: definition.id.clone() };
                self.insert_config(key.no, no, definition, task.task.spec().created_at);
                self.import_task(no, &key, task, &mut unsent).await?;
                if let Some(lock) = locks.get(&key.id) {
                    self.import_lock(key.no, lock);
                }
            }
            self.flush().await?;
        }
        self.recount(no).await?;
        self.desk.log_plan(no, moved.row.changed_by.as_ref(), moved.row.ended_at.unwrap_or(self.desk.now));
        Ok(Ok(()))
    }

    /// `unsent`: bytes that wait to be sent.
    async fn import_task(&mut self, plan: i64, key: &TaskRef, moved: &MovedTask, unsent: &mut usize) -> Sql<()> {
        let task = &moved.task;
        let image = RowImage::of(task);
        let wake_at = match moved.wake {
            Wake::At(at) if image.status.is_active() => Some(at),
            Wake::At(_) | Wake::Recovery => None,
        };
        // An orphan's lease is that of a node which is gone, and never comes back.
        let standing = Standing { lease: u64::from(moved.is_orphan()), wake_at, asked: moved.is_asked() };
        let (tenant, turn) = (task.spec().tenant.as_ref(), -i64::from(task.spec().priority));
        self.insert_runtime(key, plan, tenant.map(|tenant| tenant.as_str()), turn, &image, standing);
        let (mut sequence, mut rest) = (1, &moved.events[..]);
        while !rest.is_empty() {
            let (row, more) = rest.split_at(events_in_a_row(rest));
            let body = encode_events(row);
            *unsent += body.text.len();
            self.desk.append(key.no, sequence, body);
            sequence += row.len() as u64;
            rest = more;
            self.flush_if_much(unsent).await?;
        }
        if task.version() >= SHORTEST {
            let snapshot = Snapshot::of(task);
            *unsent += snapshot.as_ref().map_or(0, |snapshot| snapshot.text.len());
            self.desk.keep_snapshot(key.no, snapshot);
        }
        for chunk in &moved.output {
            // Written in digits.
            *unsent += 2 * chunk.bytes.len();
            self.desk.writes.output.push((key.no, chunk.clone()));
            self.flush_if_much(unsent).await?;
        }
        Ok(())
    }

    /// The server cuts off whoever has the lock and is silent for some seconds, and encoding takes its time.
    async fn flush_if_much(&mut self, unsent: &mut usize) -> Sql<()> {
        if *unsent > PACKET {
            self.flush().await?;
            *unsent = 0;
        }
        Ok(())
    }

    /// Fences never go back: whoever takes the lock next gets a larger one.
    fn import_lock(&mut self, task: i64, lock: &LockRow) {
        self.desk.counters.fence = self.desk.counters.fence.max(lock.fence);
        let taken = TakenLock { task, since: lock.since, fence: lock.fence };
        self.desk.writes.locks.insert(lock.tenant.clone(), taken);
    }
}

/// How many of these the next row of a log holds: fewer where they are large.
fn events_in_a_row(events: &[Record]) -> usize {
    let mut length = 0;
    let fits = events.iter().take(EVENTS_PER_ROW).take_while(|event| {
        length += serde_json::to_string(event).map_or(0, |text| text.len());
        length <= PACKET / 2
    });
    fits.count().max(1)
}
