//! Opening a database, as a node or as a visitor, and the trait on top of the parts beside this one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::Plan;
use mysql_async::Conn;
use tokio::sync::{Mutex, oneshot};

use crate::books::{Book, BookChange, Entry, EntryQuery};
use crate::clock::ClockReading;
use crate::doubt::Doubtful;
use crate::error::StoreError;
use crate::group::Group;
use crate::model::{
    ChangeQuery, Changes, ClaimRequest, Claimed, Commit, Committed, EventQuery, LockRow, LogChunk, LogQuery, Note,
    Page, PlanChange, PlanQuery, PlanRow, Position, StoreStats, StoredEvent, StoredTask, Submission, Submitted,
    TaskQuery, TaskRow, TokenRow,
};
use crate::moved::MovedPlan;
use crate::nodes::{Answered, Beat, Beaten, Letter, Membership, NodeRow, Posted};
use crate::store::Store;
use milepost_core::time::Timestamp;

use super::codec::{BACKEND, unavailable};
use super::connect::Server;
use super::log::SharedPlans;
use super::watch::Watch;
use super::writer::{Done, MOST, Operation, Waiting, write};
use super::{schema, tokens};

/// Beats between two sweeps that nothing calls for, for what is merely old.
const BEATS_PER_SWEEP: u64 = 60;

/// A store that several nodes share.
pub struct MysqlStore {
    shared: Arc<Shared>,
    group: Group<Waiting>,
    beats: AtomicU64,
    opened: ClockReading,
}

/// What the handle has in common with the tasks that write and watch for it.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) server: Server,
    pub(super) membership: Membership,
    /// Of this node; 0 for a visitor.
    session: AtomicU64,
    next_lease: AtomicU64,
    /// The session that is known to have found out which era it is in.
    settled: AtomicU64,
    /// How often the lease was lost.
    pub(super) losses: AtomicU64,
    /// The connection that writes, between two transactions.
    pub(super) writer: Mutex<Option<Conn>>,
    pub(super) watch: Watch,
    pub(super) plans: SharedPlans,
    pub(super) stats: Stats,
    pub(super) doubtful: Doubtful,
    /// Bytes that the server takes at once.
    pub(super) packet: usize,
}

#[derive(Debug, Default)]
pub(super) struct Stats {
    pub(super) batches: AtomicU64,
    pub(super) operations: AtomicU64,
    pub(super) commits: AtomicU64,
}

impl Shared {
    pub(super) fn session(&self) -> Option<u64> {
        Some(self.session.load(Ordering::Acquire)).filter(|session| *session != 0)
    }

    pub(super) fn set_session(&self, session: u64) {
        self.next_lease.store(Self::first_lease_of(session), Ordering::Release);
        self.session.store(session, Ordering::Release);
    }

    pub(super) fn is_settled(&self, session: u64) -> bool {
        self.settled.load(Ordering::Acquire) == session
    }

    pub(super) fn settle(&self, session: u64) {
        self.settled.store(session, Ordering::Release);
    }

    /// Every claim gets one of its own.
    pub(super) fn new_lease(&self) -> u64 {
        self.next_lease.fetch_add(1, Ordering::AcqRel)
    }
}

impl std::fmt::Debug for MysqlStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shared { server, membership, .. } = &*self.shared;
        f.debug_struct("MysqlStore").field("server", &server.name).field("node", &membership.node).finish()
    }
}

impl MysqlStore {
    /// Opens a database that exists, and makes its tables if there are none: `mysql://user:password@host:3306/database`.
    pub async fn open(url: &str, membership: Membership) -> Result<Self, StoreError> {
        let server = Server::new(url)?;
        let mut connection = server.connect().await.map_err(unavailable("connect"))?;
        let packet = schema::check_server(&mut connection, &server.name).await?;
        schema::migrate(&mut connection, &server.name).await?;
        let shared = Arc::new(Shared {
            server,
            membership,
            session: AtomicU64::new(0),
            next_lease: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            losses: AtomicU64::new(0),
            writer: Mutex::new(Some(connection)),
            watch: Watch::default(),
            plans: SharedPlans::default(),
            stats: Stats::default(),
            doubtful: Doubtful::default(),
            packet,
        });
        if let Some(node) = shared.membership.node.clone() {
            shared.register(&node).await?;
        }
        let opened = shared.read_clock().await?;
        let writes = shared.clone();
        // One lane: whoever writes holds the lock to the end, so a second would only wait for the first.
        let group = Group::start(1, MOST, move |group| write(writes.clone(), group));
        Ok(Self { shared, group, beats: AtomicU64::new(0), opened })
    }

    async fn write(&self, operation: Operation) -> Result<Done, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.group.send(Waiting { operation, reply });
        answer.await.unwrap_or_else(|_| {
            let source = "its writer is gone; the log says why".into();
            Err(StoreError::Unavailable { backend: BACKEND, operation: "write", source })
        })
    }
}

/// The one kind of answer that the operation has.
macro_rules! expect {
    ($done:expr, $kind:ident) => {
        match $done? {
            Done::$kind(answer) => Ok(answer),
            other => unreachable!("{other:?} is the answer to another operation"),
        }
    };
}

#[async_trait]
impl Store for MysqlStore {
    async fn submit(&self, submission: Submission) -> Result<Submitted, StoreError> {
        let submission = Box::new(submission.into());
        expect!(self.write(Operation::Submit(submission)).await, Submitted)
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError> {
        let found = self.shared.find_doubtful(&request).await?;
        if !found.is_empty() {
            // There may be more, and nobody would call for it.
            let now = request.now.unwrap_or_default();
            return Ok(Claimed { tasks: found, now, next_due: Some(now), ..Claimed::default() });
        }
        expect!(self.write(Operation::Claim(request)).await, Claimed)
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let commit = Box::new(commit.into());
        expect!(self.write(Operation::Commit(commit)).await, Committed)
    }

    async fn change_plan(&self, change: PlanChange) -> Result<PlanRow, StoreError> {
        expect!(self.write(Operation::ChangePlan(change)).await, Changed)
    }

    async fn note(&self, notes: Vec<Note>) -> Result<(), StoreError> {
        self.write(Operation::Note(notes)).await.map(drop)
    }

    async fn plan(&self, id: &PlanId) -> Result<Option<PlanRow>, StoreError> {
        self.shared.plan(id).await
    }

    async fn definition(&self, id: &PlanId) -> Result<Option<Plan>, StoreError> {
        self.shared.definition(id).await
    }

    async fn plans(&self, query: PlanQuery) -> Result<Page<PlanRow>, StoreError> {
        self.shared.list_plans(&query).await
    }

    async fn task(&self, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
        self.shared.task(id).await
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<TaskRow>, StoreError> {
        self.shared.list_tasks(&query).await
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<StoredEvent>, StoreError> {
        self.shared.events(&query).await
    }

    async fn logs(&self, query: LogQuery) -> Result<Vec<LogChunk>, StoreError> {
        self.shared.logs(&query).await
    }

    async fn changes(&self, query: ChangeQuery) -> Result<Changes, StoreError> {
        self.shared.changes(&query).await
    }

    async fn newest(&self) -> Result<Position, StoreError> {
        self.shared.newest().await
    }

    async fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        tokens::tokens(&self.shared.server).await
    }

    async fn put_token(&self, token: TokenRow) -> Result<(), StoreError> {
        self.write(Operation::PutToken(Box::new(token))).await.map(drop)
    }

    async fn locks(&self) -> Result<Vec<LockRow>, StoreError> {
        self.shared.locks().await
    }

    async fn import(&self, plan: MovedPlan) -> Result<(), StoreError> {
        self.write(Operation::Import(Box::new(plan))).await.map(drop)
    }

    async fn change_books(&self, change: BookChange) -> Result<(), StoreError> {
        if change.is_empty() {
            return Ok(());
        }
        self.write(Operation::ChangeBooks(change)).await.map(drop)
    }

    async fn entries(&self, query: EntryQuery) -> Result<Page<Entry>, StoreError> {
        self.shared.entries(&query).await
    }

    async fn entry(&self, book: Book, key: &str, now: Timestamp) -> Result<Option<Entry>, StoreError> {
        self.shared.entry(book, key, now).await
    }

    fn stats(&self) -> StoreStats {
        let Stats { batches, operations, commits } = &self.shared.stats;
        let batches = batches.load(Ordering::Relaxed);
        let (operations, commits) = (operations.load(Ordering::Relaxed), commits.load(Ordering::Relaxed));
        let round_trips = self.shared.server.asked.load(Ordering::Relaxed);
        StoreStats { syncs: batches, batches, operations, commits, round_trips }
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn clock(&self) -> Option<ClockReading> {
        Some(self.opened)
    }

    async fn beat(&self, beat: Beat) -> Result<Beaten, StoreError> {
        let (beaten, sweep) = self.shared.beat(beat).await?;
        if sweep || self.beats.fetch_add(1, Ordering::Relaxed) % BEATS_PER_SWEEP == BEATS_PER_SWEEP - 1 {
            // The lease is renewed all the same; a later beat sweeps.
            if let Err(error) = self.write(Operation::Sweep).await {
                tracing::warn!(%error, "the leases and locks of others could not be looked after; a later beat does");
            }
        }
        Ok(beaten)
    }

    async fn leave(&self) -> Result<(), StoreError> {
        self.shared.leave().await
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        self.shared.nodes().await
    }

    async fn post(&self, letter: Letter) -> Result<Option<i64>, StoreError> {
        self.shared.post(&letter).await
    }

    async fn letters(&self) -> Result<Vec<Posted>, StoreError> {
        self.shared.letters().await
    }

    async fn answer(&self, letter: i64, answer: String) -> Result<(), StoreError> {
        self.shared.answer(letter, &answer).await
    }

    async fn answer_to(&self, letter: i64) -> Result<Answered, StoreError> {
        self.shared.answer_to(letter).await
    }

    async fn call(&self) -> Result<(), StoreError> {
        self.shared.call_others().await
    }

    async fn called(&self) {
        self.shared.called().await;
    }
}
