//! Progress and output of running attempts: gathered as it comes, bounded, and handed on a few times a second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use milepost_core::id::StageName;
use milepost_core::pace::Pace;
use milepost_core::task::share;
use milepost_core::time::Timestamp;
use milepost_store::LogChunk;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::stage::{Progress, ReportSink};

/// Of each attempt's output this much is kept from its beginning, and this much from its end.
const KEPT_HEAD: usize = 256 * 1024;
const KEPT_TAIL: usize = 64 * 1024;

/// What one attempt has said and nobody has fetched yet.
#[derive(Debug)]
pub(crate) struct AttemptReport {
    pub(crate) stage: StageName,
    pub(crate) attempt: u32,
    told: Arc<Told>,
    state: Mutex<State>,
}

/// How far an attempt says it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Said {
    pub(crate) progress: Progress,
    /// Which part that is. When it turns out that there is more to do than was thought, it stays where it was.
    pub(crate) share: f64,
}

/// Tells the runner that one of its attempts said something.
#[derive(Debug, Default)]
pub(crate) struct Told {
    dirty: AtomicBool,
    notify: Notify,
}

#[derive(Debug, Default)]
struct State {
    said: Option<Said>,
    said_is_new: bool,
    pace: Pace,
    output: Vec<u8>,
    kept: usize,
    left_out: usize,
    tail: Vec<u8>,
}

impl Told {
    pub(crate) async fn wait(&self) {
        while !self.dirty.load(Ordering::Acquire) {
            self.notify.notified().await;
        }
    }

    fn tell(&self) {
        if !self.dirty.swap(true, Ordering::AcqRel) {
            self.notify.notify_one();
        }
    }

    pub(crate) fn heard(&self) {
        self.dirty.store(false, Ordering::Release);
    }
}

impl AttemptReport {
    pub(crate) fn new(stage: StageName, attempt: u32, told: Arc<Told>) -> Arc<Self> {
        Arc::new(Self { stage, attempt, told, state: Mutex::default() })
    }

    pub(crate) fn said(&self) -> Option<Said> {
        self.state().said
    }

    /// What was last said, if that is news since the last call.
    pub(crate) fn take_news(&self) -> Option<Progress> {
        let mut state = self.state();
        let is_new = std::mem::take(&mut state.said_is_new);
        state.said.filter(|_| is_new).map(|said| said.progress)
    }

    /// Units a second, lately.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.state().pace.rate(Instant::now().into_std())
    }

    /// Output since the last call; at the end of the attempt also what was held back.
    pub(crate) fn take_output(&self, ended: bool, at: Timestamp) -> Option<LogChunk> {
        let mut state = self.state();
        let mut bytes = std::mem::take(&mut state.output);
        if ended && !state.tail.is_empty() {
            let tail = std::mem::take(&mut state.tail);
            if state.left_out > 0 {
                bytes.extend_from_slice(format!("\n[... {} bytes left out ...]\n", state.left_out).as_bytes());
            }
            bytes.extend_from_slice(&tail);
        }
        (!bytes.is_empty()).then(|| LogChunk { stage: self.stage.clone(), attempt: self.attempt, at, bytes })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReportSink for AttemptReport {
    /// Never backwards within an attempt.
    fn progress(&self, progress: Progress) {
        let mut state = self.state();
        let known = state.said;
        if known.is_some_and(|Said { progress: known, .. }| progress.done < known.done || progress == known) {
            return;
        }
        let share = share(progress.done, progress.total).max(known.map_or(0.0, |known| known.share));
        state.said = Some(Said { progress, share });
        state.said_is_new = true;
        state.pace.reached(progress.done, Instant::now().into_std());
        drop(state);
        self.told.tell();
    }

    fn output(&self, bytes: &[u8]) {
        let mut state = self.state();
        let (head, rest) = bytes.split_at(bytes.len().min(KEPT_HEAD - state.kept));
        state.kept += head.len();
        state.output.extend_from_slice(head);
        if !rest.is_empty() {
            state.tail.extend_from_slice(rest);
            // Cut in large steps, so that a chatty command does not pay for every byte it prints.
            if state.tail.len() > 2 * KEPT_TAIL {
                let surplus = state.tail.len() - KEPT_TAIL;
                state.tail.drain(..surplus);
                state.left_out += surplus;
            }
        }
        drop(state);
        self.told.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Arc<AttemptReport> {
        AttemptReport::new(StageName::parse("s").unwrap(), 1, Arc::default())
    }

    #[test]
    fn output_is_bounded_and_keeps_its_beginning_and_its_end() {
        let report = report();
        for i in 0..200_000 {
            report.output(format!("line {i}\n").as_bytes());
        }
        let chunk = report.take_output(true, Timestamp::from_millis(0)).unwrap();
        let text = String::from_utf8(chunk.bytes).unwrap();
        assert!(text.len() < KEPT_HEAD + 2 * KEPT_TAIL + 100, "{}", text.len());
        assert!(text.starts_with("line 0\n") && text.ends_with("line 199999\n") && text.contains("bytes left out"));
    }

    #[test]
    fn progress_never_goes_back_within_an_attempt() {
        let report = report();
        report.progress(Progress { done: 5, total: 10 });
        report.progress(Progress { done: 3, total: 10 });
        assert_eq!(report.take_news(), Some(Progress { done: 5, total: 10 }));
        report.progress(Progress { done: 5, total: 10 });
        assert_eq!(report.take_news(), None);
    }

    #[test]
    fn a_total_that_grows_takes_nothing_back() {
        let report = report();
        let share = |done, total| {
            report.progress(Progress { done, total });
            report.said().unwrap().share
        };
        assert_eq!([share(0, 0), share(50, 100), share(60, 300), share(180, 300)], [0.0, 0.5, 0.5, 0.6]);
        assert_eq!(
            [share(400, 300), share(400, 0), share(500, 1000)],
            [1.0; 3],
            "nor does one that shrinks or is lost"
        );
        assert_eq!(report.said().unwrap().progress, Progress { done: 500, total: 1000 }, "the numbers are as they are");
    }
}
