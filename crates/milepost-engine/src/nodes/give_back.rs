//! A task that its runner has lost, and which may be this node's all the same: nobody would go on with it.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::planted::planted;
use milepost_core::task::{Command, Record, decide};
use milepost_store::{Commit, Holder, LeaseChange, StoreError, TaskRef, Wake};

use crate::engine::Inner;
use crate::feed::FeedItem;

impl Inner {
    /// Gives the task back, if the store still has it under this lease. It may: a node that slept too long may not have
    /// been missed, a claim may have been made in the very moment in which an older lease was lost, and a commit may
    /// have been refused for another reason than the lease.
    pub(crate) fn give_back(self: &Arc<Self>, key: TaskRef, epoch: u64) {
        if planted("a lost answer loses the task") {
            return;
        }
        let inner = self.clone();
        self.spawn(async move {
            let mut pause = Duration::from_millis(50);
            // A node that stops leaves, which gives everything back.
            while !inner.is_stopping() && inner.try_to_give_back(&key, epoch).await.is_err() {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(5));
            }
            inner.wake();
        });
    }

    async fn try_to_give_back(&self, key: &TaskRef, epoch: u64) -> Result<(), StoreError> {
        let stored = match self.store.task(&key.id).await {
            Ok(Some(stored)) => stored,
            Err(error @ StoreError::Unavailable { .. }) => return Err(error),
            Ok(None) | Err(_) => return Ok(()),
        };
        // That it is an orphan by now is no reason to leave it: with its next beat this node may be forgiven, and have it.
        if stored.epoch != epoch || !stored.task.status().is_active() {
            return Ok(());
        }
        let reason = "its node lost its lease, or could not write what it did".to_owned();
        let expected = stored.task.version();
        let Ok(decision) = decide(&stored.task, Command::Interrupt { reason }, self.clock.now()) else { return Ok(()) };
        let (events, task): (Arc<[Record]>, _) = (decision.events.into(), Arc::new(decision.task));
        let commit = Commit {
            key: key.clone(),
            holder: Holder::Lease(epoch),
            expected,
            events: events.clone(),
            task: task.clone(),
            lease: LeaseChange::Release(Wake::Recovery),
            plan: None,
            output: Vec::new(),
        };
        match self.store.commit(commit).await {
            // Something of ours was still on its way; the next look sees it.
            Err(error @ (StoreError::Unavailable { .. } | StoreError::Conflict { .. })) => Err(error),
            Ok(_) => {
                self.happened(&events, &task);
                self.feed.publish(|| FeedItem::of(&task, events));
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }
}
