//! Claims that find tasks and get none of them: others are faster, or something keeps the tasks from being taken. The
//! first is over soon; the second has to cost little for as long as it lasts, and to be seen.

use std::sync::atomic::{AtomicU32, Ordering};

use milepost_core::time::Millis;

use crate::model::Claimed;

/// How often one claim tries for what it does not get.
pub(crate) const TRIES: u32 = 8;
/// How soon to try again after the first claim that got nothing; twice as long after each further one.
const SOON: Millis = Millis::new(20);
/// The wait stops doubling here, at some five seconds; a change that others tell of ends it at once.
const DOUBLINGS: u32 = 8;

/// Claims in a row that got nothing of what was there.
#[derive(Debug, Default)]
pub(crate) struct Contended(AtomicU32);

impl Contended {
    /// A claim got something, or there was nothing left to get.
    pub(crate) fn over(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Tries of the next claim: one that follows many in vain is but a look whether it is over.
    pub(crate) fn tries(&self) -> u32 {
        if self.0.load(Ordering::Relaxed) == 0 { TRIES } else { 1 }
    }

    /// A claim did not get all that it found: says when to come back. If it got nothing, and so did many before it, it
    /// comes back later each time, and people are told.
    pub(crate) fn come_back(&self, claimed: &mut Claimed) {
        if claimed.tasks.len() + claimed.ended.len() > 0 {
            self.over();
        }
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        let wait = Millis::new(SOON.get() << before.min(DOUBLINGS));
        if before == DOUBLINGS {
            tracing::warn!(
                retry_in = ?wait.as_duration(),
                "there are tasks to claim, and none of them could be taken {before} times in a row; waiting for a change. \
                 Somebody may hold a lock on their rows"
            );
        }
        let back = claimed.now + wait;
        claimed.next_due = Some(claimed.next_due.map_or(back, |due| due.min(back)));
    }
}

#[cfg(test)]
mod tests {
    use milepost_core::time::Timestamp;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1000);

    fn waits(contended: &Contended) -> u64 {
        let mut claimed = Claimed { now: NOW, ..Claimed::default() };
        contended.come_back(&mut claimed);
        claimed.next_due.unwrap().since(NOW).get()
    }

    #[test]
    fn claims_in_vain_come_less_and_less_often_until_one_is_not() {
        let contended = Contended::default();
        let lengths: Vec<u64> = (0..11).map(|_| waits(&contended)).collect();
        assert_eq!(lengths, [20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 5120, 5120]);
        assert_eq!(contended.tries(), 1);
        contended.over();
        assert_eq!((contended.tries(), waits(&contended)), (TRIES, 20));
    }

    #[test]
    fn a_task_that_is_due_before_the_next_try_is_not_kept_waiting() {
        let (contended, due) = (Contended::default(), NOW + Millis::new(5));
        let mut claimed = Claimed { now: NOW, next_due: Some(due), ..Claimed::default() };
        contended.come_back(&mut claimed);
        assert_eq!(claimed.next_due, Some(due));
    }
}
