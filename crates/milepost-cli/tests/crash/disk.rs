//! Death at every sync and every write of a run, and disks that fail or fill up.

use milepost_core::task::PlanStatus;
use rustix::io::Errno;
use rustix::process::Signal;

use crate::faults::{Call, Fault, Strike};
use crate::history::History;
use crate::support::World;
use crate::witness::{Witness, repeats};

const TASKS: usize = 10;
const STAGES: [&str; 3] = ["a", "b", "c"];

/// Ten tasks of three stages that each leave a line. One at a time, every commit is a sync of its own; all at once, they
/// share them.
fn world(at_once: usize) -> World {
    let world = World::new();
    let line = r#"printf '%s %s\n' "$MILEPOST_STAGE" "$MILEPOST_ATTEMPT" >> "lines-$MILEPOST_TASK""#;
    let stages: String = STAGES.iter().map(|stage| format!("  - name: {stage}\n    run: {line}\n")).collect();
    let tasks: String = (1..=TASKS).map(|task| format!("  - {{ id: t-{task} }}\n")).collect();
    world.file("p.yaml", &format!("plan: p\nmax_concurrency: {at_once}\nstages:\n{stages}tasks:\n{tasks}"));
    world
}

/// The next run completes, and repeats nothing that the one before it had recorded.
fn the_next_run_completes(world: &World) {
    let mut witness = Witness::default();
    if let Some(history) = History::of(world, "p") {
        history.check(TASKS);
        witness.look(world, &history);
    }
    world.good(&["run", "p.yaml"]);
    let history = History::of(world, "p").unwrap();
    history.check(TASKS);
    witness.look(world, &history);
    assert_eq!(history.plan.status, PlanStatus::Completed);
    assert_eq!(witness.completed(), TASKS * STAGES.len());
    for task in history.tasks.values() {
        for stage in STAGES {
            assert!(repeats(world, task, stage) <= 1, "one fault repeats a stage once at most");
        }
    }
}

/// A run that did not mind the fault has done its work, in a file that is what it should be.
fn is_complete(world: &World) {
    assert_eq!(History::of(world, "p").unwrap().plan.status, PlanStatus::Completed);
    let header = std::fs::read(world.path().join("milepost.db")).unwrap();
    assert_eq!(header[18..20], [2, 2], "the file was left without a write-ahead log");
}

/// Strikes at the first call, then at the second, and so on until a few runs in a row are over before it comes to that.
/// How often a run syncs depends on what happens to share a sync, so one is not enough. Answers the number of deaths.
fn kill_at_every(call: Call, strike: Strike, at_once: usize) -> u64 {
    let (mut number, mut deaths, mut survived) = (0, 0, 0);
    while survived < 3 {
        number += 1;
        let world = world(at_once);
        let fault = Fault { call, strike, first: number, last: number };
        let finished = fault.start(&world, &["run", "p.yaml"]).end();
        if finished.code == -1 {
            (deaths, survived) = (deaths + 1, 0);
        } else {
            finished.must_exit(0);
            survived += 1;
        }
        // Shown when what follows fails.
        eprintln!("{fault:?}, {at_once} at once");
        the_next_run_completes(&world);
    }
    eprintln!("{call:?} {strike:?}, {at_once} at once: {deaths} deaths");
    deaths
}

#[test]
fn killed_at_every_sync_the_next_run_completes() {
    for strike in [Strike::KillBefore, Strike::KillAfter] {
        // Each stage's result is one sync, and so is each task's claim.
        assert!(kill_at_every(Call::Sync, strike, 1) >= 40);
        assert!(kill_at_every(Call::Sync, strike, TASKS) >= 10);
    }
}

#[test]
fn killed_at_every_write_the_next_run_completes() {
    assert!(kill_at_every(Call::Write, Strike::KillBefore, TASKS) >= 60);
}

#[test]
fn a_failed_sync_ends_the_run_at_once_and_the_next_completes() {
    let mut codes = std::collections::BTreeMap::<i32, u32>::new();
    for number in 1..=50 {
        let world = world(1);
        let fault = Fault { call: Call::Sync, strike: Strike::Error(Errno::IO), first: number, last: number };
        let finished = fault.start(&world, &["run", "p.yaml"]).end();
        eprintln!("{fault:?}: {finished:?}");
        match finished.code {
            74 => {}
            // Nothing was accepted yet: the file could not be opened.
            3 => assert!(History::of(&world, "p").is_none(), "what was accepted ends with 74"),
            // A folder's sync, whose failure SQLite passes over; or the last one, which moves into the database what the
            // log has already.
            0 => is_complete(&world),
            code => panic!("exit code {code}"),
        }
        *codes.entry(finished.code).or_default() += 1;
        the_next_run_completes(&world);
    }
    eprintln!("exit codes and how often: {codes:?}");
    assert!(codes[&74] >= 35, "each sync that acknowledges something ends the run: {codes:?}");
}

#[test]
fn a_run_whose_disk_is_full_for_a_while_holds_and_goes_on() {
    let mut codes = std::collections::BTreeMap::<i32, u32>::new();
    for first in (1..=200).step_by(13) {
        let world = world(1);
        // Not longer: each failure doubles the wait for the next try.
        let fault = Fault { call: Call::Write, strike: Strike::Error(Errno::NOSPC), first, last: first + 4 };
        let finished = fault.start(&world, &["run", "p.yaml"]).end();
        eprintln!("{fault:?}: {finished:?}");
        match finished.code {
            0 => is_complete(&world),
            3 => assert!(History::of(&world, "p").is_none(), "what was accepted is held"),
            code => panic!("exit code {code}"),
        }
        *codes.entry(finished.code).or_default() += 1;
        the_next_run_completes(&world);
    }
    eprintln!("exit codes and how often: {codes:?}");
}

#[test]
fn a_run_whose_disk_stays_full_can_be_interrupted_and_the_next_completes() {
    // Deep enough into the run that some stages are recorded.
    for first in [100, 150, 200] {
        let world = world(1);
        let fault = Fault { call: Call::Write, strike: Strike::Error(Errno::NOSPC), first, last: u64::MAX >> 1 };
        let run = fault.start(&world, &["run", "p.yaml"]);
        run.wait_to_say("trying again");
        run.signal(Signal::INT);
        run.wait_to_say("press Ctrl-C again");
        run.signal(Signal::INT);
        run.end().must_exit(130);
        the_next_run_completes(&world);
    }
}
