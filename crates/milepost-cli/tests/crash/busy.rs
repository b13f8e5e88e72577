//! Another program on the store's file: whoever waits for its locks waits a bounded time, and loses nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use milepost_core::task::PlanStatus;
use milepost_store::sqlite::SqliteStore;
use rusqlite::Connection;

use crate::history::History;
use crate::seed::Dice;
use crate::support::{World, wait_for};
use crate::witness::{Witness, repeats};

const TASKS: usize = 10;
const STAGES: [&str; 3] = ["a", "b", "c"];

fn world() -> World {
    let world = World::new();
    let line = r#"printf '%s %s\n' "$MILEPOST_STAGE" "$MILEPOST_ATTEMPT" >> "lines-$MILEPOST_TASK""#;
    let stages: String = STAGES.iter().map(|stage| format!("  - name: {stage}\n    run: {line}\n")).collect();
    let tasks: String = (1..=TASKS).map(|task| format!("  - {{ id: t-{task} }}\n")).collect();
    world.file("p.yaml", &format!("plan: p\nmax_concurrency: {TASKS}\nstages:\n{stages}tasks:\n{tasks}"));
    // It has to be there for the other to lock it.
    SqliteStore::open(world.path().join("milepost.db")).unwrap().close();
    world
}

/// This test is the other program. It waits for nobody: what it cannot have at once, it tries again.
fn other_program(world: &World) -> Connection {
    let connection = Connection::open(world.path().join("milepost.db")).unwrap();
    connection.busy_timeout(Duration::ZERO).unwrap();
    connection
}

fn everything_ran_once(world: &World) {
    let history = History::of(world, "p").unwrap();
    history.check(TASKS);
    assert_eq!(history.plan.status, PlanStatus::Completed);
    let mut witness = Witness::default();
    witness.look(world, &history);
    assert_eq!(witness.completed(), TASKS * STAGES.len());
    for task in history.tasks.values() {
        for stage in STAGES {
            assert_eq!(repeats(world, task, stage), 0, "nobody died, so nothing is repeated");
        }
    }
}

/// Takes the lock that writers need, again and again, keeps it for a while, and writes or moves the log in between.
fn storm(world: &World, mut dice: Dice, over: &AtomicBool, taken: &AtomicU64) {
    let connection = other_program(world);
    while !over.load(Ordering::Relaxed) {
        let held = dice.below(4);
        // What is busy is busy: the next try is as good.
        let begun = match held {
            0 => connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())),
            _ => connection.execute_batch("BEGIN IMMEDIATE"),
        };
        if begun.is_ok() {
            taken.fetch_add(1, Ordering::Relaxed);
            if held == 1 {
                let _ =
                    connection.execute_batch("CREATE TABLE IF NOT EXISTS another (x); INSERT INTO another VALUES (1)");
            }
            std::thread::sleep(dice.millis(0..60));
        }
        if !connection.is_autocommit() {
            let _ = connection.execute_batch(if held == 2 { "ROLLBACK" } else { "COMMIT" });
        }
        std::thread::sleep(dice.millis(0..10));
    }
}

#[test]
fn a_run_beside_a_program_that_locks_its_file_all_the_time_completes_and_repeats_nothing() {
    let world = world();
    let (over, taken) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let dice =
                Dice::of("a_run_beside_a_program_that_locks_its_file_all_the_time_completes_and_repeats_nothing");
            scope.spawn(|| storm(&world, dice, &over, &taken));
        }
        wait_for("the storm to begin", || (taken.load(Ordering::Relaxed) > 2).then_some(()));
        let run = std::panic::catch_unwind(|| world.good(&["run", "p.yaml"]));
        over.store(true, Ordering::Relaxed);
        run.unwrap();
    });
    eprintln!("the lock was taken {} times meanwhile", taken.load(Ordering::Relaxed));
    everything_ran_once(&world);
}

#[test]
fn who_cannot_open_a_file_that_another_program_keeps_locked_says_so_in_time() {
    let world = world();
    let other = other_program(&world);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let start = Instant::now();
    world.milepost(&["run", "p.yaml"]).must_exit(3).must_say(&["locked"]);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    // Who only looks waits for nobody.
    world.good(&["status"]);
    other.execute_batch("ROLLBACK").unwrap();
    world.good(&["run", "p.yaml"]);
    everything_ran_once(&world);
}

#[test]
fn a_run_whose_file_is_locked_for_longer_than_it_waits_goes_on_when_it_is_free() {
    let world = world();
    world.file(
        "p.yaml",
        &world.read("p.yaml").replace(
            "  - name: b\n    run: ",
            "  - name: b\n    run: touch \"began-$MILEPOST_TASK\"; while [ ! -e go ]; do sleep 0.02; done; ",
        ),
    );
    let run = world.start(&["run", "p.yaml"]);
    for task in 1..=TASKS {
        world.wait_for_file(&format!("began-t-{task}"));
    }
    let other = other_program(&world);
    wait_for("the lock", || other.execute_batch("BEGIN IMMEDIATE").ok());
    // Now there is something to write, and nobody can.
    world.file("go", "");
    run.wait_to_say("locked");
    other.execute_batch("ROLLBACK").unwrap();
    run.end().must_exit(0);
    everything_ran_once(&world);
}
