//! The move itself: plan by plan, the oldest first, each whole or not at all; then everything is read back and compared.
//!
//! There is no mark for a move that was cut off, and none is needed: a target in which every plan, token and entry of a book is
//! exactly the source's is gone on with, and any other that is not empty is refused.

use std::collections::HashSet;

use indicatif::ProgressBar;
use milepost_core::id::PlanId;
use milepost_core::time::Timestamp;
use milepost_engine::Clock;
use milepost_store::{
    LockRow, MovedPlan, Store, StoreError, TokenRow, all_plans, read_moved, store_id_to_move, total_digest,
};

use super::books::MovingBooks;

pub(super) struct Moving<'a> {
    pub(super) from: &'a dyn Store,
    pub(super) to: &'a dyn Store,
    pub(super) bar: ProgressBar,
}

/// What there is now in both.
#[derive(Debug, Default)]
pub(super) struct Moved {
    pub(super) plans: u64,
    pub(super) tasks: u64,
    pub(super) events: u64,
    pub(super) output_bytes: u64,
    pub(super) tokens: u64,
    /// Of all books.
    pub(super) entries: u64,
    /// Plans that an earlier move had brought.
    pub(super) already_there: u64,
    /// Of all plans, in order.
    pub(super) digest: [u8; 32],
}

#[derive(Debug)]
pub(super) enum Trouble {
    From(StoreError),
    To(StoreError),
    /// The target has something that the source does not have.
    NotEmpty(String),
    Differs(String),
}

impl Moving<'_> {
    pub(super) async fn run(&self) -> Result<Moved, Trouble> {
        let rows = all_plans(self.from).await.map_err(Trouble::From)?;
        self.bar.set_length(rows.iter().map(|row| row.counts.total).sum());
        let plans: Vec<PlanId> = rows.into_iter().map(|row| row.id).collect();
        let there = self.what_is_there(&plans).await?;
        let books = MovingBooks { from: self.from, to: self.to, now: Clock::of(self.from).now() };
        books.check().await?;
        // First, so that no moved task is ever there under another store's id.
        self.move_id(books.now).await?;
        let locks = self.from.locks().await.map_err(Trouble::From)?;
        let mut moved = Moved::default();
        let mut digests = Vec::with_capacity(plans.len());
        self.bar.set_message("copying");
        for id in &plans {
            let plan = whole(self.from, id, &locks).await.map_err(Trouble::From)?;
            moved.count(&plan);
            digests.push(plan.digest());
            self.bar.inc(plan.tasks.len() as u64);
            if there.contains(id) {
                moved.already_there += 1;
                continue;
            }
            self.to.import(plan).await.map_err(Trouble::To)?;
        }
        moved.tokens = self.move_tokens().await?;
        moved.entries = books.run().await?;
        self.compare(&plans, &digests).await?;
        moved.digest = total_digest(&digests);
        Ok(moved)
    }

    /// Plans that arrived before, each of them exactly the source's.
    async fn what_is_there(&self, plans: &[PlanId]) -> Result<HashSet<PlanId>, Trouble> {
        let known: HashSet<&PlanId> = plans.iter().collect();
        let there = self.arrived().await?;
        if let Some(other) = there.iter().find(|id| !known.contains(id)) {
            return Err(Trouble::NotEmpty(format!("it has a plan {other} of its own")));
        }
        let tokens = self.from.tokens().await.map_err(Trouble::From)?;
        let other = |token: &&TokenRow| !tokens.contains(token);
        if let Some(token) = self.to.tokens().await.map_err(Trouble::To)?.iter().find(other) {
            return Err(Trouble::NotEmpty(format!("it has a token {} of its own", token.id)));
        }
        if there.is_empty() {
            return Ok(HashSet::new());
        }
        let locks = (self.from.locks().await.map_err(Trouble::From)?, self.to.locks().await.map_err(Trouble::To)?);
        for id in &there {
            let here = whole(self.from, id, &locks.0).await.map_err(Trouble::From)?;
            let copy = whole(self.to, id, &locks.1).await.map_err(Trouble::To)?;
            if here.digest() != copy.digest() {
                return Err(Trouble::NotEmpty(format!("its plan {id} is another, or has gone on since")));
            }
        }
        Ok(there.into_iter().collect())
    }

    async fn move_id(&self, now: Timestamp) -> Result<(), Trouble> {
        match store_id_to_move(self.from, now).await.map_err(Trouble::From)? {
            Some(change) => self.to.change_books(change).await.map_err(Trouble::To),
            None => Ok(()),
        }
    }

    async fn move_tokens(&self) -> Result<u64, Trouble> {
        let tokens = self.from.tokens().await.map_err(Trouble::From)?;
        for token in &tokens {
            self.to.put_token(token.clone()).await.map_err(Trouble::To)?;
        }
        if self.to.tokens().await.map_err(Trouble::To)? != tokens {
            return Err(Trouble::Differs("its tokens are others".to_owned()));
        }
        Ok(tokens.len() as u64)
    }

    /// Everything that has arrived, read back from where it is now.
    async fn compare(&self, plans: &[PlanId], digests: &[[u8; 32]]) -> Result<(), Trouble> {
        self.bar.set_message("comparing");
        self.bar.set_position(0);
        if self.arrived().await? != plans {
            return Err(Trouble::Differs("it has other plans, or has them in another order".to_owned()));
        }
        let locks = self.to.locks().await.map_err(Trouble::To)?;
        for (id, digest) in plans.iter().zip(digests) {
            let copy = whole(self.to, id, &locks).await.map_err(Trouble::To)?;
            if copy.digest() != *digest {
                return Err(Trouble::Differs(format!("plan {id}")));
            }
            self.bar.inc(copy.tasks.len() as u64);
        }
        Ok(())
    }

    async fn arrived(&self) -> Result<Vec<PlanId>, Trouble> {
        let rows = all_plans(self.to).await.map_err(Trouble::To)?;
        Ok(rows.into_iter().map(|row| row.id).collect())
    }
}

impl Moved {
    fn count(&mut self, plan: &MovedPlan) {
        self.plans += 1;
        self.tasks += plan.tasks.len() as u64;
        self.events += plan.tasks.iter().map(|task| task.events.len() as u64).sum::<u64>();
        let output = plan.tasks.iter().flat_map(|task| &task.output);
        self.output_bytes += output.map(|chunk| chunk.bytes.len() as u64).sum::<u64>();
    }
}

async fn whole(store: &dyn Store, id: &PlanId, locks: &[LockRow]) -> Result<MovedPlan, StoreError> {
    let missing = || StoreError::NotFound { what: "plan", id: id.to_string() };
    read_moved(store, id, locks).await?.ok_or_else(missing)
}
