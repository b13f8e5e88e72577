//! The order saga in a process of its own, killed after everything that it writes, in turn.

mod deadly;
mod saga;

use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use milepost::Milepost;
use milepost_core::id::TaskId;
use milepost_core::task::EventView;
use milepost_store::sqlite::SqliteStore;
use milepost_store::{EventQuery, Store};
use serde_json::Value;

use deadly::Deadly;
use saga::{FAILS, Order, saga};

/// What tells the process its part.
const FOLDER: &str = "MILEPOST_TEST_FOLDER";
const WRITES: &str = "MILEPOST_TEST_WRITES";

/// Not a test of its own: the process that the others start.
#[tokio::test]
async fn the_process() {
    let (Ok(folder), Ok(writes)) = (std::env::var(FOLDER), std::env::var(WRITES)) else { return };
    let store = Arc::new(SqliteStore::open(Path::new(&folder).join("saga.db")).unwrap());
    let store = Deadly::over(store, writes.parse().unwrap());
    let engine = Milepost::on(store).workflow(saga).start().await.unwrap();
    for (id, fails) in [("ships", false), (FAILS, true)] {
        let order = Order { id: id.to_owned(), fails, witness: Path::new(&folder).join("witness") };
        let result = engine.run(saga, order).id(id).await;
        assert_eq!(result.is_err(), fails, "{result:?}");
    }
    engine.stop().await;
}

/// Runs the process; whether it was killed before its end.
fn runs(folder: &Path, writes: i64) -> bool {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_process", "--nocapture"])
        .env(FOLDER, folder)
        .env(WRITES, writes.to_string())
        .output()
        .unwrap();
    match (status.status.success(), status.status.signal()) {
        (true, _) => false,
        (false, Some(9)) => true,
        (false, _) => panic!("{}", String::from_utf8_lossy(&status.stdout)),
    }
}

async fn log(folder: &Path, id: &str) -> Vec<EventView> {
    let store = SqliteStore::open_to_read(folder.join("saga.db")).unwrap();
    let task = TaskId::parse(id).unwrap();
    let stored = store.task(&task).await.unwrap().unwrap();
    let events = store.events(EventQuery { task: task.clone(), after: 0, limit: 10_000 }).await.unwrap();
    let view = |event: &milepost_store::StoredEvent| {
        EventView::new(&stored.task.spec().plan, &task, event.sequence, &event.record)
    };
    events.iter().map(view).collect()
}

/// A log but for times, node names, TASK_INTERRUPTED and repeated STAGE_STARTED.
fn told(log: &[EventView]) -> Vec<String> {
    let (mut lines, mut started) = (Vec::new(), HashSet::new());
    for event in log.iter().filter(|event| event.event_type != "TASK_INTERRUPTED") {
        let mut payload = event.payload.clone();
        // When a sleep is over is a time, and so is what the clock said.
        let said = if payload["name"] == "now" { "/value" } else { "/step/kind/sleep/until" };
        for differs in ["/node", said] {
            payload.pointer_mut(differs).map(Value::take);
        }
        let line = format!(
            "{} {payload} {:?} {:?} {:?}",
            event.event_type, event.attempt_number, event.backoff_delay_ms, event.failure_reason
        );
        // A repeated start does not say again what was asked for.
        let start = format!("{} {} {:?}", of_stage(event), event.payload["rollback"], event.attempt_number);
        if event.event_type != "STAGE_STARTED" || started.insert(start) {
            lines.push(line);
        }
    }
    lines
}

fn of_stage(event: &EventView) -> String {
    event.payload["stage"].as_str().unwrap_or_default().to_owned()
}

/// A stage that has ended is not started again; to be undone it is, once.
fn no_completed_stage_runs_again(log: &[EventView]) {
    let mut completed = HashSet::new();
    for event in log {
        match event.event_type.as_str() {
            "STAGE_COMPLETED" => assert!(completed.insert(of_stage(event)), "{} completed twice", of_stage(event)),
            "STAGE_STARTED" if event.payload["rollback"] != true => {
                assert!(!completed.contains(&of_stage(event)), "{} ran again", of_stage(event));
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn killed_after_anything_that_it_writes_the_saga_ends_with_the_same_result_and_the_same_log() {
    let folder = tempfile::tempdir().unwrap();
    assert!(!runs(folder.path(), i64::MAX));
    let whole = [told(&log(folder.path(), "ships").await), told(&log(folder.path(), FAILS).await)];
    assert!(whole[0].iter().any(|line| line.contains("RETRY_SCHEDULED")), "{whole:?}");
    assert!(whole[1].last().unwrap().contains("TASK_ROLLED_BACK"), "{whole:?}");
    for writes in 1.. {
        let folder = tempfile::tempdir().unwrap();
        if !runs(folder.path(), writes) {
            assert!(writes > 30, "only {writes} writes");
            return;
        }
        assert!(!runs(folder.path(), i64::MAX), "after {writes} writes");
        for (id, whole) in ["ships", FAILS].into_iter().zip(&whole) {
            let log = log(folder.path(), id).await;
            no_completed_stage_runs_again(&log);
            assert_eq!(told(&log), *whole, "after {writes} writes");
            saga::no_more_runs_than_starts(&folder.path().join("witness"), id, &log);
        }
    }
}
