//! How far a task is, for whoever watches: gathered from its attempts, shown a few times a second, kept by the store.

use std::pin::pin;
use std::time::Duration;

use milepost_core::task::percent_with;
use milepost_store::Note;
use tokio::time::Instant;

use crate::attempt::Attempt;
use crate::feed::FeedItem;
use crate::runner::{Runner, chain, meanwhile};

/// Progress and output go out at most this often.
const REPORT_EVERY: Duration = Duration::from_millis(250);
/// The first after a silence goes out this soon: not at once, because what ends within that time says so itself.
const REPORT_FIRST: Duration = Duration::from_millis(50);

impl Runner {
    /// An attempt said something.
    pub(crate) fn report_soon(&mut self) {
        let first = Instant::now() + REPORT_FIRST;
        let next = self.shown_at.map(|shown_at| shown_at + REPORT_EVERY);
        self.report_at = Some(next.map_or(first, |next| next.max(first)));
    }

    /// Shows what running attempts have said; losing some of it in a crash harms nobody.
    pub(crate) async fn report(&mut self) {
        self.report_at = None;
        self.shown_at = Some(Instant::now());
        self.told.heard();
        let now = self.inner.clock.now();
        // First what an earlier note could not store.
        let mut note = Note { key: self.key.clone(), progress: None, output: std::mem::take(&mut self.output) };
        let mut news = None;
        for (index, attempt) in self.attempts.iter().enumerate() {
            note.output.extend(attempt.report.take_output(false, now));
            if let Some(progress) = attempt.report.take_news() {
                note.progress = Some((progress.done, progress.total));
                news = Some(index);
            }
        }
        if news.is_some() {
            self.is_live = true;
            self.stay_live();
            self.show(news);
        }
        if note.progress.is_none() && note.output.is_empty() {
            return;
        }
        let output = note.output.clone();
        let (store, cut_off) = (&self.inner.store, &self.cut_off);
        let answer = async {
            tokio::select! {
                biased;
                answer = store.note(vec![note]) => answer,
                () = cut_off.comes() => Ok(()),
            }
        };
        if let Err(error) = meanwhile(&mut self.running, &mut self.ended, pin!(answer)).await {
            tracing::warn!(task = %self.key.id, error = %chain(&error), "progress could not be stored");
            // It goes with the next note, or with the attempt's end.
            self.output = output;
        }
    }

    /// An attempt has ended: what it said last is shown before that.
    pub(crate) fn show_last_word(&mut self, stage: usize) {
        let index = self.attempts.iter().position(|attempt| attempt.stage == stage);
        if let Some(index) = index.filter(|index| self.attempts[*index].report.take_news().is_some()) {
            self.show(Some(index));
        }
    }

    /// Keeps what this node knows of its running attempts up to date for whoever asks.
    pub(crate) fn stay_live(&mut self) {
        if self.is_live {
            self.is_live = !self.attempts.is_empty();
            let reports = self.attempts.iter().map(|attempt| attempt.report.clone()).collect();
            self.inner.live.set(&self.key.id, reports);
        }
    }

    /// Says how far the task is, also when there is nothing new: whoever watches sees that it lives.
    pub(crate) fn beat(&mut self) {
        self.heartbeat = None;
        // A report that just went out has said the same.
        if self.shown_at.is_none_or(|shown_at| shown_at.elapsed() >= REPORT_EVERY) {
            self.show(None);
            // And one that is about to go out must not follow at once.
            self.report_at = self.report_at.map(|_| Instant::now() + REPORT_EVERY);
        }
    }

    /// Tells the feed how far the task is, in the words of one of its attempts.
    pub(crate) fn show(&mut self, attempt: Option<usize>) {
        self.shown_at = Some(Instant::now());
        self.inner.feed.publish(|| {
            let said = |attempt: &Attempt| attempt.report.said();
            let (done, stages) = (self.task.done().len(), self.task.stages().len());
            let shares = self.attempts.iter().filter_map(said).map(|said| said.share);
            let attempt = attempt.and_then(|index| self.attempts.get(index));
            let attempt = attempt.or_else(|| self.attempts.iter().min_by_key(|attempt| attempt.stage));
            let current = || self.task.current_stage().map(|index| self.task.stage(index).0.name.clone());
            FeedItem::Progress {
                plan: self.task.spec().plan.clone(),
                task: self.key.id.clone(),
                status: self.task.status(),
                stage: attempt.map(|attempt| attempt.report.stage.clone()).or_else(current),
                progress: attempt.and_then(said).map(|said| said.progress),
                rate: attempt.and_then(|attempt| attempt.report.rate()),
                done,
                stages,
                percent: percent_with(self.task.status(), done, stages, shares),
            }
        });
    }
}
