//! What a server says of itself: enough to notice what went wrong, in one form, and more when asked for it.

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Finished, World, failing};

/// Runs a plan to its end on a server with these arguments, and stops that.
fn serves(world: &World, args: &[&str], status: &str) -> Finished {
    let server = world.serve(&[&["--allow-commands"], args].concat());
    world.good(&["submit", "p.yaml", "--server", &server.url]);
    world.wait_for_status("p", status);
    server.stop()
}

fn lines_with<'a>(said: &'a str, words: &str) -> Vec<&'a str> {
    said.lines().filter(|line| line.contains(words)).collect()
}

#[test]
fn a_server_warns_once_of_a_task_that_failed_and_says_where_and_why() {
    let world = World::new();
    world.file("p.yaml", &failing("p"));
    let served = serves(&world, &[], "FAILED");
    let warned = lines_with(&served.stderr, "task failed");
    assert_eq!(warned.len(), 1, "{}", served.stderr);
    for part in ["WARN", "task=t", "plan=p", "tenant=tenant-7", "stage=second", "BUSINESS", "it is broken"] {
        assert!(warned[0].contains(part), "no {part} in {}", warned[0]);
    }
}

#[test]
fn a_discarded_checkpoint_is_warned_of_once() {
    let world = World::new();
    world.file("p.yaml", &failing("p"));
    world.milepost(&["run", "p.yaml"]).must_exit(1);
    world.file("p.yaml", &failing("p").replace("name: first", "name: renamed"));
    world.file("mended", "");
    let retried = world.good(&["run", "p.yaml", "--update", "--retry-failed"]);
    assert_eq!(lines_with(&retried.stderr, "checkpoint discarded").len(), 1, "{}", retried.stderr);
    assert!(retried.stderr.contains("WARN"), "{}", retried.stderr);
}

#[test]
fn a_run_shows_a_failed_task_in_its_own_way_and_not_twice() {
    let world = World::new();
    world.file("p.yaml", &failing("p"));
    let run = world.milepost(&["run", "p.yaml"]).must_exit(1);
    assert!(!run.stderr.contains("WARN"), "{}", run.stderr);
}

#[test]
fn with_json_logs_all_that_a_server_says_is_json() {
    let world = World::new();
    let server = world.start(&["serve", "--listen", "127.0.0.1:0", "--log-format", "json"]);
    server.wait_to_say("listening");
    server.signal(Signal::TERM);
    let served = server.end().must_exit(0);
    let lines: Vec<Value> = served.stderr.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let said =
        |words: &str| lines.iter().any(|line| line["message"].as_str().is_some_and(|said| said.starts_with(words)));
    assert!(said("listening on http://127.0.0.1:") && said("stopping after the running stages"), "{}", served.stderr);
}

#[test]
fn each_v_says_more() {
    for (level, events) in [("-v", 0), ("-vv", 1)] {
        let world = World::new();
        world.file("p.yaml", "plan: p\nstages: [{name: s, run: 'true'}]\ntasks: [{id: t}]\n");
        let served = serves(&world, &[level], "COMPLETED");
        assert_eq!(lines_with(&served.stderr, "STAGE_COMPLETED").len(), events, "{}", served.stderr);
    }
}

#[test]
fn a_skipped_stage_says_why_in_the_tasks_json() {
    let world = World::new();
    let stages = "[{name: first, run: 'true'}, {name: never, if: \"input.wanted\", run: 'false'}]";
    world.file("p.yaml", &format!("plan: p\nstages: {stages}\ntasks: [{{id: t, input: {{wanted: false}}}}]\n"));
    world.good(&["run", "p.yaml"]);
    let task = world.json(&["status", "t"]);
    assert_eq!(
        (&task["stages"][1]["status"], &task["stages"][1]["reason"]),
        (&"SKIPPED".into(), &"its `if` is false".into())
    );
}
