//! Ctrl-C and SIGTERM: once at the stage boundary, twice at once; and the next run goes on.

use rustix::process::Signal;

use crate::support::{World, gated};

fn stops_at_the_boundary(signal: Signal) {
    let world = World::new();
    world.file("p.yaml", &gated("p", &["t", "u"]));
    let mut run = world.start(&["run", "p.yaml"]);
    world.wait_for_file("started-t");
    world.wait_for_file("started-u");
    run.signal(signal);
    run.wait_to_say("stopping after the running stages");
    // Its stages run on: it does not leave them alone.
    assert!(run.is_running());
    world.file("go", "");
    run.end().must_exit(130).must_say(&["milepost run p.yaml"]);
    assert!(!world.exists("finished"), "the next stage was started");
    assert_eq!(world.json(&["checkpoint", "t"])["completedStageNames"], serde_json::json!(["wait"]));
    std::fs::remove_file(world.path().join("started-t")).unwrap();
    world.good(&["run", "p.yaml"]);
    assert!(!world.exists("started-t"), "a completed stage was run again");
    let mut finished: Vec<String> = world.read("finished").lines().map(str::to_owned).collect();
    finished.sort();
    assert_eq!(finished, ["t", "u"]);
}

#[test]
fn ctrl_c_once_stops_at_the_stage_boundary_and_the_next_run_goes_on() {
    stops_at_the_boundary(Signal::INT);
}

#[test]
fn sigterm_once_stops_at_the_stage_boundary_and_the_next_run_goes_on() {
    stops_at_the_boundary(Signal::TERM);
}

#[test]
fn ctrl_c_twice_stops_at_once_and_the_attempt_is_repeated_under_its_number() {
    let world = World::new();
    world.file("p.yaml", &gated("p", &["t"]));
    let run = world.start(&["run", "p.yaml"]);
    world.wait_for_file("started-t");
    run.signal(Signal::INT);
    run.wait_to_say("press Ctrl-C again");
    run.signal(Signal::INT);
    run.end().must_exit(130);
    assert!(!world.exists("milepost.db.sock"));
    world.file("go", "");
    world.good(&["run", "p.yaml"]);
    let stages = world.json(&["status", "t"]);
    assert_eq!(stages["stages"][0]["attempt"], 1);
}
