//! A store whose process is killed after so many writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::Plan;
use milepost_core::time::Timestamp;
use milepost_store::{
    Book, BookChange, ChangeQuery, Changes, ClaimRequest, Claimed, Commit, Committed, Entry, EntryQuery, EventQuery,
    LockRow, LogChunk, LogQuery, MovedPlan, Note, Page, PlanChange, PlanQuery, PlanRow, Position, Store, StoreError,
    StoreStats, StoredEvent, StoredTask, Submission, Submitted, TaskQuery, TaskRow, TokenRow,
};
use rustix::process::{Signal, getpid, kill_process};

#[derive(Debug)]
pub(crate) struct Deadly {
    store: Arc<dyn Store>,
    left: AtomicI64,
}

impl Deadly {
    pub(crate) fn over(store: Arc<dyn Store>, writes: i64) -> Arc<Self> {
        Arc::new(Self { store, left: AtomicI64::new(writes) })
    }

    /// Something is on the disk now. Nobody has heard of it yet.
    fn written(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
        }
    }
}

#[async_trait]
impl Store for Deadly {
    async fn submit(&self, submission: Submission) -> Result<Submitted, StoreError> {
        let submitted = self.store.submit(submission).await?;
        self.written();
        Ok(submitted)
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError> {
        let claimed = self.store.claim(request).await?;
        if !claimed.tasks.is_empty() {
            self.written();
        }
        Ok(claimed)
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let committed = self.store.commit(commit).await?;
        self.written();
        Ok(committed)
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
