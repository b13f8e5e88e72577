//! Where a workflow's function and its runner meet: the function leaves what it asks for, the runner leaves answers.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as Poll, Waker};

use futures::task::AtomicWaker;
use milepost_core::failure::{ErrorType, Failure};
use milepost_core::id::{StageName, TaskId, Tenant};
use milepost_core::plan::WorkflowRef;
use milepost_core::retry::RetryPolicy;
use milepost_core::task::{Answer, StageResult, StageStatus, Task};
use milepost_core::time::{Millis, Timestamp};
use serde_json::Value;

use crate::clock::Clock;
use crate::stage::Progress;

use super::divergence::{Divergence, Place};
use super::stand_in::StandIns;
use super::undo::Handler;

/// Shared by the function's contexts and its runner, for one generation of one task.
pub(crate) struct Desk {
    pub(crate) task: TaskId,
    pub(crate) tenant: Option<Tenant>,
    /// Its name, whatever the version.
    pub(crate) workflow: String,
    pub(crate) seed: u64,
    pub(crate) generation: u32,
    pub(crate) stand_ins: Arc<StandIns>,
    clock: Clock,
    state: Mutex<State>,
    /// The runner, when it waits for news.
    runner: AtomicWaker,
}

#[derive(Default)]
struct State {
    /// What the log had when the function was started; a stage that is to be done again is not part of it.
    recorded: HashMap<StageName, Recorded>,
    places: HashMap<Place, StageName>,
    scopes: HashMap<Arc<str>, Scope>,
    operations: HashMap<StageName, Operation>,
    /// Everything that the function has been told or has drawn.
    values: BTreeMap<String, Value>,
    handlers: HashMap<StageName, Handler>,
    news: News,
    continued: Option<Value>,
    /// The log is all there will ever be: nothing that is asked for is new.
    past: bool,
    /// Nobody listens any more: what is dropped now is not news.
    closed: bool,
}

struct Recorded {
    place: Place,
    kind: &'static str,
    digest: Option<u64>,
}

#[derive(Default)]
struct Scope {
    operations: u32,
    /// The last place that the log has something at.
    recorded: u32,
    names: HashMap<String, u32>,
}

/// What the function said since the runner last looked.
#[derive(Default)]
pub(crate) struct News {
    pub(crate) asked: Vec<StageName>,
    pub(crate) ended: Vec<Ended>,
    pub(crate) abandoned: Vec<StageName>,
    pub(crate) values: Vec<(String, Value)>,
    pub(crate) progress: Option<Progress>,
    pub(crate) diverged: Option<Divergence>,
}

impl News {
    fn is_empty(&self) -> bool {
        self.asked.is_empty()
            && self.ended.is_empty()
            && self.abandoned.is_empty()
            && self.values.is_empty()
            && self.progress.is_none()
            && self.diverged.is_none()
    }
}

/// One attempt is over.
pub(crate) struct Ended {
    pub(crate) stage: StageName,
    pub(crate) attempt: u32,
    pub(crate) result: StageResult,
}

/// Something that the function asks for.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) kind: WantedKind,
    pub(crate) digest: Option<u64>,
    pub(crate) retry: RetryPolicy,
    pub(crate) timeout: Option<Millis>,
}

#[derive(Debug, Clone)]
pub(crate) enum WantedKind {
    Stage,
    Sleep(Millis),
    Signal { name: StageName, within: Option<Millis> },
    Child { workflow: WorkflowRef, input: Value },
}

impl WantedKind {
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            WantedKind::Stage => "stage",
            WantedKind::Sleep(_) => "sleep",
            WantedKind::Signal { .. } => "signal",
            WantedKind::Child { .. } => "child",
        }
    }
}

struct Operation {
    wanted: Wanted,
    place: Place,
    /// The how-manieth operation of all, to begin those that came together in the order of the code.
    number: usize,
    rollback: bool,
    phase: Phase,
    waker: Option<Waker>,
    order: Option<Told>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Made, and not awaited yet.
    Made,
    Awaited,
    /// Its future was dropped, or has had its answer.
    Gone,
}

/// What the runner tells an operation.
#[derive(Debug)]
pub(crate) enum Told {
    Run { attempt: u32, timeout: Option<Millis> },
    Answer(Answer),
}

/// What a runner needs to begin an operation.
pub(crate) struct Request {
    pub(crate) stage: StageName,
    pub(crate) wanted: Wanted,
    pub(crate) place: Place,
    pub(crate) rollback: bool,
    number: usize,
}

impl Desk {
    pub(crate) fn new(task: &Task, clock: Clock, stand_ins: &Arc<StandIns>) -> Arc<Self> {
        let flow = task.flow().expect("only a workflow has a desk");
        let mut state = State { values: flow.values().clone(), ..State::default() };
        for (index, (definition, stage)) in task.stages().enumerate() {
            if stage.status == StageStatus::Pending {
                continue;
            }
            let step = flow.step(index);
            let place = Place { scope: step.scope.clone(), place: step.place };
            let scope = state.scopes.entry(step.scope.clone()).or_default();
            scope.recorded = scope.recorded.max(step.place);
            state.places.insert(place.clone(), definition.name.clone());
            let recorded = Recorded { place, kind: step.kind.as_str(), digest: step.digest };
            state.recorded.insert(definition.name.clone(), recorded);
        }
        Arc::new(Self {
            task: task.id().clone(),
            tenant: task.spec().tenant.clone(),
            workflow: task.spec().workflow.as_ref().map(|it| it.name.to_string()).unwrap_or_default(),
            seed: task.spec().seed,
            generation: flow.generation(),
            stand_ins: stand_ins.clone(),
            clock,
            state: Mutex::new(state),
            runner: AtomicWaker::new(),
        })
    }

    /// For a run that is over: whatever its function does, it has done before.
    pub(crate) fn of_the_past(task: &Task) -> Arc<Self> {
        let desk = Self::new(task, Clock::system(), &Arc::default());
        desk.state().past = true;
        desk
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // --- the function's side ---

    /// A name of its own for the branch, the second time with a number.
    pub(crate) fn branch(&self, scope: &Arc<str>, name: &str) -> Arc<str> {
        let mut state = self.state();
        let taken = state.scopes.entry(scope.clone()).or_default().names.entry(format!("branch {name}")).or_default();
        *taken += 1;
        full_name(scope, name, *taken).into()
    }

    /// The function makes an operation: its name, unless there is something wrong with it.
    pub(crate) fn make(
        &self,
        scope: &Arc<str>,
        name: &str,
        wanted: Wanted,
        handler: Option<Handler>,
    ) -> Result<StageName, Failure> {
        let mut state = self.state();
        let state = &mut *state;
        let invalid = |reason: String| Failure::fatal(ErrorType::Validation, reason);
        let of_scope = state.scopes.entry(scope.clone()).or_default();
        of_scope.operations += 1;
        let place = Place { scope: scope.clone(), place: of_scope.operations };
        let nth = of_scope.names.entry(name.to_owned()).or_default();
        *nth += 1;
        let stage = StageName::parse(full_name(scope, name, *nth)).map_err(|error| invalid(error.to_string()))?;
        if state.operations.contains_key(&stage) {
            let words = format!("two stages of this workflow are called `{stage}`; give one of them another name");
            return Err(invalid(words));
        }
        if let Some(divergence) = state.compare(&stage, &place, &wanted) {
            state.news.diverged.get_or_insert(divergence);
        }
        let rollback = handler.is_some();
        if let Some(handler) = handler {
            state.handlers.insert(stage.clone(), handler);
        }
        let number = state.operations.len();
        let operation = Operation { wanted, place, number, rollback, phase: Phase::Made, waker: None, order: None };
        state.operations.insert(stage.clone(), operation);
        Ok(stage)
    }

    /// The function waits for an operation: what it was told, if it was.
    pub(crate) fn listen(&self, stage: &StageName, poll: &Poll<'_>) -> Option<Told> {
        let mut state = self.state();
        let state = &mut *state;
        let operation = state.operations.get_mut(stage)?;
        if let Some(told) = operation.order.take() {
            if matches!(told, Told::Answer(_)) {
                operation.phase = Phase::Gone;
            }
            return Some(told);
        }
        operation.waker = Some(poll.waker().clone());
        if operation.phase == Phase::Made {
            operation.phase = Phase::Awaited;
            if !state.recorded.contains_key(stage) {
                state.news.asked.push(stage.clone());
                self.runner.wake();
            }
        }
        None
    }

    pub(crate) fn ended(&self, ended: Ended) {
        self.state().news.ended.push(ended);
        self.runner.wake();
    }

    /// The function no longer waits for it.
    pub(crate) fn abandon(&self, stage: &StageName) {
        let mut state = self.state();
        let state = &mut *state;
        let Some(operation) = state.operations.get_mut(stage).filter(|_| !state.closed) else { return };
        if operation.phase == Phase::Awaited {
            operation.phase = Phase::Gone;
            state.news.abandoned.push(stage.clone());
            self.runner.wake();
        }
    }

    /// The value under this name and number, drawn only the first time it is asked for.
    pub(crate) fn value(&self, scope: &Arc<str>, name: &str, draw: impl FnOnce(&str, Timestamp) -> Value) -> Value {
        let mut state = self.state();
        let taken = state.scopes.entry(scope.clone()).or_default().names.entry(format!("value {name}")).or_default();
        *taken += 1;
        let key = full_name(scope, name, *taken);
        self.remember(&mut state, key, draw)
    }

    /// Whether code that has been changed under this name is to be run as it is now.
    pub(crate) fn patched(&self, scope: &Arc<str>, id: &str) -> bool {
        let mut state = self.state();
        let replays = state.replays(scope);
        let value = self.remember(&mut state, format!("patched {id}"), |_, _| Value::Bool(!replays));
        value == Value::Bool(true)
    }

    fn remember(&self, state: &mut State, key: String, draw: impl FnOnce(&str, Timestamp) -> Value) -> Value {
        if let Some(value) = state.values.get(&key) {
            return value.clone();
        }
        let value = draw(&key, self.clock.now());
        state.values.insert(key.clone(), value.clone());
        state.news.values.push((key, value.clone()));
        value
    }

    pub(crate) fn is_replaying(&self, scope: &Arc<str>) -> bool {
        self.state().replays(scope)
    }

    pub(crate) fn progress(&self, progress: Progress) {
        self.state().news.progress = Some(progress);
        self.runner.wake();
    }

    pub(crate) fn continue_as_new(&self, input: Value) {
        self.state().continued = Some(input);
    }

    // --- the runner's side ---

    /// The runner wants to know when there is something new.
    pub(crate) fn has_news(&self, poll: &Poll<'_>) -> bool {
        self.runner.register(poll.waker());
        !self.state().news.is_empty()
    }

    pub(crate) fn news(&self) -> News {
        std::mem::take(&mut self.state().news)
    }

    pub(crate) fn news_of_divergence(&self) -> Option<Divergence> {
        self.state().news.diverged.take()
    }

    pub(crate) fn phase(&self, stage: &StageName) -> Option<Phase> {
        self.state().operations.get(stage).map(|operation| operation.phase)
    }

    /// Leaves an order for an operation and wakes it.
    pub(crate) fn tell(&self, stage: &StageName, told: Told) {
        let waker = {
            let mut state = self.state();
            let Some(operation) = state.operations.get_mut(stage) else { return };
            operation.order = Some(told);
            operation.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Those that are still waited for, in the order in which the code made them.
    pub(crate) fn requests(&self, asked: &[StageName]) -> Vec<Request> {
        let state = self.state();
        let request = |stage: &StageName| {
            let operation = state.operations.get(stage).filter(|operation| operation.phase == Phase::Awaited)?;
            Some(Request {
                stage: stage.clone(),
                wanted: operation.wanted.clone(),
                place: operation.place.clone(),
                rollback: operation.rollback,
                number: operation.number,
            })
        };
        let mut requests: Vec<Request> = asked.iter().filter_map(request).collect();
        requests.sort_by_key(|request| request.number);
        requests
    }

    pub(crate) fn wanted(&self, stage: &StageName) -> Option<Wanted> {
        self.state().operations.get(stage).map(|operation| operation.wanted.clone())
    }

    pub(crate) fn handler(&self, stage: &StageName) -> Option<Handler> {
        self.state().handlers.get(stage).cloned()
    }

    pub(crate) fn continued(&self) -> Option<Value> {
        self.state().continued.take()
    }

    /// From here on nothing that the function does, or that becomes of it, is news.
    pub(crate) fn close(&self) {
        self.state().closed = true;
    }
}

impl State {
    fn compare(&self, stage: &StageName, place: &Place, wanted: &Wanted) -> Option<Divergence> {
        let recorded = self.recorded.get(stage);
        if let Some(recorded) = recorded.filter(|recorded| recorded.place != *place) {
            return Some(Divergence::OtherOrder {
                kind: recorded.kind,
                stage: stage.clone(),
                recorded: recorded.place.clone(),
                asked: place.clone(),
            });
        }
        if let Some(other) = self.places.get(place).filter(|other| *other != stage) {
            return Some(Divergence::OtherStage {
                kind: self.recorded.get(other).map_or("stage", |recorded| recorded.kind),
                recorded: other.clone(),
                place: place.clone(),
                asked: stage.clone(),
            });
        }
        let recorded = recorded?;
        if recorded.kind != wanted.kind.as_str() {
            let (recorded, asked) = (recorded.kind, wanted.kind.as_str());
            return Some(Divergence::OtherKind { stage: stage.clone(), recorded, asked });
        }
        match (recorded.digest, wanted.digest) {
            (Some(was), Some(is)) if was != is => {
                Some(Divergence::ChangedInput { kind: recorded.kind, stage: stage.clone(), recorded: was, asked: is })
            }
            (Some(_) | None, Some(_) | None) => None,
        }
    }

    /// The branch has not come to the end of what the log has of it; one of which it has nothing is as old as the rest.
    fn replays(&self, scope: &Arc<str>) -> bool {
        if self.past {
            return true;
        }
        let (asked, recorded) = self.scopes.get(scope).map_or((0, 0), |scope| (scope.operations, scope.recorded));
        if asked == 0 && recorded == 0 {
            return self.operations.len() < self.recorded.len();
        }
        asked < recorded
    }
}

/// `charge`, then `charge.2`; in a branch `left.charge`.
fn full_name(scope: &str, name: &str, nth: u32) -> String {
    let dot = if scope.is_empty() { "" } else { "." };
    if nth > 1 { format!("{scope}{dot}{name}.{nth}") } else { format!("{scope}{dot}{name}") }
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("task", &self.task).field("generation", &self.generation).finish_non_exhaustive()
    }
}
