//! A node's sign of life. It goes out on a task of its own and never waits for work, nor for an earlier one.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use milepost_core::time::Millis;
use milepost_store::{Beat, Beaten, StoreError};
use tokio::time::{Instant, MissedTickBehavior};

use crate::engine::Inner;
use crate::runner::{at, chain};

/// A lease is judged by the store's clock, to the millisecond; a look in the same moment would come too early.
const A_MOMENT: Duration = Duration::from_millis(10);

impl Inner {
    /// Not among the tasks that a stop waits for: the last of those still needs its lease.
    pub(crate) fn begin_to_beat(self: &Arc<Self>) {
        if self.membership.begins_to_beat() {
            self.spawn_beside(beat_loop(self.clone()));
        }
    }
}

/// Renews the lease until the node has gone.
async fn beat_loop(inner: Arc<Inner>) {
    let lease = inner.lease();
    // A beat at every third of the lease: one that is lost leaves time for another.
    let beat_every = lease / 3;
    // More often than that, to notice soon that the machine was suspended: timers stand still meanwhile.
    let mut looks = tokio::time::interval(lease / 15);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // By what the clock has gone, not by what it says: that may jump when it is corrected.
    let mut awake_at = inner.clock.elapsed();
    let (mut beat_at, mut sweep_at) = (awake_at, awake_at + inner.sweep_every());
    let mut beats = FuturesUnordered::new();
    let mut look_again = None;
    loop {
        tokio::select! {
            biased;
            () = inner.membership.gone.cancelled() => return,
            _ = looks.tick() => {
                let now = inner.clock.elapsed();
                let slept = now.saturating_sub(awake_at);
                if slept > lease {
                    tracing::warn!(?slept, "LeaseLost: this node did not run for longer than its lease; what it had in hand is ended");
                    inner.membership.lose();
                }
                awake_at = now;
                if now >= beat_at {
                    beat_at = now + beat_every;
                    beats.push(beat(inner.clone()));
                }
                if now >= sweep_at {
                    sweep_at = now + inner.sweep_every();
                    inner.wake();
                    inner.finish_cancelled_plans_soon();
                }
            }
            Some((asked, beaten)) = beats.next(), if !beats.is_empty() => {
                if beaten.is_err() {
                    // Whoever comes back first after a store was away must not find this node silent for long.
                    beat_at = beat_at.min(inner.clock.elapsed() + lease / 15);
                }
                let again = inner.beaten(asked, beaten);
                look_again = again.map(|again| Instant::now() + again + A_MOMENT).or(look_again);
            }
            () = at(look_again), if look_again.is_some() => {
                look_again = None;
                inner.wake();
                inner.finish_cancelled_soon();
            }
        }
    }
}

/// The answer, and when it was asked for.
async fn beat(inner: Arc<Inner>) -> (Duration, Result<Beaten, StoreError>) {
    let asked = inner.clock.elapsed();
    let beat = Beat { capacity: inner.capacity() as u64, in_hand: inner.in_hand() as u64 };
    // Longer than that it can renew nothing.
    let beaten = match tokio::time::timeout(inner.lease(), inner.store.beat(beat)).await {
        Ok(beaten) => {
            if let Ok(Beaten { now: Some(now), .. }) = beaten {
                inner.clock.follow(now, asked, inner.clock.elapsed());
            }
            beaten
        }
        Err(_) => {
            let source = "no answer for as long as a lease lasts".into();
            Err(StoreError::Unavailable { backend: "the store", operation: "renew the lease", source })
        }
    };
    (asked, beaten)
}

impl Inner {
    /// What follows from a beat; in how long another node's tasks may be there to take.
    fn beaten(self: &Arc<Self>, asked: Duration, beaten: Result<Beaten, StoreError>) -> Option<Duration> {
        match beaten {
            Ok(Beaten { losses, look_again, now: _ }) => {
                self.health.answered();
                if self.membership.hears_of(losses) {
                    tracing::error!(
                        "LeaseLost: the lease had run out and others were let in; what this node had in hand is ended"
                    );
                    self.membership.lose();
                    self.wake();
                }
                self.membership.renewed(asked);
                if look_again == Some(Millis::ZERO) {
                    // What another beat says meanwhile is of a later moment.
                    self.wake();
                    self.finish_cancelled_soon();
                    return None;
                }
                look_again.map(|again| again.as_duration())
            }
            Err(StoreError::Owned { .. }) => {
                self.step_down();
                None
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), "the lease could not be renewed; trying again");
                if matches!(error, StoreError::Unavailable { .. }) {
                    self.health.refused();
                }
                // It may have arrived and freed a dead node's tasks; then its answer would have said to look.
                self.wake();
                None
            }
        }
    }

    /// Another process is this node now.
    fn step_down(self: &Arc<Self>) {
        let why = format!("another process has taken the place of node {}; this one stops", self.node());
        tracing::error!("{why}");
        self.begin_to_stop();
        self.membership.lose();
        self.membership.gone.cancel();
        self.membership.oust(why);
    }
}
