//! A store in memory whose node dies at the writes that a test has chosen.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::Plan;
use milepost_core::time::Timestamp;
use milepost_store::memory::MemoryStore;
use milepost_store::{
    Book, BookChange, ChangeQuery, Changes, ClaimRequest, Claimed, Commit, Committed, Entry, EntryQuery, EventQuery,
    LockRow, LogChunk, LogQuery, MovedPlan, Note, Page, PlanChange, PlanQuery, PlanRow, Position, Store, StoreError,
    StoreStats, StoredEvent, StoredTask, Submission, Submitted, TaskQuery, TaskRow, TokenRow,
};
use tokio::sync::Notify;

/// Where in a commit a node dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// What was to be written is lost.
    Before,
    /// It is written, and the node never hears of it.
    After,
    /// It is written, the node is told that nobody knows, and dies when it asks again.
    Amid,
}

/// Which writes are deadly. Writes are counted from 1, over all nodes of a test.
#[derive(Debug, Default)]
pub(super) struct Fate {
    written: AtomicU64,
    crashes: Mutex<BTreeMap<u64, Crash>>,
}

impl Fate {
    pub(super) fn add(&self, write: u64, crash: Crash) {
        self.crashes.lock().unwrap_or_else(PoisonError::into_inner).insert(write, crash);
    }

    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }

    /// What is to happen at the next write. It happens once.
    fn at_next(&self, wanted: impl Fn(Crash) -> bool) -> Option<Crash> {
        let mut crashes = self.crashes.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, crash) = crashes.first_key_value().map(|(at, crash)| (*at, *crash))?;
        // A claim cannot be lost before it is known to be one: that crash is for the commit that follows.
        if at > self.written() + 1 || !wanted(crash) {
            return None;
        }
        crashes.remove(&at)
    }
}

/// One node's way to the store.
#[derive(Debug)]
pub(super) struct Mortal {
    store: MemoryStore,
    fate: Arc<Fate>,
    dying: AtomicBool,
    dead: AtomicBool,
    died: Notify,
}

impl Mortal {
    pub(super) fn new(store: MemoryStore, fate: Arc<Fate>) -> Self {
        Self { store, fate, dying: AtomicBool::new(false), dead: AtomicBool::new(false), died: Notify::new() }
    }

    /// The way to the same store for the node that takes over.
    pub(super) fn next(&self) -> Self {
        Self::new(self.store.reopen(), self.fate.clone())
    }

    /// Resolves when the node has died.
    pub(super) async fn died(&self) {
        self.died.notified().await;
    }

    /// From here on the node writes nothing, and gets no answer.
    async fn die<T>(&self) -> T {
        self.dead.store(true, Ordering::SeqCst);
        self.died.notify_one();
        std::future::pending().await
    }

    async fn alive(&self) {
        if self.dead.load(Ordering::SeqCst) || self.dying.load(Ordering::SeqCst) {
            self.die::<()>().await;
        }
    }

    fn count(&self) {
        self.fate.written.fetch_add(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Store for Mortal {
    async fn submit(&self, submission: Submission) -> Result<Submitted, StoreError> {
        self.alive().await;
        self.store.submit(submission).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError> {
        self.alive().await;
        let claimed = self.store.claim(request).await?;
        if !claimed.tasks.is_empty() || !claimed.ended.is_empty() {
            let crash = self.fate.at_next(|crash| crash != Crash::Before);
            self.count();
            if crash.is_some() {
                return self.die().await;
            }
        }
        Ok(claimed)
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        self.alive().await;
        let crash = self.fate.at_next(|_| true);
        if crash == Some(Crash::Before) {
            return self.die().await;
        }
        let committed = self.store.commit(commit).await;
        if committed.is_ok() {
            self.count();
        }
        match crash {
            Some(Crash::After) => self.die().await,
            Some(Crash::Amid) => {
                self.dying.store(true, Ordering::SeqCst);
                let source = "the answer was lost".into();
                Err(StoreError::Unavailable { backend: "memory", operation: "commit", source })
            }
            Some(Crash::Before) | None => committed,
        }
    }

    async fn change_plan(&self, change: PlanChange) -> Result<PlanRow, StoreError> {
        self.alive().await;
        self.store.change_plan(change).await
    }

    async fn note(&self, notes: Vec<Note>) -> Result<(), StoreError> {
        self.alive().await;
        self.store.note(notes).await
    }

    async fn plan(&self, id: &PlanId) -> Result<Option<PlanRow>, StoreError> {
        self.store.plan(id).await
    }

    async fn definition(&self, id: &PlanId) -> Result<Option<Plan>, StoreError> {
        self.store.definition(id).await
    }

    async fn plans(&self, query: PlanQuery) -> Result<Page<PlanRow>, StoreError> {
        self.store.plans(query).await
    }

    async fn task(&self, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
        self.store.task(id).await
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<TaskRow>, StoreError> {
        self.store.tasks(query).await
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<StoredEvent>, StoreError> {
        self.store.events(query).await
    }

    async fn logs(&self, query: LogQuery) -> Result<Vec<LogChunk>, StoreError> {
        self.store.logs(query).await
    }

    async fn changes(&self, query: ChangeQuery) -> Result<Changes, StoreError> {
        self.store.changes(query).await
    }

    async fn newest(&self) -> Result<Position, StoreError> {
        self.store.newest().await
    }

    async fn locks(&self) -> Result<Vec<LockRow>, StoreError> {
        self.store.locks().await
    }

    async fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        self.store.tokens().await
    }

    async fn put_token(&self, token: TokenRow) -> Result<(), StoreError> {
        self.alive().await;
        self.store.put_token(token).await
    }

    async fn import(&self, plan: MovedPlan) -> Result<(), StoreError> {
        self.alive().await;
        self.store.import(plan).await
    }

    async fn change_books(&self, change: BookChange) -> Result<(), StoreError> {
        self.store.change_books(change).await
    }

    async fn entries(&self, query: EntryQuery) -> Result<Page<Entry>, StoreError> {
        self.store.entries(query).await
    }

    async fn entry(&self, book: Book, key: &str, now: Timestamp) -> Result<Option<Entry>, StoreError> {
        self.store.entry(book, key, now).await
    }

    fn stats(&self) -> StoreStats {
        self.store.stats()
    }
}
