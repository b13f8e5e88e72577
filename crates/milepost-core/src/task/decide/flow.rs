//! What happens next in a workflow. Its function decides what is done; these are the rules it is done by.

use serde_json::Value;

use crate::failure::{ErrorType, Failure};
use crate::id::{IdempotencyKey, StageName, TaskId};
use crate::planted::planted;

use super::super::event::{By, Cause, Event};
use super::super::flow::{KnownSignal, Step, StepKind, outputs_of};
use super::super::status::{StageStatus, TaskStatus};
use super::{Draft, Rejection};

impl Draft<'_> {
    /// Everything that follows by itself; the function is asked for the rest.
    pub(super) fn flow_on(&mut self, stopping: bool) {
        let busy = !self.task.interrupted && !self.claiming && self.some_stage_runs();
        if let Some(by) = self.task.pause_requested.clone() {
            if !busy {
                self.push(Event::TaskPaused { by: Some(by) });
            }
            return;
        }
        if stopping {
            if !busy {
                self.interrupt("the node was stopped".to_owned());
            }
            return;
        }
        if std::mem::take(&mut self.claiming) {
            self.repeat_cut_off_steps();
        }
        self.end_waits();
        self.start_due_steps();
    }

    pub(super) fn begin(&mut self, steps: Vec<(StageName, Step)>) -> Result<(), Rejection> {
        self.must_run("go on with")?;
        if self.task.pause_requested.is_none() {
            for (stage, step) in steps {
                let attempt = 1;
                self.push(Event::StageStarted { stage, attempt, rollback: false, step: Some(Box::new(step)) });
            }
        }
        self.flow_on(false);
        Ok(())
    }

    pub(super) fn remember(&mut self, values: Vec<(String, Value)>) -> Result<(), Rejection> {
        self.must_run("go on with")?;
        for (name, value) in values {
            self.push(Event::ValueRecorded { name, value });
        }
        Ok(())
    }

    /// One that was received before changes nothing, whatever has become of the task since.
    pub(super) fn signal(
        &mut self,
        name: StageName,
        payload: Value,
        by: By,
        id: Option<IdempotencyKey>,
    ) -> Result<(), Rejection> {
        let task = || self.task.spec.id.to_string();
        let Some(flow) = &self.task.flow else { return Err(Rejection::NotAWorkflow { task: task() }) };
        if let Some(id) = &id {
            match flow.known_signal(id, &name, &payload) {
                Some(KnownSignal::Same) if !planted("a signal is received twice") => return Ok(()),
                Some(KnownSignal::Same) => {}
                Some(KnownSignal::Other) => {
                    return Err(Rejection::KeyReused { task: task(), key: id.to_string() });
                }
                None => {}
            }
        }
        match self.task.status {
            TaskStatus::Pending | TaskStatus::Running | TaskStatus::Paused => {
                self.push(Event::SignalReceived { name, payload, by, id });
                self.end_waits();
                Ok(())
            }
            TaskStatus::Completed
            | TaskStatus::Failed
            | TaskStatus::Cancelled
            | TaskStatus::RollingBack
            | TaskStatus::RolledBack
            | TaskStatus::RollbackFailed => Err(self.refuse("signal", String::new())),
        }
    }

    /// Late or repeated news of a child changes nothing.
    pub(super) fn child_ended(&mut self, child: &TaskId, result: Result<Value, Cause>) -> Result<(), Rejection> {
        let waits = |index: &usize| {
            let flow = self.task.flow.as_ref()?;
            matches!(&flow.steps[*index].kind, StepKind::Child { task } if task == child).then_some(())
        };
        let open = || self.task.flow.as_ref()?.open.iter().copied().find(|index| waits(index).is_some());
        let waiting = open().filter(|_| self.task.status == TaskStatus::Running);
        let Some(index) = waiting else {
            let (task, stage) = (self.task.spec.id.to_string(), child.to_string());
            return Err(Rejection::Stale { task, stage, attempt: 1 });
        };
        let (stage, attempt) = (self.name(index), 1);
        match result {
            Ok(value) => self.push(Event::StageCompleted { stage, attempt, outputs: outputs_of(value).into() }),
            Err(cause) => self.push(Event::StageFailed { stage, attempt, cause, rollback: false }),
        }
        Ok(())
    }

    /// A failure that nobody handled undoes what was done, by itself.
    pub(super) fn returned(&mut self, result: Result<Value, Failure>) -> Result<(), Rejection> {
        self.must_run("end")?;
        match result {
            // Nothing at all stands for null, as it does when the log is read.
            Ok(value) => self.push(Event::TaskCompleted { result: (!value.is_null()).then(|| value.into()) }),
            Err(failure) => {
                let cause = Cause::from(&failure);
                let stage = self.stage_that_failed_so(&cause);
                self.fail(stage, failure.attempts, cause);
                self.undo_if_asked(false);
            }
        }
        Ok(())
    }

    pub(super) fn continue_as_new(&mut self, input: Value) -> Result<(), Rejection> {
        self.must_run("go on with")?;
        self.push(Event::TaskContinued { input: input.into() });
        Ok(())
    }

    /// Nothing is undone: what was recorded is good, and goes on as soon as the code is what it was.
    pub(super) fn diverged(&mut self, stage: Option<StageName>, reason: String) -> Result<(), Rejection> {
        self.must_run("go on with")?;
        let cause = Cause { error_type: ErrorType::Determinism, reason };
        self.fail(stage, None, cause);
        Ok(())
    }

    fn must_run(&self, verb: &'static str) -> Result<(), Rejection> {
        let runs = self.task.status == TaskStatus::Running && !self.task.interrupted && self.task.flow.is_some();
        if runs { Ok(()) } else { Err(self.refuse(verb, String::new())) }
    }

    /// Something of ours is under way; a step that only waits keeps nobody from pausing or stopping.
    fn some_stage_runs(&self) -> bool {
        self.open_steps()
            .iter()
            .any(|index| self.task.stages[*index].status == StageStatus::Running && !self.kind(*index).only_waits())
    }

    /// An attempt that a crash cut off is repeated under its own number; a wait goes on waiting.
    fn repeat_cut_off_steps(&mut self) {
        for index in self.open_steps() {
            let state = &self.task.stages[index];
            if state.status == StageStatus::Running && !self.kind(index).only_waits() {
                let (stage, attempt) = (self.name(index), state.attempt);
                self.push(Event::StageStarted { stage, attempt, rollback: false, step: None });
            }
        }
    }

    /// Sleeps that are over, signals that have come, and signals that came too late.
    fn end_waits(&mut self) {
        if self.task.status != TaskStatus::Running {
            return;
        }
        for index in self.open_steps() {
            let (stage, attempt, now) = (self.name(index), 1, self.now);
            match self.kind(index).clone() {
                StepKind::Sleep { until } if until <= now => {
                    self.push(Event::StageCompleted { stage, attempt, outputs: Default::default() });
                }
                StepKind::Signal { name, deadline } => match (self.first_signal(&name), deadline) {
                    (Some(payload), _) => {
                        self.push(Event::StageCompleted { stage, attempt, outputs: outputs_of(payload).into() });
                    }
                    (None, Some(deadline)) if deadline <= now => {
                        let reason = format!("signal `{name}` did not come by {deadline}");
                        let cause = Cause { error_type: ErrorType::Timeout, reason };
                        self.push(Event::StageFailed { stage, attempt, cause, rollback: false });
                    }
                    (None, _) => {}
                },
                StepKind::Sleep { .. } | StepKind::Stage | StepKind::Child { .. } => {}
            }
        }
    }

    fn start_due_steps(&mut self) {
        for index in self.open_steps() {
            let state = &self.task.stages[index];
            if state.due().is_some_and(|due| due <= self.now) {
                let (stage, attempt) = (self.name(index), state.attempt);
                self.push(Event::StageStarted { stage, attempt, rollback: false, step: None });
            }
        }
    }

    fn open_steps(&self) -> Vec<usize> {
        self.task.flow.as_ref().map(|flow| flow.open.iter().copied().collect()).unwrap_or_default()
    }

    fn kind(&self, index: usize) -> &StepKind {
        let flow = self.task.flow.as_ref().expect("only a workflow has steps");
        &flow.steps[index].kind
    }

    fn first_signal(&self, name: &StageName) -> Option<Value> {
        self.task.flow.as_ref()?.inbox.get(name)?.front().cloned()
    }

    /// The function hands on a stage's failure as it got it.
    fn stage_that_failed_so(&self, cause: &Cause) -> Option<StageName> {
        let flow = self.task.flow.as_ref()?;
        let of = |index: &&usize| {
            let state = &self.task.stages[**index];
            state.status == StageStatus::Failed && state.cause.as_ref() == Some(cause)
        };
        flow.answered.iter().rev().find(of).map(|index| self.name(*index))
    }
}
