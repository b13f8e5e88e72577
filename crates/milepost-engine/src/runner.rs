//! One claimed task: turn the crank until it ends, pauses, waits for long, or is taken away.
//!
//! Every turn is the same: something happened, `decide` says what follows, the store commits it, and only then does
//! anything start. The task lives here while the lease is held; nothing is read again.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use milepost_core::plan::{OnTaskFailure, PlanCommand, Trigger};
use milepost_core::planted::planted;
use milepost_core::task::{
    Command, Decision, Event, Record, Rejection, StageEnded, StageStatus, Task, TaskStatus, decide, decide_on,
};
use milepost_core::time::{Millis, Timestamp};
use milepost_store::{LeaseChange, LogChunk, StoredTask, TaskRef, Wake};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use crate::attempt::{Attempt, Ended, Means, prepare};
use crate::chains::Chain;
use crate::engine::Inner;
use crate::files::TaskFile;
use crate::ledger::{Entry, Ledger, NotWritten};
use crate::nodes::CutOff;
use crate::report::{AttemptReport, Told};
use crate::verbs::VerbError;

/// With a file here it is cheaper to wait than to fetch it again, wherever the task goes on.
const PARK_WITH_FILE_AFTER: Millis = Millis::from_secs(10 * 60);
/// A retry's start is written together with its outcome when that comes this soon, and by itself when it does not.
pub(crate) const WRITE_START_AFTER: Duration = Duration::from_millis(50);

/// An operator's command for a task that is held here; answered once committed.
pub(crate) struct Order {
    pub(crate) command: Command,
    /// Refused if the task is at another version.
    pub(crate) expected: Option<u64>,
    pub(crate) reply: oneshot::Sender<Result<TaskStatus, VerbError>>,
}

pub(crate) type Running = Pin<Box<dyn Future<Output = Ended> + Send>>;

pub(crate) struct Runner {
    pub(crate) inner: Arc<Inner>,
    pub(crate) key: TaskRef,
    ledger: Ledger,
    epoch: u64,
    origin: Arc<str>,
    /// The version at which it was taken on. A take-over adds an event, so the next node's is greater.
    fence: u64,
    pub(crate) task: Arc<Task>,
    /// What the task's stages work on.
    pub(crate) file: Option<TaskFile>,
    /// Some of its stages keep what they make out of sight until it completes.
    pub(crate) holds_back: bool,
    /// Events that the store does not have yet: the start of a retry, which its outcome may still overtake.
    unwritten: Vec<Record>,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) running: FuturesUnordered<Running>,
    /// Attempts that ended while something else was being committed.
    pub(crate) ended: VecDeque<Ended>,
    orders: mpsc::UnboundedReceiver<Order>,
    pub(crate) told: Arc<Told>,
    /// When what was said since the last report goes out.
    pub(crate) report_at: Option<Instant>,
    /// When something last went out.
    pub(crate) shown_at: Option<Instant>,
    /// This node knows more of how far it is than the store.
    pub(crate) is_live: bool,
    /// Made when there is first something to wait for: stages that end at once need no heartbeat.
    pub(crate) heartbeat: Option<Pin<Box<Sleep>>>,
    /// It goes on from where an earlier run of it stopped.
    goes_on: bool,
    pub(crate) output: Vec<LogChunk>,
    /// By how much what is due was decided on after the time that was written down.
    rest: Duration,
    pub(crate) stopping: bool,
    pub(crate) cut_off: CutOff,
    /// Something is to start as soon as the node is sure of its lease.
    waits_for_lease: bool,
    /// What is written next has somebody who waits until it is durable.
    promised: bool,
    /// Of a task that a message set off: nothing of it starts before it has its place.
    chain: Option<Chain>,
}

/// Why a runner stops.
pub(crate) enum Over {
    /// The task ended, paused or was given back; the store knows.
    Released,
    /// Another owner has it, or nobody can write any more.
    Lost,
    /// The store is away, and the node is not to wait for it.
    Away,
}

impl Runner {
    pub(crate) fn new(
        inner: Arc<Inner>,
        stored: StoredTask,
        orders: mpsc::UnboundedReceiver<Order>,
        cut_off: CutOff,
    ) -> Self {
        let goes_on = goes_on(&stored);
        let spec = stored.task.spec();
        let chain = (spec.settings.trigger == Trigger::Message).then(|| Chain::new(&inner));
        let file = spec.file.clone().map(|file| TaskFile::new(spec.id.clone(), file, inner.registry.files()));
        let holds_back = inner.registry.holds_back(&spec.stages);
        Self {
            ledger: Ledger::new(inner.clone(), &stored, cut_off.clone()),
            epoch: stored.epoch,
            origin: inner.origin_of(spec),
            fence: stored.task.version(),
            inner,
            key: stored.key,
            task: Arc::new(stored.task),
            file,
            holds_back,
            unwritten: Vec::new(),
            attempts: Vec::new(),
            running: FuturesUnordered::new(),
            ended: VecDeque::new(),
            orders,
            told: Arc::default(),
            report_at: None,
            shown_at: None,
            is_live: false,
            heartbeat: None,
            goes_on,
            output: Vec::new(),
            rest: Duration::ZERO,
            stopping: false,
            cut_off,
            waits_for_lease: false,
            promised: false,
            chain,
        }
    }

    pub(crate) async fn run(mut self) {
        let mut turned = self.begin().await;
        let over = loop {
            match turned {
                Ok(()) => turned = self.turn().await,
                Err(Over::Away) => turned = self.fail_for_the_store().await,
                Err(over @ (Over::Released | Over::Lost)) => break over,
            }
        };
        self.inner.forget(&self.key.id, &mut self.orders);
        if matches!(over, Over::Lost) {
            self.end_attempts().await;
            self.inner.give_back(self.key.clone(), self.epoch);
        }
        while let Some(order) = self.orders.recv().await {
            let _ = order.reply.send(Err(VerbError::Moved));
        }
        if matches!(over, Over::Released) {
            self.withdraw().await;
        }
        if let Some(file) = self.file.take() {
            file.leave().await;
        }
        self.chain = None;
        self.inner.released();
    }

    /// Starts what the claim says is running; unless the node is stopping, or there is only a long wait to come.
    async fn begin(&mut self) -> Result<(), Over> {
        if self.cut_off.has_come() {
            return Err(Over::Lost);
        }
        if self.inner.is_stopping() {
            return self.stop().await;
        }
        let lease = self.lease_after();
        if lease != LeaseChange::Keep {
            self.commit(lease, None).await?;
            return Err(Over::Released);
        }
        if self.goes_on {
            self.show(None);
        }
        self.start_new_attempts();
        Ok(())
    }

    /// Waits for the next thing to happen and deals with it.
    async fn turn(&mut self) -> Result<(), Over> {
        // Stages that end as soon as they start must not keep a person waiting until the last of them.
        if let Ok(order) = self.orders.try_recv() {
            return self.obey(order).await;
        }
        if let Some(ended) = self.ended.pop_front() {
            return self.attempt_ended(ended).await;
        }
        if self.is_to_stand_still() && self.waits_for_nothing() {
            return self.stand_still().await;
        }
        let idle = self.running.is_empty();
        let due = if self.stopping { None } else { self.task.next_due() };
        let deadline = if self.task.status() == TaskStatus::Running { self.task.deadline() } else { None };
        let (clock, rest) = (&self.inner.clock, self.rest);
        let write_start = !self.unwritten.is_empty();
        let report_at = self.report_at;
        let (queues, waits_for_lease) = (!self.has_place(), self.waits_for_lease);
        let heartbeat = self.heartbeat.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.inner.heartbeat())));
        tokio::select! {
            biased;
            () = self.cut_off.comes() => Err(Over::Lost),
            Some(ended) = self.running.next(), if !idle => self.attempt_ended(ended).await,
            Some(order) = self.orders.recv() => self.obey(order).await,
            () = self.inner.stop.cancelled(), if !self.stopping => self.stop().await,
            () = self.inner.lease_renewed(), if waits_for_lease => { self.start_new_attempts(); Ok(()) }
            () = place(&mut self.chain), if queues => { self.start_new_attempts(); Ok(()) }
            () = sleep_until_past(clock, due, rest), if due.is_some() => self.wake().await,
            () = sleep_until(clock, deadline), if deadline.is_some() => self.time_out().await,
            () = tokio::time::sleep(WRITE_START_AFTER), if write_start => self.commit(LeaseChange::Keep, None).await,
            () = self.told.wait(), if !idle && report_at.is_none() => { self.report_soon(); Ok(()) }
            () = at(report_at), if !idle && report_at.is_some() => { self.report().await; Ok(()) }
            () = heartbeat.as_mut() => { self.beat(); Ok(()) }
        }
    }

    async fn attempt_ended(&mut self, ended: Ended) -> Result<(), Over> {
        let Some(ended) = self.publish_first(ended) else { return Ok(()) };
        self.show_last_word(ended.stage);
        self.collect_output(ended.stage);
        self.stopping |= self.inner.is_stopping();
        let (now, rest) = self.inner.clock.now_and_rest();
        self.rest = self.rest.max(rest);
        self.measure(&ended, now);
        let command = Command::StageEnded(StageEnded {
            stage: ended.stage,
            attempt: ended.number,
            result: ended.result,
            stopping: self.stopping,
        });
        match decide_on(Arc::make_mut(&mut self.task), command, now) {
            Ok(events) => self.carry_out(events).await,
            // The task moved on without it; what it found no longer matters.
            Err(Rejection::Stale { .. }) => Ok(()),
            Err(rejection) => {
                tracing::error!(task = %self.key.id, %rejection, "an attempt's result was refused");
                Ok(())
            }
        }
    }

    fn measure(&self, ended: &Ended, now: Timestamp) {
        let (_, state) = self.task.stage(ended.stage);
        // A stage that is being undone keeps the times of what it did.
        if let Some(since) = state.since
            && state.status == StageStatus::Running
        {
            self.inner.meters.attempt_ended(&ended.result, now.since(since));
        }
    }

    /// A waiting stage may start. Its start is not written yet; see `WRITE_START_AFTER`.
    async fn wake(&mut self) -> Result<(), Over> {
        self.rest = Duration::ZERO;
        let now = self.inner.clock.now();
        if let Some(due) = self.task.next_due() {
            self.inner.meters.woken(now.since(due));
        }
        let Ok(events) = decide_on(Arc::make_mut(&mut self.task), Command::Wake, now) else { return Ok(()) };
        let only_starts = events.iter().all(|record| matches!(record.event(), Event::StageStarted { .. }));
        if !only_starts {
            return self.carry_out(events).await;
        }
        self.unwritten.extend(events);
        self.start_new_attempts();
        Ok(())
    }

    async fn time_out(&mut self) -> Result<(), Over> {
        self.end_attempts().await;
        let Ok(decision) = decide(&self.task, Command::TimeOut, self.inner.clock.now()) else { return Ok(()) };
        self.accept(decision).await
    }

    /// The node is stopping: running stages may finish, unless they can be cut off, and nothing new starts.
    async fn stop(&mut self) -> Result<(), Over> {
        self.stopping = true;
        if !self.attempts.is_empty() {
            return Ok(());
        }
        let reason = "the node was stopped".to_owned();
        match decide(&self.task, Command::Interrupt { reason }, self.inner.clock.now()) {
            Ok(decision) => self.accept(decision).await,
            Err(_) => Err(Over::Lost),
        }
    }

    async fn obey(&mut self, order: Order) -> Result<(), Over> {
        let now = self.inner.clock.now();
        if let Some(expected) = order.expected.filter(|expected| *expected != self.ledger.version()) {
            let _ = order.reply.send(Err(VerbError::task_version(&self.key.id, expected, self.ledger.version())));
            return Ok(());
        }
        // A first look, so that what is refused anyway ends nothing.
        if let Err(rejection) = decide(&self.task, order.command.clone(), now) {
            let _ = order.reply.send(Err(rejection.into()));
            return Ok(());
        }
        if matches!(order.command, Command::Cancel(_)) {
            // The tenant is free for others as soon as this is committed: nothing may be running then.
            self.end_attempts().await;
        }
        if matches!(order.command, Command::Pause(_)) && self.waits_for_nothing() {
            self.cut_off_attempts().await;
        }
        match self.decide_for_person(order.command) {
            Ok(decision) => {
                self.promised = true;
                let outcome = self.accept(decision).await;
                self.promised = false;
                let lost = matches!(outcome, Err(Over::Lost));
                let answer = if lost { Err(VerbError::InDoubt(None)) } else { Ok(self.task.status()) };
                let _ = order.reply.send(answer);
                outcome
            }
            Err(rejection) => {
                let _ = order.reply.send(Err(rejection.into()));
                Ok(())
            }
        }
    }

    fn decide_for_person(&self, command: Command) -> Result<Decision, Rejection> {
        match command {
            Command::Pause(by) if self.nothing_runs_of_it() => self.pause_now(by),
            command => decide(&self.task, command, self.inner.clock.now()),
        }
    }

    pub(crate) fn has_place(&self) -> bool {
        self.chain.as_ref().is_none_or(Chain::has_place)
    }

    /// Makes what was decided durable, and only then acts on it.
    async fn carry_out(&mut self, events: Vec<Record>) -> Result<(), Over> {
        if events.is_empty() {
            return Ok(());
        }
        let failed = events.iter().any(|record| matches!(record.event(), Event::TaskFailed { .. }));
        self.unwritten.extend(events);
        let pauses_plan = failed && self.task.spec().settings.on_task_failure == OnTaskFailure::Pause;
        let plan = pauses_plan.then_some(PlanCommand::Pause);
        if planted("a stage starts before its commit") {
            self.start_new_attempts();
        }
        // Asked once: after the commit the clock might answer differently from what the store was told.
        let lease = self.lease_after();
        self.commit(lease, plan).await?;
        if lease != LeaseChange::Keep || !self.task.status().is_active() {
            return Err(Over::Released);
        }
        self.start_new_attempts();
        Ok(())
    }

    /// The same for what was decided on a copy of the task.
    pub(crate) async fn accept(&mut self, Decision { events, task }: Decision) -> Result<(), Over> {
        self.task = Arc::new(task);
        self.carry_out(events).await
    }

    fn lease_after(&self) -> LeaseChange {
        if self.task.interrupted() {
            return LeaseChange::Release(Wake::Recovery);
        }
        let nothing_runs =
            self.attempts.is_empty() && !self.task.stages().any(|(_, state)| state.status == StageStatus::Running);
        // The time limit may strike first.
        let next = self.task.next_due().map(|due| self.task.deadline().map_or(due, |deadline| due.min(deadline)));
        match next {
            Some(next) if nothing_runs && next.since(self.inner.clock.now()) > self.park_after() => {
                let late = Millis::from_secs(if planted("a sleeper wakes tomorrow") { 86_400 } else { 0 });
                LeaseChange::Release(Wake::At(next + late))
            }
            Some(_) | None => LeaseChange::Keep,
        }
    }

    fn park_after(&self) -> Millis {
        let has_file = self.file.as_ref().is_some_and(|file| file.here().is_some());
        if has_file { PARK_WITH_FILE_AFTER } else { self.inner.park_after() }
    }

    /// Writes what is unwritten, while the running attempts go on.
    async fn commit(&mut self, lease: LeaseChange, plan: Option<PlanCommand>) -> Result<(), Over> {
        let events = std::mem::take(&mut self.unwritten).into();
        let output = std::mem::take(&mut self.output);
        let entry = Entry { task: self.task.clone(), events, lease, plan, output };
        let (ledger, insists) = (&mut self.ledger, self.promised);
        let written = async { if insists { ledger.insist(entry).await } else { ledger.write(entry).await } };
        match meanwhile(&mut self.running, &mut self.ended, pin!(written)).await {
            Ok(()) => Ok(()),
            Err(NotWritten::Lost) => Err(Over::Lost),
            Err(NotWritten::Away(entry)) => {
                self.unwritten = entry.events.to_vec();
                self.output = entry.output;
                Err(Over::Away)
            }
        }
    }

    /// The task stops where it is, and is FAILED as soon as somebody can be told.
    async fn fail_for_the_store(&mut self) -> Result<(), Over> {
        self.end_attempts().await;
        match decide(&self.task, Command::StoreLost, self.inner.clock.now()) {
            Ok(decision) => {
                self.promised = true;
                self.accept(decision).await
            }
            Err(_) => Err(Over::Lost),
        }
    }

    /// Starts whatever the task says is running and is not.
    fn start_new_attempts(&mut self) {
        self.waits_for_lease = !self.inner.may_begin(&self.cut_off);
        if self.waits_for_lease {
            return;
        }
        // A stage that was cut off is recorded as running until its task is paused or given back.
        if !self.has_place() || self.is_to_stand_still() {
            return;
        }
        if let Some(undo) = self.task.undo() {
            if let Some(&stage) = undo.queue.first()
                && undo.running
            {
                self.start(stage, undo.attempt, true);
            }
            return;
        }
        let count = self.task.stages().len();
        for stage in 0..count {
            let (_, state) = self.task.stage(stage);
            if state.status == StageStatus::Running {
                self.start(stage, state.attempt, false);
            }
        }
    }

    fn start(&mut self, stage: usize, number: u32, rollback: bool) {
        if self.attempts.iter().any(|attempt| attempt.stage == stage) {
            return;
        }
        let (definition, _) = self.task.stage(stage);
        let report = AttemptReport::new(definition.name.clone(), number, self.told.clone());
        let mut attempt = Attempt { stage, number, cancel: CancellationToken::new(), report, interruptible: false };
        let prepared = prepare(&self.means(), &self.task, &attempt, rollback);
        attempt.interruptible = prepared.is_interruptible();
        self.attempts.push(attempt);
        let mut running: Running = Box::pin(prepared.run());
        // Many stages end at once, and need none of what waiting for the others takes.
        match running.as_mut().now_or_never() {
            Some(ended) => self.ended.push_back(ended),
            None => self.running.push(running),
        }
    }

    pub(crate) fn means(&self) -> Means<'_> {
        let (registry, now) = (&self.inner.registry, self.inner.clock.now());
        Means { registry, origin: &self.origin, fence: self.fence, file: self.file.as_ref(), now }
    }

    /// Ends every attempt and waits until they are gone; their results no longer count.
    async fn end_attempts(&mut self) {
        for attempt in &self.attempts {
            attempt.cancel.cancel();
        }
        while let Some(ended) = self.running.next().await {
            self.collect_output(ended.stage);
        }
        while let Some(ended) = self.ended.pop_front() {
            self.collect_output(ended.stage);
        }
    }

    pub(crate) fn collect_output(&mut self, stage: usize) {
        if let Some(index) = self.attempts.iter().position(|attempt| attempt.stage == stage) {
            let attempt = self.attempts.swap_remove(index);
            self.output.extend(attempt.report.take_output(true, self.inner.clock.now()));
            self.stay_live();
        }
    }
}

/// Waits in line.
async fn place(chain: &mut Option<Chain>) {
    match chain {
        Some(chain) => chain.wait().await,
        None => std::future::pending().await,
    }
}

/// A claim that takes a task up again, after a retry, a resume or the loss of its node; not one that only ends a wait.
fn goes_on(stored: &StoredTask) -> bool {
    let starts = |record: &Record| matches!(record.event(), Event::TaskStarted { .. } | Event::TaskInterrupted { .. });
    // A task that nothing has happened to yet has one event, its creation.
    let events_before = stored.task.version() - stored.claim_events.len() as u64;
    stored.task.status() == TaskStatus::Running && events_before > 1 && stored.claim_events.iter().any(starts)
}

/// Waits for something while the running attempts go on; those that end are put aside.
pub(crate) async fn meanwhile<T>(
    running: &mut FuturesUnordered<Running>,
    ended: &mut VecDeque<Ended>,
    mut work: Pin<&mut impl Future<Output = T>>,
) -> T {
    loop {
        if running.is_empty() {
            return work.await;
        }
        tokio::select! {
            biased;
            done = &mut work => return done,
            Some(one) = running.next() => ended.push_back(one),
        }
    }
}

pub(crate) async fn sleep_until(clock: &crate::Clock, at: Option<Timestamp>) {
    sleep_until_past(clock, at, Duration::ZERO).await;
}

pub(crate) async fn sleep_until_past(clock: &crate::Clock, at: Option<Timestamp>, rest: Duration) {
    match at {
        Some(at) => clock.sleep_until_past(at, rest).await,
        None => std::future::pending().await,
    }
}

pub(crate) async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// An error with its causes, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
