//! When a task with a long log is worth an image, so that whoever reads it need not read all that ever happened to it.

use milepost_core::task::{Event, Record, Task};

/// A log of fewer events is read from its start.
pub(crate) const SHORTEST: u64 = 500;
/// A workflow that begins anew with no more than this to its name is worth a snapshot each time.
const LITTLE: usize = 64;

/// An image, and the version of the task that it shows.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) version: u64,
    pub(crate) text: String,
    pub(crate) crc: u32,
}

impl Snapshot {
    pub(crate) fn of(task: &Task) -> Self {
        let text = task.image();
        Self { version: task.version(), crc: crc32fast::hash(text.as_bytes()), text }
    }

    /// Of a task that a commit brings from `before` to where it is now, if it is time for one.
    pub(crate) fn due(task: &Task, before: u64, events: &[Record]) -> Option<Self> {
        if task.version() < SHORTEST {
            return None;
        }
        let interval = interval(task);
        let continued = || events.iter().any(|record| matches!(record.event(), Event::TaskContinued { .. }));
        let due = task.version() / interval > before / interval || (task.weight() <= LITTLE && continued());
        due.then(|| Self::of(task))
    }
}

/// How many events lie between two snapshots. It grows with what they hold, so that all of a task's snapshots together
/// are a few times its last one, not one for every event squared.
pub(crate) fn interval(task: &Task) -> u64 {
    let enough = (task.weight() as u64 / 2).div_ceil(SHORTEST).max(1);
    SHORTEST * enough.next_power_of_two()
}
