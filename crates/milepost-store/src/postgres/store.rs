//! Opening a store on a server, and the trait on top of the parts beside this one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::Plan;
use tokio::sync::oneshot;

use crate::books::{Book, BookChange, Entry, EntryQuery};
use crate::clock::ClockReading;
use crate::contended::Contended;
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

use super::columns::Rules;
use super::connect::{BACKEND, Server, unavailable};
use super::listen::Ear;
use super::session::Session;
use super::shared::SharedPlans;
use super::{books, claim, commit, durability, import, nodes, notes, plans, schema, submit, tasks};

/// How long opening waits for another node that is making the tables.
const MIGRATE: Duration = Duration::from_secs(120);

/// A store in a schema of a PostgreSQL database, which other nodes may be on as well.
pub struct PostgresStore {
    inner: Arc<Inner>,
    commits: Group<commit::Waiting>,
    submits: Group<submit::Waiting>,
    notes: Group<notes::Waiting>,
    ear: Ear,
    opened: ClockReading,
}

/// What the parts of one handle share.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) server: Arc<Server>,
    pub(super) session: Session,
    pub(super) plans: SharedPlans,
    pub(super) rules: Rules,
    pub(super) stats: Stats,
    pub(super) doubtful: Doubtful,
    pub(super) contended: Contended,
}

#[derive(Debug, Default)]
pub(super) struct Stats {
    batches: AtomicU64,
    operations: AtomicU64,
    commits: AtomicU64,
}

impl Stats {
    /// One transaction, with so many operations in it, of which so many are commits.
    pub(super) fn count(&self, operations: usize, commits: usize) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.operations.fetch_add(operations as u64, Ordering::Relaxed);
        self.commits.fetch_add(commits as u64, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Inner { server, session, .. } = &*self.inner;
        f.debug_struct("PostgresStore").field("schema", &server.place.schema()).field("session", session).finish()
    }
}

impl PostgresStore {
    /// Opens the store at `postgres://...`, and makes it if there is none. It lives in the schema that the address names
    /// with `search_path=NAME` (or `options=-c search_path=NAME`), or else in the one that the server would use.
    pub async fn open(url: &str, membership: Membership) -> Result<Self, StoreError> {
        let server = Server::connect(url).await?;
        // A visitor keeps nothing of its own, and should not be told with every question.
        if membership.node.is_some() {
            durability::warn_of_losses(&server).await?;
        }
        let (mut client, driver, _) = server.connection().await?;
        tokio::spawn(driver);
        let migrating = tokio::time::timeout(MIGRATE, schema::migrate(&mut client, &server.place));
        migrating.await.map_err(unavailable("bring the schema to this version's format"))??;
        drop(client);
        let session = Session::open(&server, membership).await?;
        let opened = nodes::read_clock(&server).await?;
        let inner = Inner {
            server,
            session,
            plans: SharedPlans::default(),
            rules: Rules::new(),
            stats: Stats::default(),
            doubtful: Doubtful::default(),
            contended: Contended::default(),
        };
        let inner = Arc::new(inner);
        let (committing, submitting, noting) = (inner.clone(), inner.clone(), inner.clone());
        Ok(Self {
            commits: Group::start(commit::LANES, commit::MOST, move |group| commit::write(committing.clone(), group)),
            submits: Group::start(1, submit::MOST, move |group| submit::write(submitting.clone(), group)),
            notes: Group::start(1, notes::MOST, move |group| notes::write(noting.clone(), group)),
            ear: Ear::new(inner.clone()),
            opened,
            inner,
        })
    }

    /// Runs to its end even if the caller gives up: a statement that was begun is always answered to somebody.
    async fn run<T, F>(&self, work: impl FnOnce(Arc<Inner>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let running = tokio::spawn(work(self.inner.clone()));
        running.await.unwrap_or_else(|error| Err(unavailable("finish")(error)))
    }
}

/// What is said when the writers of a handle are gone.
fn gone<T>(_: oneshot::error::RecvError) -> Result<T, StoreError> {
    Err(unavailable("write")("its writer has ended; the log says why"))
}

#[async_trait]
impl Store for PostgresStore {
    async fn submit(&self, submission: Submission) -> Result<Submitted, StoreError> {
        books::check(&submission.entries)?;
        let (reply, answer) = oneshot::channel();
        self.submits.send(submit::Waiting::new(submission, reply));
        answer.await.unwrap_or_else(gone)
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError> {
        let inner = self.inner.clone();
        self.inner.doubtful.claim(BACKEND, async move { claim::claim(&inner, &request).await }).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.commits.send(commit::Waiting::new(commit, reply));
        answer.await.unwrap_or_else(gone)
    }

    async fn change_plan(&self, change: PlanChange) -> Result<PlanRow, StoreError> {
        self.run(|inner| async move { plans::change(&inner, change).await }).await
    }

    async fn note(&self, notes: Vec<Note>) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.notes.send(notes::Waiting { notes, reply });
        answer.await.unwrap_or_else(gone)
    }

    async fn plan(&self, id: &PlanId) -> Result<Option<PlanRow>, StoreError> {
        let id = id.clone();
        self.run(|inner| async move { inner.plan(&id).await }).await
    }

    async fn definition(&self, id: &PlanId) -> Result<Option<Plan>, StoreError> {
        let id = id.clone();
        self.run(|inner| async move { inner.definition(&id).await }).await
    }

    async fn plans(&self, query: PlanQuery) -> Result<Page<PlanRow>, StoreError> {
        self.run(|inner| async move { inner.plans_page(&query).await }).await
    }

    async fn task(&self, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
        let id = id.clone();
        self.run(|inner| async move { tasks::task(&inner, &id).await }).await
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<TaskRow>, StoreError> {
        self.run(|inner| async move { tasks::tasks(&inner, &query).await }).await
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<StoredEvent>, StoreError> {
        self.run(|inner| async move { inner.events(&query).await }).await
    }

    async fn logs(&self, query: LogQuery) -> Result<Vec<LogChunk>, StoreError> {
        self.run(|inner| async move { inner.logs(&query).await }).await
    }

    async fn changes(&self, query: ChangeQuery) -> Result<Changes, StoreError> {
        self.run(|inner| async move { inner.changes(&query).await }).await
    }

    async fn newest(&self) -> Result<Position, StoreError> {
        self.run(|inner| async move { inner.newest().await }).await
    }

    async fn locks(&self) -> Result<Vec<LockRow>, StoreError> {
        self.run(|inner| async move { inner.locks().await }).await
    }

    async fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        self.run(|inner| async move { inner.tokens().await }).await
    }

    async fn put_token(&self, token: TokenRow) -> Result<(), StoreError> {
        self.run(|inner| async move { inner.put_token(&token).await }).await
    }

    async fn import(&self, plan: MovedPlan) -> Result<(), StoreError> {
        self.run(|inner| async move { import::import(&inner, plan).await }).await
    }

    async fn change_books(&self, change: BookChange) -> Result<(), StoreError> {
        self.run(|inner| async move { inner.change_books(change).await }).await
    }

    async fn entries(&self, query: EntryQuery) -> Result<Page<Entry>, StoreError> {
        self.run(|inner| async move { inner.entries(&query).await }).await
    }

    async fn entry(&self, book: Book, key: &str, now: Timestamp) -> Result<Option<Entry>, StoreError> {
        let key = key.to_owned();
        self.run(move |inner| async move { inner.entry(book, key, now).await }).await
    }

    fn stats(&self) -> StoreStats {
        let stats = &self.inner.stats;
        let batches = stats.batches.load(Ordering::Relaxed);
        StoreStats {
            syncs: batches,
            batches,
            operations: stats.operations.load(Ordering::Relaxed),
            commits: stats.commits.load(Ordering::Relaxed),
            round_trips: self.inner.server.asked.load(Ordering::Relaxed),
        }
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn clock(&self) -> Option<ClockReading> {
        Some(self.opened)
    }

    async fn beat(&self, beat: Beat) -> Result<Beaten, StoreError> {
        self.run(|inner| async move { nodes::beat(&inner, beat).await }).await
    }

    async fn leave(&self) -> Result<(), StoreError> {
        self.run(|inner| async move { nodes::leave(&inner).await }).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        self.run(|inner| async move { nodes::list(&inner).await }).await
    }

    async fn post(&self, letter: Letter) -> Result<Option<i64>, StoreError> {
        self.run(|inner| async move { nodes::post(&inner, letter).await }).await
    }

    async fn letters(&self) -> Result<Vec<Posted>, StoreError> {
        self.run(|inner| async move { nodes::letters(&inner).await }).await
    }

    async fn answer(&self, letter: i64, answer: String) -> Result<(), StoreError> {
        self.run(move |inner| async move { nodes::answer(&inner, letter, answer).await }).await
    }

    async fn answer_to(&self, letter: i64) -> Result<Answered, StoreError> {
        self.run(move |inner| async move { nodes::answer_to(&inner, letter).await }).await
    }

    async fn call(&self) -> Result<(), StoreError> {
        self.run(|inner| async move { nodes::call_others(&inner).await }).await
    }

    async fn called(&self) {
        self.ear.called().await;
    }
}
