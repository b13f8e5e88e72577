//! Taking tasks on: lease, tenant lock and plan slot at once, with the start of their first stages in the same commit.

use std::sync::Arc;

use milepost_core::id::Tenant;
use milepost_core::plan::{OnTaskFailure, PlanCommand, Recovery};
use milepost_core::task::{Claim, Command, Event, PlanStatus, TaskStatus, decide};
use milepost_core::time::Timestamp;
use rusqlite::params;

use crate::error::StoreError;
use crate::model::{ClaimRequest, Claimed, StoredTask, TaskRef};

use super::board::{Lease, Queue};
use super::codec::{ConfigRow, LogHead, encode_events, fold, task_status};
use super::commit::{RowImage, Standing};
use super::writer::{Performed, Writer};

/// A task's definition in the columns of `ConfigRow`, and where its log ends.
pub(super) const TASK: &str = "SELECT c.no, c.id, c.plan, c.tenant, c.created_at, c.body, c.crc, \
    r.rank, r.version, r.last_event, r.status, r.lease FROM task_configs c JOIN task_runtimes r ON r.no = c.no WHERE c.no = ?1";

impl Writer {
    pub(super) fn claim(&mut self, request: ClaimRequest) -> Performed<Claimed> {
        let only = match &request.only {
            None => None,
            Some(id) => match self.board.plan_numbers.get(id) {
                Some(no) => Some(*no),
                // Ended, or never there: nothing of it can be claimed.
                None => return Ok(Ok(Claimed::default())),
            },
        };
        let mut claimed = Claimed::default();
        self.claim_due(&request, only, &mut claimed)?;
        self.claim_orphans(&request, only, &mut claimed)?;
        self.claim_ready(&request, only, &mut claimed)?;
        claimed.next_due = self.board.parked.first().map(|(at, _)| *at);
        Ok(Ok(claimed))
    }

    fn claim_due(&mut self, request: &ClaimRequest, only: Option<i64>, claimed: &mut Claimed) -> rusqlite::Result<()> {
        let due: Vec<(Timestamp, i64)> =
            self.board.parked.iter().take_while(|(at, _)| *at <= request.now).take(request.limit).copied().collect();
        for (at, no) in due {
            let (plan, status): (i64, TaskStatus) = self
                .connection
                .prepare_cached("SELECT plan, status FROM task_runtimes WHERE no = ?1")?
                .query_row([no], |row| Ok((row.get(0)?, task_status(row, 1)?)))?;
            self.board.parked.remove(&(at, no));
            let runs = self.plan_runs(plan) || status == TaskStatus::RollingBack;
            if runs && only.is_none_or(|only| only == plan) {
                self.take_on(no, request, claimed)?;
            } else if status == TaskStatus::RollingBack {
                self.board.orphan(plan, no, status);
            } else {
                // Its time has come but its plan's has not.
                self.board.overdue.entry(plan).or_default().insert(no);
            }
        }
        Ok(())
    }

    fn claim_orphans(&mut self, request: &ClaimRequest, only: Option<i64>, claimed: &mut Claimed) -> rusqlite::Result<()> {
        let mut wanted = Vec::new();
        for (orphans, any_status) in [(&self.board.undoing, true), (&self.board.orphans, false)] {
            for (plan, tasks) in orphans {
                let allowed = match (only, self.board.plans.get(plan)) {
                    (Some(only), _) => only == *plan,
                    (None, Some(open)) => open.shared.settings.recovery == Recovery::Auto,
                    (None, None) => false,
                };
                if allowed && (any_status || self.plan_runs(*plan)) {
                    wanted.extend(tasks);
                }
            }
        }
        for (plan, tasks) in &self.board.overdue {
            if only.is_none_or(|only| only == *plan) && self.plan_runs(*plan) {
                wanted.extend(tasks);
            }
        }
        for no in wanted {
            if claimed.tasks.len() >= request.limit {
                break;
            }
            self.take_on(no, request, claimed)?;
        }
        Ok(())
    }

    fn claim_ready(&mut self, request: &ClaimRequest, only: Option<i64>, claimed: &mut Claimed) -> rusqlite::Result<()> {
        let plans: Vec<i64> = match only {
            Some(plan) => self.board.candidates.get(&plan).copied().into_iter().collect(),
            None => self.board.candidates.iter().copied().take(request.limit).collect(),
        };
        for plan in plans {
            while claimed.tasks.len() < request.limit {
                // A task that failed in being claimed may have paused it.
                let Some(open) = self.board.plans.get(&plan).filter(|open| open.status == PlanStatus::Running) else { break };
                let room = (request.limit - claimed.tasks.len()).min(open.free_slots() as usize);
                if room == 0 {
                    break;
                }
                let ready = self.ready_tasks(plan, room)?;
                let found = ready.len();
                for no in ready {
                    if !self.plan_runs(plan) {
                        break;
                    }
                    self.take_on(no, request, claimed)?;
                }
                if found < room {
                    if let Some(open) = self.board.plans.get_mut(&plan) {
                        open.may_have_ready = false;
                    }
                    self.board.offer(plan);
                    break;
                }
            }
        }
        Ok(())
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
        let (config, rank, head, lease) = self.connection.prepare_cached(TASK)?.query_row([no], |row| {
            let head = LogHead {
                version: row.get::<_, i64>(8)?.unsigned_abs(),
                last_event: row.get(9)?,
                status: task_status(row, 10)?,
            };
            Ok((ConfigRow::read(row)?, row.get::<_, i64>(7)?, head, row.get::<_, i64>(11)?))
        })?;
        let (key, plan, tenant) = (config.key.clone(), config.plan, config.tenant.clone());
        if let Some(tenant) = &tenant
            && self.board.held.get(tenant).is_some_and(|holder| *holder != no)
        {
            return self.line_up(no, plan, rank, tenant);
        }
        if let Err(error) = self.board.open_plan(&self.connection, plan) {
            return self.set_aside(no, plan, &key, &error);
        }
        let shared = self.board.plans[&plan].shared.clone();
        let folded = config.spec(&shared, rank).and_then(|spec| fold(&self.connection, &key, spec, &head));
        let task = match folded {
            Ok(task) => task,
            Err(error) => return self.set_aside(no, plan, &key, &error),
        };
        let lost = lease != 0 && head.status.is_active() && !task.interrupted();
        let lost_by: Option<Arc<str>> = lost.then(|| task.node().cloned().unwrap_or_else(|| "unknown".into()));
        let claim = Claim { node: request.node.clone(), lost_by, automatic: request.only.is_none() };
        let decision = match decide(&task, Command::Claim(claim), request.now) {
            Ok(decision) => decision,
            Err(rejection) => return self.set_aside(no, plan, &key, &StoreError::Task(rejection)),
        };
        let body = (!decision.events.is_empty()).then(|| encode_events(&decision.events));
        let position = self.append(no, head.version, head.last_event, body.as_ref())?;
        let row = RowImage::of(&decision.task);
        let held = decision.task.status().is_active();
        let standing = Standing { lease: if held { self.board.epoch } else { 0 }, wake_at: None };
        self.transition(no, position, &row, standing)?;
        self.board.adopt(plan, no);
        if decision.task.status() != head.status {
            self.board.moved(plan, Some(head.status), Some(decision.task.status()));
        }
        let failed = decision.events.iter().any(|record| matches!(record.event(), Event::TaskFailed { .. }));
        let pauses_plan = failed && shared.settings.on_task_failure == OnTaskFailure::Pause;
        // A plan that cannot be paused any more stays as it is.
        let asked = pauses_plan.then(|| self.plan_after(plan, PlanCommand::Pause).ok()).flatten();
        let status = decision.task.status();
        let stored = StoredTask {
            key,
            epoch: standing.lease,
            orphaned: false,
            blocked_by: None,
            progress: None,
            claim_events: decision.events,
            task: decision.task,
        };
        if held || stored.task.status() == TaskStatus::Paused {
            self.hold_tenant(&tenant, no, position, request.now)?;
        }
        if held {
            let lease = Lease { version: row.version, last_event: position, status, plan, rank, wake_at: None, tenant };
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
            if self.settle_plan(plan, asked, status, request.now)?.is_some() {
                claimed.settled.push(id);
            }
        }
        Ok(())
    }

    /// The event's position is the fence: it only ever grows, also when the lock was given back in between.
    fn hold_tenant(&mut self, tenant: &Option<Tenant>, no: i64, fence: i64, now: Timestamp) -> rusqlite::Result<()> {
        let Some(tenant) = tenant else { return Ok(()) };
        self.board.held.insert(tenant.clone(), no);
        self.connection
            .prepare_cached(
                "INSERT INTO locks (tenant, task, since, fence) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT (tenant) DO UPDATE SET task = excluded.task, fence = excluded.fence",
            )?
            .execute(params![tenant.as_str(), no, now.as_millis(), fence])?;
        Ok(())
    }

    fn line_up(&mut self, no: i64, plan: i64, rank: i64, tenant: &Tenant) -> rusqlite::Result<()> {
        self.board.waiting.entry(tenant.clone()).or_default().insert((plan, rank, no));
        self.set_queue(no, Queue::WaitsForTenant)
    }

    /// Damaged data is never run from zero: it waits, visibly, for a person.
    fn set_aside(&mut self, no: i64, plan: i64, key: &TaskRef, error: &StoreError) -> rusqlite::Result<()> {
        tracing::error!(task = %key.id, %error, "task cannot be run; it is left as it is");
        self.board.adopt(plan, no);
        self.connection
            .prepare_cached("UPDATE task_runtimes SET reason = ?2 WHERE no = ?1")?
            .execute(params![no, error.to_string()])?;
        self.set_queue(no, Queue::Damaged)
    }

    fn set_queue(&self, no: i64, queue: Queue) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached("UPDATE task_runtimes SET queue = ?2 WHERE no = ?1")?
            .execute(params![no, queue.code()])?;
        Ok(())
    }
}
