//! One claimed workflow: let its function go as far as it can, make durable what it asked for and what came of it, answer.
//!
//! The function is polled here and nowhere else, also while a commit is on its way. It gets its answers one at a time,
//! in the order in which the log has them, so that a replay takes every turn that was taken before.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use milepost_core::failure::{ErrorType, Failure};
use milepost_core::id::StageName;
use milepost_core::plan::{OnTaskFailure, PlanCommand};
use milepost_core::task::{
    Command, Event, Flow, Record, Rejection, StageEnded, StageResult, StageStatus, Step, StepKind, Task, TaskStatus,
    decide_on,
};
use milepost_core::time::Timestamp;
use milepost_store::{LeaseChange, StoredTask, TaskRef, Wake};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::engine::Inner;
use crate::guards::Attempt;
use crate::ledger::{Entry, Ledger, NotWritten};
use crate::nodes::CutOff;
use crate::runner::Order;
use crate::stage::Progress;
use crate::verbs::VerbError;

use super::child::{Run, child_id};
use super::context::Context;
use super::desk::{Desk, Ended, News, Phase, Request, Told, WantedKind};
use super::divergence::{Divergence, Instead, Place};

pub(super) type Function = BoxFuture<'static, Result<Value, Failure>>;

pub(crate) struct FlowRunner {
    pub(super) inner: Arc<Inner>,
    pub(super) key: TaskRef,
    pub(super) ledger: Ledger,
    epoch: u64,
    pub(super) task: Arc<Task>,
    /// Events that the store does not have yet.
    pub(super) unwritten: Vec<Record>,
    pub(super) desk: Arc<Desk>,
    pub(super) function: Option<Function>,
    pub(super) returned: Option<Result<Value, Failure>>,
    /// How many of the log's answers the function has had.
    pub(super) answered: usize,
    /// The attempt of each step that the function was told to run.
    pub(super) handed_out: HashMap<usize, u32>,
    /// Asked for and not begun.
    pub(super) asked: Vec<StageName>,
    /// When it began to do nothing but wait.
    pub(super) waits_since: Option<Timestamp>,
    /// How far the function said it is, and when that is to be shown.
    pub(super) progress: Option<Progress>,
    pub(super) report_at: Option<Timestamp>,
    pub(super) orders: mpsc::UnboundedReceiver<Order>,
    /// By how much what is due was decided on after the time that was written down.
    pub(super) rest: Duration,
    pub(super) stopping: bool,
    pub(super) cut_off: CutOff,
    /// Something is to begin as soon as the node is sure of its lease.
    pub(super) waits_for_lease: bool,
    /// What is written next has somebody who waits until it is durable.
    pub(super) promised: bool,
}

/// Why a runner stops.
pub(super) enum Over {
    /// The task ended, paused or was given back; the store knows.
    Released,
    Lost,
    /// The store is away, and the node is not to wait for it.
    Away,
}

impl FlowRunner {
    pub(crate) fn new(
        inner: Arc<Inner>,
        stored: StoredTask,
        orders: mpsc::UnboundedReceiver<Order>,
        cut_off: CutOff,
    ) -> Self {
        Self {
            ledger: Ledger::new(inner.clone(), &stored, cut_off.clone()),
            epoch: stored.epoch,
            desk: Desk::new(&stored.task, inner.clock.clone(), inner.registry.stand_ins()),
            inner,
            key: stored.key,
            task: Arc::new(stored.task),
            unwritten: Vec::new(),
            function: None,
            returned: None,
            answered: 0,
            handed_out: HashMap::new(),
            asked: Vec::new(),
            waits_since: None,
            progress: None,
            report_at: None,
            orders,
            rest: Duration::ZERO,
            stopping: false,
            cut_off,
            waits_for_lease: false,
            promised: false,
        }
    }

    pub(crate) async fn run(mut self) {
        self.start_function();
        let over = loop {
            let undoes = self.task.status() == TaskStatus::RollingBack;
            let turned = if undoes { self.undo_turn().await } else { self.turn().await };
            match turned {
                Ok(()) => {}
                Err(Over::Away) => {
                    if let Err(over) = self.fail_for_the_store().await {
                        break over;
                    }
                }
                Err(over @ (Over::Released | Over::Lost)) => break over,
            }
        };
        self.drop_function();
        self.inner.forget(&self.key.id, &mut self.orders);
        while let Some(order) = self.orders.recv().await {
            let _ = order.reply.send(Err(VerbError::Moved));
        }
        match over {
            Over::Released => self.inner.tell_parent(&self.task),
            Over::Lost | Over::Away => self.inner.give_back(self.key.clone(), self.epoch),
        }
        self.inner.released();
    }

    pub(super) fn flow(&self) -> &Flow {
        self.task.flow().expect("a workflow's task has a flow")
    }

    pub(super) fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    // --- the function ---

    fn start_function(&mut self) {
        let spec = self.task.spec();
        let workflow = spec.workflow.as_ref().and_then(|workflow| self.inner.registry.workflow(workflow));
        let (context, input) = (Context::new(self.desk.clone()), self.flow().input().clone());
        let Some(workflow) = workflow.cloned() else {
            // Claims name what the registry has, so this is for stores that were told otherwise.
            let name = spec.workflow.as_ref().map(ToString::to_string).unwrap_or_default();
            let reason = format!("this node does not know the workflow {name}");
            self.returned = Some(Err(Failure::fatal(ErrorType::Validation, reason)));
            return;
        };
        // Called inside, so that one that panics before it has made its future is caught as well.
        let work = AssertUnwindSafe(async move { workflow.run(context, input).await }).catch_unwind();
        let work = work.map(|result| result.unwrap_or_else(|panic| Err(crate::attempt::panicked(&*panic))));
        self.function = Some(work.boxed());
    }

    pub(super) fn drop_function(&mut self) {
        self.desk.close();
        self.function = None;
    }

    /// Lets the function go on until it waits for something that the log has no answer to.
    pub(super) async fn advance(&mut self) -> Result<(), Divergence> {
        loop {
            poll_once(&mut self.function, &mut self.returned).await;
            let Some(&index) = self.flow().answered().get(self.answered) else { return Ok(()) };
            let (definition, _) = self.task.stage(index);
            match self.desk.phase(&definition.name) {
                // Whether it is missing is looked at when all that the function did is known.
                None if self.returned.is_some() => return Ok(()),
                None => return Err(self.missing(index, Instead::Waits)),
                Some(_) => {}
            }
            let answer = self.task.answer(index).expect("a step in the list of answers has one");
            self.desk.tell(&definition.name.clone(), Told::Answer(answer));
            self.answered += 1;
        }
    }

    fn missing(&self, index: usize, instead: Instead) -> Divergence {
        let (definition, _) = self.task.stage(index);
        let step = self.flow().step(index);
        let place = Place { scope: step.scope.clone(), place: step.place };
        Divergence::MissingStage { kind: step.kind.as_str(), recorded: definition.name.clone(), place, instead }
    }

    /// A step of the log that the code never made.
    fn first_missing(&self, instead: Instead) -> Option<Divergence> {
        let made = |name: &StageName| self.desk.phase(name).is_some();
        let missing = self
            .task
            .stages()
            .position(|(definition, state)| state.status != StageStatus::Pending && !made(&definition.name));
        missing.map(|index| self.missing(index, instead))
    }

    // --- a turn ---

    async fn turn(&mut self) -> Result<(), Over> {
        if self.cut_off.has_come() {
            return Err(Over::Lost);
        }
        if let Ok(order) = self.orders.try_recv() {
            return self.obey(order).await;
        }
        self.stopping |= self.inner.is_stopping();
        let advanced = self.advance().await;
        let mut news = self.desk.news();
        if let Some(divergence) = news.diverged.take().or(advanced.err()) {
            return self.diverge(&divergence).await;
        }
        self.hear(news);
        if self.returned.is_some() {
            return self.finish().await;
        }
        self.begin();
        if self.stopping && !self.is_busy() {
            return self.stop().await;
        }
        // What is begun is begun in the store first, but for what may be written together with its outcome.
        if !self.has_news_for_the_store()
            && let Err(divergence) = self.hand_out()
        {
            return self.diverge(&divergence).await;
        }
        if self.has_news_for_the_store() {
            return self.write(LeaseChange::Keep).await;
        }
        self.wait().await
    }

    /// What the function did by itself.
    fn hear(&mut self, news: News) {
        if !news.values.is_empty() {
            self.must(Command::Remember(news.values));
        }
        for mut ended in news.ended {
            let Some(stage) = self.task.stage_index(&ended.stage) else { continue };
            self.note(stage, &mut ended);
            let command = StageEnded { stage, attempt: ended.attempt, result: ended.result, stopping: self.stopping };
            self.must(Command::StageEnded(command));
        }
        self.asked.extend(news.asked);
        for name in news.abandoned {
            self.asked.retain(|asked| *asked != name);
            self.skip(&name);
        }
        if let Some(progress) = news.progress {
            self.progress = Some(progress);
            self.report_soon();
        }
    }

    /// What became of an attempt may bear on those that come after it, of whatever task.
    fn note(&self, stage: usize, ended: &mut Ended) {
        let policy = &self.task.stage(stage).0.retry;
        let (stage, seed) = (&ended.stage, self.task.spec().seed);
        let attempt = Attempt { policy, stage, attempt: ended.attempt, seed };
        self.inner.guards.ended(&attempt, &mut ended.result, self.now());
    }

    /// Nobody waits for this step any more.
    fn skip(&mut self, name: &StageName) {
        let Some(stage) = self.task.stage_index(name) else { return };
        let (_, state) = self.task.stage(stage);
        if state.status == StageStatus::Running {
            let result = StageResult::Skip("its workflow no longer waits for it".to_owned());
            let (attempt, stopping) = (state.attempt, self.stopping);
            self.must(Command::StageEnded(StageEnded { stage, attempt, result, stopping }));
        }
    }

    /// Begins what the function asked for, unless it is to pause or to stop here.
    fn begin(&mut self) {
        if self.asked.is_empty() || self.stopping || self.task.pause_requested().is_some() {
            return;
        }
        let asked = std::mem::take(&mut self.asked);
        let requests = self.desk.requests(&asked);
        let steps = requests.into_iter().map(|request| (request.stage.clone(), self.step(request))).collect();
        self.must(Command::Begin(steps));
    }

    fn step(&self, request: Request) -> Step {
        let now = self.now();
        let kind = match request.wanted.kind {
            WantedKind::Stage => StepKind::Stage,
            WantedKind::Sleep(length) => StepKind::Sleep { until: now + length },
            WantedKind::Signal { name, within } => {
                StepKind::Signal { name, deadline: within.map(|within| now + within) }
            }
            WantedKind::Child { .. } => StepKind::Child { task: child_id(&self.key.id, self.flow(), &request.stage) },
        };
        Step {
            kind,
            scope: request.place.scope,
            place: request.place.place,
            digest: request.wanted.digest,
            retry: request.wanted.retry,
            timeout: request.wanted.timeout,
            rollback: request.rollback,
        }
    }

    /// Tells the function to run what the log says is running, now that it has heard all that the log has to tell.
    fn hand_out(&mut self) -> Result<(), Divergence> {
        self.waits_for_lease = false;
        if self.stopping {
            return Ok(());
        }
        let open: Vec<usize> = self.flow().open().collect();
        for index in open {
            let (definition, state) = self.task.stage(index);
            if state.status != StageStatus::Running || self.handed_out.get(&index) == Some(&state.attempt) {
                continue;
            }
            let (name, attempt, timeout) = (definition.name.clone(), state.attempt, definition.timeout);
            let Some(phase) = self.desk.phase(&name) else { return Err(self.missing(index, Instead::Waits)) };
            let works = self.flow().step(index).kind == StepKind::Stage && phase != Phase::Gone;
            if works && !self.inner.may_begin(&self.cut_off) {
                self.waits_for_lease = true;
                continue;
            }
            if works && let Err(failure) = self.inner.guards.admit(&definition.retry, self.now()) {
                let result = StageResult::Refused(failure);
                self.must(Command::StageEnded(StageEnded { stage: index, attempt, result, stopping: false }));
                continue;
            }
            self.handed_out.insert(index, attempt);
            match &self.flow().step(index).kind {
                StepKind::Stage if phase == Phase::Gone => self.skip(&name),
                StepKind::Stage => self.desk.tell(&name, Told::Run { attempt, timeout }),
                StepKind::Child { task } => {
                    let child = task.clone();
                    if let Some(WantedKind::Child { workflow, input }) = self.desk.wanted(&name).map(|it| it.kind) {
                        let parent = Some(self.key.id.clone());
                        self.inner.start_child(Run { parent, ..Run::new(workflow, child, input) });
                    }
                }
                StepKind::Sleep { .. } | StepKind::Signal { .. } => {}
            }
        }
        Ok(())
    }

    /// The function has returned.
    async fn finish(&mut self) -> Result<(), Over> {
        if let Some(divergence) = self.first_missing(Instead::Returned) {
            return self.diverge(&divergence).await;
        }
        let Some(result) = self.returned.take() else { return Ok(()) };
        match self.desk.continued() {
            Some(input) if result.is_err() => {
                self.must(Command::Continue(input));
                self.write(LeaseChange::Keep).await?;
                self.begin_anew();
                Ok(())
            }
            Some(_) | None => {
                self.must(Command::Return(result));
                self.write(LeaseChange::Keep).await
            }
        }
    }

    fn begin_anew(&mut self) {
        self.drop_function();
        self.desk = Desk::new(&self.task, self.inner.clock.clone(), self.inner.registry.stand_ins());
        self.answered = 0;
        self.handed_out.clear();
        self.asked.clear();
        self.start_function();
    }

    async fn diverge(&mut self, divergence: &Divergence) -> Result<(), Over> {
        self.drop_function();
        let reason = divergence.to_string();
        tracing::error!(task = %self.key.id, %reason, "the code of a workflow does not fit its log; it is stopped");
        self.must(Command::Diverged { stage: Some(divergence.stage().clone()), reason });
        self.write(LeaseChange::Keep).await
    }

    /// Something of ours is under way.
    pub(super) fn is_busy(&self) -> bool {
        let flow = self.flow();
        flow.open().any(|index| {
            let (_, state) = self.task.stage(index);
            let runs = state.status == StageStatus::Running && !flow.step(index).kind.only_waits();
            runs && self.handed_out.get(&index) == Some(&state.attempt)
        })
    }

    // --- deciding and writing ---

    pub(super) fn decide(&mut self, command: Command) -> Result<(), Rejection> {
        let (now, rest) = self.inner.clock.now_and_rest();
        self.rest = self.rest.max(rest);
        self.unwritten.extend(decide_on(Arc::make_mut(&mut self.task), command, now)?);
        Ok(())
    }

    /// For what only this runner says, and says in its time; a refusal means that the task has moved on.
    pub(super) fn must(&mut self, command: Command) {
        match self.decide(command) {
            Ok(()) | Err(Rejection::Stale { .. }) => {}
            Err(rejection) => tracing::error!(task = %self.key.id, %rejection, "a workflow's step was refused"),
        }
    }

    fn has_news_for_the_store(&self) -> bool {
        self.unwritten.iter().any(|record| !can_wait(record.event()))
    }

    /// An attempt runs whose start is not written yet.
    pub(super) fn has_started_unwritten(&self) -> bool {
        self.unwritten.iter().any(|record| matches!(record.event(), Event::StageStarted { .. }))
    }

    /// The workflow stops where it is, and is FAILED as soon as somebody can be told.
    async fn fail_for_the_store(&mut self) -> Result<(), Over> {
        self.drop_function();
        self.must(Command::StoreLost);
        self.promised = true;
        self.write(LeaseChange::Keep).await
    }

    pub(super) async fn write_if_any(&mut self) -> Result<(), Over> {
        if self.has_news_for_the_store() { self.write(LeaseChange::Keep).await } else { Ok(()) }
    }

    /// Makes what was decided durable, while the function goes on.
    pub(super) async fn write(&mut self, lease: LeaseChange) -> Result<(), Over> {
        self.waits_since = None;
        let events: Arc<[Record]> = std::mem::take(&mut self.unwritten).into();
        let task = self.task.clone();
        let failed = events.iter().any(|record| matches!(record.event(), Event::TaskFailed { .. }));
        let pauses_plan = failed && task.spec().settings.on_task_failure == OnTaskFailure::Pause;
        let lease = if task.interrupted() { LeaseChange::Release(Wake::Recovery) } else { lease };
        let entry = Entry { task, events, lease, plan: pauses_plan.then_some(PlanCommand::Pause), output: Vec::new() };
        let (ledger, insists) = (&mut self.ledger, self.promised);
        let written = async { if insists { ledger.insist(entry).await } else { ledger.write(entry).await } };
        match meanwhile(&mut self.function, &mut self.returned, pin!(written)).await {
            Ok(()) => {}
            Err(NotWritten::Lost) => return Err(Over::Lost),
            Err(NotWritten::Away(entry)) => {
                self.unwritten = entry.events.to_vec();
                return Err(Over::Away);
            }
        }
        if lease != LeaseChange::Keep || !self.task.status().is_active() {
            return Err(Over::Released);
        }
        // The end of a stage takes away what was shown of it, and this is of the whole workflow.
        self.report_soon();
        Ok(())
    }
}

/// What may be written with whatever comes next. A value: nobody outside has seen anything of it before that is written.
/// The start of another attempt: the stage is known to have begun, and if a crash takes this, the attempt is made again
/// under its number.
fn can_wait(event: &Event) -> bool {
    match event {
        Event::ValueRecorded { .. } => true,
        Event::StageStarted { attempt, step: None, rollback: false, .. } => *attempt > 1,
        _ => false,
    }
}

/// Polls the function once; what it comes to is put aside.
async fn poll_once(function: &mut Option<Function>, returned: &mut Option<Result<Value, Failure>>) {
    if let Some(running) = function
        && let Poll::Ready(result) = futures::poll!(running)
    {
        *function = None;
        *returned = Some(result);
    }
}

/// Waits for something while the function goes on.
pub(super) async fn meanwhile<T>(
    function: &mut Option<Function>,
    returned: &mut Option<Result<Value, Failure>>,
    mut work: Pin<&mut impl Future<Output = T>>,
) -> T {
    std::future::poll_fn(|poll| {
        if let Poll::Ready(done) = work.as_mut().poll(poll) {
            return Poll::Ready(done);
        }
        if let Some(running) = function
            && let Poll::Ready(result) = running.as_mut().poll(poll)
        {
            *function = None;
            *returned = Some(result);
        }
        Poll::Pending
    })
    .await
}
