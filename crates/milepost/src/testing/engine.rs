//! The node that tests talk to, and those that take its place.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use milepost_core::failure::Failure;
use milepost_core::id::{StageName, TaskId};
use milepost_core::task::{By, EventView, TaskView};
use milepost_core::time::Timestamp;
use milepost_engine::workflow::{Call, Run, StandIns, TypedWorkflow};
use milepost_engine::{Clock, Engine, Options, Registry};
use milepost_store::memory::MemoryStore;
use milepost_store::{EventQuery, Resubmit, Start};
use serde::Serialize;
use serde_json::Value;
use tokio::runtime::{Builder, Handle as Current, Runtime};

use crate::error::Error;
use crate::handle::Handle;

use super::log::Log;
use super::mortal::{Crash, Fate, Mortal};

/// When the first node starts, unless the test says otherwise: 2027-01-15T08:00:00Z.
const DAWN: Timestamp = Timestamp::from_millis(1_800_000_000_000);
/// A run that has not ended by then waits for something that nobody is going to say.
const LONG_ENOUGH: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A node in memory, and its successors when it is told to crash.
///
/// First say what it is to know, then run something: it starts by itself. Its clock stands still while anything can be
/// done, and skips to the next due time when nothing can. Do not let it run real input or output: while that is under
/// way nothing can be done, so the stage's timeout would strike first.
#[derive(Debug)]
pub struct TestEngine {
    registry: Registry,
    stand_ins: StandIns,
    capacity: usize,
    /// When the next node starts.
    at: Timestamp,
    fate: Arc<Fate>,
    crashes: usize,
    node: Option<Node>,
}

impl Default for TestEngine {
    fn default() -> Self {
        Self::new()
    }
}

impl TestEngine {
    pub fn new() -> Self {
        Self {
            registry: Registry::new(),
            stand_ins: StandIns::default(),
            capacity: 1024,
            at: DAWN,
            fate: Arc::default(),
            crashes: 0,
            node: None,
        }
    }

    #[must_use]
    pub fn workflow<W: TypedWorkflow + 'static>(mut self, workflow: impl FnOnce() -> W) -> Self {
        self.registry = self.registry.with_workflow(Arc::new(workflow()));
        self
    }

    /// What is done in the place of every stage that the code gives this name; the stage's own closure is not called.
    #[must_use]
    pub fn fake<T, F>(self, stage: impl Into<String>, fake: F) -> Self
    where
        T: Serialize,
        F: Fn(&Call) -> Result<T, Failure> + Send + Sync + 'static,
    {
        self.fake_async(stage, move |call| {
            let faked = fake(&call).and_then(|value| Ok(serde_json::to_value(value)?));
            async move { faked }
        })
    }

    /// The same for a fake that takes its time, or never ends.
    #[must_use]
    pub fn fake_async<T, F, Fut>(mut self, stage: impl Into<String>, fake: F) -> Self
    where
        T: Serialize,
        F: Fn(Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        self.stand_ins.work(stage, move |call| {
            let faked = fake(call);
            async move { faked.await.and_then(|value| Ok(serde_json::to_value(value)?)) }
        });
        self
    }

    /// What is done in the place of the rollback of a stage that has one; it gets the stage's result, if there was one.
    #[must_use]
    pub fn fake_rollback<F>(mut self, stage: impl Into<String>, fake: F) -> Self
    where
        F: Fn(Option<Value>) -> Result<(), Failure> + Send + Sync + 'static,
    {
        self.stand_ins.rollback(stage, move |value| {
            let faked = fake(value);
            async move { faked }
        });
        self
    }

    /// The node dies once the `n`-th write is made, counted from 1, and another takes over. A write is what the log grows
    /// by at once: a task being taken on, or a commit. May be said more than once.
    #[must_use]
    pub fn crash_after(self, n: u64) -> Self {
        self.crash(Crash::After, n)
    }

    /// The node dies before the `n`-th write, which is lost; what led to it has happened all the same.
    #[must_use]
    pub fn crash_before(self, n: u64) -> Self {
        self.crash(Crash::Before, n)
    }

    #[must_use]
    pub fn crash(self, crash: Crash, n: u64) -> Self {
        self.fate.add(n, crash);
        self
    }

    /// How many workflows are worked on at once.
    #[must_use]
    pub fn capacity(mut self, capacity: usize) -> Self {
        self.capacity = capacity.max(1);
        self
    }

    /// What the clock shows at the start.
    #[must_use]
    pub fn starting_at(mut self, start: Timestamp) -> Self {
        self.at = start;
        self
    }

    /// Runs a workflow to its end, however long that takes by its own clock. Chance follows from the id.
    #[track_caller]
    pub fn run<W: TypedWorkflow + 'static>(
        &mut self,
        id: &str,
        workflow: impl FnOnce() -> W,
        input: W::Input,
    ) -> Result<W::Output, Error> {
        let workflow = workflow();
        let reference = workflow.reference();
        self.submit(id, workflow, input)?;
        self.end_of::<W::Output>(id, &reference.to_string())
    }

    /// Submits a workflow and does not wait for it; it goes on while the test waits for something.
    pub fn spawn<W: TypedWorkflow + 'static>(
        &mut self,
        id: &str,
        workflow: impl FnOnce() -> W,
        input: W::Input,
    ) -> Result<(), Error> {
        self.submit(id, workflow(), input)
    }

    /// Waits for the end of a run that was spawned.
    #[track_caller]
    pub fn result<W: TypedWorkflow + 'static>(
        &mut self,
        id: &str,
        workflow: impl FnOnce() -> W,
    ) -> Result<W::Output, Error> {
        self.end_of::<W::Output>(id, &workflow().reference().to_string())
    }

    pub fn signal(&mut self, id: &str, name: &str, payload: impl Serialize) -> Result<(), Error> {
        let (task, name) = (TaskId::parse(id)?, StageName::parse(name)?);
        let payload = serde_json::to_value(payload)?;
        let received = self.received(id, &name);
        self.ask(move |engine| {
            let (engine, task, name, payload) = (engine.clone(), task.clone(), name.clone(), payload.clone());
            async move {
                // The node may have died of this very signal, after it was written.
                if received_by(&engine, &task, &name).await > received {
                    return Ok(());
                }
                engine.signal(&task, name, payload, By::new("test")).await?;
                Ok(())
            }
            .boxed()
        })
    }

    /// Lets this much time pass.
    pub fn advance(&mut self, time: Duration) {
        let until = self.now() + milepost_core::time::Millis::new(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        self.ask(move |engine| {
            let clock = engine.clock();
            async move { clock.sleep_until(until).await }.boxed()
        });
    }

    /// What the clock shows.
    pub fn now(&mut self) -> Timestamp {
        let node = self.node();
        let clock = node.engine.clock();
        node.block_on(async move { clock.now() })
    }

    /// Everything there is to see of a run.
    pub fn view(&mut self, id: &str) -> Result<TaskView, Error> {
        let id = TaskId::parse(id)?;
        self.ask(move |engine| {
            let handle = Handle::<Value>::new(engine.clone(), id.clone());
            async move { handle.view().await }.boxed()
        })
    }

    /// The log of a run; empty if there is no such run.
    pub fn log(&mut self, id: &str) -> Log {
        let Ok(task) = TaskId::parse(id) else { return Log(Vec::new()) };
        Log(self.ask(move |engine| events(engine.clone(), task.clone()).boxed()))
    }

    /// How many writes there have been: what `crash_after` counts.
    pub fn writes(&self) -> u64 {
        self.fate.written()
    }

    /// How many nodes have died.
    pub fn crashes(&self) -> usize {
        self.crashes
    }

    fn submit<W: TypedWorkflow + 'static>(&mut self, id: &str, workflow: W, input: W::Input) -> Result<(), Error> {
        let id = TaskId::parse(id)?;
        let plan = Arc::new(Run::new(workflow.reference(), id.clone(), serde_json::to_value(input)?).plan());
        self.ask(move |engine| {
            let (engine, plan, id) = (engine.clone(), plan.clone(), id.clone());
            async move {
                // The same again is the same run, so the next node may be told as well.
                let submitted = engine.submit(plan, Start::AtOnce, Resubmit::Same).await;
                submitted.map(|_| ()).map_err(|source| Error::Refused { id, source })
            }
            .boxed()
        })
    }

    #[track_caller]
    fn end_of<T>(&mut self, id: &str, workflow: &str) -> Result<T, Error>
    where
        T: serde::de::DeserializeOwned + Send + 'static,
    {
        let task = TaskId::parse(id)?;
        let ended = self.ask(move |engine| {
            let handle = Handle::<T>::new(engine.clone(), task.clone());
            async move { tokio::time::timeout(LONG_ENOUGH, handle.result()).await.ok() }.boxed()
        });
        ended.unwrap_or_else(|| {
            let lines = self.log(id).lines();
            panic!("{workflow} {id} has not ended in ten years; what does it wait for? {lines:#?}")
        })
    }

    fn received(&mut self, id: &str, name: &StageName) -> usize {
        let is_it = |event: &&EventView| is_signal(event, name);
        self.log(id).iter().filter(is_it).count()
    }

    fn node(&mut self) -> &Node {
        let (registry, at) = (&self.registry, self.at);
        self.node.get_or_insert_with(|| {
            let store = Mortal::new(MemoryStore::new(), self.fate.clone());
            let registry = registry.clone().with_stand_ins(self.stand_ins.clone());
            Node::start(1, Arc::new(store), registry, self.capacity, at)
        })
    }

    /// Waits for an answer; from the next node, if this one dies before it has given one.
    fn ask<T: Send>(&mut self, ask: impl Fn(&Engine) -> BoxFuture<'static, T>) -> T {
        loop {
            let node = self.node();
            let (answer, store) = (ask(&node.engine), node.store.clone());
            let answered = node.block_on(async move {
                tokio::select! {
                    biased;
                    // It may have died while the test was waiting for something else.
                    () = store.died() => None,
                    answer = answer => Some(answer),
                }
            });
            match answered {
                Some(answer) => return answer,
                None => self.take_over(),
            }
        }
    }

    fn take_over(&mut self) {
        let at = self.now();
        let Some(dead) = self.node.take() else { return };
        let (store, registry) = (Arc::new(dead.store.next()), dead.engine.registry().clone());
        drop(dead);
        self.crashes += 1;
        self.node = Some(Node::start(self.crashes + 1, store, registry, self.capacity, at));
    }
}

/// One life: everything that a crash takes with it, but for the store.
#[derive(Debug)]
struct Node {
    engine: Engine,
    store: Arc<Mortal>,
    /// None only while it is being dropped.
    runtime: Option<Runtime>,
}

impl Node {
    fn start(number: usize, store: Arc<Mortal>, registry: Registry, capacity: usize, at: Timestamp) -> Self {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
        let runtime = runtime.expect("a machine that runs tests can make a runtime");
        let entered = runtime.enter();
        let mut options = Options::new(format!("node-{number}"));
        options.clock = Clock::manual(at);
        options.capacity = capacity;
        let engine = Engine::new(store.clone(), registry, options);
        engine.start();
        drop(entered);
        Self { engine, store, runtime: Some(runtime) }
    }

    fn block_on<T: Send>(&self, work: impl Future<Output = T> + Send) -> T {
        let runtime = self.runtime.as_ref().expect("a runtime is only away while its node is dropped");
        if Current::try_current().is_err() {
            return runtime.block_on(work);
        }
        // A test that is async has a runtime already, whose thread may not wait for another.
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| runtime.block_on(work));
            waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn events(engine: Engine, task: TaskId) -> Vec<EventView> {
    let store = engine.store();
    let Ok(Some(stored)) = store.task(&task).await else { return Vec::new() };
    let query = EventQuery { task: task.clone(), after: 0, limit: usize::MAX };
    let events = store.events(query).await.unwrap_or_default();
    let plan = &stored.task.spec().plan;
    events.iter().map(|event| EventView::new(plan, &task, event.sequence, &event.record)).collect()
}

async fn received_by(engine: &Engine, task: &TaskId, name: &StageName) -> usize {
    events(engine.clone(), task.clone()).await.iter().filter(|event| is_signal(event, name)).count()
}

fn is_signal(event: &EventView, name: &StageName) -> bool {
    event.event_type == "SIGNAL_RECEIVED" && event.payload["name"] == name.as_str()
}
