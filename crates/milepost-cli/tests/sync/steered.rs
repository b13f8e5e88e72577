//! Pausing in the middle of a table, and mending one that failed, from another process.

use rustix::process::Signal;

use crate::source::{self, Source};
use crate::support::{Running, World, wait_for};
use crate::target::Target;

const ROWS: u32 = 6000;

fn init(world: &World, target: &Target, how: &[&str]) {
    let init = ["sync", "init", source::URL, target.url(), "--plan", "move", "--output", "p.yaml", "-q"];
    world.good(&[&init[..], &["--batch-size", "100"], how].concat());
}

/// Some seconds for a table.
fn slowly(world: &World) {
    let slow = world.read("p.yaml").replace("# rows_per_second: 10000", "rows_per_second: 3000");
    world.file("p.yaml", &slow);
}

/// Some of its rows are copied, and not all of them.
fn wait_until_in_the_middle(world: &World, run: &mut Running, task: &str) {
    wait_for(&format!("{task} to be in its middle"), || {
        assert!(run.is_running(), "it ended too soon: {}", run.stderr());
        let status = world.milepost(&["status", task, "--json"]);
        let status: serde_json::Value = serde_json::from_str(&status.stdout).ok()?;
        status["percent"].as_f64().filter(|percent| (1.0..99.0).contains(percent))
    });
}

fn stage_starts(world: &World, task: &str) -> usize {
    world.events(task).iter().filter(|event| *event == "STAGE_STARTED").count()
}

#[test]
fn a_pause_ends_a_table_in_its_middle_and_a_resume_begins_it_from_zero() {
    for target in Target::all("a_pause_ends_a_table_in_its_middle_and_a_resume_begins_it_from_zero") {
        let world = World::new();
        let target = target(&world);
        let source = Source::new(&world, vec!["a".to_owned(), "b".to_owned()], ROWS);
        init(&world, &target, &["--concurrency", "1", "--order", "name"]);
        slowly(&world);
        let mut run = world.start(&["run", "p.yaml"]);
        wait_until_in_the_middle(&world, &mut run, "move.a");
        world.good(&["pause", "move"]);
        world.wait_for_status("move.a", "PAUSED");
        assert_eq!(world.status("move.b").as_deref(), Some("PENDING"));
        assert_eq!(target.see("a"), None, "nothing of it can be seen");
        assert!(run.is_running(), "{}", run.stderr());

        world.good(&["resume", "move"]);
        run.end().must_exit(0);
        target.must_equal(&source);
        assert_eq!((stage_starts(&world, "move.a"), stage_starts(&world, "move.b")), (2, 1));
    }
}

#[test]
fn after_an_interrupt_in_the_middle_of_a_table_nothing_is_left_half_done_and_the_same_command_goes_on() {
    for target in Target::all("after_an_interrupt_in_the_middle_of_a_table") {
        let world = World::new();
        let target = target(&world);
        let source = Source::new(&world, vec!["a".to_owned(), "b".to_owned()], ROWS);
        init(&world, &target, &["--concurrency", "2"]);
        slowly(&world);
        let mut run = world.start(&["run", "p.yaml"]);
        wait_until_in_the_middle(&world, &mut run, "move.a");
        run.signal(Signal::INT);
        run.end().must_exit(130);
        assert_eq!((target.see("a"), target.see("b")), (None, None));
        assert_eq!(target.unfinished(), Vec::<String>::new(), "what begins from zero leaves nothing behind");
        world.good(&["run", "p.yaml"]);
        target.must_equal(&source);
    }
}

#[test]
fn a_table_that_fails_stops_no_other_and_runs_again_once_it_is_reset() {
    for target in Target::all("a_table_that_fails_stops_no_other_and_runs_again_once_it_is_reset") {
        let world = World::new();
        let target = target(&world);
        let source = Source::new(&world, vec!["a".to_owned(), "b".to_owned(), "c".to_owned()], 300);
        init(&world, &target, &["--concurrency", "1", "--order", "name"]);
        source.tell("ALTER TABLE b RENAME TO hidden");
        world.milepost(&["run", "p.yaml"]).must_exit(1).must_say(&["move.b FAILED", "`b`"]);
        assert_eq!(target.see("b"), None);
        assert!(target.see("a").is_some() && target.see("c").is_some(), "the others were copied");

        source.tell("ALTER TABLE hidden RENAME TO b");
        assert_eq!(world.json(&["reset-failed", "move"])["reset"], 1);
        assert_eq!(world.status("move.b").as_deref(), Some("PENDING"));
        world.good(&["run", "p.yaml"]);
        target.must_equal(&source);
        assert_eq!((stage_starts(&world, "move.a"), stage_starts(&world, "move.c")), (1, 1), "they were done");
    }
}
