//! Progress and output of running attempts: gathered as it comes, bounded, and handed on a few times a second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use milepost_core::id::StageName;
use milepost_core::time::Timestamp;
use milepost_store::LogChunk;
use tokio::sync::Notify;

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

/// Tells the runner that one of its attempts said something.
#[derive(Debug, Default)]
pub(crate) struct Told {
    dirty: AtomicBool,
    notify: Notify,
}

#[derive(Debug, Default)]
struct State {
    progress: Option<Progress>,
    progress_is_new: bool,
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

    pub(crate) fn said(&self) -> Option<Progress> {
        self.state().progress
    }

    /// What was last said, and whether that is news since the last call.
    pub(crate) fn take_progress(&self) -> (Option<Progress>, bool) {
        let mut state = self.state();
        let is_new = std::mem::take(&mut state.progress_is_new);
        (state.progress, is_new)
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
        if state.progress.is_some_and(|known| progress.done < known.done || progress == known) {
            return;
        }
        state.progress = Some(progress);
        state.progress_is_new = true;
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
        let known = Some(Progress { done: 5, total: 10 });
        assert_eq!(report.take_progress(), (known, true));
        report.progress(Progress { done: 5, total: 10 });
        assert_eq!(report.take_progress(), (known, false));
    }
}
