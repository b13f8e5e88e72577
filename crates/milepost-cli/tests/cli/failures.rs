//! What a failed run says, and that what it tells people to type works.

use crate::support::{World, failing, gated};

#[test]
fn a_failed_task_is_shown_with_its_reason_and_the_printed_command_works() {
    let world = World::new();
    world.file("p.yaml", &failing("p"));
    let run = world.milepost(&["run", "p.yaml"]).must_exit(1);
    let run = run.must_say(&[
        "plan p FAILED",
        "tenant-7",
        "second",
        "BUSINESS",
        "it is broken",
        "milepost logs t",
        "milepost retry t",
    ]);
    let command = run.stderr.lines().find(|line| line.contains("--retry-failed")).unwrap();
    assert!(command.trim_start().starts_with("milepost run p.yaml --retry-failed"), "{command}");
    world.file("mended", "");
    world.good(&["run", "p.yaml", "--retry-failed"]).must_say(&["plan p COMPLETED"]);
    assert_eq!(world.read("ran"), "first\nsecond\nsecond\n");
}

#[test]
fn a_failed_plan_is_not_run_again_unasked() {
    let world = World::new();
    world.file("p.yaml", &failing("p"));
    world.milepost(&["run", "p.yaml"]).must_exit(1);
    world.milepost(&["run", "p.yaml"]).must_exit(1).must_say(&["plan p is FAILED", "--retry-failed"]);
    assert_eq!(world.read("ran"), "first\nsecond\n");
}

#[test]
fn the_printed_commands_name_the_store_that_was_named() {
    let world = World::new();
    world.file("p.yaml", &failing("p"));
    let run = world.milepost(&["--store", "sqlite:other.db", "run", "p.yaml"]).must_exit(1);
    run.must_say(&["milepost --store sqlite:other.db run p.yaml --retry-failed"]);
}

#[test]
fn a_plan_that_pauses_on_failure_ends_its_run_and_goes_on_with_the_next() {
    let world = World::new();
    let plan = failing("p").replace("defaults:", "on_task_failure: pause\nmax_concurrency: 1\ndefaults:");
    world.file("p.yaml", &format!("{plan}  - {{ id: u }}\n"));
    let run = world.milepost(&["run", "p.yaml"]).must_exit(1);
    run.must_say(&["plan p PAUSED", "1 failed", "1 pending", "milepost run p.yaml --retry-failed"]);
    world.file("mended", "");
    world.good(&["run", "p.yaml", "--retry-failed"]).must_say(&["2 completed"]);
}

#[test]
fn a_plan_that_a_person_paused_is_not_taken_for_one_that_paused_itself() {
    let world = World::new();
    world.file("p.yaml", &gated("p", &["t"]).replace("plan: p", "plan: p\non_task_failure: pause"));
    let mut run = world.start(&["run", "p.yaml"]);
    world.wait_for_file("started-t");
    world.good(&["pause", "p"]);
    world.file("go", "");
    world.wait_for_status("t", "PAUSED");
    run.wait_to_say("was paused by tester@");
    assert!(run.is_running());
    world.good(&["resume", "p"]);
    run.end().must_exit(0);
}

#[test]
fn a_failure_with_rollback_ends_rolled_back_and_the_run_says_so() {
    let world = World::new();
    world.file("p.yaml", &failing("p").replace("defaults:", "on_failure: rollback\ndefaults:"));
    world.milepost(&["run", "p.yaml"]).must_exit(1).must_say(&["ROLLED_BACK", "it is broken"]);
    assert_eq!(world.read("ran"), "first\nsecond\nundo-second\nundo-first\n");
}

#[test]
fn a_plan_that_pauses_itself_after_a_person_resumed_it_ends_its_run() {
    let world = World::new();
    let plan = gated("p", &["t"])
        .replace("plan: p", "plan: p\non_task_failure: pause\ndefaults: { retry: { max_attempts: 1 } }");
    world
        .file("p.yaml", &format!("{}  - {{ id: u }}\n", plan.replace("echo \"$MILEPOST_TASK\" >> finished", "exit 1")));
    let run = world.start(&["run", "p.yaml"]);
    world.wait_for_file("started-u");
    world.good(&["pause", "p"]);
    world.good(&["resume", "p"]);
    world.file("go", "");
    // Both may fail before the pause reaches the second; then the plan is over.
    run.end().must_exit(1).must_say(&["FAILED at finish", "milepost run p.yaml --retry-failed"]);
}
