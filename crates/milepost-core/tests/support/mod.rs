//! Tasks to try the rules on, and short words for what is done to them.

use std::sync::Arc;

use milepost_core::failure::{ErrorType, Failure};
use milepost_core::id::{PlanId, StageName, TaskId};
use milepost_core::message::Arrival;
use milepost_core::plan::{Action, PlanDefinition, Settings, StageDefinition, TaskDefinition, Trigger, WorkflowRef};
use milepost_core::retry::{RetryPolicy, Strategy};
use milepost_core::task::{
    By, Claim, Command, Event, Record, Rejection, StageEnded, StageResult, StageStatus, Task, TaskSpec, TaskStatus,
    decide_on,
};
use milepost_core::time::{Millis, Timestamp};
use serde_json::{Map, Value};

pub(crate) const START: Timestamp = Timestamp::from_millis(1_764_000_000_000);
pub(crate) const DAY: Millis = Millis::from_secs(24 * 3600);

/// A stage that needs nothing, is tried three times a second apart and has no rollback handler.
pub(crate) fn stage(name: &str) -> StageDefinition {
    StageDefinition {
        name: StageName::parse(name).unwrap(),
        action: noop(),
        needs: Vec::new(),
        condition: None,
        retry: RetryPolicy {
            max_attempts: 3,
            strategy: Strategy::Fixed,
            base: Millis::from_secs(1),
            jitter: false,
            ..RetryPolicy::default()
        },
        timeout: None,
        rollback: None,
    }
}

fn noop() -> Action {
    Action { uses: "noop".to_owned(), script: None, with: Value::Null }
}

pub(crate) trait StageWords {
    fn needs(self, needs: &[usize]) -> Self;
    fn attempts(self, max_attempts: u32) -> Self;
    fn undoable(self) -> Self;
}

impl StageWords for StageDefinition {
    fn needs(mut self, needs: &[usize]) -> Self {
        self.needs = needs.to_vec();
        self
    }

    fn attempts(mut self, max_attempts: u32) -> Self {
        self.retry.max_attempts = max_attempts;
        self
    }

    fn undoable(mut self) -> Self {
        self.rollback = Some(noop());
        self
    }
}

/// Each stage needs the one before it.
pub(crate) fn chain(stages: impl IntoIterator<Item = StageDefinition>) -> Vec<StageDefinition> {
    let linked = stages.into_iter().enumerate();
    linked.map(|(index, stage)| if index == 0 { stage } else { stage.needs(&[index - 1]) }).collect()
}

pub(crate) fn spec(settings: Settings, stages: Vec<StageDefinition>) -> Arc<TaskSpec> {
    spec_of(settings, stages, None)
}

/// A task that runs a function, and has no stages until that asks for them.
pub(crate) fn workflow_spec() -> Arc<TaskSpec> {
    workflow_spec_with(Settings::default())
}

fn workflow_spec_with(settings: Settings) -> Arc<TaskSpec> {
    spec_of(settings, Vec::new(), Some(WorkflowRef { name: "checkout".into(), version: 1 }))
}

fn spec_of(settings: Settings, stages: Vec<StageDefinition>, workflow: Option<WorkflowRef>) -> Arc<TaskSpec> {
    let settings = Arc::new(settings);
    let plan = PlanDefinition {
        id: PlanId::parse("plan").unwrap(),
        settings: Settings::clone(&settings),
        stages: stages.into(),
        workflow,
        parent: None,
    };
    let task = TaskDefinition {
        id: TaskId::parse("task").unwrap(),
        tenant: None,
        priority: 0,
        input: Value::Null,
        matrix: Map::new(),
        stages: None,
        file: None,
        message: None,
    };
    Arc::new(TaskSpec::new(&plan, settings, task, START))
}

/// Folds a log anew.
pub(crate) fn replay(spec: &Arc<TaskSpec>, log: &[Record]) -> Task {
    log.iter().fold(Task::created(spec.clone()), |task, record| task.apply(record).unwrap())
}

pub(crate) fn by() -> By {
    By::new("ann")
}

pub(crate) fn retry(from_checkpoint: bool) -> Command {
    Command::Retry { by: by(), from_checkpoint }
}

/// A plan whose tasks wait for messages.
pub(crate) fn by_message() -> Settings {
    Settings { trigger: Trigger::Message, ..Settings::default() }
}

pub(crate) fn message(id: &str, deadline: Option<Timestamp>) -> Arc<Arrival> {
    let (id, remembered_until, text) = (id.into(), START + DAY, "{}".into());
    Arc::new(Arrival { id, deadline, remembered_until, text, origin: None })
}

pub(crate) fn retryable() -> Failure {
    Failure::retryable(ErrorType::Network, "connection refused")
}

pub(crate) fn fatal() -> Failure {
    Failure::fatal(ErrorType::Business, "no such order")
}

/// An event in a line: what a test expects to read.
pub(crate) fn line(event: &Event) -> String {
    let kind = event.kind();
    match event {
        Event::TaskStarted { node } => format!("{kind} on {node}"),
        Event::StageStarted { stage, attempt, rollback: true, .. } => format!("{kind} {stage} {attempt} to undo"),
        Event::StageFailed { stage, attempt, rollback: true, .. } => format!("{kind} {stage} {attempt} to undo"),
        Event::RetryScheduled { stage, attempt, delay, rollback: true, .. } => {
            format!("{kind} {stage} {attempt} after {delay} to undo")
        }
        Event::StageStarted { stage, attempt, .. }
        | Event::StageCompleted { stage, attempt, .. }
        | Event::StageFailed { stage, attempt, .. } => format!("{kind} {stage} {attempt}"),
        Event::RetryScheduled { stage, attempt, delay, .. } => format!("{kind} {stage} {attempt} after {delay}"),
        Event::StageSkipped { stage, .. } | Event::StageRolledBack { stage } => format!("{kind} {stage}"),
        Event::TaskFailed { stage: Some(stage), .. } => format!("{kind} at {stage}"),
        Event::TaskRetried { from_checkpoint: true, .. } => format!("{kind} from its checkpoint"),
        Event::TaskRetried { from_checkpoint: false, .. } => format!("{kind} from the start"),
        Event::TaskInterrupted { taken_by: Some(node), .. } => format!("{kind} and taken by {node}"),
        Event::TaskCreated {}
        | Event::PauseRequested { .. }
        | Event::TaskPaused { .. }
        | Event::TaskResumed { .. }
        | Event::TaskCompleted { .. }
        | Event::TaskFailed { stage: None, .. }
        | Event::TaskCancelled { .. }
        | Event::TaskInterrupted { taken_by: None, .. }
        | Event::RollbackStarted { .. }
        | Event::TaskRolledBack {}
        | Event::RollbackFailed { .. }
        | Event::CheckpointDiscarded { .. }
        | Event::DeadLettered { .. }
        | Event::EventLost { .. }
        | Event::TaskRepaired { .. }
        | Event::TaskContinued { .. } => kind.to_owned(),
        Event::MessageReceived { message } => format!("{kind} {}", message.id),
        Event::SignalReceived { name, .. } => format!("{kind} {name}"),
        Event::ValueRecorded { name, .. } => format!("{kind} {name}"),
    }
}

/// A task, its log and a clock that only the test moves.
pub(crate) struct Run {
    pub(crate) task: Task,
    pub(crate) log: Vec<Record>,
    pub(crate) now: Timestamp,
}

/// What happened, an event a line; or why nothing did.
pub(crate) type Happened = Result<Vec<String>, Rejection>;

impl Run {
    pub(crate) fn of(stages: Vec<StageDefinition>) -> Self {
        Self::with(Settings::default(), stages)
    }

    pub(crate) fn workflow() -> Self {
        Self::workflow_with(Settings::default())
    }

    pub(crate) fn workflow_with(settings: Settings) -> Self {
        Self { task: Task::created(workflow_spec_with(settings)), log: Vec::new(), now: START }
    }

    pub(crate) fn with(settings: Settings, stages: Vec<StageDefinition>) -> Self {
        Self { task: Task::created(spec(settings, stages)), log: Vec::new(), now: START }
    }

    pub(crate) fn try_to(&mut self, command: Command) -> Happened {
        let before = self.task.clone();
        let events = decide_on(&mut self.task, command, self.now)
            .inspect_err(|rejection| assert_eq!(self.task, before, "{rejection}: what is refused changes nothing"))?;
        // Whatever a task goes through, its image is the task.
        assert_eq!(Task::from_image(self.task.spec().clone(), &self.task.image()).unwrap(), self.task);
        let lines = events.iter().map(|record| line(record.event())).collect();
        self.log.extend(events);
        Ok(lines)
    }

    #[track_caller]
    pub(crate) fn act(&mut self, command: Command) -> Vec<String> {
        self.try_to(command).unwrap()
    }

    #[track_caller]
    pub(crate) fn refused(&mut self, command: Command) -> String {
        self.try_to(command).unwrap_err().to_string()
    }

    pub(crate) fn after(&mut self, wait: Millis) -> &mut Self {
        self.now = self.now + wait;
        self
    }

    /// By the node `n1`, because somebody asked for it, or because the task was nobody's.
    #[track_caller]
    pub(crate) fn claim(&mut self) -> Vec<String> {
        self.act(Command::Claim(Claim { node: "n1".into(), lost_by: None, automatic: false }))
    }

    /// The node goes away without a word, and another one takes the task on by itself.
    #[track_caller]
    pub(crate) fn crash(&mut self) -> Vec<String> {
        self.act(Command::Claim(Claim { node: "n2".into(), lost_by: Some("n1".into()), automatic: true }))
    }

    pub(crate) fn ends(&self, name: &str, result: StageResult) -> StageEnded {
        let index = self.index(name);
        let undo = self.task.undo().filter(|_| self.task.status() == TaskStatus::RollingBack);
        let attempt = undo.map_or(self.task.stage(index).1.attempt, |undo| undo.attempt);
        StageEnded { stage: index, attempt, result, stopping: false }
    }

    #[track_caller]
    pub(crate) fn ended(&mut self, name: &str, result: StageResult) -> Vec<String> {
        self.act(Command::StageEnded(self.ends(name, result)))
    }

    /// The stage ends while its node is stopping.
    #[track_caller]
    pub(crate) fn ended_stopping(&mut self, name: &str, result: StageResult) -> Vec<String> {
        self.act(Command::StageEnded(StageEnded { stopping: true, ..self.ends(name, result) }))
    }

    #[track_caller]
    pub(crate) fn succeeds(&mut self, name: &str) -> Vec<String> {
        self.ended(name, StageResult::Success(Map::new()))
    }

    #[track_caller]
    pub(crate) fn fails(&mut self, name: &str) -> Vec<String> {
        self.ended(name, StageResult::Failure(retryable()))
    }

    #[track_caller]
    pub(crate) fn fails_for_good(&mut self, name: &str) -> Vec<String> {
        self.ended(name, StageResult::Failure(fatal()))
    }

    pub(crate) fn index(&self, name: &str) -> usize {
        self.task.stages().position(|(stage, _)| stage.name.as_str() == name).unwrap()
    }

    pub(crate) fn status_of(&self, name: &str) -> StageStatus {
        self.task.stage(self.index(name)).1.status
    }
}
