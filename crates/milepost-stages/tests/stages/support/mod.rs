//! What the tests share: calls as the engine makes them, a sink that remembers, and bounded waiting.

pub(crate) mod server;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use milepost_core::id::{PlanId, StageName, TaskId, Tenant};
use milepost_core::retry::RetryPolicy;
use milepost_engine::stage::{Outcome, Progress, ReportSink, Reporter, StageCall};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes, on any machine; a test that waits for this has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) fn call(seen: &Arc<Seen>) -> StageCall {
    StageCall {
        plan: PlanId::parse("plan-1").unwrap(),
        task: TaskId::parse("task-1").unwrap(),
        tenant: Some(Tenant::parse("tenant-1").unwrap()),
        stage: StageName::parse("stage-1").unwrap(),
        attempt: 1,
        origin: "origin".into(),
        run: 1,
        fence: 7,
        rollback: false,
        input: Arc::new(Value::Null),
        file: None,
        script: None,
        with: Value::Null,
        retry: RetryPolicy::default(),
        timeout: None,
        cancel: CancellationToken::new(),
        reporter: Reporter::new(seen.clone()),
    }
}

pub(crate) fn script(text: &str, seen: &Arc<Seen>) -> StageCall {
    StageCall { script: Some(text.into()), ..call(seen) }
}

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) progress: Mutex<Vec<(u64, u64)>>,
    output: Mutex<Vec<u8>>,
}

impl Seen {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    pub(crate) fn length(&self) -> usize {
        self.output.lock().unwrap().len()
    }
}

impl ReportSink for Seen {
    fn progress(&self, progress: Progress) {
        self.progress.lock().unwrap().push((progress.done, progress.total));
    }

    fn output(&self, bytes: &[u8]) {
        self.output.lock().unwrap().extend_from_slice(bytes);
    }
}

pub(crate) fn outputs(outcome: Outcome) -> Map<String, Value> {
    match outcome {
        Outcome::Success { outputs } => outputs,
        other => panic!("expected a success, got {other:?}"),
    }
}

pub(crate) fn failure(outcome: Outcome) -> milepost_core::failure::Failure {
    match outcome {
        Outcome::Failure(failure) => failure,
        other => panic!("expected a failure, got {other:?}"),
    }
}

/// Bounds what is awaited.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("this should have taken a moment")
}

/// Waits until `ready` answers with something.
pub(crate) async fn eventually<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < until, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The process ids that a command wrote to `path`, once there are `count` of them.
pub(crate) async fn pids(path: &Path, count: usize) -> Vec<u32> {
    eventually("writing the process ids", || {
        let text = std::fs::read_to_string(path).ok()?;
        let whole = text.ends_with('\n');
        let pids: Vec<u32> = text.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).collect();
        (whole && pids.len() == count).then_some(pids)
    })
    .await
}

/// Neither running nor able to run again; a zombie that nobody has waited for yet is no process any more.
pub(crate) fn is_gone(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z') || rest.starts_with('X')),
        Err(_) => true,
    }
}

pub(crate) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}
