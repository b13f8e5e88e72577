//! Taking tasks on: what is there to be taken, in which order, and how many.

use std::fmt::Write;

use milepost_core::plan::{Recovery, WorkflowRef};
use milepost_core::task::PlanStatus;
use milepost_core::time::Timestamp;

use crate::error::StoreError;
use crate::going;
use crate::model::{ClaimRequest, Claimed};

use super::begin::Turn;
use super::codec::{Columns, LEASES_PER_SESSION, Sql};
use super::sql::{numbers, texts};
use super::states::{PLAN, PlanState, Queue};
use super::take::Candidate;

/// Candidates are looked at in steps of at least so many: some may be waiting for their tenant or for a slot.
const STEP: usize = 32;
/// Plans with no more ready tasks than this are read together.
const FEW: u64 = 32;

/// A function and its version, as the column has it.
pub(super) fn workflow_word(workflow: &WorkflowRef) -> String {
    format!("{}@{}", workflow.name, workflow.version)
}

impl Turn {
    pub(super) async fn claim(&mut self, request: &ClaimRequest) -> Sql<Result<Claimed, StoreError>> {
        let mut claimed = Claimed { now: request.now.unwrap_or(self.desk.now), ..Claimed::default() };
        // A visitor runs nothing.
        let Some(own) = self.desk.own else { return Ok(Ok(claimed)) };
        self.flush().await?;
        let (only, settled) = match &request.only {
            Some(id) => match self.use_up(id).await? {
                Some(no) => (Some(no), true),
                None => return Ok(Err(StoreError::NotFound { what: "plan", id: id.to_string() })),
            },
            None => (None, self.settle_era(own, request.recovery).await?),
        };
        let scope = Scope::new(request, only, going::needed(settled));
        self.claim_orphans(request, &scope, &mut claimed).await?;
        self.claim_due(request, &scope, &mut claimed).await?;
        self.claim_ready(request, &scope, &mut claimed).await?;
        // A claim that was cut short has to be made again before anybody waits.
        if request.limit == 0 || room(request, &claimed) > 0 {
            claimed.next_due = self.next_due(claimed.now, &scope).await?;
        }
        Ok(Ok(claimed.in_era(settled)))
    }

    /// What a lost node had, and what was left for recovery, by number.
    async fn claim_orphans(&mut self, request: &ClaimRequest, scope: &Scope, claimed: &mut Claimed) -> Sql<()> {
        let lost = self.lost_leases();
        let recovery = if scope.only.is_some() { String::new() } else { format!(" AND {}", scope.automatic) };
        let mut after = 0;
        loop {
            let step = room(request, claimed).max(STEP);
            if room(request, claimed) == 0 {
                return Ok(());
            }
            let sql = format!(
                "{} WHERE ((r.queue = 2 AND ({lost})) OR r.queue = 7){recovery}{} AND r.id > {after} \
                 ORDER BY r.id LIMIT {step}",
                Candidate::select(),
                scope.may_go_on
            );
            let candidates = self.candidates(&sql).await?;
            let Some(last) = candidates.last() else { return Ok(()) };
            after = last.task.no;
            let is_last = candidates.len() < step;
            self.take_all(candidates, request, claimed).await?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Waits that are over, and rollbacks that a person asked for, by time.
    async fn claim_due(&mut self, request: &ClaimRequest, scope: &Scope, claimed: &mut Claimed) -> Sql<()> {
        let mut after = (i64::MIN, 0);
        loop {
            let step = room(request, claimed).max(STEP);
            if room(request, claimed) == 0 {
                return Ok(());
            }
            let sql = format!(
                "{} WHERE r.queue IN (5, 6) AND r.lease = 0 AND r.wake_at <= {}{}{} \
                 AND (r.wake_at > {} OR (r.wake_at = {} AND r.id > {})) ORDER BY r.wake_at, r.id LIMIT {step}",
                Candidate::select(),
                claimed.now.as_millis(),
                scope.may_go_on,
                scope.is_going,
                after.0,
                after.0,
                after.1
            );
            let candidates = self.candidates(&sql).await?;
            let Some(last) = candidates.last() else { return Ok(()) };
            after = (last.task.wake_at.map_or(i64::MAX, |at| at.as_millis()), last.task.no);
            let is_last = candidates.len() < step;
            self.take_all(candidates, request, claimed).await?;
            if is_last {
                return Ok(());
            }
        }
    }

    async fn candidates(&mut self, sql: &str) -> Sql<Vec<Candidate>> {
        self.ask_one(sql).await?.into_iter().map(Candidate::read).collect()
    }

    async fn take_all(&mut self, candidates: Vec<Candidate>, request: &ClaimRequest, claimed: &mut Claimed) -> Sql<()> {
        let material = self.read_material(&candidates).await?;
        for candidate in &candidates {
            let plan = self.desk.plan(candidate.task.plan);
            let waits_for_slot = matches!(candidate.task.queue, Some(Queue::Ready | Queue::Undo));
            let runs = candidate.task.queue != Some(Queue::Ready) || plan.status == PlanStatus::Running;
            let may = runs && (!waits_for_slot || plan.free_slots() > 0);
            if may && room(request, claimed) > 0 {
                self.take_on(candidate, &material, request, claimed).await?;
            }
        }
        if !self.desk.freed.is_empty() {
            self.wake_next_in_line().await?;
        }
        self.flush().await
    }

    /// PENDING tasks by plan, priority and position. Whoever finds a tenant busy lines up for it, so each step has fewer
    /// to look at than the one before.
    async fn claim_ready(&mut self, request: &ClaimRequest, scope: &Scope, claimed: &mut Claimed) -> Sql<()> {
        let mut from = 0;
        loop {
            let room = room(request, claimed);
            if room == 0 {
                return Ok(());
            }
            let sql = format!(
                "SELECT {PLAN} FROM sync_tasks p WHERE p.offers = 1 AND p.id >= {from}{}{} ORDER BY p.id LIMIT {room}",
                scope.starts, scope.knows
            );
            let rows = self.ask_one(&sql).await?;
            let plans = self.take_plans(rows)?;
            let Some(first) = plans.first().copied() else { return Ok(()) };
            let candidates = self.ready_tasks(&plans, room, request, scope).await?;
            // Of a plan that was only begun with, there may be more.
            from = first;
            if candidates.is_empty() {
                from = plans.last().map_or(from, |last| last + 1);
                continue;
            }
            self.take_all(candidates, request, claimed).await?;
            while let Some(plan) =
                self.desk.plans.get(&from).filter(|plan| !plan.offers() || !scope.may_start(plan, request))
            {
                from = plan.no + 1;
            }
        }
    }

    /// Of each plan as many as it has slots for, in order.
    async fn ready_tasks(
        &mut self,
        plans: &[i64],
        room: usize,
        request: &ClaimRequest,
        scope: &Scope,
    ) -> Sql<Vec<Candidate>> {
        let (mut small, mut questions, mut expected) = (Vec::new(), Vec::new(), 0);
        let select = Candidate::select();
        for no in plans {
            if expected >= room {
                break;
            }
            let plan = self.desk.plan(*no);
            let wanted = plan.free_slots().min(plan.ready).min((room - expected) as u64);
            if !scope.may_start(plan, request) {
                // Only what a person set going by itself; it does not line up among those that wait for a person.
                questions.push(format!(
                    "({select} JOIN milepost_going g ON g.task = r.id AND g.go >= {} WHERE r.task_id = {no} \
                     AND r.queue = 0 AND NOT EXISTS (SELECT 1 FROM milepost_locks k WHERE k.tenant = r.tenant \
                     AND k.task <> r.id) ORDER BY r.turn, r.id LIMIT {wanted})",
                    scope.needed
                ));
                continue;
            }
            expected += wanted as usize;
            if plan.ready <= FEW {
                small.push(*no);
            } else {
                questions.push(format!(
                    "({select} WHERE r.task_id = {no} AND r.queue = 0 ORDER BY r.turn, r.id LIMIT {wanted})"
                ));
            }
        }
        if !small.is_empty() {
            questions.push(format!("({select} WHERE r.task_id IN ({}) AND r.queue = 0)", numbers(small)));
        }
        let mut candidates = self.candidates(&questions.join(" UNION ALL ")).await?;
        for candidate in &mut candidates {
            candidate.alone = !scope.may_start(self.desk.plan(candidate.task.plan), request);
        }
        candidates.sort_by_key(|candidate| (candidate.task.plan, candidate.task.turn, candidate.task.no));
        Ok(candidates)
    }

    async fn next_due(&mut self, now: Timestamp, scope: &Scope) -> Sql<Option<Timestamp>> {
        let sql = format!(
            "SELECT r.wake_at FROM task_unit_runtimes r JOIN sync_tasks p ON p.id = r.task_id \
             WHERE r.queue IN (5, 6) AND r.lease = 0 AND r.wake_at > {}{}{} ORDER BY r.wake_at LIMIT 1",
            now.as_millis(),
            scope.may_go_on,
            scope.is_going
        );
        let row = self.ask_one(&sql).await?.into_iter().next();
        row.map(|row| Columns::from(row).time()).transpose()
    }

    /// Whatever lies between the leases of sessions that are there.
    fn lost_leases(&self) -> String {
        let mut live: Vec<u64> =
            self.desk.sessions.iter().filter(|session| !session.ended).map(|session| session.number).collect();
        live.sort_unstable();
        let (mut sql, mut from) = (String::new(), 1);
        for session in live {
            let (first, behind) = (session * LEASES_PER_SESSION, (session + 1) * LEASES_PER_SESSION);
            write!(sql, "(r.lease >= {from} AND r.lease < {first}) OR ").expect("a string takes all that is written");
            from = behind;
        }
        write!(sql, "r.lease >= {from}").expect("a string takes all that is written");
        sql
    }
}

/// The part of the tables that a request is about.
struct Scope {
    only: Option<i64>,
    /// Plans that the node can run.
    knows: String,
    /// Tasks in the middle of something: an undo was asked for by somebody, or belongs to a failure that has happened,
    /// so no plan holds it up.
    may_go_on: String,
    /// Plans that nobody has to be asked about.
    automatic: String,
    /// Of what sleeps, what is set going.
    is_going: String,
    /// Plans that nobody has to be asked about, and those with tasks that were set going by themselves.
    starts: String,
    /// How far a plan or task must be set going.
    needed: u8,
}

impl Scope {
    fn new(request: &ClaimRequest, only: Option<i64>, needed: u8) -> Self {
        let words: Vec<String> = request.workflows.iter().map(workflow_word).collect();
        let plans = if request.plans { "p.workflow IS NULL OR " } else { "" };
        let knows = format!(" AND ({plans}p.workflow IN ({}))", texts(words.iter().map(String::as_str)));
        let of = only.map_or_else(String::new, |only| format!(" AND r.task_id = {only}"));
        let may_go_on = format!(" AND (r.status = 'rolling_back' OR p.status = 'running'){of}{knows}");
        let by_default = if request.recovery == Recovery::Auto { "auto" } else { "manual" };
        let automatic = format!("COALESCE(p.recovery, '{by_default}') = 'auto'");
        let going = |alone: &str| {
            let alone = format!("EXISTS (SELECT 1 FROM milepost_going g {alone} AND g.go >= {needed})");
            format!(" AND ({automatic} OR (p.go >= {needed} AND p.ended_at IS NULL) OR {alone})")
        };
        let (is_going, starts) = match only {
            Some(only) => (String::new(), format!(" AND p.id = {only}")),
            None => (
                going("WHERE g.task = r.id"),
                going("JOIN task_unit_runtimes t ON t.id = g.task WHERE t.task_id = p.id AND t.queue = 0"),
            ),
        };
        Self { only, knows, may_go_on, automatic, is_going, starts, needed }
    }

    /// Whether the PENDING tasks of the plan start without a person's word.
    fn may_start(&self, plan: &PlanState, request: &ClaimRequest) -> bool {
        self.only.is_some() || plan.going().may_start(request.recovery, going::HELD, self.needed)
    }
}

/// What is left of the limit: tasks that ended at once count as well.
fn room(request: &ClaimRequest, claimed: &Claimed) -> usize {
    request.limit.saturating_sub(claimed.tasks.len() + claimed.ended.len())
}
