//! Topics and a group of a test's own on the broker that `MILEPOST_TEST_KAFKA` names, and nodes that read them.

mod topics;

#[expect(dead_code, reason = "the engine's own tests need more of it")]
#[path = "../../../milepost-engine/tests/engine/support/faulty.rs"]
pub(crate) mod faulty;
#[expect(dead_code, reason = "the engine's own tests need more of it")]
#[path = "../../../milepost-engine/tests/engine/support/kinds.rs"]
pub(crate) mod kinds;

use std::sync::Arc;
use std::time::Duration;

use milepost_core::id::{PlanId, TaskId};
use milepost_core::plan::{ParseOptions, Plan, parse, parse_chain};
use milepost_core::task::TaskStatus;
use milepost_core::time::Millis;
use milepost_engine::{Consumer, ConsumerStatus, Engine, Options, Registry};
use milepost_kafka::{Chains, Cluster, Kafka, Settings};
use milepost_store::memory::MemoryStore;
use milepost_store::{Book, Entry, EntryQuery, Membership, Resubmit, Start, Store};
use serde_json::{Value, json};

use kinds::Journal;
#[allow(unused_imports, reason = "only tests with a broker need it")]
pub(crate) use topics::Topics;

/// Nothing here takes longer on any machine, however busy, unless it never happens.
pub(crate) const LONG: Duration = Duration::from_secs(600);
/// A node that gets no processor for a while loses nothing by it: what these tests count is what Kafka does.
const LEASE: Millis = Millis::from_secs(3600);

pub(crate) async fn bounded<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, work).await.unwrap_or_else(|_| panic!("never happened: {what}"))
}

/// Looks again and again until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let look = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    bounded(what, look).await;
}

/// One node, and its Kafka side.
pub(crate) struct Node {
    pub(crate) engine: Engine,
    pub(crate) kafka: Kafka,
}

impl Node {
    pub(crate) fn start(settings: Settings, store: Arc<dyn Store>, registry: Registry) -> Self {
        Self::start_as("node-1", settings, store, registry, |_| {})
    }

    pub(crate) fn start_as(
        name: &str,
        settings: Settings,
        store: Arc<dyn Store>,
        registry: Registry,
        set: impl FnOnce(&mut Options),
    ) -> Self {
        let mut options = Options::new(name);
        options.lease = LEASE.as_duration();
        set(&mut options);
        let engine = Engine::new(store, registry, options);
        engine.start();
        let kafka = Kafka::start(engine.clone(), settings, chains()).expect("good settings");
        Self { engine, kafka }
    }

    /// Over brokers that the test plays.
    #[allow(dead_code, reason = "tests with a broker do not")]
    pub(crate) fn start_on(
        cluster: Arc<dyn Cluster>,
        options: Options,
        settings: Settings,
        store: Arc<dyn Store>,
        registry: Registry,
    ) -> Self {
        let options = Options { lease: LEASE.as_duration(), ..options };
        let engine = Engine::new(store, registry, options);
        engine.start();
        let kafka = Kafka::start_on(cluster, engine.clone(), settings, chains()).expect("good settings");
        Self { engine, kafka }
    }

    /// Stores a plan with `trigger: message` and these tasks, each of one stage `uses: work`.
    pub(crate) async fn plan(&self, name: &str, tasks: &[&str]) {
        let tasks: Vec<Value> = tasks.iter().map(|id| json!({ "id": id })).collect();
        let plan = json!({
            "plan": name,
            "trigger": "message",
            "stages": [{ "name": "one", "uses": "work", "retry": { "max_attempts": 1 } }],
            "tasks": tasks,
        });
        let plan = Arc::new(read(&plan.to_string()));
        self.engine.submit(plan, Start::AtOnce, Resubmit::Same).await.expect("a good plan");
    }

    pub(crate) async fn status(&self, task: &str) -> Option<TaskStatus> {
        let id = TaskId::parse(task).expect("a task's id");
        self.engine.store().task(&id).await.expect("a store").map(|stored| stored.task.status())
    }

    pub(crate) async fn ends(&self, task: &str, status: TaskStatus) {
        until(&format!("{task} is {status}"), async || self.status(task).await == Some(status)).await;
    }

    pub(crate) async fn entries(&self, book: Book) -> Vec<Entry> {
        let now = self.engine.clock().now();
        let query = EntryQuery { book, after: None, limit: 1000, now };
        self.engine.store().entries(query).await.expect("a store").items
    }

    pub(crate) fn consumer(&self) -> ConsumerStatus {
        self.kafka.status()
    }

    pub(crate) async fn close(self) {
        self.kafka.stop_intake().await;
        bounded("the node stops", self.engine.stop()).await;
        self.kafka.close().await;
    }
}

pub(crate) fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

/// A store in memory that several nodes share.
pub(crate) fn joined(store: &MemoryStore, name: &str) -> Arc<dyn Store> {
    Arc::new(store.join(Membership { lease: LEASE, ..Membership::node(name, "boot") }))
}

pub(crate) fn working(journal: &Journal) -> Registry {
    Registry::new().with("work", journal.kind())
}

pub(crate) fn chains() -> Chains {
    let text = r#"{"stages": [{"name": "one", "uses": "work"}, {"name": "two", "uses": "work"}]}"#;
    let chain = parse_chain(text.as_bytes(), &options()).expect("a good chain");
    Chains::from([("double".to_owned(), chain)])
}

fn read(text: &str) -> Plan {
    parse(text.as_bytes(), &options()).expect("a good plan")
}

fn options() -> ParseOptions<'static> {
    ParseOptions::new("test", PlanId::parse("plan").expect("a plan's id"))
}

pub(crate) fn message(id: &str, task: &str) -> Value {
    json!({ "messageId": id, "taskId": task, "sourceNode": "uploads-1" })
}
