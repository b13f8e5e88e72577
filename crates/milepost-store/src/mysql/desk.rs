//! What a transaction has in front of it: who is there, the plans and tasks it is about, and what is to be written.
//!
//! Everybody who writes holds the one lock by then, so what lies here is the truth until the transaction ends.

use std::collections::{BTreeSet, HashMap};

use milepost_core::id::Tenant;
use milepost_core::task::{By, TaskStatus};
use milepost_core::time::{Millis, Timestamp};

use crate::codec::{Body, encode_plan_change};
use crate::row::RowImage;
use crate::snapshot::Snapshot;

use super::books::Books;
use super::codec::session_of;
use super::sql::text_length;
use super::states::{Counters, PlanState, Queue, SessionState, Standing, TaskState};
use super::writes::{EventRow, NewRow, Writes};

#[derive(Debug)]
pub(super) struct Desk {
    pub(super) counters: Counters,
    /// As of the last flush.
    pub(super) flushed: Counters,
    pub(super) now: Timestamp,
    pub(super) sessions: Vec<SessionState>,
    pub(super) own: Option<u64>,
    pub(super) plans: HashMap<i64, PlanState>,
    pub(super) tasks: HashMap<i64, TaskState>,
    pub(super) writes: Writes,
    pub(super) books: Books,
    /// Tenants that somebody has let go of, whose next in line are to be woken.
    pub(super) freed: BTreeSet<Tenant>,
    /// A node was found gone, and its tasks are there for us as well.
    pub(super) ends_a_session: bool,
    pub(super) lock_ttl: Millis,
    /// Bytes that a value may have in a statement, so that the server takes it.
    pub(super) longest: usize,
}

impl Desk {
    /// The session that took the lease is there, and nobody has been let in in its place.
    pub(super) fn is_live(&self, lease: u64) -> bool {
        let of = session_of(lease);
        lease != 0 && self.sessions.iter().any(|session| session.number == of && !session.ended)
    }

    /// There may be something new to claim, also for others.
    pub(super) fn offer(&mut self) {
        self.counters.offered = self.flushed.offered + 1;
    }

    pub(super) fn plan(&mut self, no: i64) -> &mut PlanState {
        self.plans.get_mut(&no).expect("a plan is read before it is looked at")
    }

    /// One that the server would refuse is left out, rather than that everything that is written with it fails.
    pub(super) fn keep_snapshot(&mut self, task: i64, snapshot: Option<Snapshot>) {
        if let Some(snapshot) = snapshot.filter(|snapshot| text_length(&snapshot.text) <= self.longest) {
            self.writes.snapshots.insert(task, snapshot);
        }
    }

    pub(super) fn append(&mut self, task: i64, sequence: u64, body: Body) {
        self.counters.position += 1;
        self.writes.events.push(EventRow { position: self.counters.position, task, sequence, body });
    }

    /// Tells the log what a plan has become. Its rows have the plan's number, negated, where others have the task's.
    pub(super) fn log_plan(&mut self, no: i64, by: Option<&By>, at: Timestamp) {
        let plan = self.plan(no);
        let (body, version) = (encode_plan_change(plan.status, by, at), plan.version);
        self.append(-no, version, body);
        self.writes.plans.insert(no);
        self.offer();
    }

    /// What a task has become, with all that follows for its plan's counts and its tenant.
    pub(super) fn transition(&mut self, no: i64, image: RowImage, standing: Standing, clears_progress: bool) {
        let task = self.tasks.get_mut(&no).expect("a task is read before it is written");
        let before = task.clone();
        let (queue, status) = (standing.queue(&image), image.status);
        (task.status, task.queue, task.version, task.lease) = (status, queue, image.version, standing.lease);
        task.wake_at = standing.wake_at;
        if clears_progress {
            task.progress = None;
            self.writes.progress.remove(&no);
        }
        let earlier = self.writes.rows.remove(&no);
        let stays = (before.status, before.queue, before.lease, before.wake_at)
            == (status, queue, standing.lease, standing.wake_at);
        let row = NewRow {
            image,
            queue,
            wake_at: standing.wake_at,
            clears_progress: clears_progress || earlier.as_ref().is_some_and(|row| row.clears_progress),
            advances: stays && status.is_active() && earlier.is_none_or(|row| row.advances),
            stored: before.stored,
            lease: standing.lease,
        };
        self.writes.rows.insert(no, row);
        if (before.status, before.queue) != (status, queue) {
            self.recount(&before, status, queue);
        } else if standing.wake_at < before.wake_at {
            // Somebody wakes it before the time that nodes know of.
            self.offer();
        }
        if let Some(tenant) = before.tenant {
            if status.is_ended() {
                self.writes.unlocked.push(no);
                self.writes.locks.retain(|_, lock| lock.task != no);
            }
            if status.is_ended() || (before.status == TaskStatus::Pending && status != before.status) {
                self.freed.insert(tenant);
            }
        }
    }

    fn recount(&mut self, before: &TaskState, status: TaskStatus, queue: Option<Queue>) {
        let plan = self.plans.get_mut(&before.plan).expect("a plan is read with its tasks");
        plan.counts.remove(before.status);
        plan.counts.add(status, 1);
        plan.slotless -= u64::from(before.queue.is_some_and(|queue| queue.is_slotless(before.status)));
        plan.slotless += u64::from(queue.is_some_and(|queue| queue.is_slotless(status)));
        plan.ready -= u64::from(before.queue == Some(Queue::Ready));
        plan.ready += u64::from(queue == Some(Queue::Ready));
        let offers = plan.offers();
        self.writes.plans.insert(before.plan);
        let unheld = matches!(queue, Some(Queue::Ready | Queue::Undo | Queue::Asleep | Queue::Left));
        // The node that took a message in runs its task by preference; others find it when they next look.
        let is_ours = before.queue == Some(Queue::AwaitsMessage) && self.own.is_some();
        if (offers || unheld) && !is_ours {
            self.offer();
        }
    }

    /// From one line of its plan to another, its status being the same.
    pub(super) fn requeue(&mut self, no: i64, queue: Queue) {
        let task = self.tasks.get_mut(&no).expect("a task is read before it is written");
        let before = task.queue.replace(queue);
        let plan = task.plan;
        match queue {
            Queue::WaitsForTenant => self.writes.lined_up.push(no),
            _ => self.writes.woken.push(no),
        }
        let plan = self.plans.get_mut(&plan).expect("a plan is read with its tasks");
        plan.ready -= u64::from(before == Some(Queue::Ready));
        plan.ready += u64::from(queue == Queue::Ready);
        let no = plan.no;
        self.writes.plans.insert(no);
    }
}
