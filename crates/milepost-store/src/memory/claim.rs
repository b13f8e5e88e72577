//! Taking tasks on: lease, tenant lock and slot together, or nothing.

use milepost_core::plan::{OnTaskFailure, PlanCommand, next_plan_status};
use milepost_core::planted::planted;
use milepost_core::task::{Claim, Command, Event, PlanStatus, decide};
use milepost_core::time::{Millis, Timestamp};
use tokio::time::Instant;

use crate::books::book_changes;
use crate::error::StoreError;
use crate::going::{self, Going};
use crate::model::{ClaimRequest, Claimed, Wake};

use super::data::{Data, Held, Hold, Lock, TaskEntry};
use super::line::Place;

/// On whose behalf tasks are taken on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claimant {
    pub(super) session: u64,
    /// How long its tenant locks last; for ever, when nobody else is there.
    pub(super) lock_ttl: Option<Millis>,
}

impl Data {
    pub(super) fn claim(&mut self, claimant: Claimant, request: &ClaimRequest) -> Result<Claimed, StoreError> {
        let only = request.only.as_ref().map(|id| self.find_plan(id)).transpose()?;
        let settled = self.settle_era(claimant.session, request.recovery, only);
        let needed = going::needed(settled);
        let now = request.now.unwrap_or_else(|| self.sessions.timestamp(Instant::now()));
        let mut claimed = Claimed { now, ..Claimed::default() };
        for no in self.interrupted_or_due(only, request, needed, now) {
            if claimed.tasks.len() + claimed.ended.len() < request.limit && self.can_take(no, request, needed) {
                self.take(no, claimant, request, &mut claimed)?;
            }
        }
        while claimed.tasks.len() + claimed.ended.len() < request.limit
            && let Some(no) = self.next_pending(only, request, needed)
        {
            self.take(no, claimant, request, &mut claimed)?;
        }
        let due = only.map_or(&self.line.due, |plan| &self.plan_entry(plan).line.due);
        let mut later = due.iter().filter(|(at, no)| *at > now && self.may_start(*no, request, needed));
        claimed.next_due = later.next().map(|(at, _)| *at);
        Ok(claimed.in_era(settled))
    }

    /// In the order in which they are taken: the interrupted by number, then the due by time.
    fn interrupted_or_due(&self, only: Option<i64>, request: &ClaimRequest, needed: u8, now: Timestamp) -> Vec<i64> {
        let (recovery, due) = match only {
            None => (&self.line.recovery, &self.line.due),
            Some(plan) => {
                let line = &self.plan_entry(plan).line;
                (&line.recovery, &line.due)
            }
        };
        let due = due.iter().take_while(|(at, _)| *at <= now).map(|(_, no)| *no);
        // Some of these may be waiting for their tenant or for a slot, so there is no saying how many to look at.
        let mut found = recovery.iter().copied().chain(due).filter(|no| self.can_take(*no, request, needed));
        found.by_ref().take(request.limit).collect()
    }

    fn next_pending(&self, only: Option<i64>, request: &ClaimRequest, needed: u8) -> Option<i64> {
        let plans = match only {
            None => &self.line.plans,
            Some(plan) => &self.line.plans.get(&plan).copied().into_iter().collect(),
        };
        plans.iter().find_map(|plan| self.next_pending_of(*plan, request, needed))
    }

    fn next_pending_of(&self, plan: i64, request: &ClaimRequest, needed: u8) -> Option<i64> {
        let entry = self.plan_entry(plan);
        if !request.knows(&entry.plan.definition) {
            return None;
        }
        if request.only.is_some() || entry.going().may_start(request.recovery, going::HELD, needed) {
            return entry.line.pending.first().map(|turn| turn.no);
        }
        // Only what a person set going by itself, whoever of its tenant comes before it in line.
        let turn = |task: &TaskEntry| match task.place {
            Place::Pending(turn) if task.go >= needed && self.tenant_holder(turn.no).is_none() => Some(turn),
            Place::Pending(_) | Place::Nowhere | Place::Idle | Place::Due(_) | Place::Recovery { .. } => None,
        };
        let tasks = self.let_go.iter().filter_map(|no| self.tasks.get(no)).filter(|task| task.plan == plan);
        tasks.filter_map(turn).min().map(|turn| turn.no)
    }

    /// Whether anybody has to be asked first.
    fn may_start(&self, no: i64, request: &ClaimRequest, needed: u8) -> bool {
        let entry = self.entry(no);
        let going = self.plan_entry(entry.plan).going();
        // What lost its node waits for a word about itself.
        let interrupted = matches!(entry.place, Place::Recovery { .. });
        let (going, task) =
            if interrupted { (Going { plan: going::HELD, ..going }, going::HELD) } else { (going, entry.go) };
        request.only.is_some() || going.may_start(request.recovery, task, needed)
    }

    /// What sleeps or was interrupted has its slot and its lock; what an operator sends to be undone needs both.
    fn can_take(&self, no: i64, request: &ClaimRequest, needed: u8) -> bool {
        let entry = self.entry(no);
        let plan = self.plan_entry(entry.plan);
        self.may_start(no, request, needed)
            && self.tenant_holder(no).is_none()
            && (entry.slot || plan.has_free_slot())
            && request.knows(&plan.plan.definition)
    }

    fn take(
        &mut self,
        no: i64,
        claimant: Claimant,
        request: &ClaimRequest,
        claimed: &mut Claimed,
    ) -> Result<(), StoreError> {
        let now = claimed.now;
        let entry = self.entry(no);
        let task = &entry.task;
        let node_is_gone = task.status().is_active()
            && match self.held(no) {
                Held::Orphaned { .. } => true,
                Held::Nobody => entry.hold == Hold::Nobody(Wake::Recovery) && !task.interrupted(),
                Held::Live { .. } => false,
            };
        let lost_by = if node_is_gone { task.node().cloned() } else { None };
        let claim = Claim { node: request.node.clone(), lost_by, automatic: request.only.is_none() };
        let decision = decide(task, Command::Claim(claim), now)?;
        let for_books = book_changes(&decision.task, &decision.events);
        self.books.check(&for_books)?;

        self.books.write(for_books);
        if !planted("a lease is given out twice") || self.last_lease == 0 {
            self.last_lease += 1;
        }
        self.lock(no, claimant, now);
        self.give_slot(no);
        let plan = self.entry(no).plan;
        let hold = Hold::By { owner: claimant.session, lease: self.last_lease };
        self.store(no, decision.task, &decision.events, hold);

        let failed = decision.events.iter().any(|record| matches!(record.event(), Event::TaskFailed { .. }));
        let asked = if failed { self.pause_if_asked(plan, now) } else { None };
        let mut stored = self.stored_task(no);
        stored.claim_events = decision.events;
        let taken = if stored.task.status().is_active() { &mut claimed.tasks } else { &mut claimed.ended };
        taken.push(stored);
        if self.settle(plan, now).or(asked).is_some() {
            self.log_plan(plan, None, now);
            claimed.settled.push(self.plan_entry(plan).plan.definition.id.clone());
        }
        Ok(())
    }

    /// A task of the plan has failed; a plan that cannot be paused any more stays as it is.
    fn pause_if_asked(&mut self, plan: i64, now: Timestamp) -> Option<PlanStatus> {
        let entry = self.plan_entry(plan);
        if entry.plan.definition.settings.on_task_failure != OnTaskFailure::Pause {
            return None;
        }
        let id = entry.plan.definition.id.as_str();
        let paused = next_plan_status(id, entry.status, &entry.counts(), PlanCommand::Pause).ok()?;
        self.set_status(plan, paused, None, now)
    }

    fn lock(&mut self, no: i64, claimant: Claimant, now: Timestamp) {
        let Some(tenant) = self.entry(no).task.spec().tenant.clone() else { return };
        if planted("a tenant is not locked") {
            return;
        }
        let fence = self.last_lease;
        let expires_at = claimant.lock_ttl.map(|ttl| Instant::now() + ttl.as_duration());
        let since = self.locks.get(&tenant).map_or(now, |lock| lock.since);
        self.locks.insert(tenant.clone(), Lock { task: no, since, fence, expires_at });
        self.look_at_tenant(&tenant);
    }

    fn give_slot(&mut self, no: i64) {
        let entry = self.entry_mut(no);
        if !std::mem::replace(&mut entry.slot, true) && !planted("a slot is not counted") {
            let plan = entry.plan;
            self.plan_entry_mut(plan).slots += 1;
            self.look_at_plan(plan);
        }
    }
}
