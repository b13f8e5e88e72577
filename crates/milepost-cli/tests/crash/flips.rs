//! One bit of the file, or of its log, is another while nobody has it open: told, and never taken for what it was.

use std::fs;

use rusqlite::Connection;
use rustix::process::Signal;

use crate::history::History;
use crate::seed::Dice;
use crate::support::{World, wait_for};

const PLAN: &str = "p";
const TASKS: usize = 12;
const AT_ONCE: usize = 4;
const STAGES: [&str; 3] = ["a", "b", "c"];

/// What a store says of which it cannot read something, whatever that is.
const NAMED: [&str; 7] = [
    "damaged",
    "malformed",
    "could not",
    "not a Milepost store",
    "knows formats",
    "its content differs",
    "contradicts itself",
];

/// How many bits in each of the two; MILEPOST_TEST_FLIPS asks for more or fewer.
fn size() -> usize {
    std::env::var("MILEPOST_TEST_FLIPS").ok().and_then(|count| count.parse().ok()).unwrap_or(20)
}

/// A plan that was killed when some of its tasks were in their second stage. With `go` there, all goes on.
fn interrupted() -> World {
    let world = World::new();
    let line = r#"printf '%s %s\n' "$MILEPOST_STAGE" "$MILEPOST_ATTEMPT" >> "lines-$MILEPOST_TASK""#;
    let wait = r#"while [ "$MILEPOST_STAGE" = b ] && [ ! -e go ]; do sleep 0.02; done"#;
    let stages: String =
        STAGES.iter().map(|stage| format!("  - name: {stage}\n    run: |\n      {line}\n      {wait}\n")).collect();
    let tasks: String = (1..=TASKS).map(|task| format!("  - {{ id: t-{task}, tenant: tenant-{task} }}\n")).collect();
    world.file("p.yaml", &format!("plan: {PLAN}\nmax_concurrency: {AT_ONCE}\nstages:\n{stages}tasks:\n{tasks}"));
    let run = world.start(&["run", "p.yaml"]);
    wait_for("some tasks to be in their second stage", || {
        let waiting = (1..=AT_ONCE).filter(|task| world.read(&format!("lines-t-{task}")).contains("b 1")).count();
        (waiting == AT_ONCE).then_some(())
    });
    run.signal(Signal::KILL);
    run.end();
    world.file("go", "");
    world
}

/// The same again, to be spoilt: with what the commands wrote, and without the socket of one that is dead.
fn copy(world: &World) -> World {
    let copy = World::new();
    for file in fs::read_dir(world.path()).unwrap().flatten() {
        let name = file.file_name().into_string().unwrap();
        if !name.starts_with('.') && !name.ends_with(".sock") && !name.ends_with("-shm") {
            fs::copy(file.path(), copy.path().join(&name)).unwrap();
        }
    }
    copy
}

/// Where the last transaction of a log begins. What a disk without power leaves of that looks the same as damage.
fn last_transaction(log: &[u8]) -> usize {
    const FRAME: usize = 24 + 4096;
    let commits = |at: &usize| log[at + 4..at + 8] != [0; 4];
    let ends: Vec<usize> = (32..log.len()).step_by(FRAME).filter(commits).map(|at| at + FRAME).collect();
    ends[ends.len() - 2]
}

struct Outcomes {
    whole: usize,
    named: usize,
}

/// Flips one bit somewhere, and runs the plan.
fn flip(original: &World, file: &str, dice: &mut Dice, outcomes: &mut Outcomes) {
    let before = History::of(original, PLAN).unwrap();
    let world = copy(original);
    let path = world.path().join(file);
    let mut bytes = fs::read(&path).unwrap();
    // Most of a file is empty, and that is the least of it.
    let at = loop {
        let at = usize::try_from(dice.below(bytes.len() as u64)).unwrap();
        if bytes[at] != 0 || dice.below(20) == 0 {
            break at;
        }
    };
    let bit = dice.below(8);
    let may_lose_the_last = file.ends_with("-wal") && at >= last_transaction(&bytes);
    bytes[at] ^= 1 << bit;
    fs::write(&path, &bytes).unwrap();
    // Shown when what follows fails.
    eprintln!("bit {bit} of byte {at} of {file}");

    let mut run = world.start(&["run", "p.yaml"]);
    let is_named = |said: &str| NAMED.iter().any(|words| said.contains(words));
    // What cannot be read at all is asked for again and again, and said each time.
    wait_for("the run to end, or to say what it cannot read", || {
        let said = run.stderr();
        (!run.is_running() || said.contains("malformed") || said.contains("trying again")).then_some(())
    });
    let ended = !run.is_running();
    if !ended {
        run.signal(Signal::KILL);
    }
    let finished = run.end();
    let said = finished.said();
    if finished.code == 0 {
        outcomes.whole += 1;
        assert!(said.contains(&format!("plan {PLAN} COMPLETED")), "{said}");
    } else {
        outcomes.named += 1;
        assert!(is_named(&said), "it ended with {} and does not say why: {said}", finished.code);
    }
    for task in 1..=TASKS {
        let id = format!("t-{task}");
        let lines = world.read(&format!("lines-{id}"));
        for line in lines.lines() {
            assert!(STAGES.iter().any(|stage| line.starts_with(stage)), "{id} ran what was never asked for: {line}");
        }
        for stage in STAGES {
            let ran = lines.lines().filter(|line| line.starts_with(stage)).count();
            if before.tasks[&id].done().any(|done| done == stage) && !may_lose_the_last {
                assert_eq!(ran, 1, "{stage} of {id} was recorded, and ran again; {said}");
            }
            assert!(finished.code != 0 || ran >= 1, "{stage} of {id} never ran, and nobody says so");
        }
    }
}

#[test]
fn a_flipped_bit_in_the_log_is_told_before_anything_recorded_runs_again() {
    let mut dice = Dice::of("a_flipped_bit_in_the_log_is_told_before_anything_recorded_runs_again");
    let original = interrupted();
    let mut outcomes = Outcomes { whole: 0, named: 0 };
    for _ in 0..size() {
        flip(&original, "milepost.db-wal", &mut dice, &mut outcomes);
    }
    eprintln!("{} runs completed, {} said what is damaged", outcomes.whole, outcomes.named);
    assert!(outcomes.named > size() / 2, "most of the log was acknowledged");
    // As the message says to give it up.
    let world = copy(&original);
    let log = world.path().join("milepost.db-wal");
    let mut bytes = fs::read(&log).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&log, &bytes).unwrap();
    for command in [&["run", "p.yaml"][..], &["status"]] {
        world
            .milepost(command)
            .must_exit(3)
            .must_say(&["milepost.db-wal is damaged: frame", "wal_checkpoint(TRUNCATE)"]);
        assert_eq!(fs::read(&log).unwrap(), bytes, "who looks at it changes nothing");
    }
    let file = Connection::open(world.path().join("milepost.db")).unwrap();
    file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(file);
    world.good(&["run", "p.yaml"]);
}

#[test]
fn a_flipped_bit_in_the_database_is_told_or_changes_nothing() {
    let mut dice = Dice::of("a_flipped_bit_in_the_database_is_told_or_changes_nothing");
    let original = interrupted();
    let file = Connection::open(original.path().join("milepost.db")).unwrap();
    file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(file);
    let mut outcomes = Outcomes { whole: 0, named: 0 };
    for _ in 0..size() {
        flip(&original, "milepost.db", &mut dice, &mut outcomes);
    }
    eprintln!("{} runs completed, {} said what is damaged", outcomes.whole, outcomes.named);
}
