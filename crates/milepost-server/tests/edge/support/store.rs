//! A store whose tokens can be out of reach.

use std::sync::atomic::{AtomicBool, Ordering};

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

#[derive(Debug, Default)]
pub(crate) struct Faulty {
    store: MemoryStore,
    away: AtomicBool,
}

impl Faulty {
    pub(crate) fn go_away(&self) {
        self.away.store(true, Ordering::Release);
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.away.load(Ordering::Acquire) {
            return Err(StoreError::Unavailable { backend: "test", operation: "answer", source: "it is away".into() });
        }
        Ok(())
    }
}

#[async_trait]
impl Store for Faulty {
    async fn submit(&self, submission: Submission) -> Result<Submitted, StoreError> {
        self.store.submit(submission).await
    }
    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError> {
        self.store.claim(request).await
    }
    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        self.store.commit(commit).await
    }
    async fn change_plan(&self, change: PlanChange) -> Result<PlanRow, StoreError> {
        self.store.change_plan(change).await
    }
    async fn note(&self, notes: Vec<Note>) -> Result<(), StoreError> {
        self.store.note(notes).await
    }
    async fn plan(&self, id: &PlanId) -> Result<Option<PlanRow>, StoreError> {
        self.store.plan(id).await
    }
    async fn definition(&self, id: &PlanId) -> Result<Option<Plan>, StoreError> {
        self.store.definition(id).await
    }
    async fn plans(&self, query: PlanQuery) -> Result<Page<PlanRow>, StoreError> {
        self.check()?;
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
        self.check()?;
        self.store.tokens().await
    }
    async fn put_token(&self, token: TokenRow) -> Result<(), StoreError> {
        self.check()?;
        self.store.put_token(token).await
    }
    async fn import(&self, plan: MovedPlan) -> Result<(), StoreError> {
        self.check()?;
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
