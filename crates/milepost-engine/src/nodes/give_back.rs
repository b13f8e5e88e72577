//! A task that its runner has lost, and which may be this node's all the same: nobody would go on with it.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::planted::planted;
use milepost_core::task::{Command, Record, Task, decide};
use milepost_store::{Commit, EventQuery, Holder, LeaseChange, StoreError, TaskRef, Wake};

use crate::engine::Inner;
use crate::feed::FeedItem;

/// What was said to the store.
struct Sent {
    events: Arc<[Record]>,
    task: Arc<Task>,
    /// The task's version before.
    before: u64,
}

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
            let mut unanswered = None;
            // A node that stops leaves, which gives everything back.
            while !inner.is_stopping() && inner.try_to_give_back(&key, epoch, &mut unanswered).await.is_err() {
                inner.rest(pause).await;
                pause = (pause * 2).min(Duration::from_secs(5));
            }
            inner.wake();
        });
    }

    async fn try_to_give_back(
        &self,
        key: &TaskRef,
        epoch: u64,
        unanswered: &mut Option<Sent>,
    ) -> Result<(), StoreError> {
        let stored = match self.store.task(&key.id).await {
            Ok(Some(stored)) => stored,
            Err(error @ StoreError::Unavailable { .. }) => return Err(error),
            Ok(None) | Err(_) => return Ok(()),
        };
        let before = stored.task.version();
        if let Some(sent) = unanswered.take_if(|sent| sent.before != before)
            && self.has_arrived(key, &sent).await
        {
            self.was_given_back(&sent);
            return Ok(());
        }
        // That it is an orphan by now is no reason to leave it: with its next beat this node may be forgiven, and have it.
        if stored.epoch != epoch || !stored.task.status().is_active() {
            return Ok(());
        }
        // What was not answered may still arrive, so the same is said again.
        let sent = match unanswered.take() {
            Some(sent) => sent,
            None => {
                let reason = "its node lost its lease, or could not write what it did".to_owned();
                let interrupt = Command::Interrupt { reason };
                let Ok(decision) = decide(&stored.task, interrupt, self.clock.now()) else { return Ok(()) };
                Sent { events: decision.events.into(), task: Arc::new(decision.task), before }
            }
        };
        let sent = &*unanswered.insert(sent);
        let commit = Commit {
            key: key.clone(),
            holder: Holder::Lease(epoch),
            expected: before,
            events: sent.events.clone(),
            task: sent.task.clone(),
            lease: LeaseChange::Release(Wake::Recovery),
            plan: None,
            output: Vec::new(),
        };
        match self.store.commit(commit).await {
            // It may have arrived, or something of ours was still on its way; the next look sees it.
            Err(error @ (StoreError::Unavailable { .. } | StoreError::Conflict { .. })) => Err(error),
            Ok(_) => {
                self.was_given_back(sent);
                Ok(())
            }
            // Refused; or the same had arrived just before.
            Err(_) => {
                if self.has_arrived(key, sent).await {
                    self.was_given_back(sent);
                }
                Ok(())
            }
        }
    }

    /// The log goes on with what was sent, as far as can be seen: it is only to be shown and counted.
    async fn has_arrived(&self, key: &TaskRef, sent: &Sent) -> bool {
        let query = EventQuery { task: key.id.clone(), after: sent.before, limit: sent.events.len() };
        let found = self.store.events(query).await.unwrap_or_default();
        !found.is_empty() && found.iter().map(|found| &found.record).eq(sent.events.iter())
    }

    fn was_given_back(&self, sent: &Sent) {
        self.happened(&sent.events, &sent.task);
        self.feed.publish(|| FeedItem::of(&sent.task, sent.events.clone()));
    }
}
