//! Messages of one task stand in line: the first that was read is the first that the store is offered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use milepost_core::id::TaskId;

type Line = Arc<tokio::sync::Mutex<()>>;

#[derive(Debug, Default)]
pub(crate) struct Lines {
    lines: Mutex<HashMap<TaskId, Line>>,
}

impl Lines {
    /// Does something when those before have done theirs.
    pub(crate) async fn in_turn<T>(&self, task: &TaskId, work: impl Future<Output = T>) -> T {
        let line = self.lines().entry(task.clone()).or_default().clone();
        let done = {
            let _turn = line.lock().await;
            work.await
        };
        let mut lines = self.lines();
        drop(line);
        // Whoever stands in line holds it as well.
        if lines.get(task).is_some_and(|line| Arc::strong_count(line) == 1) {
            lines.remove(task);
        }
        done
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<TaskId, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use futures::stream::FuturesUnordered;

    use super::*;

    #[tokio::test]
    async fn those_of_one_task_come_in_the_order_in_which_they_were_read() {
        let (lines, task) = (Lines::default(), TaskId::parse("t-1").unwrap());
        let seen = Mutex::new(Vec::new());
        let mut all = FuturesUnordered::new();
        for number in 0..20_u32 {
            let (lines, task, seen) = (&lines, &task, &seen);
            all.push(async move {
                let work = async {
                    // The first ones take longest.
                    for _ in number..20 {
                        tokio::task::yield_now().await;
                    }
                    seen.lock().unwrap().push(number);
                };
                lines.in_turn(task, work).await;
            });
        }
        while all.next().await.is_some() {}
        assert_eq!(*seen.lock().unwrap(), (0..20).collect::<Vec<_>>());
        assert!(lines.lines().is_empty());
    }
}
