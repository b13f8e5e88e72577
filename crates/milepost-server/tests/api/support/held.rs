//! A store whose submissions wait until they are let go.

use std::sync::Arc;

use async_trait::async_trait;
use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::Plan;
use milepost_core::time::Timestamp;
use milepost_store::{
    Book, BookChange, ChangeQuery, Changes, ClaimRequest, Claimed, Commit, Committed, Entry, EntryQuery, EventQuery,
    LockRow, LogChunk, LogQuery, MovedPlan, Note, Page, PlanChange, PlanQuery, PlanRow, Position, Store, StoreError,
    StoreStats, StoredEvent, StoredTask, Submission, Submitted, TaskQuery, TaskRow, TokenRow,
};
use tokio::sync::Semaphore;

#[derive(Debug)]
pub(crate) struct Held {
    store: Arc<dyn Store>,
    /// A permit for each submission that has come.
    came: Semaphore,
    /// One for each that may go on.
    free: Semaphore,
}

impl Held {
    pub(crate) fn over(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { store, came: Semaphore::new(0), free: Semaphore::new(0) })
    }

    /// Waits until a submission has come.
    pub(crate) async fn came(&self) {
        super::bounded("a submission", self.came.acquire()).await.expect("an open store").forget();
    }

    pub(crate) fn let_go(&self) {
        self.free.add_permits(1);
    }
}

#[async_trait]
impl Store for Held {
    async fn submit(&self, submission: Submission) -> Result<Submitted, StoreError> {
        self.came.add_permits(1);
        self.free.acquire().await.expect("an open store").forget();
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
        self.store.put_token(token).await
    }

    async fn import(&self, plan: MovedPlan) -> Result<(), StoreError> {
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
