//! Programs in the testing kit, and what has to be the same however a node dies.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use milepost::testing::{Call, Crash, Log, TestEngine};
use milepost::{ErrorType, Failure, secs};
use serde_json::{Value, json};

use crate::program::{How, Program, Stage, perform, stages};

/// How a play ended: of every run, children included, its result and its log.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) results: Vec<Result<Value, String>>,
    pub(crate) logs: BTreeMap<String, Log>,
    pub(crate) writes: u64,
    pub(crate) crashes: usize,
    /// What really ran, and how often: task, stage and attempt.
    ran: HashMap<(String, String, u32), usize>,
}

/// Runs a program as so many runs at once.
pub(crate) fn play(program: &Program, runs: usize, crash: Option<(Crash, u64)>) -> Played {
    let ran: Arc<Mutex<Vec<Call>>> = Arc::default();
    let mut engine = TestEngine::new().workflow(perform).capacity(runs);
    if let Some((crash, write)) = crash {
        engine = engine.crash(crash, write);
    }
    for stage in stages(program) {
        let (stage, ran) = (stage.clone(), ran.clone());
        engine = engine.fake_async(stage.name.clone(), move |call| attempt(stage.clone(), ran.clone(), call));
    }
    let ids: Vec<String> = (1..=runs).map(|run| format!("run-{run}")).collect();
    for id in &ids {
        engine.spawn(id, perform, program.clone()).unwrap();
    }
    let results = ids.iter().map(|id| engine.result(id, perform).map_err(|error| error.to_string())).collect();
    // The result may be there before its node has asked again for the answer that it is to die of.
    engine.advance(secs(1));
    let mut logs = BTreeMap::new();
    let mut open = ids;
    while let Some(id) = open.pop() {
        let log = engine.log(&id);
        let child = |event: &milepost::testing::EventView| event.payload.pointer("/step/kind/child/task").cloned();
        open.extend(log.iter().filter_map(child).filter_map(|child| child.as_str().map(str::to_owned)));
        logs.insert(id, log);
    }
    let mut times = HashMap::new();
    for call in ran.lock().unwrap().iter() {
        *times.entry((call.task.to_string(), call.stage.to_string(), call.attempt)).or_default() += 1;
    }
    Played { results, logs, writes: engine.writes(), crashes: engine.crashes(), ran: times }
}

/// What a stage's attempt comes to follows from its number alone, in whichever process it is made.
async fn attempt(stage: Stage, ran: Arc<Mutex<Vec<Call>>>, call: Call) -> Result<Value, Failure> {
    ran.lock().unwrap().push(call.clone());
    if call.attempt > stage.failures {
        return Ok(json!(format!("{} of {}", call.stage, call.task)));
    }
    match stage.how {
        How::Refuses => Err(Failure::retryable(ErrorType::Network, format!("refused {}", call.attempt))),
        How::Hangs => std::future::pending().await,
        How::Panics => std::panic::resume_unwind(Box::new("a stage that panics")),
        How::Fatally => Err(Failure::fatal(ErrorType::Business, "for good")),
    }
}

/// Two plays of the same program differ in nothing, not even in their times.
#[track_caller]
pub(crate) fn assert_equal(one: &Played, other: &Played) {
    assert_eq!(one.results, other.results);
    for (id, log) in &one.logs {
        assert_eq!(log.lines(), other.logs[id].lines(), "{id}");
        assert_eq!(*log, other.logs[id], "{id}");
    }
    assert_eq!((one.logs.len(), one.writes), (other.logs.len(), other.writes));
}

/// A play whose node died is as the one whose node did not, and nothing that had completed ran again.
#[track_caller]
pub(crate) fn assert_recovered(whole: &Played, disturbed: &Played, crash: (Crash, u64)) {
    assert_eq!(disturbed.crashes, 1, "{crash:?} of {}", whole.writes);
    assert_eq!(whole.results, disturbed.results, "{crash:?}");
    assert_eq!(whole.logs.len(), disturbed.logs.len());
    for (id, log) in &disturbed.logs {
        log.check();
        assert_eq!(by_branch(&whole.logs[id]), by_branch(log), "{crash:?} {id}");
    }
    for ((task, stage, attempt), times) in &disturbed.ran {
        let started = |event: &&milepost::testing::EventView| {
            event.event_type == "STAGE_STARTED"
                && event.payload["stage"] == stage.as_str()
                && event.payload["rollback"] != true
                && event.attempt_number == Some(*attempt)
        };
        let starts = disturbed.logs[task].iter().filter(started).count();
        // The start of a retry is written with its outcome, and so the one that was cut off is not in the log.
        let unwritten = usize::from(*attempt > 1);
        assert!(
            *times <= starts + unwritten,
            "{task} {stage} {attempt} ran {times} times and was started {starts} times"
        );
    }
}

/// The log, branch by branch: which of two branches is ahead is nobody's promise.
fn by_branch(log: &Log) -> Vec<(String, String)> {
    let branch = |line: String| {
        let named = |key: &str| {
            let (_, rest) = line.split_once(&format!("\"{key}\":\""))?;
            rest.split_once('"').map(|(name, _)| name)
        };
        let name = named("stage").or_else(|| named("name")).unwrap_or_default();
        let branch: Vec<&str> = name.split('.').take_while(|part| part.starts_with('b')).collect();
        (branch.join("."), line)
    };
    let mut lines: Vec<(String, String)> = log.undisturbed().into_iter().map(branch).collect();
    lines.sort_by(|(one, _), (other, _)| one.cmp(other));
    lines
}
