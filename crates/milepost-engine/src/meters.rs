//! What a node counts of itself, for whoever watches over it: a few relaxed additions a stage, and no locks.

use std::sync::atomic::{AtomicU64, Ordering};

use milepost_core::task::{Event, Record, StageResult, Task};
use milepost_core::time::{Millis, Timestamp};

/// Upper bounds of the lengths of time that are told apart, in milliseconds.
pub const BOUNDS_MS: [u64; 14] =
    [1, 5, 25, 100, 250, 500, 1_000, 2_500, 5_000, 15_000, 60_000, 300_000, 1_800_000, 7_200_000];

/// A node's meters; `readings` takes them all at once.
#[derive(Debug, Default)]
pub struct Meters {
    started: Count,
    completed: Count,
    failed: Count,
    paused: Count,
    cancelled: Count,
    interrupted: Count,
    retried: Count,
    rollbacks_started: Count,
    rolled_back: Count,
    rollbacks_failed: Count,
    retries_scheduled: Count,
    checkpoints_discarded: Count,
    dead_lettered: Count,
    stage_completed: Lengths,
    stage_skipped: Lengths,
    stage_failed: Lengths,
    task: Lengths,
    timer_lag: Lengths,
}

/// What the meters showed in one moment, counted since the node was made.
#[derive(Debug, Clone)]
pub struct Readings {
    /// Tasks that got what their name says, with the name that the outside knows it by.
    pub tasks: [(&'static str, u64); 11],
    pub retries_scheduled: u64,
    pub checkpoints_discarded: u64,
    /// How long attempts took, by how they ended.
    pub stages: [(&'static str, Reading); 3],
    /// How long tasks took from their first start to their end.
    pub task: Reading,
    /// How much later than due a waiting stage was woken.
    pub timer_lag: Reading,
}

/// Lengths of time: how many up to each of `BOUNDS_MS`, and beyond.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    pub counts: [u64; BOUNDS_MS.len() + 1],
    pub sum_ms: u64,
}

#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Count {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
struct Lengths {
    counts: [Count; BOUNDS_MS.len() + 1],
    sum_ms: AtomicU64,
}

impl Lengths {
    fn add(&self, length: Millis) {
        let bucket = BOUNDS_MS.partition_point(|bound| *bound < length.get());
        self.counts[bucket].add();
        self.sum_ms.fetch_add(length.get(), Ordering::Relaxed);
    }

    fn read(&self) -> Reading {
        let counts = std::array::from_fn(|bucket| self.counts[bucket].get());
        Reading { counts, sum_ms: self.sum_ms.load(Ordering::Relaxed) }
    }
}

impl Meters {
    pub fn readings(&self) -> Readings {
        Readings {
            tasks: [
                ("started", self.started.get()),
                ("completed", self.completed.get()),
                ("failed", self.failed.get()),
                ("paused", self.paused.get()),
                ("cancelled", self.cancelled.get()),
                ("interrupted", self.interrupted.get()),
                ("retried", self.retried.get()),
                ("rollback_started", self.rollbacks_started.get()),
                ("rolled_back", self.rolled_back.get()),
                ("rollback_failed", self.rollbacks_failed.get()),
                ("dead_lettered", self.dead_lettered.get()),
            ],
            retries_scheduled: self.retries_scheduled.get(),
            checkpoints_discarded: self.checkpoints_discarded.get(),
            stages: [
                ("completed", self.stage_completed.read()),
                ("skipped", self.stage_skipped.read()),
                ("failed", self.stage_failed.read()),
            ],
            task: self.task.read(),
            timer_lag: self.timer_lag.read(),
        }
    }

    /// These events are durable.
    pub(crate) fn happened(&self, events: &[Record], task: &Task) {
        for record in events {
            match record.event() {
                Event::TaskStarted { .. } => self.started.add(),
                Event::TaskPaused { .. } => self.paused.add(),
                Event::TaskCompleted { .. } => self.ended(&self.completed, record.at(), task),
                Event::TaskFailed { .. } => self.ended(&self.failed, record.at(), task),
                Event::TaskCancelled { .. } => self.ended(&self.cancelled, record.at(), task),
                Event::TaskInterrupted { .. } => self.interrupted.add(),
                Event::TaskRetried { .. } => self.retried.add(),
                Event::RollbackStarted { .. } => self.rollbacks_started.add(),
                Event::TaskRolledBack {} => self.rolled_back.add(),
                Event::RollbackFailed { .. } => self.rollbacks_failed.add(),
                Event::RetryScheduled { .. } => self.retries_scheduled.add(),
                Event::CheckpointDiscarded { .. } => self.checkpoints_discarded.add(),
                Event::DeadLettered { .. } => self.dead_lettered.add(),
                Event::TaskCreated {}
                | Event::StageStarted { .. }
                | Event::StageCompleted { .. }
                | Event::StageSkipped { .. }
                | Event::StageFailed { .. }
                | Event::PauseRequested { .. }
                | Event::TaskResumed { .. }
                | Event::MessageReceived { .. }
                | Event::SignalReceived { .. }
                | Event::ValueRecorded { .. }
                | Event::TaskContinued { .. }
                | Event::EventLost { .. }
                | Event::TaskRepaired { .. }
                | Event::StageRolledBack { .. } => {}
            }
        }
    }

    fn ended(&self, count: &Count, at: Timestamp, task: &Task) {
        count.add();
        if let Some(started) = task.started_at() {
            self.task.add(at.since(started));
        }
    }

    pub(crate) fn attempt_ended(&self, result: &StageResult, took: Millis) {
        match result {
            StageResult::Success(_) => self.stage_completed.add(took),
            StageResult::Skip(_) => self.stage_skipped.add(took),
            StageResult::Failure(_) | StageResult::Refused(_) => self.stage_failed.add(took),
        }
    }

    pub(crate) fn woken(&self, late: Millis) {
        self.timer_lag.add(late);
    }
}

impl Reading {
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_counts_in_the_first_bucket_that_holds_it() {
        let lengths = Lengths::default();
        for ms in [0, 1, 2, 7_200_000, 7_200_001] {
            lengths.add(Millis::new(ms));
        }
        let reading = lengths.read();
        assert_eq!((reading.counts[0], reading.counts[1]), (2, 1));
        assert_eq!((reading.counts[13], reading.counts[14]), (1, 1));
        assert_eq!((reading.count(), reading.sum_ms), (5, 14_400_004));
    }
}
