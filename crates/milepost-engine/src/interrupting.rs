//! A pause or a stop that need not wait: stages of interruptible kinds are cut off, and made again from their start when
//! the task goes on.
//!
//! Only when everything that runs can be cut off: a task with another stage beside it has to wait for that one's end in any
//! case, and what is cut off sooner is only lost sooner.

use milepost_core::task::{By, Command, Decision, Rejection, StageResult, StageStatus, TaskStatus, decide};

use crate::runner::{Over, Runner};

impl Runner {
    /// Nothing of it is to start any more. What undoes it is none of this.
    pub(crate) fn is_to_stand_still(&self) -> bool {
        (self.stopping || self.task.pause_requested().is_some()) && self.task.status() == TaskStatus::Running
    }

    /// There is no end of a stage that a pause or a stop would have to wait for.
    pub(crate) fn waits_for_nothing(&self) -> bool {
        self.task.status() == TaskStatus::Running
            && self.ended.is_empty()
            && self.attempts.iter().all(|attempt| attempt.interruptible)
            && self.task.stages().any(|(_, state)| state.status == StageStatus::Running)
    }

    /// It is recorded as running, but has no place to run in yet or was cut off.
    pub(crate) fn nothing_runs_of_it(&self) -> bool {
        self.attempts.is_empty() && self.waits_for_nothing()
    }

    /// Ends every attempt and waits until they are gone. What ended well before it noticed counts.
    pub(crate) async fn cut_off_attempts(&mut self) {
        self.attempts.iter().for_each(|attempt| attempt.cancel.cancel());
        let mut cut_off = Vec::new();
        while let Some(ended) = futures::StreamExt::next(&mut self.running).await {
            match ended.result {
                StageResult::Success(_) | StageResult::Skip(_) => self.ended.push_back(ended),
                StageResult::Failure(_) | StageResult::Refused(_) => cut_off.push(ended.stage),
            }
        }
        // How far they came is there to be seen until the task goes on.
        self.report().await;
        cut_off.into_iter().for_each(|stage| self.collect_output(stage));
    }

    pub(crate) async fn stand_still(&mut self) -> Result<(), Over> {
        self.cut_off_attempts().await;
        if !self.nothing_runs_of_it() {
            return Ok(());
        }
        let decision = match self.task.pause_requested().cloned() {
            Some(by) => self.pause_now(by),
            None => decide(&self.task, interrupt("the node was stopped"), self.inner.clock.now()),
        };
        match decision {
            Ok(decision) => self.accept(decision).await,
            Err(_) => Err(Over::Lost),
        }
    }

    /// Pauses a task of which nothing runs, in one commit.
    pub(crate) fn pause_now(&self, by: By) -> Result<Decision, Rejection> {
        let now = self.inner.clock.now();
        let reason =
            if self.has_place() { "it was paused in the middle of a stage" } else { "it had no place to run in yet" };
        let Decision { mut events, task } = decide(&self.task, interrupt(reason), now)?;
        let paused = decide(&task, Command::Pause(by), now)?;
        events.extend(paused.events);
        Ok(Decision { events, task: paused.task })
    }
}

fn interrupt(reason: &str) -> Command {
    Command::Interrupt { reason: reason.to_owned() }
}
