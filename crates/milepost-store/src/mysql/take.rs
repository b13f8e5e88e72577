//! One task on its way to its new holder: lease, tenant lock and slot at once, or a place in line.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use milepost_core::plan::{OnTaskFailure, PlanCommand};
use milepost_core::task::{Claim, Command, Event, PlanStatus, TaskStatus, decide_on, ends_progress};
use milepost_core::time::Timestamp;
use mysql_async::Row;

use crate::books::book_changes;
use crate::codec::{Config, Folded, LogHead, SharedPlan, encode_events};
use crate::error::StoreError;
use crate::model::{ClaimRequest, Claimed, StoredTask, TaskRef};
use crate::row::RowImage;
use crate::snapshot::{SHORTEST, Snapshot};

use super::begin::Turn;
use super::codec::{Columns, Sql};
use super::log::{Stored, fold, fold_from_snapshot, read_stored};
use super::sql::{NOW, numbers};
use super::states::{Queue, Standing, TASK, TaskState};
use super::writes::TakenLock;

/// A task that may be taken, with its definition and whoever has its tenant.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) task: TaskState,
    created_at: Timestamp,
    body: Option<String>,
    crc: u32,
    /// The only row of a log of one event.
    creation: Option<Stored>,
    /// The task that has its tenant, and since when.
    lock: Option<(i64, Timestamp)>,
    /// It was set going by itself, so it does not line up among others that wait for a person.
    pub(super) alone: bool,
}

impl Candidate {
    /// Whatever a claim reads of tasks, before the condition.
    pub(super) fn select() -> String {
        format!(
            "SELECT {TASK}, c.created_at, c.body, c.crc, e.sequence, e.crc, e.body, l.task, l.since FROM task_unit_runtimes r \
             JOIN task_unit_configs c ON c.id = r.id JOIN sync_tasks p ON p.id = r.task_id \
             LEFT JOIN milepost_events e ON r.version = 1 AND e.task = r.id AND e.sequence = 1 \
             LEFT JOIN milepost_locks l ON l.tenant = r.tenant AND l.expires_at >= {NOW}"
        )
    }

    pub(super) fn read(row: Row) -> Sql<Self> {
        let mut columns = Columns::from(row);
        let task = TaskState::read(&mut columns)?;
        let (created_at, body, crc) = (columns.time()?, columns.maybe()?, columns.next()?);
        let creation = Stored::read_if_any(&mut columns)?;
        let lock = match (columns.maybe()?, columns.maybe_time()?) {
            (Some(task), Some(since)) => Some((task, since)),
            _ => None,
        };
        Ok(Self { task, created_at, body, crc, creation, lock, alone: false })
    }

    fn config(&self) -> Config {
        Config {
            key: TaskRef { id: self.task.id.clone(), no: self.task.no },
            plan: self.task.plan,
            tenant: self.task.tenant.clone(),
            created_at: self.created_at,
            body: self.body.clone(),
            crc: self.crc,
        }
    }
}

/// What it takes to rebuild tasks, read for all of them at once.
#[derive(Debug, Default)]
pub(super) struct Material {
    shared: HashMap<i64, Result<SharedPlan, String>>,
    logs: HashMap<i64, Vec<Stored>>,
    snapshots: HashMap<i64, Stored>,
}

impl Turn {
    pub(super) async fn read_material(&mut self, candidates: &[Candidate]) -> Sql<Material> {
        let plans: BTreeSet<i64> = candidates.iter().map(|candidate| candidate.task.plan).collect();
        self.read_plans(plans.iter().copied()).await?;
        let mut material = Material::default();
        let mut unknown = Vec::new();
        for no in plans {
            match self.shared.plans.find(no, &self.desk.plan(no).digest) {
                Some(plan) => drop(material.shared.insert(no, Ok(plan))),
                None => unknown.push(no),
            }
        }
        let long = |least: u64| {
            let tasks = candidates.iter().map(|candidate| &candidate.task);
            numbers(tasks.filter(|task| task.version >= least).map(|task| task.no))
        };
        let sql = format!(
            "SELECT id, digest, config FROM sync_tasks WHERE id IN ({}); \
             SELECT task, sequence, crc, body FROM milepost_snapshots WHERE task IN ({}); \
             SELECT e.task, e.sequence, e.crc, e.body FROM milepost_events e LEFT JOIN milepost_snapshots s \
             ON s.task = e.task WHERE e.task IN ({}) AND e.sequence > COALESCE(s.sequence, 0) ORDER BY e.task, e.sequence",
            numbers(unknown.iter().copied()),
            long(SHORTEST),
            long(2)
        );
        if unknown.is_empty() && candidates.iter().all(|candidate| candidate.task.version == 1) {
            return Ok(material);
        }
        let mut answers = self.ask(&sql).await?.into_iter();
        for row in answers.next().unwrap_or_default() {
            let mut columns = Columns::from(row);
            let (no, digest, text): (i64, Vec<u8>, String) = (columns.next()?, columns.next()?, columns.next()?);
            let plan = self.shared.plans.read(no, digest, &text).map_err(|error| error.to_string());
            material.shared.insert(no, plan);
        }
        for row in answers.next().unwrap_or_default() {
            let mut columns = Columns::from(row);
            material.snapshots.insert(columns.next()?, Stored::read(&mut columns)?);
        }
        for row in answers.next().unwrap_or_default() {
            let mut columns = Columns::from(row);
            material.logs.entry(columns.next()?).or_default().push(Stored::read(&mut columns)?);
        }
        Ok(material)
    }

    /// Claims one task, or puts it in line for its tenant, or sets it aside because it cannot be read.
    pub(super) async fn take_on(
        &mut self,
        candidate: &Candidate,
        material: &Material,
        request: &ClaimRequest,
        claimed: &mut Claimed,
    ) -> Sql<()> {
        let task = &candidate.task;
        let no = task.no;
        self.desk.tasks.entry(no).or_insert_with(|| task.clone());
        if self.is_blocked(candidate) {
            // Others stay where they are, and are tried again whenever something was committed.
            if task.status == TaskStatus::Pending && !candidate.alone {
                self.desk.requeue(no, Queue::WaitsForTenant);
            }
            return Ok(());
        }
        let (shared, mut folded) = match self.rebuild(candidate, material).await? {
            Ok(rebuilt) => rebuilt,
            Err(error) => return self.set_aside(no, &error),
        };
        let orphan = task.queue == Some(Queue::Held);
        let lost =
            task.status.is_active() && (orphan || (task.queue == Some(Queue::Left) && !folded.task.interrupted()));
        let lost_by: Option<Arc<str>> = lost.then(|| folded.task.node().cloned().unwrap_or_else(|| "unknown".into()));
        let claim = Claim { node: request.node.clone(), lost_by, automatic: request.only.is_none() };
        let claim_events = match decide_on(&mut folded.task, Command::Claim(claim), claimed.now) {
            Ok(events) => events,
            Err(rejection) => return self.set_aside(no, &StoreError::Task(rejection)),
        };
        if !claim_events.is_empty() {
            self.desk.append(no, task.version + 1, encode_events(&claim_events));
            self.desk.write_books_of_claim(book_changes(&folded.task, &claim_events));
        }
        let snapshot = Snapshot::due_at_claim(&folded.task, task.version, &claim_events, folded.events);
        self.desk.keep_snapshot(no, snapshot);
        let status = folded.task.status();
        let lease = if status.is_active() { self.shared.new_lease() } else { 0 };
        let standing = Standing { lease, wake_at: None, asked: false };
        self.desk.transition(no, RowImage::of(&folded.task), standing, ends_progress(status, &claim_events));
        if !status.is_ended() {
            self.lock_tenant(candidate, claimed.now);
        }
        let failed = claim_events.iter().any(|record| matches!(record.event(), Event::TaskFailed { .. }));
        let pauses = failed && shared.settings.on_task_failure == OnTaskFailure::Pause;
        let stored = StoredTask {
            key: TaskRef { id: task.id.clone(), no },
            task: folded.task,
            epoch: lease,
            orphaned: false,
            waits_for_person: false,
            blocked_by: None,
            set_aside: None,
            progress: self.desk.tasks[&no].progress,
            claim_events,
        };
        if status.is_active() { &mut claimed.tasks } else { &mut claimed.ended }.push(stored);
        self.settle_claimed(task.plan, pauses, claimed);
        Ok(())
    }

    fn settle_claimed(&mut self, plan: i64, pauses: bool, claimed: &mut Claimed) {
        let now = claimed.now;
        let state = self.desk.plan(plan);
        // A plan that cannot be paused any more stays as it is.
        let paused: Option<PlanStatus> = pauses.then(|| state.after(PlanCommand::Pause).ok()).flatten();
        let paused = paused.is_some_and(|status| state.set_status(status, None, now));
        if state.settle(now) || paused {
            claimed.settled.push(state.id.clone());
            self.desk.log_plan(plan, None, now);
        }
    }

    /// Another task has its tenant.
    fn is_blocked(&self, candidate: &Candidate) -> bool {
        let Some(tenant) = &candidate.task.tenant else { return false };
        let stored = candidate.lock.map(|(task, _)| task).filter(|task| !self.desk.writes.unlocked.contains(task));
        let holder = self.desk.writes.locks.get(tenant).map(|lock| lock.task).or(stored);
        holder.is_some_and(|holder| holder != candidate.task.no)
    }

    fn lock_tenant(&mut self, candidate: &Candidate, now: Timestamp) {
        let Some(tenant) = &candidate.task.tenant else { return };
        self.desk.counters.fence += 1;
        let own = candidate.lock.filter(|(holder, _)| *holder == candidate.task.no);
        let lock = TakenLock {
            task: candidate.task.no,
            since: own.map_or(now, |(_, since)| since),
            fence: self.desk.counters.fence,
        };
        self.desk.writes.locks.insert(tenant.clone(), lock);
    }

    pub(super) async fn rebuild(
        &mut self,
        candidate: &Candidate,
        material: &Material,
    ) -> Sql<Result<(SharedPlan, Folded), StoreError>> {
        let task = &candidate.task;
        let key = TaskRef { id: task.id.clone(), no: task.no };
        let shared = match material.shared.get(&task.plan) {
            Some(Ok(shared)) => shared.clone(),
            Some(Err(error)) => return Ok(Err(crate::codec::damaged("its plan", error))),
            None => return Ok(Err(crate::codec::damaged("its plan", "it is missing"))),
        };
        let spec = candidate.config().spec(&shared, task.turn);
        let head = LogHead { version: task.version, last_event: 0, status: task.status };
        let log = match &candidate.creation {
            Some(creation) => std::slice::from_ref(creation),
            None => material.logs.get(&task.no).map_or(&[][..], Vec::as_slice),
        };
        let Some(snapshot) = material.snapshots.get(&task.no) else {
            return Ok(Ok((shared, fold(&key, spec, &head, log))));
        };
        if let Some(folded) = fold_from_snapshot(&key, &spec, &head, snapshot, log) {
            return Ok(Ok((shared, folded)));
        }
        let sql = format!("SELECT sequence, crc, body FROM milepost_events WHERE task = {} ORDER BY sequence", task.no);
        let log = read_stored(self.ask_one(&sql).await?)?;
        Ok(Ok((shared, fold(&key, spec, &head, &log))))
    }

    /// Damaged data is never run from zero: it waits, visibly, for a person. What it leaves to others until then is its
    /// slot and its tenant.
    fn set_aside(&mut self, no: i64, error: &StoreError) -> Sql<()> {
        let task = self.desk.tasks.get_mut(&no).expect("a task is read before it is written");
        tracing::error!(task = %task.id, %error, "task cannot be run; it is left as it is");
        let (before, status, plan) = (task.queue.replace(Queue::Damaged), task.status, task.plan);
        let tenant = task.tenant.clone();
        self.desk.writes.set_aside.push((no, error.to_string()));
        let state = self.desk.plan(plan);
        state.ready -= u64::from(before == Some(Queue::Ready));
        state.slotless += u64::from(Queue::Damaged.is_slotless(status));
        state.slotless -= u64::from(before.is_some_and(|queue| queue.is_slotless(status)));
        self.desk.writes.plans.insert(plan);
        if let Some(tenant) = tenant {
            self.desk.writes.unlocked.push(no);
            self.desk.freed.insert(tenant);
        }
        self.desk.offer();
        Ok(())
    }
}
