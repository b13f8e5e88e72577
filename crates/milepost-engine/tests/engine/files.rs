//! The file of a task: fetched once while the task is here, and what its stages hold back until it completes.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use milepost_core::failure::{ErrorType, Failure};
use milepost_core::id::TaskId;
use milepost_core::plan::FileRef;
use milepost_core::task::TaskStatus;
use milepost_engine::stage::{Outcome, StageCall, StageKind};
use milepost_engine::{Brought, Files, Registry, Verb};
use serde_json::Value;

use crate::support::{Flaky, Gate, Journal, RETRY, World, bounded, error_type, kind, of_task};

/// Files that are not there, but counted: which were fetched, and how many of them have not been removed.
#[derive(Debug, Clone, Default)]
struct Shelf {
    fetched: Arc<Mutex<Vec<PathBuf>>>,
    here: Arc<AtomicUsize>,
    failing: Arc<Mutex<VecDeque<Failure>>>,
    /// The next fetch never ends.
    hangs: bool,
}

struct Copy(Arc<AtomicUsize>);

impl Drop for Copy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Files for Shelf {
    async fn bring(&self, task: &TaskId, _: &FileRef) -> Result<Brought, Failure> {
        let path = {
            let mut fetched = self.fetched.lock().unwrap();
            let path = PathBuf::from(format!("/shelf/{task}/{}", fetched.len() + 1));
            fetched.push(path.clone());
            path
        };
        self.here.fetch_add(1, Ordering::SeqCst);
        let copy = Copy(self.here.clone());
        // A fetch takes its time: others may ask meanwhile.
        tokio::task::yield_now().await;
        if self.hangs {
            std::future::pending::<()>().await;
        }
        if let Some(failure) = self.failing.lock().unwrap().pop_front() {
            return Err(failure);
        }
        Ok(Brought::new(path, copy))
    }
}

impl Shelf {
    fn fetches(&self) -> usize {
        self.fetched.lock().unwrap().len()
    }

    fn here(&self) -> usize {
        self.here.load(Ordering::SeqCst)
    }
}

/// Paths by `task/stage`, as the stages saw them.
type Paths = Arc<Mutex<HashMap<String, PathBuf>>>;

/// Reads the file, then does what `then` does.
fn reader(paths: &Paths, then: Arc<dyn StageKind>) -> Arc<dyn StageKind> {
    let paths = paths.clone();
    kind(move |call: StageCall| {
        let (paths, then) = (paths.clone(), then.clone());
        async move {
            match call.file_path().await {
                Ok(path) => {
                    let path = path.expect("the task has a file").to_path_buf();
                    paths.lock().unwrap().insert(format!("{}/{}", call.task, call.stage), path);
                    then.run(call).await
                }
                Err(failure) => Outcome::Failure(failure),
            }
        }
    })
}

fn noop() -> Arc<dyn StageKind> {
    kind(|_| async { Outcome::success() })
}

#[tokio::test(start_paused = true)]
async fn a_file_is_fetched_once_for_all_stages_and_attempts_and_is_gone_with_its_task() {
    let (world, shelf, flaky, paths) = (World::new(), Shelf::default(), Flaky::default(), Paths::default());
    flaky.fail("b", 2);
    let node =
        world.node(Registry::new().with("reads", reader(&paths, flaky.kind())).with_files(Arc::new(shelf.clone())));
    let beside = "{name: a, uses: reads, needs: []}, {name: b, uses: reads, needs: []}";
    // Longer than a task without a file is held for.
    let defaults = "{retry: {strategy: fixed, base: 1m, jitter: false}}";
    node.run(&format!(
        "{{plan: p, defaults: {defaults}, stages: [{beside}, {{name: c, uses: reads, needs: [a, b]}}],
          tasks: [{{id: t, file: {{uri: 's3://b/k'}}}}]}}"
    ))
    .await;
    assert_eq!(node.status("t").await, TaskStatus::Completed);
    assert_eq!(flaky.journal.calls().len(), 5);
    assert_eq!(shelf.fetches(), 1);
    let paths = paths.lock().unwrap().clone();
    assert!(paths.values().all(|path| path.as_os_str() == "/shelf/t/1") && paths.len() == 3, "{paths:?}");
    node.idle().await;
    assert_eq!(shelf.here(), 0);
}

#[tokio::test(start_paused = true)]
async fn two_tasks_never_share_a_file() {
    let (world, shelf, paths) = (World::new(), Shelf::default(), Paths::default());
    let node = world.node(Registry::new().with("reads", reader(&paths, noop())).with_files(Arc::new(shelf.clone())));
    let file = "file: {uri: 's3://b/k'}";
    node.run(&format!(
        "{{plan: p, stages: [{{name: s, uses: reads}}], tasks: [{{id: t, {file}}}, {{id: u, {file}}}]}}"
    ))
    .await;
    let paths = paths.lock().unwrap().clone();
    assert_eq!(shelf.fetches(), 2);
    assert_ne!(paths["t/s"], paths["u/s"]);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_fails_is_a_failure_of_the_attempt_that_asked_for_it() {
    let (world, shelf, paths) = (World::new(), Shelf::default(), Paths::default());
    let node = world.node(Registry::new().with("reads", reader(&paths, noop())).with_files(Arc::new(shelf.clone())));
    let plan = |id: &str| {
        let task = format!("{{id: {id}, file: {{uri: 's3://b/k'}}}}");
        format!("{{plan: {id}, stages: [{{name: s, uses: reads}}], tasks: [{task}]}}")
    };
    shelf.failing.lock().unwrap().push_back(Failure::retryable(ErrorType::Network, "no route"));
    node.run(&plan("t")).await;
    assert_eq!(node.status("t").await, TaskStatus::Completed);
    assert_eq!(node.count("t", "STAGE_STARTED s 2").await, 1);

    shelf.failing.lock().unwrap().push_back(Failure::fatal(ErrorType::Business, "there is no such file"));
    node.run(&plan("u")).await;
    assert_eq!(error_type(&node.task("u").await), ErrorType::Business);
    assert_eq!(node.count("u", "STAGE_STARTED s 2").await, 0);
    node.idle().await;
    assert_eq!(shelf.here(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_outlives_the_timeout_of_its_stage_is_ended() {
    let (world, paths) = (World::new(), Paths::default());
    let shelf = Shelf { hangs: true, ..Shelf::default() };
    let node = world.node(Registry::new().with("reads", reader(&paths, noop())).with_files(Arc::new(shelf.clone())));
    let stage = "{name: s, uses: reads, timeout: 3s, retry: {max_attempts: 1}}";
    node.run(&format!("{{plan: p, stages: [{stage}], tasks: [{{id: t, file: {{uri: 's3://b/k'}}}}]}}")).await;
    let task = node.task("t").await;
    assert_eq!(error_type(&task), ErrorType::Timeout);
    assert_eq!(task.ended_at().unwrap().since(task.started_at().unwrap()).get(), 3000, "and no grace was needed");
    assert_eq!(shelf.here(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_paused_or_whose_node_stops_leaves_no_file_behind() {
    let (world, shelf, gate, paths) = (World::new(), Shelf::default(), Gate::shut(), Paths::default());
    let registry = || Registry::new().with("reads", reader(&paths, gate.kind())).with_files(Arc::new(shelf.clone()));
    let node = world.node(registry());
    let stages = "[{name: a, uses: reads}, {name: b, uses: reads}, {name: c, uses: reads}]";
    node.submit(&format!("{{plan: p, stages: {stages}, tasks: [{{id: t, file: {{uri: 's3://b/k'}}}}]}}")).await;
    gate.came(1).await;
    node.does(of_task("t"), Verb::Pause).await;
    gate.let_go(1);
    node.until_status("t", TaskStatus::Paused).await;
    node.idle().await;
    assert_eq!((shelf.fetches(), shelf.here()), (1, 0));

    node.does(of_task("t"), Verb::Resume).await;
    gate.came(2).await;
    assert_eq!((shelf.fetches(), shelf.here()), (2, 1));
    gate.let_go(1);
    node.stop().await;
    assert_eq!(shelf.here(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_that_a_kind_is_told_is_never_more_than_is_left_of_its_task() {
    let world = World::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    let slow = kind(move |call: StageCall| {
        heard.lock().unwrap().push(call.timeout.map(milepost_core::time::Millis::get));
        async {
            tokio::time::sleep(std::time::Duration::from_secs(6)).await;
            Outcome::success()
        }
    });
    let node = world.node(Registry::new().with("slow", slow));
    let stages = "[{name: a, uses: slow, timeout: 7s}, {name: b, uses: slow, timeout: 7s}]";
    node.run(&format!("{{plan: p, task_timeout: 10s, stages: {stages}, tasks: [{{id: t}}]}}")).await;
    assert_eq!(*told.lock().unwrap(), [Some(7000), Some(4000)]);
    let task = node.task("t").await;
    assert_eq!(task.ended_at().unwrap().since(task.started_at().unwrap()).get(), 12_000, "cut off, though not at once");
    assert_eq!(error_type(&task), ErrorType::Timeout);
}

/// Holds back what it makes, and writes down what happens to it.
#[derive(Clone, Default)]
struct Maker {
    diary: Arc<Mutex<Vec<String>>>,
    failing: Arc<Mutex<VecDeque<Failure>>>,
}

impl Maker {
    fn note(&self, what: &str, call: &StageCall) {
        self.diary.lock().unwrap().push(format!("{what} {}", call.stage));
    }

    fn diary(&self) -> Vec<String> {
        self.diary.lock().unwrap().clone()
    }

    fn registry(&self) -> Registry {
        let flaky = self.clone();
        let plain = kind(move |call: StageCall| {
            flaky.note("run", &call);
            let failure = flaky.failing.lock().unwrap().pop_front();
            async { failure.map_or_else(Outcome::success, Outcome::Failure) }
        });
        Registry::new().with("makes", Arc::new(self.clone())).with("plain", plain)
    }
}

#[async_trait]
impl StageKind for Maker {
    async fn run(&self, call: StageCall) -> Outcome {
        self.note("run", &call);
        Outcome::success()
    }

    fn holds_back(&self, with: &Value) -> bool {
        with["publish"] == "end"
    }

    async fn publish(&self, call: StageCall) -> Result<(), Failure> {
        self.note("publish", &call);
        self.failing.lock().unwrap().pop_front().map_or(Ok(()), Err)
    }

    async fn withdraw(&self, call: StageCall) {
        self.note("withdraw", &call);
    }
}

const HELD: &str = "{name: a, uses: makes, with: {publish: end}}, {name: n, uses: makes, with: {publish: now}}";

#[tokio::test(start_paused = true)]
async fn what_is_held_back_appears_in_the_attempt_that_completes_the_task() {
    let (world, maker) = (World::new(), Maker::default());
    let node = world.node(maker.registry());
    maker.failing.lock().unwrap().push_back(Failure::retryable(ErrorType::Network, "no route"));
    node.run(&format!("{{plan: p, stages: [{HELD}, {{name: b, uses: plain}}], tasks: [{{id: t}}]}}")).await;
    assert_eq!(node.status("t").await, TaskStatus::Completed);
    assert_eq!(maker.diary(), ["run a", "run n", "run b", "run b", "publish a"]);
}

#[tokio::test(start_paused = true)]
async fn publishing_that_fails_is_a_failure_of_the_stage_that_would_have_completed_the_task() {
    let (world, maker, journal) = (World::new(), Maker::default(), Journal::default());
    let node = world.node(maker.registry().with("noted", journal.kind()));
    let stages = format!("[{HELD}, {{name: b, uses: noted}}]");
    maker.failing.lock().unwrap().push_back(Failure::retryable(ErrorType::Network, "no route"));
    node.run(&format!("{{plan: p, stages: {stages}, tasks: [{{id: t}}]}}")).await;
    assert_eq!(node.status("t").await, TaskStatus::Completed);
    assert_eq!(journal.calls(), ["t/b/1", "t/b/2"]);
    assert_eq!(maker.diary(), ["run a", "run n", "publish a", "publish a"]);

    maker.failing.lock().unwrap().push_back(Failure::fatal(ErrorType::Business, "no such bucket"));
    node.run(&format!("{{plan: q, stages: {stages}, tasks: [{{id: u}}]}}")).await;
    assert_eq!((node.status("u").await, error_type(&node.task("u").await)), (TaskStatus::Failed, ErrorType::Business));
    node.idle().await;
    assert_eq!(maker.diary()[4..], ["run a", "run n", "publish a", "withdraw a"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_held_back_appears_also_when_the_last_stages_are_skipped() {
    let (world, maker) = (World::new(), Maker::default());
    let node = world.node(maker.registry());
    let skipped = "{name: c, uses: plain, if: 'input.more'}";
    let stages = format!("[{HELD}, {{name: b, uses: plain}}, {skipped}]");
    node.run(&format!("{{plan: p, stages: {stages}, tasks: [{{id: t, input: {{more: false}}}}]}}")).await;
    assert_eq!(node.status("t").await, TaskStatus::Completed);
    assert_eq!(maker.diary(), ["run a", "run n", "run b", "publish a"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_held_back_appears_also_when_a_task_pauses_before_stages_that_are_all_skipped() {
    let (world, maker, gate) = (World::new(), Maker::default(), Gate::shut());
    let node = world.node(maker.registry().with("gate", gate.kind()));
    let stages = format!("[{HELD}, {{name: g, uses: gate}}, {{name: c, uses: plain, if: 'input.more'}}]");
    node.submit(&format!("{{plan: p, stages: {stages}, tasks: [{{id: t, input: {{more: false}}}}]}}")).await;
    gate.came(1).await;
    node.does(of_task("t"), Verb::Pause).await;
    gate.let_go(1);
    node.until_status("t", TaskStatus::Paused).await;
    assert_eq!(maker.diary(), ["run a", "run n"]);
    // The first try to let it appear fails, and there is another.
    maker.failing.lock().unwrap().push_back(Failure::retryable(ErrorType::Network, "no route"));
    node.does(of_task("t"), Verb::Resume).await;
    node.until_status("t", TaskStatus::Completed).await;
    bounded("publishing", async {
        while maker.diary().len() < 4 {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    })
    .await;
    assert_eq!(maker.diary()[2..], ["publish a", "publish a"]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_fails_or_is_cancelled_withdraws_and_a_retried_one_publishes() {
    let (world, maker, gate) = (World::new(), Maker::default(), Gate::shut());
    let node = world.node(maker.registry().with("gate", gate.kind()));
    maker.failing.lock().unwrap().push_back(Failure::fatal(ErrorType::Business, "no"));
    node.run(&format!("{{plan: p, stages: [{HELD}, {{name: b, uses: plain}}], tasks: [{{id: t}}]}}")).await;
    node.idle().await;
    assert_eq!(maker.diary(), ["run a", "run n", "run b", "withdraw a"]);
    node.does(of_task("t"), RETRY).await;
    node.until_status("t", TaskStatus::Completed).await;
    assert_eq!(maker.diary()[4..], ["run b", "publish a"]);

    node.submit(&format!("{{plan: q, stages: [{HELD}, {{name: g, uses: gate}}], tasks: [{{id: u}}]}}")).await;
    gate.came(1).await;
    node.does(of_task("u"), Verb::Cancel).await;
    node.idle().await;
    assert_eq!(maker.diary()[6..], ["run a", "run n", "withdraw a"]);
}
