//! What goes into a store and what comes out of it: a struct in, a struct out.

use std::sync::Arc;

use milepost_core::api::Scope;
use milepost_core::id::{PlanId, StageName, TaskId, Tenant};
use milepost_core::plan::{Plan, PlanCommand, PlanDefinition, Recovery, TaskCounts, WorkflowRef};
use milepost_core::task::{By, PlanStatus, Record, Task, TaskStatus};
use milepost_core::time::{Millis, Timestamp};
use serde::{Deserialize, Serialize};

use crate::books::Entry;
use crate::going::LOOK_AGAIN;

/// A place in the store's own order of commits; a feed resumes from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub i64);

/// A task's name and the number it has inside the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TaskRef {
    pub id: TaskId,
    pub no: i64,
}

// --- submitting ---

#[derive(Debug, Clone)]
pub struct Submission {
    pub plan: Arc<Plan>,
    pub start: Start,
    pub resubmit: Resubmit,
    /// Kept with the plan, in the same commit, so that a client may safely ask again.
    pub request: Option<RequestKey>,
    /// Written to the books in the same commit: what made the plan, and what is to be said of it. Refused as `Kept`
    /// when one of them is there already, with nothing stored.
    pub entries: Vec<Entry>,
    pub now: Timestamp,
}

/// What a client calls its request. Sent again within a day, it gets the first one's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestKey {
    pub key: String,
    /// Of all that was asked: another request under the same key is a mistake.
    pub digest: [u8; 32],
}

/// How long a request's key is remembered.
pub const REQUESTS_KEPT_FOR: Millis = Millis::from_secs(24 * 3600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// RUNNING as soon as it is stored.
    AtOnce,
    /// READY until somebody starts it.
    Later,
}

/// What happens when the plan is there already. Same content always carries on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resubmit {
    /// Other content is refused, naming the first difference.
    Same,
    /// New tasks are added and missing ones removed, while none of its tasks runs.
    Update,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitted {
    pub plan: PlanRow,
    /// False when it was there already.
    pub created: bool,
    /// The answer is that of an earlier request under the same key, as it was then.
    pub replayed: bool,
    pub difference: Difference,
}

/// What an update changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Difference {
    pub added: u64,
    pub removed: u64,
}

// --- claiming ---

#[derive(Debug, Clone)]
pub struct ClaimRequest {
    pub node: Arc<str>,
    /// Only tasks of this plan; and, because a person asked for it, also what `recovery: manual` would leave alone.
    pub only: Option<PlanId>,
    /// The node can run plans of stages; a program that has nothing but workflows leaves those to others.
    pub plans: bool,
    /// The functions that the node can run; a workflow that is not among them is left for a node that knows it.
    pub workflows: Arc<[WorkflowRef]>,
    /// The node's own setting, for plans that do not say.
    pub recovery: Recovery,
    pub limit: usize,
    /// What time it is; none when the store is to look at its own clock, as nodes ask that share one: whatever their own
    /// clocks say, they agree on what is due.
    pub now: Option<Timestamp>,
}

impl ClaimRequest {
    /// Whether the node can run the tasks of this plan at all.
    pub fn knows(&self, plan: &PlanDefinition) -> bool {
        plan.workflow.as_ref().map_or(self.plans, |workflow| self.workflows.contains(workflow))
    }
}

/// Tasks that are now this node's: RUNNING or ROLLING_BACK, with lease, tenant lock and plan slot, and committed.
#[derive(Debug, Default)]
pub struct Claimed {
    pub tasks: Vec<StoredTask>,
    /// What ended in being claimed: no stages to run, or one crash too many.
    pub ended: Vec<StoredTask>,
    /// When the claim was made: what was due by then was there to be taken.
    pub now: Timestamp,
    /// Nothing more can be claimed until something is committed, or this instant comes, by the clock that `now` is of.
    pub next_due: Option<Timestamp>,
    /// Plans that the claim itself brought to their end.
    pub settled: Vec<PlanId>,
    /// The node knows which plans wait for a person since all nodes were gone, and which go on.
    pub knows_era: bool,
}

impl Claimed {
    /// While the node cannot tell which era it is in, it asks again: soon it may.
    pub(crate) fn in_era(mut self, known: bool) -> Self {
        self.knows_era = known;
        if !known {
            let again = self.now + LOOK_AGAIN;
            self.next_due = Some(self.next_due.map_or(again, |due| due.min(again)));
        }
        self
    }
}

/// A task as folded from its log, and what the store knows beside it.
#[derive(Debug, Clone)]
pub struct StoredTask {
    pub key: TaskRef,
    pub task: Task,
    /// The lease it is held under; 0 when nobody holds it.
    pub epoch: u64,
    /// Held, but by a node that is gone.
    pub orphaned: bool,
    /// It could be claimed, but its plan's recovery is manual, and nobody has set it going since all nodes were gone.
    pub waits_for_person: bool,
    /// The holder of the tenant that it waits for, as `planId:taskId`.
    pub blocked_by: Option<String>,
    /// Why no claim takes it: it was set aside when one found that it cannot be run.
    pub set_aside: Option<String>,
    pub progress: Option<(u64, u64)>,
    /// The events that the claim added.
    pub claim_events: Vec<Record>,
}

impl StoredTask {
    /// Whether it waits for a person, among nodes that do this with plans that do not say. What such a plan was set going
    /// for tells nothing of a rollback: that goes on after the end of its plan, and then only the nodes' setting counts.
    pub fn waits_for_word(&self, default: Recovery) -> bool {
        let told = self.task.status() != TaskStatus::RollingBack;
        self.waits_for_person && (told || self.task.spec().settings.recovery_or(default) == Recovery::Manual)
    }
}

// --- committing ---

/// What happened to one task, and the task it makes.
#[derive(Debug, Clone)]
pub struct Commit {
    pub key: TaskRef,
    pub holder: Holder,
    /// The version that was decided on.
    pub expected: u64,
    pub events: Arc<[Record]>,
    pub task: Arc<Task>,
    pub lease: LeaseChange,
    /// What becomes of the plan in the same commit.
    pub plan: Option<PlanCommand>,
    /// Output captured since the last commit.
    pub output: Vec<LogChunk>,
}

/// On whose behalf a commit is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// The node that holds this lease.
    Lease(u64),
    /// An operator; refused while a live node holds the task, whose own commit it must be.
    Operator,
}

/// What the commit does to the lease. A task that ends or pauses always gives it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseChange {
    Keep,
    Release(Wake),
}

/// When a task that nobody holds may be claimed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    At(Timestamp),
    /// By recovery: at once if the plan says auto, else when a person asks.
    Recovery,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub position: Position,
    /// The plan's status, when this commit changed it.
    pub plan: Option<PlanStatus>,
}

/// What is worth seeing while an attempt runs, and not worth an event.
#[derive(Debug, Clone)]
pub struct Note {
    pub key: TaskRef,
    pub progress: Option<(u64, u64)>,
    pub output: Vec<LogChunk>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogChunk {
    pub stage: StageName,
    pub attempt: u32,
    pub at: Timestamp,
    pub bytes: Vec<u8>,
}

// --- plans ---

#[derive(Debug, Clone)]
pub struct PlanChange {
    pub plan: PlanId,
    pub command: PlanCommand,
    pub by: By,
    /// Refused if the plan is at another version.
    pub expected: Option<u64>,
    pub now: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRow {
    pub id: PlanId,
    pub status: PlanStatus,
    pub max_concurrency: u32,
    pub counts: TaskCounts,
    pub version: u64,
    /// RUNNING, but its recovery is manual, and nobody has set it going since all nodes were gone: none of its tasks
    /// starts by itself.
    #[serde(default)]
    pub waits_for_person: bool,
    /// Who changed its status last, when a person did.
    pub changed_by: Option<By>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}

// --- asking ---

/// A list is read in pages: ask again with `after` set to the last answer's `next`.
#[derive(Debug, Clone)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub next: Option<i64>,
}

/// Newest first.
#[derive(Debug, Clone, Default)]
pub struct PlanQuery {
    /// Leave out what has ended.
    pub open_only: bool,
    pub after: Option<i64>,
    pub limit: usize,
}

/// By plan in the order in which they were added, which is the file's until an update; by tenant newest first.
#[derive(Debug, Clone)]
pub struct TaskQuery {
    pub of: TasksOf,
    /// Empty: any.
    pub statuses: Vec<TaskStatus>,
    pub after: Option<i64>,
    pub limit: usize,
}

#[derive(Debug, Clone)]
pub enum TasksOf {
    Plan(PlanId),
    Tenant(Tenant),
}

/// A task without its log: what lists show.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskRow {
    pub key: TaskRef,
    pub plan: PlanId,
    pub tenant: Option<Tenant>,
    pub status: TaskStatus,
    pub interrupted: bool,
    pub pause_requested: bool,
    /// PENDING, and not to be claimed before its message is here.
    pub awaits_message: bool,
    pub version: u64,
    /// Stages done, of how many.
    pub done: u32,
    pub stages: u32,
    pub stage: Option<StageName>,
    pub attempt: u32,
    pub next_due: Option<Timestamp>,
    /// The holder of the tenant that it waits for, as `planId:taskId`.
    pub blocked_by: Option<String>,
    /// Why no claim takes it: it was set aside when one found that it cannot be run.
    pub set_aside: Option<String>,
    pub reason: Option<String>,
    pub progress: Option<(u64, u64)>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub updated_at: Timestamp,
}

#[derive(Debug, Clone)]
pub struct EventQuery {
    pub task: TaskId,
    /// Only events with a larger sequence number.
    pub after: u64,
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct StoredEvent {
    pub sequence: u64,
    pub record: Record,
}

/// What was committed, in the store's own order.
#[derive(Debug, Clone)]
pub struct ChangeQuery {
    /// Only what was committed after this.
    pub after: Position,
    /// Only this plan's own changes and its tasks'.
    pub plan: Option<PlanId>,
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Changes {
    pub items: Vec<Change>,
    /// All up to here has been looked at, whether it was wanted or not: ask again from here.
    pub upto: Position,
    /// There may be more already.
    pub more: bool,
}

/// One commit, or one change of a plan's status.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub position: Position,
    pub plan: PlanId,
    pub what: Changed,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Changed {
    Task {
        task: TaskId,
        tenant: Option<Tenant>,
        /// Of the first record.
        sequence: u64,
        records: Vec<Record>,
    },
    Plan {
        status: PlanStatus,
        /// The person who asked for it; none when it followed from its tasks.
        by: Option<By>,
        at: Timestamp,
    },
}

#[derive(Debug, Clone)]
pub struct LogQuery {
    pub task: TaskId,
    pub stage: Option<StageName>,
    pub attempt: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LockRow {
    pub tenant: Tenant,
    pub plan: PlanId,
    pub task: TaskId,
    pub since: Timestamp,
    pub fence: u64,
    /// When it opens by itself, unless it is renewed; never, in a store with one owner.
    pub expires_at: Option<Timestamp>,
}

/// A key to the API. Its secret is not kept, only what proves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRow {
    pub id: String,
    pub name: String,
    /// SHA-256 of the secret.
    pub hash: [u8; 32],
    pub scope: Scope,
    /// Empty: not bound to any.
    pub tenants: Vec<Tenant>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

/// What the store has done since it was opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct StoreStats {
    pub syncs: u64,
    /// Transactions, each of them one group commit.
    pub batches: u64,
    /// Operations that rode in them.
    pub operations: u64,
    /// Stage commits among those.
    pub commits: u64,
    /// Questions and orders sent to a server, each waited for once; 0 where there is none.
    pub round_trips: u64,
}
