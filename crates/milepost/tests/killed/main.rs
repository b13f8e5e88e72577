//! The example `order_saga` in a process of its own, killed after everything that it writes, in turn.

mod deadly;
#[path = "../../examples/order_saga/saga.rs"]
mod saga;

use std::collections::HashSet;
use std::io::Write;
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

/// The orders of the example, and the numbers that they go by in what it says.
const ORDERS: [(&str, &str); 2] = [("order-17", "17"), ("order-18", "18")];
/// What tells the process its part.
const FOLDER: &str = "MILEPOST_TEST_FOLDER";
const WRITES: &str = "MILEPOST_TEST_WRITES";

/// Not a test of its own: the process that the others start.
#[tokio::test]
async fn the_process() {
    let (Ok(folder), Ok(writes)) = (std::env::var(FOLDER), std::env::var(WRITES)) else { return };
    let store = Arc::new(SqliteStore::open(Path::new(&folder).join("saga.db")).unwrap());
    let store = Deadly::over(store, writes.parse().unwrap());
    let engine = Milepost::on(store).workflow(saga::checkout).start().await.unwrap();
    saga::shop(&engine).await.unwrap();
    engine.stop().await;
}

/// What a stage says when it runs is kept: one line in one write, so that a kill leaves the whole of it or nothing.
fn say(line: &str) {
    let witness = Path::new(&std::env::var(FOLDER).unwrap()).join("witness");
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(witness).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
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

/// What ran was recorded as started before it did.
fn no_more_runs_than_starts(witness: &Path, order: &str, log: &[EventView]) {
    let witness = std::fs::read_to_string(witness).unwrap();
    for (said, stage, undoes) in [
        (format!("{order}: charging"), "charge", false),
        (format!("{order}: reserving"), "reserve", false),
        (format!("{order}: shipping"), "ship", false),
        (format!("{order}: back on the shelf"), "reserve", true),
        (format!("refunding pay-{order}"), "charge", true),
    ] {
        let ran = witness.lines().filter(|line| line.starts_with(&said)).count();
        let started = |event: &&EventView| {
            let rollback = event.payload["rollback"] == true;
            event.event_type == "STAGE_STARTED" && of_stage(event) == stage && rollback == undoes
        };
        let starts = log.iter().filter(started).count();
        assert!(starts.min(1) <= ran && ran <= starts, "`{said}` ran {ran} times and was started {starts} times");
    }
}

#[tokio::test]
async fn killed_after_anything_that_it_writes_the_saga_ends_with_the_same_result_and_the_same_log() {
    let folder = tempfile::tempdir().unwrap();
    assert!(!runs(folder.path(), i64::MAX));
    let whole = [told(&log(folder.path(), "order-17").await), told(&log(folder.path(), "order-18").await)];
    assert!(whole[0].last().unwrap().contains("parcel-17"), "{whole:?}");
    assert!(whole[1].iter().any(|line| line.contains("RETRY_SCHEDULED")), "{whole:?}");
    assert!(whole[1].last().unwrap().contains("TASK_ROLLED_BACK"), "{whole:?}");
    for writes in 1.. {
        let folder = tempfile::tempdir().unwrap();
        if !runs(folder.path(), writes) {
            assert!(writes > 20, "only {writes} writes");
            return;
        }
        assert!(!runs(folder.path(), i64::MAX), "after {writes} writes");
        for ((id, number), whole) in ORDERS.into_iter().zip(&whole) {
            let log = log(folder.path(), id).await;
            no_completed_stage_runs_again(&log);
            assert_eq!(told(&log), *whole, "after {writes} writes");
            no_more_runs_than_starts(&folder.path().join("witness"), number, &log);
        }
    }
}
