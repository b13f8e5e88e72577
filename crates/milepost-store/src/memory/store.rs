//! The handle: one owner of the data, which a later owner locks out, or one of several nodes that share it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::Plan;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::books::{Book, BookChange, Entry, EntryQuery};
use crate::clock::ClockReading;
use crate::error::StoreError;
use crate::model::{
    ChangeQuery, Changes, ClaimRequest, Claimed, Commit, Committed, EventQuery, Holder, LeaseChange, LockRow, LogChunk,
    LogQuery, Note, Page, PlanChange, PlanQuery, PlanRow, Position, StoreStats, StoredEvent, StoredTask, Submission,
    Submitted, TaskQuery, TaskRow, TokenRow,
};
use crate::moved::MovedPlan;
use crate::nodes::{Answered, Beat, Beaten, Letter, Membership, NodeRow, Posted};
use crate::store::Store;
use milepost_core::time::Timestamp;

use super::claim::Claimant;
use super::data::Data;

/// Forgets everything when the last handle is dropped.
#[derive(Debug)]
pub struct MemoryStore {
    data: Arc<Mutex<Data>>,
    as_whom: As,
    /// Its number among all handles, and what it is called by.
    handle: u64,
    called: Arc<Notify>,
}

/// On whose behalf a handle speaks.
#[derive(Debug)]
enum As {
    /// The store is its own.
    Owner { session: u64 },
    /// One node of several; a beat may give it another session.
    Node { session: AtomicU64, losses: AtomicU64, membership: Membership },
    /// Looks, submits and asks, and runs nothing.
    Visitor,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    pub fn new() -> Self {
        Self::of(Data::default())
    }

    /// One whose own clock, which those who share it go by, says `at` now and follows tokio's.
    pub fn beginning_at(at: Timestamp) -> Self {
        Self::of(Data::beginning_at(at))
    }

    fn of(data: Data) -> Self {
        let session = data.sessions.sole();
        Self::over(Arc::new(Mutex::new(data)), As::Owner { session })
    }

    /// The same data under a new owner, as after a crash of this one: its tasks are orphans, and it can write no more.
    pub fn reopen(&self) -> Self {
        let session = self.read().change_owner();
        Self::over(self.data.clone(), As::Owner { session })
    }

    /// The same data for another process, which shares it with those that are there: the model of a store with several
    /// nodes. Leases are judged by tokio's clock.
    pub fn join(&self, membership: Membership) -> Self {
        let Some(identity) = membership.node.clone() else { return Self::over(self.data.clone(), As::Visitor) };
        let session = AtomicU64::new(self.read().join(&identity, &membership));
        let joined = Self::over(self.data.clone(), As::Node { session, losses: AtomicU64::new(0), membership });
        // It may have taken the place of a session whose tasks are free now.
        joined.call_others();
        joined
    }

    fn over(data: Arc<Mutex<Data>>, as_whom: As) -> Self {
        let called = Arc::new(Notify::new());
        let handle = data.lock().expect("nothing panics while it holds the store").sessions.add_handle(&called);
        Self { data, as_whom, handle, called }
    }

    fn read(&self) -> MutexGuard<'_, Data> {
        self.data.lock().expect("nothing panics while it holds the store")
    }

    /// None for a visitor.
    fn session(&self) -> Option<u64> {
        match &self.as_whom {
            As::Owner { session } => Some(*session),
            As::Node { session, .. } => Some(session.load(Ordering::Acquire)),
            As::Visitor => None,
        }
    }

    /// For everything but commits, which have an error of their own for a lost session.
    fn write(&self, operation: &'static str) -> Result<MutexGuard<'_, Data>, StoreError> {
        let data = self.read();
        if self.session().is_some_and(|session| !data.sessions.is_live(session)) {
            let source = "the store has been opened again since, or the lease has run out".into();
            return Err(StoreError::Unavailable { backend: "memory", operation, source });
        }
        Ok(data)
    }

    fn call_others(&self) {
        self.read().sessions.call_others(self.handle);
    }

    /// The answer to a write, after which there may be something to do for others.
    fn told<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        if answer.is_ok() {
            self.call_others();
        }
        answer
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn submit(&self, submission: Submission) -> Result<Submitted, StoreError> {
        let submitted = self.write("submit")?.counted(|data| data.submit(self.session(), submission));
        self.told(submitted)
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError> {
        let claimant = match &self.as_whom {
            As::Owner { session } => Claimant { session: *session, lock_ttl: None },
            As::Node { session, membership, .. } => {
                Claimant { session: session.load(Ordering::Acquire), lock_ttl: Some(membership.lock_ttl) }
            }
            As::Visitor => return Ok(Claimed::default()),
        };
        let mut data = self.write("claim")?;
        if data.reap(Some(claimant.session)) {
            data.sessions.call_others(self.handle);
        }
        data.counted(|data| data.claim(claimant, &request))
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        // What stays in its node's hands is nobody else's business.
        let stays = matches!(commit.holder, Holder::Lease(_))
            && commit.lease == LeaseChange::Keep
            && commit.task.status().is_active();
        let from = self.session();
        let committed = self.read().counted(|data| data.commit(from, commit));
        if stays { committed } else { self.told(committed) }
    }

    async fn change_plan(&self, change: PlanChange) -> Result<PlanRow, StoreError> {
        let changed = self.write("change a plan")?.counted(|data| data.change_plan(self.session(), change));
        self.told(changed)
    }

    async fn note(&self, notes: Vec<Note>) -> Result<(), StoreError> {
        self.write("note")?.note(notes);
        Ok(())
    }

    async fn plan(&self, id: &PlanId) -> Result<Option<PlanRow>, StoreError> {
        Ok(self.read().plan(id))
    }

    async fn definition(&self, id: &PlanId) -> Result<Option<Plan>, StoreError> {
        Ok(self.read().definition(id))
    }

    async fn plans(&self, query: PlanQuery) -> Result<Page<PlanRow>, StoreError> {
        Ok(self.read().plans(&query))
    }

    async fn task(&self, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
        Ok(self.read().task(id))
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<TaskRow>, StoreError> {
        self.read().tasks(&query)
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<StoredEvent>, StoreError> {
        self.read().events(&query)
    }

    async fn logs(&self, query: LogQuery) -> Result<Vec<LogChunk>, StoreError> {
        self.read().logs(&query)
    }

    async fn changes(&self, query: ChangeQuery) -> Result<Changes, StoreError> {
        self.read().changes(&query)
    }

    async fn newest(&self) -> Result<Position, StoreError> {
        Ok(self.read().newest())
    }

    async fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        Ok(self.read().tokens())
    }

    async fn put_token(&self, token: TokenRow) -> Result<(), StoreError> {
        self.write("keep a token")?.counted(|data| {
            data.tokens.insert(token.id.clone(), token);
            Ok(())
        })
    }

    async fn import(&self, plan: MovedPlan) -> Result<(), StoreError> {
        self.write("import a plan")?.counted(|data| data.import(plan))
    }

    async fn locks(&self) -> Result<Vec<LockRow>, StoreError> {
        Ok(self.read().locks())
    }

    async fn change_books(&self, change: BookChange) -> Result<(), StoreError> {
        self.write("write to the books")?.counted(|data| {
            data.books.check(&change)?;
            data.books.write(change);
            Ok(())
        })
    }

    async fn entries(&self, query: EntryQuery) -> Result<Page<Entry>, StoreError> {
        Ok(self.read().books.entries(&query))
    }

    async fn entry(&self, book: Book, key: &str, now: Timestamp) -> Result<Option<Entry>, StoreError> {
        Ok(self.read().books.entry(book, key, now))
    }

    fn stats(&self) -> StoreStats {
        self.read().stats()
    }

    fn is_shared(&self) -> bool {
        !matches!(self.as_whom, As::Owner { .. })
    }

    fn clock(&self) -> Option<ClockReading> {
        let now = Instant::now();
        self.is_shared().then(|| ClockReading { at: self.read().sessions.timestamp(now), asked: now, answered: now })
    }

    async fn beat(&self, beat: Beat) -> Result<Beaten, StoreError> {
        let mut data = self.read();
        let (session, losses, membership) = match &self.as_whom {
            As::Owner { .. } => return Ok(Beaten::default()),
            As::Node { session, losses, membership } => (session, losses, membership),
            As::Visitor => {
                if data.reap(None) {
                    data.sessions.call_others(self.handle);
                }
                return Ok(Beaten { now: Some(data.sessions.timestamp(Instant::now())), ..Beaten::default() });
            }
        };
        let renewed = data.beat(session.load(Ordering::Acquire), membership, beat)?;
        if session.swap(renewed.session, Ordering::AcqRel) != renewed.session {
            losses.fetch_add(1, Ordering::AcqRel);
        }
        if renewed.freed {
            data.sessions.call_others(self.handle);
        }
        Ok(Beaten { losses: losses.load(Ordering::Acquire), ..renewed.beaten })
    }

    async fn leave(&self) -> Result<(), StoreError> {
        if let As::Node { session, .. } = &self.as_whom {
            self.read().leave(session.load(Ordering::Acquire));
            self.call_others();
        }
        Ok(())
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        Ok(self.read().sessions.rows())
    }

    async fn post(&self, letter: Letter) -> Result<Option<i64>, StoreError> {
        let posted = self.write("post a letter")?.post(letter);
        // Also to itself: whoever asks and whoever holds may be one node by now.
        self.called.notify_one();
        self.told(posted)
    }

    async fn letters(&self) -> Result<Vec<Posted>, StoreError> {
        Ok(self.session().map(|session| self.read().letters_for(session)).unwrap_or_default())
    }

    async fn answer(&self, letter: i64, answer: String) -> Result<(), StoreError> {
        self.write("answer a letter")?.answer(letter, answer);
        self.called.notify_one();
        self.call_others();
        Ok(())
    }

    async fn answer_to(&self, letter: i64) -> Result<Answered, StoreError> {
        Ok(self.read().answer_to(letter))
    }

    async fn call(&self) -> Result<(), StoreError> {
        self.call_others();
        Ok(())
    }

    async fn called(&self) {
        self.called.notified().await;
    }
}
