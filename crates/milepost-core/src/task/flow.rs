//! The part of a task that only a workflow has: stages found as its function goes, and what else the function was told.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::id::{IdempotencyKey, StageName, TaskId};
use crate::plan::{Action, StageDefinition};
use crate::retry::{RetryPolicy, draw, seed_of};
use crate::time::{Millis, Timestamp};

use super::event::Outputs;
use super::state::StageState;
use super::status::StageStatus;

/// The key under which a step's result stands among its outputs.
const VALUE: &str = "value";

/// Something that a workflow waits for, as its first STAGE_STARTED records it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub kind: StepKind,
    /// The branch it belongs to; empty for the function itself.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub scope: Arc<str>,
    /// Which of that branch's operations it is, from 1: a replay must ask for it at the same place.
    pub place: u32,
    /// Of what the stage was marked as depending on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub retry: RetryPolicy,
    /// Of one attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    /// It can be undone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rollback: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepKind {
    /// Work of its own.
    Stage,
    Sleep {
        until: Timestamp,
    },
    Signal {
        name: StageName,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
    },
    /// Another workflow.
    Child {
        task: TaskId,
    },
}

fn is_empty(text: &Arc<str>) -> bool {
    text.is_empty()
}

fn is_default(retry: &RetryPolicy) -> bool {
    *retry == RetryPolicy::default()
}

impl StepKind {
    pub fn as_str(&self) -> &'static str {
        match self {
            StepKind::Stage => "stage",
            StepKind::Sleep { .. } => "sleep",
            StepKind::Signal { .. } => "signal",
            StepKind::Child { .. } => "child",
        }
    }

    /// Nothing of it runs here: it ends when the time comes, or when somebody says so.
    pub fn only_waits(&self) -> bool {
        match self {
            StepKind::Stage => false,
            StepKind::Sleep { .. } | StepKind::Signal { .. } | StepKind::Child { .. } => true,
        }
    }

    /// When something is to be done about it although nobody said anything.
    pub fn due(&self) -> Option<Timestamp> {
        match self {
            StepKind::Sleep { until } => Some(*until),
            StepKind::Signal { deadline, .. } => *deadline,
            StepKind::Stage | StepKind::Child { .. } => None,
        }
    }
}

/// What a workflow has come to know.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// Parallel to the task's stages.
    pub(super) definitions: Vec<StageDefinition>,
    pub(super) steps: Vec<Step>,
    index: HashMap<StageName, usize, RandomState>,
    /// The task's version when each step was asked for, and when it failed.
    begun: Vec<u64>,
    failed: HashMap<usize, u64>,
    /// Steps with an answer, in the order in which they got it: the order in which the function hears of them.
    pub(super) answered: Vec<usize>,
    /// Steps that run or wait.
    pub(super) open: BTreeSet<usize>,
    pub(super) values: BTreeMap<String, Value>,
    /// Signals that nobody has asked for yet.
    pub(super) inbox: BTreeMap<StageName, VecDeque<Value>>,
    /// The newest signals, so that one that is sent again is known.
    remembered: VecDeque<RememberedSignal>,
    pub(super) input: Arc<Value>,
    pub(super) generation: u32,
    /// How often it was told to run again.
    pub(super) retries: u32,
    pub(super) result: Option<Arc<Value>>,
}

/// A flow as an image has it: without what follows from its names and steps.
#[derive(Serialize, Deserialize)]
pub(super) struct FlowImage<'a> {
    names: Vec<StageName>,
    steps: Cow<'a, [Step]>,
    begun: Cow<'a, [u64]>,
    failed: Cow<'a, HashMap<usize, u64>>,
    answered: Cow<'a, [usize]>,
    open: Cow<'a, BTreeSet<usize>>,
    values: Cow<'a, BTreeMap<String, Value>>,
    inbox: Cow<'a, BTreeMap<StageName, VecDeque<Value>>>,
    #[serde(default)]
    remembered: Cow<'a, VecDeque<RememberedSignal>>,
    input: Arc<Value>,
    generation: u32,
    retries: u32,
    result: Option<Arc<Value>>,
}

/// What a step came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Value(Value),
    Failure(crate::failure::Failure),
}

impl Flow {
    pub(super) fn new(input: Arc<Value>) -> Self {
        Self {
            definitions: Vec::new(),
            steps: Vec::new(),
            index: HashMap::default(),
            begun: Vec::new(),
            failed: HashMap::new(),
            answered: Vec::new(),
            open: BTreeSet::new(),
            values: BTreeMap::new(),
            inbox: BTreeMap::new(),
            remembered: VecDeque::new(),
            input,
            generation: 1,
            retries: 0,
            result: None,
        }
    }

    pub(super) fn weight(&self) -> usize {
        self.values.len() + self.inbox.values().map(VecDeque::len).sum::<usize>() + self.remembered.len()
    }

    pub(super) fn image(&self) -> FlowImage<'_> {
        // No `..`: what a flow gains, its image has to gain.
        let Self {
            definitions,
            steps,
            index: _,
            begun,
            failed,
            answered,
            open,
            values,
            inbox,
            remembered,
            input,
            generation,
            retries,
            result,
        } = self;
        FlowImage {
            names: definitions.iter().map(|definition| definition.name.clone()).collect(),
            steps: Cow::Borrowed(steps),
            begun: Cow::Borrowed(begun),
            failed: Cow::Borrowed(failed),
            answered: Cow::Borrowed(answered),
            open: Cow::Borrowed(open),
            values: Cow::Borrowed(values),
            inbox: Cow::Borrowed(inbox),
            remembered: Cow::Borrowed(remembered),
            input: input.clone(),
            generation: *generation,
            retries: *retries,
            result: result.clone(),
        }
    }

    pub fn step(&self, index: usize) -> &Step {
        &self.steps[index]
    }

    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    pub fn index_of(&self, name: &StageName) -> Option<usize> {
        self.index.get(name).copied()
    }

    /// Steps with an answer, in the order in which they got it.
    pub fn answered(&self) -> &[usize] {
        &self.answered
    }

    /// Steps that run or wait.
    pub fn open(&self) -> impl Iterator<Item = usize> + '_ {
        self.open.iter().copied()
    }

    pub fn value(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    pub fn values(&self) -> &BTreeMap<String, Value> {
        &self.values
    }

    pub fn input(&self) -> &Arc<Value> {
        &self.input
    }

    /// From 1; each `continue_as_new` begins the next.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    pub fn retries(&self) -> u32 {
        self.retries
    }

    /// What the function returned.
    pub fn result(&self) -> Option<&Arc<Value>> {
        self.result.as_ref()
    }

    /// Puts a step where it belongs: at the end, or in the place that an earlier run left for it.
    pub(super) fn begin(&mut self, name: &StageName, step: &Step, version: u64) -> usize {
        let definition = definition(name, step);
        match self.index.get(name) {
            Some(&index) => {
                self.definitions[index] = definition;
                self.steps[index] = step.clone();
                self.begun[index] = version;
                index
            }
            None => {
                let index = self.steps.len();
                self.definitions.push(definition);
                self.steps.push(step.clone());
                self.begun.push(version);
                self.index.insert(name.clone(), index);
                index
            }
        }
    }

    /// Keeps track of a step whose status was changed by the event that makes the task's version `version`.
    pub(super) fn moved(&mut self, index: usize, status: StageStatus, version: u64) {
        match status {
            StageStatus::Running | StageStatus::RetryWait => {
                self.open.insert(index);
            }
            StageStatus::Completed => self.answer(index),
            StageStatus::Failed => {
                self.failed.insert(index, version);
                self.answer(index);
            }
            StageStatus::Pending | StageStatus::Skipped | StageStatus::Cancelled | StageStatus::RolledBack => {
                self.open.remove(&index);
            }
        }
        if status == StageStatus::Completed
            && let StepKind::Signal { name, .. } = &self.steps[index].kind
            && let Some(waiting) = self.inbox.get_mut(name)
        {
            waiting.pop_front();
            if waiting.is_empty() {
                self.inbox.remove(name);
            }
        }
    }

    fn answer(&mut self, index: usize) {
        self.open.remove(&index);
        self.answered.push(index);
    }

    /// The function went on after this failure: it is a part of how it came to where it is.
    fn was_handled(&self, index: usize) -> bool {
        let scope = &self.steps[index].scope;
        self.failed.get(&index).is_some_and(|failed| {
            self.steps.iter().zip(&self.begun).any(|(step, begun)| step.scope == *scope && begun > failed)
        })
    }

    /// What is not done and was not handled is to be asked for again, at the place where it stood.
    pub(super) fn reopen(&mut self, stages: &mut [StageState]) {
        let again: Vec<usize> = (0..stages.len())
            .filter(|index| match stages[*index].status {
                StageStatus::Completed | StageStatus::Skipped => false,
                StageStatus::Failed => !self.was_handled(*index),
                StageStatus::Pending
                | StageStatus::Running
                | StageStatus::RetryWait
                | StageStatus::Cancelled
                | StageStatus::RolledBack => true,
            })
            .collect();
        for index in again {
            stages[index] = stages[index].reopened();
            self.failed.remove(&index);
        }
        self.answered.retain(|index| stages[*index].status != StageStatus::Pending);
        self.open.clear();
    }

    /// Forgets all that the function has done; not what it was sent.
    pub(super) fn restart(&mut self, input: Arc<Value>, generation: u32) {
        let (inbox, remembered) = (std::mem::take(&mut self.inbox), std::mem::take(&mut self.remembered));
        let retries = self.retries;
        *self = Self { inbox, remembered, retries, generation, ..Self::new(input) };
    }

    pub(super) fn remember_signal(&mut self, id: &IdempotencyKey, name: &StageName, payload: &Value) {
        if self.remembered.len() == SIGNALS_REMEMBERED {
            self.remembered.pop_front();
        }
        self.remembered.push_back(RememberedSignal { id: id.clone(), digest: digest(name, payload) });
    }

    /// What was received under this id, compared with this signal; none if nothing was.
    pub(super) fn known_signal(&self, id: &IdempotencyKey, name: &StageName, payload: &Value) -> Option<KnownSignal> {
        let mut known = self.remembered.iter().filter(|known| known.id == *id).peekable();
        known.peek()?;
        let digest = digest(name, payload);
        Some(if known.any(|known| known.digest == digest) { KnownSignal::Same } else { KnownSignal::Other })
    }
}

/// So many signals back, one that is sent again is known.
const SIGNALS_REMEMBERED: usize = 1000;

/// Whoever sent it: a sender that starts again may have another name by then, as a host or a pod has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct RememberedSignal {
    id: IdempotencyKey,
    /// Of its name and payload.
    digest: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KnownSignal {
    Same,
    /// Another name or payload under the same id.
    Other,
}

fn digest(name: &StageName, payload: &Value) -> u64 {
    draw(digest_of(payload), name.as_str(), 0)
}

/// The same for equal values, in whatever order an object has its members.
fn digest_of(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => seed_of(&value.to_string()),
        Value::Array(items) => {
            let parts = items.iter().zip(0..).map(|(item, place)| draw(digest_of(item), "", place));
            parts.fold(seed_of("[]"), u64::wrapping_add)
        }
        Value::Object(members) => {
            let parts = members.iter().map(|(key, value)| draw(digest_of(value), key, 0));
            parts.fold(seed_of("{}"), u64::wrapping_add)
        }
    }
}

impl FlowImage<'_> {
    /// None when its parts cannot be of one flow.
    pub(super) fn restore(self) -> Option<Flow> {
        let steps = self.names.len();
        let known = |index: &usize| *index < steps;
        let fits = self.steps.len() == steps
            && self.begun.len() == steps
            && self.failed.keys().all(known)
            && self.answered.iter().all(known)
            && self.open.iter().all(known);
        let flow = Flow {
            definitions: self.names.iter().zip(&*self.steps).map(|(name, step)| definition(name, step)).collect(),
            index: self.names.into_iter().zip(0..).collect(),
            steps: self.steps.into_owned(),
            begun: self.begun.into_owned(),
            failed: self.failed.into_owned(),
            answered: self.answered.into_owned(),
            open: self.open.into_owned(),
            values: self.values.into_owned(),
            inbox: self.inbox.into_owned(),
            remembered: self.remembered.into_owned(),
            input: self.input,
            generation: self.generation,
            retries: self.retries,
            result: self.result,
        };
        (fits && flow.index.len() == steps).then_some(flow)
    }
}

/// A step in the form in which every task has its stages.
fn definition(name: &StageName, step: &Step) -> StageDefinition {
    let action = |uses: &str| Action { uses: uses.to_owned(), script: None, with: Value::Null };
    StageDefinition {
        name: name.clone(),
        action: action(step.kind.as_str()),
        needs: Vec::new(),
        condition: None,
        retry: step.retry.clone(),
        timeout: step.timeout,
        rollback: step.rollback.then(|| action("rollback")),
    }
}

/// A step's result as outputs; nothing at all stands for null.
pub fn outputs_of(value: Value) -> Map<String, Value> {
    let mut outputs = Map::new();
    if !value.is_null() {
        outputs.insert(VALUE.to_owned(), value);
    }
    outputs
}

/// The result that a step's outputs stand for.
pub fn value_of(outputs: &Outputs) -> Value {
    outputs.get(VALUE).cloned().unwrap_or(Value::Null)
}
