//! When to stop reading. For a moment it is enough not to ask; after that the partitions are paused and asking goes on,
//! because a group takes a member that is silent for long to be dead.

use std::time::Duration;

use tokio::time::Instant;

/// Most waits are shorter than this, and pausing costs what was fetched ahead.
const HOLD: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Valve {
    Open,
    /// Nothing is asked for since then.
    Held {
        since: Instant,
    },
    /// Partitions are paused.
    Shut,
}

/// What has to be done to the partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Pause,
    Resume,
}

impl Valve {
    /// The next state when messages are wanted or not.
    pub(crate) fn next(self, wanted: bool, now: Instant) -> (Valve, Option<Turn>) {
        match (self, wanted) {
            (Valve::Open | Valve::Held { .. }, true) => (Valve::Open, None),
            (Valve::Shut, true) => (Valve::Open, Some(Turn::Resume)),
            (Valve::Open, false) => (Valve::Held { since: now }, None),
            (Valve::Held { since }, false) if now.duration_since(since) >= HOLD => (Valve::Shut, Some(Turn::Pause)),
            (Valve::Held { .. } | Valve::Shut, false) => (self, None),
        }
    }

    pub(crate) fn asks(self) -> bool {
        match self {
            Valve::Open | Valve::Shut => true,
            Valve::Held { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_wait_pauses_nothing_and_a_long_one_goes_on_asking() {
        let start = Instant::now();
        let (held, turn) = Valve::Open.next(false, start);
        assert_eq!((held.asks(), turn), (false, None));
        assert_eq!(held.next(true, start + HOLD / 2), (Valve::Open, None));
        let (shut, turn) = held.next(false, start + HOLD);
        assert_eq!((shut.asks(), turn), (true, Some(Turn::Pause)));
        assert_eq!(shut.next(false, start + HOLD * 9), (Valve::Shut, None));
        assert_eq!(shut.next(true, start + HOLD * 9), (Valve::Open, Some(Turn::Resume)));
    }
}
