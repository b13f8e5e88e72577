//! A store in a folder of its own, a node on it, and stages that do what the test says.

mod cluster;
mod copier;
mod faulty;
mod flows;
mod kinds;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use milepost_core::failure::ErrorType;
use milepost_core::id::{PlanId, StageName, TaskId, Tenant};
use milepost_core::plan::{ParseOptions, Plan, parse};
use milepost_core::task::{By, Event, PlanStatus, Record, StageStatus, Task, TaskStatus, TaskView};
use milepost_core::time::Timestamp;
use milepost_engine::{Clock, Effect, Engine, Options, Registry, Target, Verb, VerbError};
use milepost_store::sqlite::SqliteStore;
use milepost_store::{EventQuery, LogQuery, PlanRow, Resubmit, Start, Store, StoredTask};

pub(crate) use cluster::{Cluster, Member};
pub(crate) use copier::{Copier, ROWS};
pub(crate) use faulty::{Answers, Faulty};
pub(crate) use flows::{Diary, Flow, flow};
pub(crate) use kinds::{Flaky, Gate, Journal, kind};

/// When the manual clock begins.
pub(crate) const DAWN: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// Never waits for ever: on the paused clock an hour passes as soon as nothing else can happen.
pub(crate) async fn bounded<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(3600), work).await.unwrap_or_else(|_| panic!("never happened: {what}"))
}

/// A folder with a store in it.
pub(crate) struct World {
    dir: tempfile::TempDir,
    pub(crate) clock: Clock,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a folder"), clock: Clock::manual(DAWN) }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("milepost.db")
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Faulty::over(Arc::new(SqliteStore::open(self.path()).expect("a store")))
    }

    /// A running node on the store of this folder.
    pub(crate) fn node(&self, registry: Registry) -> Node {
        self.node_on(self.store(), registry)
    }

    pub(crate) fn node_on(&self, store: Arc<dyn Store>, registry: Registry) -> Node {
        let node = self.idle_node(store, registry, |_| {});
        node.engine.start();
        node
    }

    pub(crate) fn idle_node(&self, store: Arc<dyn Store>, registry: Registry, set: impl FnOnce(&mut Options)) -> Node {
        let mut options = Options::new("node-1");
        options.clock = self.clock.clone();
        set(&mut options);
        Node { engine: Engine::new(store, registry, options) }
    }

    /// The store as a crash at this instant would leave it: what is on the disk, and nobody who holds it.
    pub(crate) fn crashed(&self) -> World {
        let after = World { dir: tempfile::tempdir().expect("a folder"), clock: self.clock.clone() };
        for suffix in ["", "-wal"] {
            let name = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
            std::fs::copy(name(&self.path()), name(&after.path())).expect("the files of the store");
        }
        after
    }
}

/// A plan from the text of a plan file.
pub(crate) fn plan(text: &str) -> Arc<Plan> {
    let id = PlanId::parse("unnamed").expect("an id");
    Arc::new(parse(text.as_bytes(), &ParseOptions::new("plan.yaml", id)).unwrap_or_else(|errors| panic!("{errors}")))
}

pub(crate) fn plan_id(id: &str) -> PlanId {
    PlanId::parse(id).expect("a plan id")
}

pub(crate) fn task_id(id: &str) -> TaskId {
    TaskId::parse(id).expect("a task id")
}

pub(crate) fn of_plan(id: &str) -> Target {
    Target::Plan(plan_id(id))
}

pub(crate) fn of_task(id: &str) -> Target {
    Target::Task(task_id(id))
}

pub(crate) fn of_tenant(id: &str) -> Target {
    Target::Tenant(Tenant::parse(id).expect("a tenant"))
}

pub(crate) const RETRY: Verb = Verb::Retry { from_checkpoint: true };

/// A node, with the questions that tests ask.
pub(crate) struct Node {
    pub(crate) engine: Engine,
}

impl Node {
    /// Submits a plan and starts it.
    pub(crate) async fn submit(&self, text: &str) {
        self.engine.submit(plan(text), Start::AtOnce, Resubmit::Same).await.expect("an accepted plan");
    }

    /// Submits a plan and waits for its end.
    pub(crate) async fn run(&self, text: &str) -> PlanRow {
        let plan = plan(text);
        let id = plan.definition.id.clone();
        self.engine.submit(plan, Start::AtOnce, Resubmit::Same).await.expect("an accepted plan");
        self.ended(id.as_str()).await
    }

    pub(crate) async fn ended(&self, plan: &str) -> PlanRow {
        let id = plan_id(plan);
        let waiting = self.engine.wait_for_plan(&id, |row| row.ended_at.is_some());
        bounded("the plan's end", waiting).await.expect("a plan")
    }

    pub(crate) async fn plan(&self, id: &str) -> PlanRow {
        self.engine.store().plan(&plan_id(id)).await.expect("a store").expect("a plan")
    }

    pub(crate) async fn until_plan(&self, id: &str, status: PlanStatus) {
        let plan = plan_id(id);
        let waiting = self.engine.wait_for_plan(&plan, |row| row.status == status);
        bounded(&format!("plan {id} is {status}"), waiting).await.expect("a plan");
    }

    pub(crate) async fn stored(&self, id: &str) -> StoredTask {
        self.engine.store().task(&task_id(id)).await.expect("a store").expect("a task")
    }

    /// Waits until a submission that nobody waits for has arrived.
    pub(crate) async fn until_stored(&self, id: &str) {
        bounded(&format!("task {id} in the store"), async {
            while self.engine.store().task(&task_id(id)).await.expect("a store").is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }

    pub(crate) async fn task(&self, id: &str) -> Task {
        self.stored(id).await.task
    }

    /// A task as the outside sees it: its status, and how far it is.
    pub(crate) async fn seen(&self, id: &str) -> (TaskStatus, f64) {
        let view = TaskView::from(&self.stored(id).await);
        (view.status, view.percent)
    }

    /// Waits until the store has heard that a task is this far.
    pub(crate) async fn until_percent(&self, id: &str, percent: f64) {
        bounded(&format!("task {id} at {percent} %"), async {
            while self.seen(id).await.1 != percent {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }

    pub(crate) async fn status(&self, id: &str) -> TaskStatus {
        self.task(id).await.status()
    }

    /// Waits until the stored task is as `wanted` says; looks at every change that the feed tells of.
    pub(crate) async fn until(&self, id: &str, wanted: impl Fn(&Task) -> bool) -> Task {
        let waiting = async {
            let mut feed = self.engine.feed().subscribe();
            loop {
                let task = self.task(id).await;
                if wanted(&task) {
                    return task;
                }
                // Falling behind is no harm here: the store is what is looked at.
                let _ = feed.recv().await;
            }
        };
        bounded(&format!("task {id} as it is wanted"), waiting).await
    }

    pub(crate) async fn until_status(&self, id: &str, status: TaskStatus) -> Task {
        self.until(id, |task| task.status() == status).await
    }

    pub(crate) async fn ended_task(&self, id: &str) -> Task {
        self.until(id, |task| task.status().is_ended()).await
    }

    pub(crate) async fn records(&self, id: &str) -> Vec<Record> {
        let query = EventQuery { task: task_id(id), after: 0, limit: usize::MAX };
        self.engine.store().events(query).await.expect("a log").into_iter().map(|event| event.record).collect()
    }

    /// The log as words: `STAGE_STARTED a 1`.
    pub(crate) async fn log(&self, id: &str) -> Vec<String> {
        self.records(id).await.iter().map(|record| words(record.event())).collect()
    }

    pub(crate) async fn count(&self, id: &str, line: &str) -> usize {
        self.log(id).await.iter().filter(|found| *found == line).count()
    }

    pub(crate) async fn output(&self, task: &str, stage: &str) -> Vec<u8> {
        let stage = Some(StageName::parse(stage).expect("a name"));
        let chunks = self.engine.store().logs(LogQuery { task: task_id(task), stage, attempt: None }).await;
        chunks.expect("output").into_iter().flat_map(|chunk| chunk.bytes).collect()
    }

    pub(crate) async fn operate(&self, target: Target, verb: Verb) -> Result<Effect, VerbError> {
        bounded("an answer", self.engine.operate(target, verb, By::new("tester"))).await
    }

    /// A verb that has to succeed; how many tasks it changed.
    pub(crate) async fn does(&self, target: Target, verb: Verb) -> u64 {
        self.operate(target, verb).await.unwrap_or_else(|error| panic!("{verb:?} was refused: {error}")).tasks
    }

    /// A verb that has to be refused; the words of it.
    pub(crate) async fn refuses(&self, target: Target, verb: Verb) -> String {
        self.operate(target, verb).await.expect_err("a refusal").to_string()
    }

    pub(crate) async fn stop(&self) {
        bounded("the node's stop", self.engine.stop()).await;
    }

    /// Waits until the node has no task in hand.
    pub(crate) async fn idle(&self) {
        bounded("nothing in hand", async {
            while self.engine.in_hand() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }
}

pub(crate) fn stage(task: &Task, name: &str) -> StageStatus {
    task.stages().find(|(definition, _)| definition.name.as_str() == name).expect("a stage").1.status
}

pub(crate) fn error_type(task: &Task) -> ErrorType {
    task.failure().expect("a failed task").cause.error_type
}

/// One event in a line.
pub(crate) fn words(event: &Event) -> String {
    let undo = |rollback: &bool| if *rollback { " undo" } else { "" };
    match event {
        Event::StageStarted { stage, attempt, rollback, .. } | Event::StageFailed { stage, attempt, rollback, .. } => {
            format!("{} {stage} {attempt}{}", event.kind(), undo(rollback))
        }
        Event::StageCompleted { stage, attempt, .. } => format!("{} {stage} {attempt}", event.kind()),
        Event::RetryScheduled { stage, attempt, delay, rollback, .. } => {
            format!("{} {stage} {attempt} after {}{}", event.kind(), delay.get(), undo(rollback))
        }
        Event::StageSkipped { stage, .. } | Event::StageRolledBack { stage } => format!("{} {stage}", event.kind()),
        other => other.kind().to_owned(),
    }
}
