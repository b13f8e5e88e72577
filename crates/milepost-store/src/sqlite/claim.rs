//! Taking tasks on: lease, tenant lock and plan slot at once, with the start of their first stages in the same commit.

use std::sync::Arc;

use milepost_core::id::Tenant;
use milepost_core::plan::{OnTaskFailure, PlanCommand, Recovery};
use milepost_core::task::{Claim, Command, Event, PlanStatus, TaskStatus, decide_on};
use milepost_core::time::Timestamp;
use rusqlite::params;

use crate::books::book_changes;
use crate::clock::wall_clock;
use crate::codec::{Folded, encode_events};
use crate::error::StoreError;
use crate::going;
use crate::model::{ClaimRequest, Claimed, StoredTask, TaskRef};
use crate::row::RowImage;
use crate::snapshot::Snapshot;

use super::board::{Lease, Parked, Place, Queue};
use super::codec::{fold, query_task, read_config, read_head, time};
use super::commit::Standing;
use super::writer::{Performed, Writer};

impl Writer {
    pub(super) fn claim(&mut self, request: ClaimRequest) -> Performed<Claimed> {
        let only = match &request.only {
            None => None,
            Some(id) => match self.board.plan_numbers.get(id) {
                Some(no) => Some(*no),
                None if self.plan_number(id)?.is_none() => {
                    return Ok(Err(StoreError::NotFound { what: "plan", id: id.to_string() }));
                }
                // Nothing of an ended plan can be claimed.
                None => return Ok(Ok(Claimed::default())),
            },
        };
        self.settle_era(request.recovery, only)?;
        let mut claimed = Claimed { now: request.now.unwrap_or_else(wall_clock), ..Claimed::default() };
        self.claim_orphans(&request, only, &mut claimed)?;
        self.claim_due(&request, only, &mut claimed)?;
        self.claim_ready(&request, only, &mut claimed)?;
        let later = self.board.parked.iter().skip_while(|parked| parked.0 <= claimed.now);
        claimed.next_due = later.filter(|parked| self.may_wake(parked, only, &request)).map(|parked| parked.0).next();
        Ok(Ok(claimed.in_era(true)))
    }

    /// Waits that are over, and rollbacks that a person asked for, by time.
    fn claim_due(&mut self, request: &ClaimRequest, only: Option<i64>, claimed: &mut Claimed) -> rusqlite::Result<()> {
        let due = self.board.parked.iter().take_while(|parked| parked.0 <= claimed.now);
        let due: Vec<Parked> = due.filter(|parked| self.may_wake(parked, only, request)).copied().collect();
        for (_, no, plan, _) in due {
            let has_slot = !self.board.is_slotless(plan, no) || self.board.free_slots(plan) > 0;
            if has_slot && count(claimed) < request.limit {
                self.take_on(no, request, claimed)?;
            }
        }
        Ok(())
    }

    fn may_wake(&self, (_, no, plan, status): &Parked, only: Option<i64>, request: &ClaimRequest) -> bool {
        only.is_none_or(|only| only == *plan)
            && (*status == TaskStatus::RollingBack || self.plan_runs(*plan))
            && self.is_known(*plan, request)
            && (self.starts(*plan, request) || self.board.let_go.contains_key(no))
    }

    /// Nobody has to be asked about the plan.
    fn starts(&self, plan: i64, request: &ClaimRequest) -> bool {
        request.only.is_some() || self.board.going(plan).may_start(request.recovery, going::HELD, going::GOING)
    }

    /// A plan that is not in memory is no workflow's: those are open for as long as anything of them can be claimed.
    fn is_known(&self, plan: i64, request: &ClaimRequest) -> bool {
        self.board.plans.get(&plan).is_none_or(|open| request.knows(&open.shared.definition))
    }

    fn claim_orphans(
        &mut self,
        request: &ClaimRequest,
        only: Option<i64>,
        claimed: &mut Claimed,
    ) -> rusqlite::Result<()> {
        let mut wanted = Vec::new();
        for (orphans, any_status) in [(&self.board.undoing, true), (&self.board.orphans, false)] {
            for (plan, tasks) in orphans {
                let allowed = match (only, self.board.plans.get(plan)) {
                    (Some(only), _) => only == *plan,
                    (None, Some(open)) => open.shared.settings.recovery_or(request.recovery) == Recovery::Auto,
                    (None, None) => false,
                };
                if allowed && (any_status || self.plan_runs(*plan)) && self.is_known(*plan, request) {
                    wanted.extend(tasks);
                }
            }
        }
        wanted.sort_unstable();
        for no in wanted {
            if count(claimed) >= request.limit {
                break;
            }
            self.take_on(no, request, claimed)?;
        }
        Ok(())
    }

    fn claim_ready(
        &mut self,
        request: &ClaimRequest,
        only: Option<i64>,
        claimed: &mut Claimed,
    ) -> rusqlite::Result<()> {
        let mut from = only.unwrap_or(i64::MIN);
        while let Some(plan) = self.board.candidates.range(from..).next().copied() {
            if count(claimed) >= request.limit || only.is_some_and(|only| only != plan) {
                break;
            }
            from = plan + 1;
            if !self.is_known(plan, request) {
                continue;
            }
            if !self.starts(plan, request) {
                let room = (request.limit - count(claimed)).min(self.board.free_slots(plan) as usize);
                for no in self.ready_alone(plan, room)? {
                    if self.plan_runs(plan) {
                        self.take_on(no, request, claimed)?;
                    }
                }
                continue;
            }
            // A task that failed in being claimed may have paused it.
            while count(claimed) < request.limit && self.plan_runs(plan) {
                let room = (request.limit - count(claimed)).min(self.board.free_slots(plan) as usize);
                if room == 0 {
                    break;
                }
                let ready = self.ready_tasks(plan, room)?;
                // Before they are taken: one that ends at once may make another one ready.
                self.expect_ready(plan, ready.len() == room);
                for no in ready {
                    if !self.plan_runs(plan) {
                        self.expect_ready(plan, true);
                        break;
                    }
                    self.take_on(no, request, claimed)?;
                }
                if self.board.plans.get(&plan).is_none_or(|open| !open.may_have_ready) {
                    break;
                }
            }
            self.board.offer(plan);
        }
        Ok(())
    }

    fn expect_ready(&mut self, plan: i64, may_have_ready: bool) {
        if let Some(open) = self.board.plans.get_mut(&plan) {
            open.may_have_ready = may_have_ready;
        }
    }

    fn plan_runs(&self, plan: i64) -> bool {
        self.board.plans.get(&plan).is_some_and(|open| open.status == PlanStatus::Running)
    }

    fn ready_tasks(&self, plan: i64, most: usize) -> rusqlite::Result<Vec<i64>> {
        self.connection
            .prepare_cached("SELECT no FROM task_runtimes WHERE plan = ?1 AND queue = 0 ORDER BY rank, no LIMIT ?2")?
            .query_map(params![plan, most as i64], |row| row.get(0))?
            .collect()
    }

    /// Claims one task, or puts it in line for its tenant, or sets it aside because it cannot be read.
    fn take_on(&mut self, no: i64, request: &ClaimRequest, claimed: &mut Claimed) -> rusqlite::Result<()> {
        let (config, rank, head, lease, wake_at) = query_task(&self.connection, no, |row| {
            Ok((read_config(row)?, row.get::<_, i64>(12)?, read_head(row)?, row.get::<_, i64>(13)?, time(row, 14)?))
        })?;
        let (key, plan, tenant) = (config.key.clone(), config.plan, config.tenant.clone());
        if let Some(tenant) = &tenant
            && self.board.held.get(tenant).is_some_and(|holder| *holder != no)
        {
            // A rollback stays where it is, and is tried again whenever something was committed. So does what was set going
            // by itself: in line it would wait for others that wait for a person.
            let lines_up = head.status == TaskStatus::Pending && self.starts(plan, request);
            return if lines_up { self.line_up(no, plan, rank, tenant) } else { Ok(()) };
        }
        if let Some(at) = wake_at {
            self.board.parked.remove(&(at, no, plan, head.status));
        }
        if let Err(error) = self.board.open_plan(&self.connection, plan) {
            return self.set_aside(&key, (plan, rank, no), &tenant, head.status, &error);
        }
        let shared = self.board.plans[&plan].shared.clone();
        let folded = match fold(&self.connection, &key, config.spec(&shared, rank), &head) {
            Ok(folded) => folded,
            Err(error) => return self.set_aside(&key, (plan, rank, no), &tenant, head.status, &error),
        };
        let Folded { mut task, events } = folded;
        let lost = lease != 0 && head.status.is_active() && !task.interrupted();
        let lost_by: Option<Arc<str>> = lost.then(|| task.node().cloned().unwrap_or_else(|| "unknown".into()));
        let claim = Claim { node: request.node.clone(), lost_by, automatic: request.only.is_none() };
        let claim_events = match decide_on(&mut task, Command::Claim(claim), claimed.now) {
            Ok(events) => events,
            Err(rejection) => {
                let why = StoreError::Task(rejection);
                return self.set_aside(&key, (plan, rank, no), &tenant, head.status, &why);
            }
        };
        let for_books = book_changes(&task, &claim_events);
        if let Some(kept) = self.kept(&for_books)? {
            return self.set_aside(&key, (plan, rank, no), &tenant, head.status, &kept);
        }
        self.write_books(&for_books)?;
        let body = (!claim_events.is_empty()).then(|| encode_events(&claim_events));
        let position = self.append(no, head.version, head.last_event, body.as_ref())?;
        if let Some(snapshot) = Snapshot::due_at_claim(&task, head.version, &claim_events, events) {
            self.keep_snapshot(no, position, &snapshot)?;
        }
        let row = RowImage::of(&task);
        let held = task.status().is_active();
        let number = if held { self.board.new_lease() } else { 0 };
        let standing = Standing { lease: number, wake_at: None, asked: false };
        self.transition(no, position, &row, standing, true)?;
        self.board.adopt(plan, no);
        self.board.moved(plan, Some(head.status), Some(task.status()));
        let failed = claim_events.iter().any(|record| matches!(record.event(), Event::TaskFailed { .. }));
        let pauses_plan = failed && shared.settings.on_task_failure == OnTaskFailure::Pause;
        // A plan that cannot be paused any more stays as it is.
        let asked = pauses_plan.then(|| self.plan_after(plan, PlanCommand::Pause).ok()).flatten();
        let status = task.status();
        let stored = StoredTask {
            key,
            epoch: number,
            orphaned: false,
            waits_for_person: false,
            blocked_by: None,
            set_aside: None,
            progress: None,
            claim_events,
            task,
        };
        if held || stored.task.status() == TaskStatus::Paused {
            self.hold_tenant(&tenant, no, position, claimed.now)?;
        }
        if held {
            let lease =
                Lease { number, version: row.version, last_event: position, status, plan, rank, wake_at: None, tenant };
            self.board.leases.insert(no, lease);
            claimed.tasks.push(stored);
        } else {
            if let Some(tenant) = &tenant
                && stored.task.status().is_ended()
            {
                self.free_tenant(tenant, (plan, rank, no))?;
            }
            claimed.ended.push(stored);
        }
        if asked.is_some() || !held {
            let id = shared.id().clone();
            if self.settle_plan(plan, asked, status.is_ended(), claimed.now)?.is_some() {
                claimed.settled.push(id);
            }
        }
        Ok(())
    }

    /// The event's position is the fence: it only ever grows, also when the lock was given back in between. A lock that
    /// was moved here from another store may have had a larger one.
    fn hold_tenant(&mut self, tenant: &Option<Tenant>, no: i64, fence: i64, now: Timestamp) -> rusqlite::Result<()> {
        let Some(tenant) = tenant else { return Ok(()) };
        self.board.held.insert(tenant.clone(), no);
        self.connection
            .prepare_cached(
                "INSERT INTO locks (tenant, task, since, fence) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT (tenant) DO UPDATE SET task = excluded.task, \
                 fence = max(excluded.fence, fence + 1)",
            )?
            .execute(params![tenant.as_str(), no, now.as_millis(), fence])?;
        Ok(())
    }

    fn line_up(&mut self, no: i64, plan: i64, rank: i64, tenant: &Tenant) -> rusqlite::Result<()> {
        self.board.waiting.entry(tenant.clone()).or_default().insert((plan, rank, no));
        self.set_queue(no, Queue::WaitsForTenant)
    }

    /// Damaged data is never run from zero: it waits, visibly, for a person. What it leaves to others until then is its
    /// slot and its tenant.
    fn set_aside(
        &mut self,
        key: &TaskRef,
        place: Place,
        tenant: &Option<Tenant>,
        status: TaskStatus,
        error: &StoreError,
    ) -> rusqlite::Result<()> {
        tracing::error!(task = %key.id, %error, "task cannot be run; it is left as it is");
        let (plan, _, no) = place;
        self.board.adopt(plan, no);
        if status.is_active() {
            self.board.leave_slot(plan, no);
        }
        self.connection
            .prepare_cached("UPDATE task_runtimes SET reason = ?2 WHERE no = ?1")?
            .execute(params![no, error.to_string()])?;
        self.set_queue(no, Queue::Damaged)?;
        if let Some(tenant) = tenant {
            self.free_tenant(tenant, place)?;
        }
        self.board.offer(plan);
        Ok(())
    }

    fn set_queue(&self, no: i64, queue: Queue) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached("UPDATE task_runtimes SET queue = ?2 WHERE no = ?1")?
            .execute(params![no, queue.code()])?;
        Ok(())
    }
}

/// What a claim has used up of its limit: also tasks that ended at once.
fn count(claimed: &Claimed) -> usize {
    claimed.tasks.len() + claimed.ended.len()
}
