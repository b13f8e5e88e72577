//! A workflow's recorded run, and today's function run against it: nothing is done, every answer comes from the log.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as Poll, Poll as Polled};

use futures::FutureExt;
use futures::task::ArcWake;
use milepost_core::failure::{ErrorType, Failure};
use milepost_core::id::{StageName, TaskId};
use milepost_core::plan::WorkflowRef;
use milepost_core::task::{Cause, CorruptLog, Event, Record, StageStatus, Task, TaskSpec, TaskStatus};
use milepost_core::time::Timestamp;
use milepost_store::{EventQuery, Store, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::child::Run;
use super::context::Context;
use super::desk::{Desk, Told};
use super::divergence::{Divergence, Instead, Place};
use super::function::Workflow;
use super::runner::Function;
use crate::clock::Clock;

/// Events read at a time.
const PAGE: usize = 1000;

/// A run as it was recorded: all that a replay needs, and good JSON to keep beside the tests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    pub task_id: TaskId,
    pub workflow: WorkflowRef,
    pub input: Value,
    pub created_at: Timestamp,
    /// From TASK_CREATED on, in the form in which they are stored.
    pub events: Vec<Record>,
}

impl History {
    /// None: there is no such task, or it runs a plan's stages.
    pub async fn read(store: &dyn Store, task: &TaskId) -> Result<Option<Self>, StoreError> {
        let Some(stored) = store.task(task).await? else { return Ok(None) };
        let spec = stored.task.spec();
        let Some(workflow) = spec.workflow.clone() else { return Ok(None) };
        let events = log(store, task).await?;
        let (input, created_at) = (Value::clone(&spec.input), spec.created_at);
        Ok(Some(Self { task_id: task.clone(), workflow, input, created_at, events }))
    }

    fn task(&self) -> Task {
        let plan = Run::new(self.workflow.clone(), self.task_id.clone(), self.input.clone()).plan();
        let settings = Arc::new(plan.definition.settings.clone());
        let task = plan.tasks.into_iter().next().expect("a workflow is a plan of one task");
        Task::created(Arc::new(TaskSpec::new(&plan.definition, settings, task, self.created_at)))
    }
}

/// The whole log of a task.
pub async fn log(store: &dyn Store, task: &TaskId) -> Result<Vec<Record>, StoreError> {
    let (mut events, mut after) = (Vec::new(), 0);
    loop {
        let page = store.events(EventQuery { task: task.clone(), after, limit: PAGE }).await?;
        let last = page.len() < PAGE;
        after = page.last().map_or(after, |event| event.sequence);
        events.extend(page.into_iter().map(|event| event.record));
        if last {
            return Ok(events);
        }
    }
}

/// Where a function and a log part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Diverged {
    /// Stays the same from release to release: `other-stage`, `missing-stage`, `other-result`, ...
    pub code: &'static str,
    /// The stage of the log that it is about.
    pub stage: Option<StageName>,
    pub message: String,
}

impl Diverged {
    fn new(code: &'static str, message: String) -> Self {
        Self { code, stage: None, message }
    }
}

impl From<Divergence> for Diverged {
    fn from(divergence: Divergence) -> Self {
        let text = divergence.to_string();
        let message = text.split_once(": ").map_or(text.as_str(), |(_, rest)| rest).to_owned();
        Self { code: divergence.code(), stage: Some(divergence.stage().clone()), message }
    }
}

impl From<CorruptLog> for Diverged {
    fn from(corrupt: CorruptLog) -> Self {
        Self::new("corrupt-log", corrupt.to_string())
    }
}

/// What a replay came to when nothing diverged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    pub events: usize,
}

/// Runs a function against a recorded run. Stages never run, and nothing is written anywhere.
pub fn replay(workflow: &dyn Workflow, history: &History) -> Result<Replayed, Diverged> {
    let reference = workflow.reference();
    if reference != history.workflow {
        let (was, task) = (&history.workflow, &history.task_id);
        return Err(Diverged::new("other-workflow", format!("the log of {task} is of {was}, the code is {reference}")));
    }
    let mut task = history.task();
    for record in history.events.iter().skip_while(|record| matches!(record.event(), Event::TaskCreated {})) {
        if let Event::TaskContinued { input } = record.event() {
            // Each generation is a run of the function of its own.
            Player::new(workflow, &task, true).play()?.continues_with(input)?;
        }
        task = task.apply(record)?;
    }
    let ended = !matches!(task.status(), TaskStatus::Pending | TaskStatus::Running | TaskStatus::Paused);
    if task.started_at().is_some() {
        Player::new(workflow, &task, ended).play()?.ends_as(&task)?;
    }
    Ok(Replayed { events: history.events.len() })
}

/// One run of the function against what the log has of it.
struct Player<'a> {
    task: &'a Task,
    desk: Arc<Desk>,
    function: Function,
    awake: Arc<Awake>,
    returned: Option<Result<Value, Failure>>,
}

/// How far the function came.
struct Played {
    desk: Arc<Desk>,
    /// None: it waits.
    returned: Option<Result<Value, Failure>>,
    /// Something that the log does not have.
    asked: Option<StageName>,
}

struct Awake(AtomicBool);

impl ArcWake for Awake {
    fn wake_by_ref(arc_self: &Arc<Self>) {
        arc_self.0.store(true, Ordering::Release);
    }
}

impl<'a> Player<'a> {
    fn new(workflow: &dyn Workflow, task: &'a Task, ended: bool) -> Self {
        let flow = task.flow().expect("a history is a workflow's");
        let desk = if ended { Desk::of_the_past(task) } else { Desk::new(task, Clock::system(), &Arc::default()) };
        let (context, input) = (Context::new(desk.clone()), flow.input().clone());
        let called = std::panic::catch_unwind(AssertUnwindSafe(|| workflow.run(context, input)));
        let function = match called {
            Ok(function) => AssertUnwindSafe(function)
                .catch_unwind()
                .map(|result| result.unwrap_or_else(|panic| Err(crate::attempt::panicked(&*panic))))
                .boxed(),
            Err(panic) => futures::future::ready(Err(crate::attempt::panicked(&*panic))).boxed(),
        };
        Self { task, desk, function, awake: Arc::new(Awake(AtomicBool::new(false))), returned: None }
    }

    fn play(mut self) -> Result<Played, Diverged> {
        let flow = self.task.flow().expect("a history is a workflow's");
        for &index in flow.answered() {
            self.go_on();
            let name = &self.task.stage(index).0.name;
            if let Some(divergence) = self.desk.news_of_divergence() {
                return Err(divergence.into());
            }
            if self.desk.phase(name).is_none() {
                let instead = if self.returned.is_some() { Instead::Returned } else { Instead::Waits };
                return Err(self.missing(index, instead).into());
            }
            if let Some(answer) = self.task.answer(index) {
                self.desk.tell(name, Told::Answer(answer));
            }
        }
        self.go_on();
        if let Some(divergence) = self.desk.news_of_divergence() {
            return Err(divergence.into());
        }
        let instead = if self.returned.is_some() { Instead::Returned } else { Instead::Waits };
        let made = |name: &StageName| self.desk.phase(name).is_some();
        let missing = self
            .task
            .stages()
            .position(|(definition, state)| state.status != StageStatus::Pending && !made(&definition.name));
        if let Some(index) = missing {
            return Err(self.missing(index, instead).into());
        }
        let asked = self.desk.news().asked.into_iter().next();
        self.desk.close();
        Ok(Played { desk: self.desk, returned: self.returned, asked })
    }

    /// Lets the function go as far as it can by itself.
    fn go_on(&mut self) {
        let waker = futures::task::waker(self.awake.clone());
        let mut poll = Poll::from_waker(&waker);
        while self.returned.is_none() {
            self.awake.0.store(false, Ordering::Release);
            if let Polled::Ready(result) = self.function.as_mut().poll(&mut poll) {
                self.returned = Some(result);
            } else if !self.awake.0.load(Ordering::Acquire) {
                return;
            }
        }
    }

    fn missing(&self, index: usize, instead: Instead) -> Divergence {
        let step = self.task.flow().expect("a history is a workflow's").step(index);
        let place = Place { scope: step.scope.clone(), place: step.place };
        let recorded = self.task.stage(index).0.name.clone();
        Divergence::MissingStage { kind: step.kind.as_str(), recorded, place, instead }
    }
}

impl Played {
    fn continues_with(self, input: &Value) -> Result<(), Diverged> {
        match self.desk.continued() {
            Some(next) if next == *input => Ok(()),
            Some(next) => Err(Diverged::new(
                "other-input",
                format!("the log continues as new with {input}, the code with {next}"),
            )),
            None => Err(self.instead_of("continues as new")),
        }
    }

    fn ends_as(self, task: &Task) -> Result<(), Diverged> {
        match (task.status(), &self.returned) {
            // It may go on from here in any way.
            (TaskStatus::Pending | TaskStatus::Running | TaskStatus::Paused | TaskStatus::Cancelled, _) => Ok(()),
            (TaskStatus::Completed, Some(Ok(value))) => {
                let recorded = task.flow().and_then(|flow| flow.result()).map_or(&Value::Null, |value| &**value);
                if value == recorded {
                    return Ok(());
                }
                Err(Diverged::new(
                    "other-result",
                    format!("the log has the result {recorded}, the code returned {value}"),
                ))
            }
            (TaskStatus::Completed, Some(Err(_)) | None) => Err(self.instead_of("completes")),
            (
                TaskStatus::Failed | TaskStatus::RollingBack | TaskStatus::RolledBack | TaskStatus::RollbackFailed,
                returned,
            ) => {
                let Some(cause) = task.failure().map(|failure| &failure.cause) else { return Ok(()) };
                match returned {
                    Some(Err(failure)) if Cause::from(failure) == *cause => Ok(()),
                    // What stopped it came from outside the function, which was still waiting.
                    _ if from_outside(cause) => Ok(()),
                    Some(_) | None => Err(self.instead_of(&format!("fails with `{}`", cause.reason))),
                }
            }
        }
    }

    fn instead_of(&self, recorded: &str) -> Diverged {
        let asked = match (&self.returned, &self.asked) {
            (Some(Ok(value)), _) => format!("returned {value}"),
            (Some(Err(failure)), _) => format!("failed with `{}`", failure.reason),
            (None, Some(stage)) => format!("asked for `{stage}`"),
            (None, None) => "waits".to_owned(),
        };
        Diverged::new("other-end", format!("the log {recorded}, the code {asked}"))
    }
}

/// A log that did not fit, a crash loop, or a time limit.
fn from_outside(cause: &Cause) -> bool {
    match cause.error_type {
        ErrorType::Determinism | ErrorType::CrashLoop | ErrorType::Timeout => true,
        ErrorType::Validation
        | ErrorType::Conflict
        | ErrorType::Network
        | ErrorType::Unavailable
        | ErrorType::Business
        | ErrorType::Persistence
        | ErrorType::Expired
        | ErrorType::Unknown => false,
    }
}
