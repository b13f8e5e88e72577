//! The handle: one owner of the data, which a later owner locks out.

use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::Plan;

use crate::error::StoreError;
use crate::model::{
    ChangeQuery, Changes, ClaimRequest, Claimed, Commit, Committed, EventQuery, LockRow, LogChunk, LogQuery, Note,
    Page, PlanChange, PlanQuery, PlanRow, Position, StoreStats, StoredEvent, StoredTask, Submission, Submitted,
    TaskQuery, TaskRow, TokenRow,
};
use crate::store::Store;

use super::data::Data;

/// Forgets everything when the last handle is dropped.
#[derive(Debug)]
pub struct MemoryStore {
    data: Arc<Mutex<Data>>,
    owner: u64,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    pub fn new() -> Self {
        let data = Data::default();
        Self { owner: data.owner(), data: Arc::new(Mutex::new(data)) }
    }

    /// The same data under a new owner, as after a crash of this one: its tasks are orphans, and it can write no more.
    pub fn reopen(&self) -> Self {
        let owner = self.read().change_owner();
        Self { data: self.data.clone(), owner }
    }

    fn read(&self) -> MutexGuard<'_, Data> {
        self.data.lock().expect("nothing panics while it holds the store")
    }

    /// For everything but commits, which have an error of their own for a lost owner.
    fn write(&self, operation: &'static str) -> Result<MutexGuard<'_, Data>, StoreError> {
        let data = self.read();
        if data.owner() != self.owner {
            let source = "the store has been opened again since".into();
            return Err(StoreError::Unavailable { backend: "memory", operation, source });
        }
        Ok(data)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn submit(&self, submission: Submission) -> Result<Submitted, StoreError> {
        self.write("submit")?.counted(|data| data.submit(submission))
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError> {
        self.write("claim")?.counted(|data| data.claim(&request))
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        self.read().counted(|data| data.commit(self.owner, commit))
    }

    async fn change_plan(&self, change: PlanChange) -> Result<PlanRow, StoreError> {
        self.write("change a plan")?.counted(|data| data.change_plan(change))
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

    async fn locks(&self) -> Result<Vec<LockRow>, StoreError> {
        Ok(self.read().locks())
    }

    fn stats(&self) -> StoreStats {
        self.read().stats()
    }
}
