//! Waits that end on the microsecond. The runtime's timers know whole milliseconds, and round up; for a retry that waits
//! one millisecond that is as long again. So the last stretch of a wait is left to a thread that sleeps until the next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// A runtime's timer may come this much late; the rest of a wait is made here.
pub(crate) const STRETCH: Duration = Duration::from_millis(2);

static ALARM: LazyLock<Alarm> = LazyLock::new(Alarm::start);

/// Returns after `wait`, a few dozen microseconds late at most on a machine that has a core to spare.
pub(crate) async fn sleep(wait: Duration) {
    let until = Instant::now() + wait;
    if let Some(rest) = wait.checked_sub(STRETCH) {
        tokio::time::sleep(rest).await;
    }
    let heard = ALARM.set(until);
    if heard.await.is_err() {
        // There is no such thread; then it is the runtime's timer after all.
        tokio::time::sleep_until(until.into()).await;
    }
}

#[derive(Default)]
struct Alarm {
    waiting: Mutex<BinaryHeap<Reverse<Waiter>>>,
    earlier: Condvar,
    /// Nobody would ring it.
    broken: bool,
}

struct Waiter {
    until: Instant,
    ring: oneshot::Sender<()>,
}

impl Alarm {
    fn start() -> Self {
        let thread = std::thread::Builder::new().name("milepost-alarm".to_owned()).spawn(|| ALARM.ring());
        Self { broken: thread.is_err(), ..Self::default() }
    }

    fn set(&self, until: Instant) -> oneshot::Receiver<()> {
        let (ring, heard) = oneshot::channel();
        if !self.broken {
            let mut waiting = self.waiting();
            let first = waiting.peek().is_none_or(|Reverse(next)| until < next.until);
            waiting.push(Reverse(Waiter { until, ring }));
            if first {
                self.earlier.notify_one();
            }
        }
        heard
    }

    fn ring(&self) {
        let mut waiting = self.waiting();
        loop {
            let now = Instant::now();
            while let Some(Reverse(next)) = waiting.peek()
                && next.until <= now
                && let Some(Reverse(next)) = waiting.pop()
            {
                // Whoever does not wait any more does not mind.
                let _ = next.ring.send(());
            }
            waiting = match waiting.peek().map(|Reverse(next)| next.until.saturating_duration_since(now)) {
                None => self.earlier.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(left) => self.earlier.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }

    fn waiting(&self) -> MutexGuard<'_, BinaryHeap<Reverse<Waiter>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for Waiter {
    fn eq(&self, other: &Self) -> bool {
        self.until == other.until
    }
}

impl Eq for Waiter {}

impl PartialOrd for Waiter {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiter {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.until.cmp(&other.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waits_end_in_the_order_of_their_times_and_never_early() {
        let start = Instant::now();
        let waits = [900, 100, 2500, 0, 400, 5000].map(Duration::from_micros);
        let ended = waits.map(|wait| async move {
            sleep(wait).await;
            (wait, start.elapsed())
        });
        for (wait, took) in futures::future::join_all(ended).await {
            assert!(took >= wait, "{took:?} for {wait:?}");
        }
    }

    #[tokio::test]
    async fn a_wait_that_is_given_up_keeps_nobody_else_waiting() {
        for _ in 0..100 {
            let given_up = std::pin::pin!(sleep(Duration::from_millis(1)));
            assert!(futures::poll!(given_up).is_pending());
        }
        sleep(Duration::from_micros(200)).await;
    }
}
