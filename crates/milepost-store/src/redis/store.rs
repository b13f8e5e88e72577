//! Opening a store, and the trait on top of the parts beside this one.

use std::sync::Arc;

use async_trait::async_trait;
use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::Plan;

use crate::books::{Book, BookChange, Entry, EntryQuery};
use crate::clock::ClockReading;
use crate::error::StoreError;
use crate::model::{
    ChangeQuery, Changes, ClaimRequest, Claimed, Commit, Committed, EventQuery, LockRow, LogChunk, LogQuery, Note,
    Page, PlanChange, PlanQuery, PlanRow, Position, StoreStats, StoredEvent, StoredTask, Submission, Submitted,
    TaskQuery, TaskRow, TokenRow,
};
use crate::moved::MovedPlan;
use crate::nodes::{Answered, Beat, Beaten, Letter, Membership, NodeRow, Posted};
use crate::store::Store;
use milepost_core::time::Timestamp;

use super::address::Address;
use super::called::Ear;
use super::commit::Commits;
use super::link::{Link, unavailable};
use super::script::Prelude;
use super::shared::{Shared, to_the_end};
use super::{books, changes, claim, commit, durability, import, letters, nodes, plans, read, submit, tokens};

/// A store in a Redis that other nodes may be on as well.
#[derive(Debug)]
pub struct RedisStore {
    shared: Arc<Shared>,
    commits: Commits,
    ear: Ear,
    opened: ClockReading,
}

impl RedisStore {
    /// Opens the store under `redis://host:port/db?prefix=executor`, as a node or as a visitor.
    ///
    /// On a cluster, or with `cluster=true`, the prefix is one hash tag. What the server's settings can lose is logged, and one that
    /// evicts keys is refused.
    pub async fn open(url: &str, membership: Membership) -> Result<Self, StoreError> {
        let address = Address::parse(url)?;
        let link = Link::new(&address.url)?;
        durability::check_version(&link).await?;
        let info = link.ask(redis::cmd("INFO").arg("cluster")).await.map_err(unavailable("connect"))?;
        let info: String = redis::from_redis_value(info).unwrap_or_default();
        let prefix = address.key_prefix(info.contains("cluster_enabled:1"));
        let name = format!("{} under {prefix}", shown(&address.url));
        let prelude = Prelude { prefix, lock_ttl: membership.lock_ttl.get() };
        // A visitor keeps nothing of its own, and should not be told with every question.
        if membership.node.is_some() {
            durability::check_losses(&link).await?;
        }
        let opened = nodes::read_clock(&link).await?;
        let shared = Arc::new(Shared::new(link, prelude, membership, name));
        nodes::join(&shared).await?;
        Ok(Self { commits: commit::start(&shared), ear: Ear::open(&shared), opened, shared })
    }
}

/// Without a password.
fn shown(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, server))) => format!("{scheme}://{server}"),
        (_, _) => url.to_owned(),
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn submit(&self, submission: Submission) -> Result<Submitted, StoreError> {
        to_the_end("submit", submit::submit(self.shared.clone(), submission)).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError> {
        claim::claim(self.shared.clone(), request).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        commit::commit(&self.commits, commit).await
    }

    async fn change_plan(&self, change: PlanChange) -> Result<PlanRow, StoreError> {
        plans::change_plan(&self.shared, change).await
    }

    async fn note(&self, notes: Vec<Note>) -> Result<(), StoreError> {
        commit::note(&self.shared, notes).await
    }

    async fn plan(&self, id: &PlanId) -> Result<Option<PlanRow>, StoreError> {
        plans::plan(&self.shared, id).await
    }

    async fn definition(&self, id: &PlanId) -> Result<Option<Plan>, StoreError> {
        Ok(plans::stored(&self.shared, id).await?.map(|stored| stored.plan))
    }

    async fn plans(&self, query: PlanQuery) -> Result<Page<PlanRow>, StoreError> {
        plans::plans(&self.shared, &query).await
    }

    async fn task(&self, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
        read::task(&self.shared, id).await
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<TaskRow>, StoreError> {
        read::tasks(&self.shared, &query).await
    }

    async fn events(&self, query: EventQuery) -> Result<Vec<StoredEvent>, StoreError> {
        read::events(&self.shared, &query).await
    }

    async fn logs(&self, query: LogQuery) -> Result<Vec<LogChunk>, StoreError> {
        read::logs(&self.shared, &query).await
    }

    async fn changes(&self, query: ChangeQuery) -> Result<Changes, StoreError> {
        changes::changes(&self.shared, &query).await
    }

    async fn newest(&self) -> Result<Position, StoreError> {
        changes::newest(&self.shared).await
    }

    async fn locks(&self) -> Result<Vec<LockRow>, StoreError> {
        read::locks(&self.shared).await
    }

    async fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        tokens::tokens(&self.shared).await
    }

    async fn put_token(&self, token: TokenRow) -> Result<(), StoreError> {
        tokens::put_token(&self.shared, token).await
    }

    async fn import(&self, plan: MovedPlan) -> Result<(), StoreError> {
        let shared = self.shared.clone();
        to_the_end("import a plan", async move { import::import(&shared, &plan).await }).await
    }

    async fn change_books(&self, change: BookChange) -> Result<(), StoreError> {
        books::change_books(&self.shared, &change).await
    }

    async fn entries(&self, query: EntryQuery) -> Result<Page<Entry>, StoreError> {
        books::entries(&self.shared, &query).await
    }

    async fn entry(&self, book: Book, key: &str, now: Timestamp) -> Result<Option<Entry>, StoreError> {
        books::entry(&self.shared, book, key, now).await
    }

    fn stats(&self) -> StoreStats {
        self.shared.stats.read(self.shared.link.asked())
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn clock(&self) -> Option<ClockReading> {
        Some(self.opened)
    }

    async fn beat(&self, beat: Beat) -> Result<Beaten, StoreError> {
        let shared = self.shared.clone();
        to_the_end("renew its lease", async move { nodes::beat(&shared, beat).await }).await
    }

    async fn leave(&self) -> Result<(), StoreError> {
        nodes::leave(&self.shared).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        nodes::nodes(&self.shared).await
    }

    async fn post(&self, letter: Letter) -> Result<Option<i64>, StoreError> {
        letters::post(&self.shared, letter).await
    }

    async fn letters(&self) -> Result<Vec<Posted>, StoreError> {
        letters::letters(&self.shared).await
    }

    async fn answer(&self, letter: i64, answer: String) -> Result<(), StoreError> {
        letters::answer(&self.shared, letter, answer).await
    }

    async fn answer_to(&self, letter: i64) -> Result<Answered, StoreError> {
        letters::answer_to(&self.shared, letter).await
    }

    async fn call(&self) -> Result<(), StoreError> {
        letters::call_others(&self.shared).await
    }

    async fn called(&self) {
        self.ear.called().await;
    }
}
