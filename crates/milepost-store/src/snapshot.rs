//! When a task with a long log is worth an image, so that whoever reads it need not read all that ever happened to it.

use milepost_core::task::{Event, Record, Task};

/// A log of fewer events is read from its start.
pub(crate) const SHORTEST: u64 = 500;
/// A workflow that begins anew with no more than this to its name is worth a snapshot each time.
const LITTLE: usize = 64;
/// A longer image is not kept: no store takes values of any length, and a commit must never fail for its snapshot. The
/// log is read from its start then.
const LONGEST: usize = 64 << 20;

/// An image, and the version of the task that it shows.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) version: u64,
    pub(crate) text: String,
    pub(crate) crc: u32,
}

impl Snapshot {
    /// None when it would be too long.
    pub(crate) fn of(task: &Task) -> Option<Self> {
        let text = task.image();
        if text.len() > LONGEST {
            tracing::debug!(task = %task.spec().id, bytes = text.len(), "too much for a snapshot");
            return None;
        }
        Some(Self { version: task.version(), crc: crc32fast::hash(text.as_bytes()), text })
    }

    /// Of a task that a commit brings from `before` to where it is now, if it is time for one.
    pub(crate) fn due(task: &Task, before: u64, events: &[Record]) -> Option<Self> {
        if task.version() < SHORTEST {
            return None;
        }
        let interval = interval(task);
        let continued = || events.iter().any(|record| matches!(record.event(), Event::TaskContinued { .. }));
        let due = task.version() / interval > before / interval || (task.weight() <= LITTLE && continued());
        due.then(|| Self::of(task)).flatten()
    }

    /// Likewise of a task that was claimed, for which so many events were read. It took as long as that because its last
    /// snapshot was lost, or it was made before there were any.
    pub(crate) fn due_at_claim(task: &Task, before: u64, events: &[Record], read: u64) -> Option<Self> {
        if read >= SHORTEST && read > interval(task) { Self::of(task) } else { Self::due(task, before, events) }
    }
}

/// How many events lie between two snapshots. It grows with what they hold, so that all of a task's snapshots together
/// are a few times its last one, not one for every event squared.
fn interval(task: &Task) -> u64 {
    let enough = (task.weight() as u64 / 2).div_ceil(SHORTEST).max(1);
    SHORTEST * enough.next_power_of_two()
}
