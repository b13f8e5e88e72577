//! A server on a free port, a plan to run on it, and a client that reads events.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::{Stream, StreamExt};
use milepost_core::failure::{ErrorType, Failure};
use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::{ParseOptions, parse};
use milepost_core::task::By;
use milepost_engine::stage::{Outcome, Progress, StageCall, StageKind};
use milepost_engine::{Engine, Options, Registry, Target, Verb};
use milepost_server::{App, Server, Settings};
use milepost_store::memory::MemoryStore;
use milepost_store::{Change, ChangeQuery, Position, Resubmit, Start, Store};
use serde_json::Value;
use sse_stream::{Sse, SseStream};
use tokio::sync::watch;

/// Never waits for ever.
pub(crate) async fn bounded<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(600), work).await.unwrap_or_else(|_| panic!("never happened: {what}"))
}

pub(crate) fn plan_id(id: &str) -> PlanId {
    PlanId::parse(id).expect("a plan id")
}

/// A node that serves.
pub(crate) struct World {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) engine: Engine,
    pub(crate) app: App,
    server: Server,
    pub(crate) gate: Gate,
    pub(crate) copies: Copies,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::on(Arc::new(MemoryStore::new())).await
    }

    pub(crate) async fn on(store: Arc<MemoryStore>) -> Self {
        let (gate, copies) = (Gate::default(), Copies::default());
        let registry = Registry::new()
            .with("gate", Arc::new(gate.clone()))
            .with("noop", Arc::new(Noop))
            .with("large", Arc::new(Large))
            .with("talks", Arc::new(Talks))
            .with("copies", Arc::new(copies.clone()))
            .with("fails-once", Arc::new(FailsOnce::default()));
        let mut options = Options::new("node-1");
        // What is shown here, something else is the reason for.
        options.heartbeat = Duration::from_secs(3600);
        let engine = Engine::new(store.clone(), registry, options);
        engine.start();
        let app = App::new(engine.clone(), Settings::default());
        let server = Server::start(app.clone(), "127.0.0.1:0".parse().unwrap()).await.expect("a free port");
        Self { store, engine, app, server, gate, copies }
    }

    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.server.address()
    }

    /// Stops in good order, with whatever still runs let go.
    pub(crate) async fn close(self) {
        self.gate.open();
        self.app.closing().cancel();
        bounded("the server's end", self.server.close()).await;
        bounded("the node's end", self.engine.stop()).await;
    }

    pub(crate) async fn submit(&self, text: &str) {
        let plan = parse(text.as_bytes(), &ParseOptions::new("plan.yaml", plan_id("unnamed"))).expect("a plan");
        self.engine.submit(Arc::new(plan), Start::AtOnce, Resubmit::Same).await.expect("an accepted plan");
    }

    pub(crate) async fn ended(&self, plan: &str) {
        let id = plan_id(plan);
        let waiting = self.engine.wait_for_plan(&id, |row| row.ended_at.is_some());
        bounded("the plan's end", waiting).await.expect("a plan");
    }

    pub(crate) async fn retry(&self, task: &str) {
        let target = Target::Task(TaskId::parse(task).unwrap());
        let verb = Verb::Retry { from_checkpoint: true };
        self.engine.operate(target, verb, By::new("tester")).await.expect("a retry");
    }

    pub(crate) async fn operate(&self, plan: &str, verb: Verb) {
        self.engine.operate(Target::Plan(plan_id(plan)), verb, By::new("tester")).await.expect("a verb");
    }

    /// One reading.
    pub(crate) async fn read(&self, path: &str) -> Value {
        let request = client().get(format!("http://{}/api/v1/{path}", self.address()));
        let text = bounded("an answer", request.send()).await.expect("an answer").text().await.expect("a body");
        serde_json::from_str(&text).expect("JSON")
    }

    pub(crate) async fn cancel(&self, plan: &str) {
        self.engine.operate(Target::Plan(plan_id(plan)), Verb::Cancel, By::new("tester")).await.expect("a cancel");
    }

    /// All that was ever committed to a plan.
    pub(crate) async fn changes(&self, plan: &str) -> Vec<Change> {
        let query = ChangeQuery { after: Position(0), plan: Some(plan_id(plan)), limit: usize::MAX };
        self.store.changes(query).await.expect("a store").items
    }

    pub(crate) async fn positions(&self, plan: &str) -> Vec<i64> {
        self.changes(plan).await.iter().map(|change| change.position.0).collect()
    }

    pub(crate) async fn watch(&self, path: &str) -> Client {
        self.watch_after(path, None).await
    }

    pub(crate) async fn watch_after(&self, path: &str, last: Option<i64>) -> Client {
        let response = self.ask(path, last.map(|last| last.to_string()).as_deref()).await;
        assert_eq!(response.status(), 200);
        Client::new(response)
    }

    pub(crate) async fn ask(&self, path: &str, last: Option<&str>) -> reqwest::Response {
        let mut request = client().get(format!("http://{}/api/v1/{path}/progress/stream", self.address()));
        if let Some(last) = last {
            request = request.header("Last-Event-ID", last);
        }
        bounded("an answer", request.send()).await.expect("an answer")
    }
}

fn client() -> reqwest::Client {
    // Another test may have been first, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().expect("a client")
}

/// One stream of events.
pub(crate) struct Client {
    events: Pin<Box<dyn Stream<Item = Sse> + Send>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) id: Option<i64>,
    pub(crate) data: Value,
}

impl Client {
    fn new(response: reqwest::Response) -> Self {
        let bytes = futures::stream::unfold(response, |mut response| async {
            response.chunk().await.transpose().map(|chunk| (chunk, response))
        });
        let events = SseStream::from_bytes_stream(bytes).filter_map(|event| async { event.ok() });
        Self { events: Box::pin(events) }
    }

    /// The next event; none when the server has closed.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            let raw = bounded("the next event", self.events.next()).await?;
            // The hint when to come back, and nothing else.
            let Some(name) = raw.event else { continue };
            let data = serde_json::from_str(&raw.data.expect("data")).expect("JSON");
            return Some(Event { name, id: raw.id.map(|id| id.parse().expect("a position")), data });
        }
    }

    /// All there is, until the server closes.
    pub(crate) async fn rest(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }

    /// Waits for so many changes of state.
    pub(crate) async fn states(&mut self, count: usize) -> Vec<Event> {
        let mut states = Vec::new();
        while states.len() < count {
            states.extend(self.next().await.filter(|event| event.name == "state"));
        }
        states
    }
}

/// The positions of all state changes.
pub(crate) fn states(events: &[Event]) -> Vec<i64> {
    events.iter().filter(|event| event.name == "state").map(|event| event.id.expect("an id")).collect()
}

/// Progress of this task.
pub(crate) fn progress_of<'a>(events: &'a [Event], task: &str) -> Vec<&'a Value> {
    let of_task = |event: &&Event| event.name == "progress" && event.data["task"]["taskId"] == task;
    events.iter().filter(of_task).map(|event| &event.data["task"]).collect()
}

pub(crate) struct Noop;

#[async_trait]
impl StageKind for Noop {
    async fn run(&self, _: StageCall) -> Outcome {
        Outcome::success()
    }
}

/// Leaves a result of 100 kB behind.
struct Large;

#[async_trait]
impl StageKind for Large {
    async fn run(&self, _: StageCall) -> Outcome {
        let outputs = [("text".to_owned(), Value::from("x".repeat(100_000)))];
        Outcome::Success { outputs: outputs.into_iter().collect() }
    }
}

/// Says something new every few milliseconds, for a while.
struct Talks;

#[async_trait]
impl StageKind for Talks {
    async fn run(&self, call: StageCall) -> Outcome {
        for done in 0..200 {
            call.reporter.progress(Progress { done, total: 200 });
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Outcome::success()
    }
}

/// Commits a batch of 100 rows every 20 milliseconds up to the number of `rows`, notes when it did, and can be cut off.
#[derive(Clone, Default)]
pub(crate) struct Copies {
    committed: Arc<Mutex<Vec<(u64, Instant)>>>,
}

impl Copies {
    /// What was committed, and when.
    pub(crate) fn committed(&self) -> Vec<(u64, Instant)> {
        self.committed.lock().unwrap().clone()
    }
}

#[async_trait]
impl StageKind for Copies {
    fn interruptible(&self, _: &Value) -> bool {
        true
    }

    async fn run(&self, call: StageCall) -> Outcome {
        let number = |key: &str| call.with[key].as_u64().expect("a number");
        let (rows, stays_at) = (number("rows"), number("stays_at"));
        let mut done = 0;
        while done < rows {
            call.reporter.progress(Progress { done, total: rows });
            tokio::select! {
                () = call.cancel.cancelled() => return Outcome::Failure(Failure::fatal(ErrorType::Unknown, "cut off")),
                () = tokio::time::sleep(Duration::from_millis(20)), if done != stays_at => {}
            }
            done += 100;
            self.committed.lock().unwrap().push((done, Instant::now()));
        }
        call.reporter.progress(Progress { done, total: rows });
        Outcome::success()
    }
}

/// Fails the first time it is called, and then waits like a gate.
#[derive(Default)]
struct FailsOnce {
    called: std::sync::atomic::AtomicBool,
}

#[async_trait]
impl StageKind for FailsOnce {
    async fn run(&self, _: StageCall) -> Outcome {
        if self.called.swap(true, std::sync::atomic::Ordering::SeqCst) {
            return Outcome::success();
        }
        Outcome::Failure(Failure::fatal(ErrorType::Business, "not today"))
    }
}

/// Stages that stay until they are let go.
#[derive(Clone)]
pub(crate) struct Gate {
    passes: Arc<watch::Sender<usize>>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { passes: Arc::new(watch::Sender::new(0)) }
    }
}

impl Gate {
    pub(crate) fn let_go(&self, count: usize) {
        self.passes.send_modify(|passes| *passes += count);
    }

    pub(crate) fn open(&self) {
        self.passes.send_modify(|passes| *passes = usize::MAX / 2);
    }
}

#[async_trait]
impl StageKind for Gate {
    async fn run(&self, call: StageCall) -> Outcome {
        let mut passes = self.passes.subscribe();
        loop {
            let takes = |passes: &mut usize| {
                let free = *passes > 0;
                *passes -= usize::from(free);
                free
            };
            if self.passes.send_if_modified(takes) {
                return Outcome::success();
            }
            tokio::select! {
                changed = passes.changed() => changed.expect("the gate stays"),
                () = call.cancel.cancelled() => return Outcome::success(),
            }
        }
    }
}
