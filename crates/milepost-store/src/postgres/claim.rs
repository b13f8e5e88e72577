//! Taking tasks on: lease, tenant lock and plan slot at once, with the start of their first stages in the same commit.
//!
//! Candidates are looked up, decided on here, and taken in one statement that checks each of them again: whoever was
//! faster has it, and no transaction is open while anybody thinks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use milepost_core::id::{PlanId, TaskId, Tenant};
use milepost_core::plan::{OnTaskFailure, Recovery, WorkflowRef};
use milepost_core::task::{Claim, Command, Decision, Event, TaskStatus, decide_on};
use milepost_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::books::book_changes;
use crate::codec::{Folded, LogHead, LogRow, SharedPlan, damaged, encode_events};
use crate::error::StoreError;
use crate::going;
use crate::model::{ClaimRequest, Claimed, StoredTask, TaskRef};
use crate::row::RowImage;
use crate::snapshot::Snapshot;

use super::books::BookColumns;
use super::codec::{config, creation, head, plan_id};
use super::columns::{EventColumns, SnapshotColumns, TaskColumns, call};
use super::fold::{Wanted, fold};
use super::session::session_of;
use super::store::Inner;

/// Looked at in one go, whatever the limit.
const MOST: usize = 1024;

/// A task that nobody alive has, as the store's index of them says; the numbers are stored.
const RECOVERY: i16 = 7;

pub(super) async fn claim(inner: &Inner, request: &ClaimRequest) -> Result<Claimed, StoreError> {
    let Some(session) = inner.session.number() else { return Ok(Claimed::default()) };
    let only = match &request.only {
        None => None,
        Some(id) => match inner.plan_number(id).await? {
            Some(no) => Some(no),
            None => return Err(StoreError::NotFound { what: "plan", id: id.to_string() }),
        },
    };
    // Whoever runs one plan only speaks for no other.
    let settled = only.is_some() || settle_era(inner, session, request.recovery).await?;
    let claiming = Claiming { inner, request, only, session, needed: going::needed(settled) };
    let mut claimed = Claimed { now: request.now.unwrap_or_default(), ..Claimed::default() };
    claiming.find_doubtful(&mut claimed).await?;
    if !claimed.tasks.is_empty() {
        // There may be more, and nobody would call for it.
        claimed.next_due = Some(claimed.now);
        return Ok(claimed.in_era(settled));
    }
    let (mut lost, tries) = (0, inner.contended.tries());
    let mut first = true;
    loop {
        match claiming.round(&mut claimed, first).await {
            Ok(Round::Done) => {
                inner.contended.over();
                break;
            }
            Ok(Round::Again) => first = false,
            Ok(Round::Lost) => {
                lost += 1;
                if lost >= tries {
                    // There is more, and others are busy with it: nobody will call when they are done.
                    inner.contended.come_back(&mut claimed);
                    break;
                }
                // Nodes that were called at once must not go on in step.
                let pause = u64::from(lost) * (1 + session.unsigned_abs() % 5);
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            // What was taken so far is ours, and has to be said.
            Err(error) if claimed.tasks.len() + claimed.ended.len() > 0 => {
                tracing::warn!(%error, "a claim was cut short");
                // The rest may be ours as well: the next claim finds out.
                claimed.next_due = Some(claimed.now);
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(claimed.in_era(settled))
}

/// A node that claims for the first time finds out which era it is in; false while it cannot tell.
async fn settle_era(inner: &Inner, session: i64, recovery: Recovery) -> Result<bool, StoreError> {
    if inner.session.is_settled(session) {
        return Ok(true);
    }
    let by_default = recovery == Recovery::Auto;
    let parameters: &super::connect::Parameters<'_> = &[(&session, Type::INT8), (&by_default, Type::BOOL)];
    let rows = inner.server.write("find out which era it is", "SELECT @.settle_era($1, $2)", parameters).await?;
    let settled = rows[0].get(0);
    if settled {
        inner.session.settle(session);
    }
    Ok(settled)
}

struct Claiming<'a> {
    inner: &'a Inner,
    request: &'a ClaimRequest,
    only: Option<i64>,
    session: i64,
    /// How far a plan or task must be set going.
    needed: u8,
}

enum Round {
    /// There is nothing more to take.
    Done,
    /// What was done may have made way for more.
    Again,
    /// Somebody else was faster.
    Lost,
}

/// A task that may be taken.
struct Candidate {
    key: TaskRef,
    plan: i64,
    tenant: Option<Tenant>,
    head: LogHead,
    lease: i64,
    queue: i16,
    slot: bool,
    /// Another task has its tenant.
    blocked: bool,
    /// It was set going by itself, so it does not line up among others that wait for a person.
    alone: bool,
    revision: i32,
    /// Free slots of its plan.
    room: i32,
    spec: Result<Arc<milepost_core::task::TaskSpec>, StoreError>,
    creation: Option<LogRow>,
    shared: Option<SharedPlan>,
}

/// What one round sends: tasks to take, to line up for their tenants, and to set aside.
#[derive(Default)]
struct Taking {
    numbers: Vec<i64>,
    expected: Vec<i64>,
    queues: Vec<i16>,
    leases: Vec<i64>,
    revisions: Vec<i32>,
    new_leases: Vec<i64>,
    pauses: Vec<bool>,
    tasks: TaskColumns,
    snapshots: SnapshotColumns,
    books: BookColumns,
    stored: Vec<StoredTask>,
    waits: Vec<i64>,
    aside: Vec<i64>,
    aside_versions: Vec<i64>,
    aside_reasons: Vec<String>,
    /// Something ended, lined up or was set aside: others may come forward.
    makes_way: bool,
}

impl Claiming<'_> {
    /// Tasks of an earlier claim whose answer was lost, if they are this node's after all.
    async fn find_doubtful(&self, claimed: &mut Claimed) -> Result<(), StoreError> {
        let doubtful = self.inner.doubtful.take(self.request, |lease| session_of(lease) == self.session);
        if doubtful.is_empty() {
            return Ok(());
        }
        let (numbers, leases): (Vec<i64>, Vec<i64>) =
            doubtful.iter().map(|stored| (stored.key.no, stored.epoch as i64)).unzip();
        let parameters: &super::connect::Parameters<'_> =
            &[(&self.session, Type::INT8), (&numbers, Type::INT8_ARRAY), (&leases, Type::INT8_ARRAY)];
        match self.inner.server.write("claim", "SELECT @.find_leases($1, $2, $3)", parameters).await {
            Ok(rows) => {
                let ours: HashSet<i64> = rows.iter().map(|row| row.get(0)).collect();
                claimed.tasks.extend(doubtful.into_iter().filter(|stored| ours.contains(&(stored.epoch as i64))));
                Ok(())
            }
            Err(error) => {
                self.inner.doubtful.keep(doubtful);
                Err(error)
            }
        }
    }

    async fn round(&self, claimed: &mut Claimed, first: bool) -> Result<Round, StoreError> {
        let room = self.request.limit.saturating_sub(claimed.tasks.len() + claimed.ended.len()).min(MOST);
        let rows = self.candidates(room, !first).await?;
        claimed.now = Timestamp::from_millis(rows[0].get("clock"));
        claimed.next_due = rows[0].get::<_, Option<i64>>("due").map(Timestamp::from_millis);
        let candidates = self.read(rows).await?;
        if candidates.is_empty() || room == 0 {
            return Ok(Round::Done);
        }
        let cut = candidates.len() == MOST;
        let mut taking = self.decide(candidates, claimed.now).await?;
        let sent = taking.numbers.len();
        let taken = self.take(&mut taking, claimed).await?;
        Ok(match (taken == sent, taking.makes_way || cut) {
            (false, _) => Round::Lost,
            (true, true) => Round::Again,
            (true, false) => Round::Done,
        })
    }

    async fn candidates(&self, most: usize, pending_only: bool) -> Result<Vec<Row>, StoreError> {
        let known: Vec<String> = self.request.workflows.iter().map(workflow_key).collect();
        let (by_default, needed) = (self.request.recovery == Recovery::Auto, i16::from(self.needed));
        let (most, now) = (i32::try_from(most).unwrap_or(i32::MAX), self.request.now.map(Timestamp::as_millis));
        let parameters: &super::connect::Parameters<'_> = &[
            (&self.session, Type::INT8),
            (&self.only, Type::INT8),
            (&self.request.plans, Type::BOOL),
            (&known, Type::TEXT_ARRAY),
            (&most, Type::INT4),
            (&now, Type::INT8),
            (&pending_only, Type::BOOL),
            (&by_default, Type::BOOL),
            (&needed, Type::INT2),
        ];
        self.inner.server.write("claim", &call("candidates", parameters), parameters).await
    }

    async fn read(&self, rows: Vec<Row>) -> Result<Vec<Candidate>, StoreError> {
        let rows: Vec<Row> = rows.into_iter().filter(|row| row.get::<_, Option<i64>>("no").is_some()).collect();
        let plans: HashSet<(i64, i32)> = rows.iter().map(|row| (row.get("plan"), row.get("revision"))).collect();
        let shared = self.inner.plans.read(&self.inner.server, &plans.into_iter().collect::<Vec<_>>()).await?;
        let candidate = |row: &Row| {
            let config = config(row)?;
            let (key, plan, tenant) = (config.key.clone(), config.plan, config.tenant.clone());
            let (shared, spec) = match shared.get(&plan) {
                Some(Ok(shared)) => (Some(shared.clone()), Ok(config.spec(shared, row.get("rank")))),
                Some(Err(why)) => (None, Err(damaged(format!("the plan of task {}", key.id), why))),
                None => (None, Err(damaged(format!("the plan of task {}", key.id), "it is missing"))),
            };
            Ok(Candidate {
                creation: creation(row, &key),
                key,
                plan,
                tenant,
                head: head(row)?,
                lease: row.get("lease"),
                queue: row.get("queue"),
                slot: row.get("slot"),
                blocked: row.get("blocked"),
                alone: row.get("alone"),
                revision: row.get("revision"),
                room: row.get("room"),
                spec,
                shared,
            })
        };
        rows.iter().map(candidate).collect()
    }

    /// One after another, as if each were taken before the next is looked at. Once something was passed over, no more
    /// PENDING tasks of other plans are taken: what comes forward in its place is before them.
    async fn decide(&self, mut candidates: Vec<Candidate>, now: Timestamp) -> Result<Taking, StoreError> {
        let mut folded = self.fold(&mut candidates).await?;
        let mut taking = Taking::default();
        let mut rooms: HashMap<i64, i32> = HashMap::new();
        let mut tenants: HashSet<Tenant> = HashSet::new();
        let mut paused: HashSet<i64> = HashSet::new();
        let mut last_plan = None;
        for candidate in candidates {
            let pending = candidate.head.status == TaskStatus::Pending;
            if pending {
                if taking.makes_way && last_plan != Some(candidate.plan) {
                    break;
                }
                last_plan = Some(candidate.plan);
            }
            let room = rooms.entry(candidate.plan).or_insert(candidate.room);
            let is_taken = candidate.tenant.as_ref().is_some_and(|tenant| tenants.contains(tenant));
            if candidate.blocked || is_taken {
                if pending && !candidate.alone {
                    taking.waits.push(candidate.key.no);
                    taking.makes_way = true;
                }
                continue;
            }
            if (!candidate.slot && *room <= 0) || (paused.contains(&candidate.plan) && pending) {
                continue;
            }
            let decided = match (candidate.spec.as_ref(), folded.remove(&candidate.key.no)) {
                (Ok(_), Some(folded)) => self.decision(&candidate, folded, now),
                (Ok(_), None) => Err("its log is missing".to_owned()),
                (Err(error), _) => Err(error.to_string()),
            };
            let (decision, events) = match decided {
                Ok(decided) => decided,
                Err(why) => {
                    tracing::error!(task = %candidate.key.id, error = why, "task cannot be run; it is left as it is");
                    taking.set_aside(&candidate, why);
                    continue;
                }
            };
            if decision.task.status().is_active() {
                *room -= i32::from(!candidate.slot);
                tenants.extend(candidate.tenant.clone());
            } else {
                taking.makes_way = true;
            }
            if taking.push(&candidate, decision, events, self.inner.session.new_lease(self.session)) {
                paused.insert(candidate.plan);
            }
        }
        Ok(taking)
    }

    async fn fold(&self, candidates: &mut [Candidate]) -> Result<HashMap<i64, Folded>, StoreError> {
        let wanted = candidates.iter_mut().filter(|candidate| !candidate.blocked).filter_map(|candidate| {
            let (spec, creation) = (candidate.spec.as_ref().ok()?.clone(), candidate.creation.take());
            Some(Wanted { key: candidate.key.clone(), spec, head: candidate.head, creation })
        });
        let wanted: Vec<Wanted> = wanted.collect();
        let numbers: Vec<i64> = wanted.iter().map(|one| one.key.no).collect();
        Ok(numbers.into_iter().zip(fold(&self.inner.server, wanted).await?).collect())
    }

    fn decision(&self, candidate: &Candidate, folded: Folded, now: Timestamp) -> Result<(Decision, u64), String> {
        let Folded { mut task, events: read } = folded;
        let lost = candidate.queue == RECOVERY && (candidate.lease != 0 || !task.interrupted());
        let lost_by: Option<Arc<str>> = lost.then(|| task.node().cloned().unwrap_or_else(|| "unknown".into()));
        let claim = Claim { node: self.request.node.clone(), lost_by, automatic: self.request.only.is_none() };
        let events = decide_on(&mut task, Command::Claim(claim), now).map_err(|rejection| rejection.to_string())?;
        Ok((Decision { events, task }, read))
    }

    /// How many were ours to take.
    async fn take(&self, taking: &mut Taking, claimed: &mut Claimed) -> Result<usize, StoreError> {
        if taking.numbers.is_empty() && taking.waits.is_empty() && taking.aside.is_empty() {
            return Ok(0);
        }
        let (lock_ms, now) = (self.inner.session.lock_ms(), claimed.now.as_millis());
        let mut parameters: Vec<(&(dyn tokio_postgres::types::ToSql + Sync), Type)> = vec![
            (&self.session, Type::INT8),
            (&lock_ms, Type::INT8),
            (&now, Type::INT8),
            (&taking.numbers, Type::INT8_ARRAY),
            (&taking.expected, Type::INT8_ARRAY),
            (&taking.queues, Type::INT2_ARRAY),
            (&taking.leases, Type::INT8_ARRAY),
            (&taking.revisions, Type::INT4_ARRAY),
            (&taking.new_leases, Type::INT8_ARRAY),
        ];
        parameters.extend(taking.tasks.image());
        parameters.extend(taking.tasks.events());
        parameters.push((&taking.pauses, Type::BOOL_ARRAY));
        parameters.push((&self.inner.rules.pause, Type::INT2_ARRAY));
        parameters.extend(self.inner.rules.settling());
        parameters.extend(taking.snapshots.parameters());
        parameters.push((&taking.waits, Type::INT8_ARRAY));
        parameters.push((&taking.aside, Type::INT8_ARRAY));
        parameters.push((&taking.aside_versions, Type::INT8_ARRAY));
        parameters.push((&taking.aside_reasons, Type::TEXT_ARRAY));
        parameters.extend(taking.books.parameters());
        let sql = call("take_tasks", &parameters);
        let answer = self.inner.server.write("claim", &sql, &parameters).await;
        let row = match answer {
            Ok(mut rows) => rows.remove(0),
            Err(error) => {
                self.inner.doubtful.keep(std::mem::take(&mut taking.stored));
                return Err(error);
            }
        };
        self.inner.stats.count(1, 0);
        let taken: Vec<bool> = row.get::<_, Option<Vec<bool>>>("taken").unwrap_or_default();
        let settled: Vec<String> = row.get::<_, Option<Vec<String>>>("change_plans").unwrap_or_default();
        let mut count = 0;
        for (stored, taken) in std::mem::take(&mut taking.stored).into_iter().zip(taken) {
            count += usize::from(taken);
            match (taken, stored.task.status().is_active()) {
                (true, true) => claimed.tasks.push(stored),
                (true, false) => claimed.ended.push(stored),
                (false, _) => {}
            }
        }
        for id in settled {
            claimed.settled.push(plan_id(&id)?);
        }
        Ok(count)
    }
}

impl Taking {
    /// True when its plan is to pause because of it.
    fn push(&mut self, candidate: &Candidate, decision: Decision, folded: u64, lease: i64) -> bool {
        let Decision { task, events, .. } = decision;
        self.numbers.push(candidate.key.no);
        self.expected.push(candidate.head.version as i64);
        self.queues.push(candidate.queue);
        self.leases.push(candidate.lease);
        self.revisions.push(candidate.revision);
        self.new_leases.push(lease);
        let body = (!events.is_empty()).then(|| encode_events(&events));
        self.tasks.push(RowImage::of(&task), body, EventColumns::of(&events));
        let ord = self.numbers.len() as i64;
        self.books.extend(ord, book_changes(&task, &events));
        if let Some(snapshot) = Snapshot::due_at_claim(&task, candidate.head.version, &events, folded) {
            self.snapshots.push(ord, snapshot);
        }
        let failed = events.iter().any(|record| matches!(record.event(), Event::TaskFailed { .. }));
        let pause = |shared: &SharedPlan| shared.settings.on_task_failure == OnTaskFailure::Pause;
        let pauses = failed && candidate.shared.as_ref().is_some_and(pause);
        self.pauses.push(pauses);
        self.stored.push(StoredTask {
            waits_for_person: false,
            key: candidate.key.clone(),
            epoch: if task.status().is_active() { lease.unsigned_abs() } else { 0 },
            task,
            orphaned: false,
            blocked_by: None,
            set_aside: None,
            progress: None,
            claim_events: events,
        });
        pauses
    }

    /// Damaged data is never run from zero: it waits, visibly, for a person.
    fn set_aside(&mut self, candidate: &Candidate, why: String) {
        self.aside.push(candidate.key.no);
        self.aside_versions.push(candidate.head.version as i64);
        self.aside_reasons.push(super::columns::text(why));
        self.makes_way = true;
    }
}

/// How a workflow is known in the store.
pub(super) fn workflow_key(workflow: &WorkflowRef) -> String {
    format!("{}@{}", workflow.name, workflow.version)
}

/// What is asked of by name.
pub(super) fn missing_task(id: &TaskId) -> StoreError {
    StoreError::NotFound { what: "task", id: id.to_string() }
}

pub(super) fn missing_plan(id: &PlanId) -> StoreError {
    StoreError::NotFound { what: "plan", id: id.to_string() }
}
