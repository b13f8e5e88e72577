//! Carrying on with exactly what is left, and never more of it at once than was asked for.

use std::fs;

use rustix::process::Signal;

use crate::support::{World, wait_for};

const AT_ONCE: usize = 10;

/// Every command stands in the folder `running` while it runs, and writes down how many it sees there. All but the
/// first twenty tasks wait for a file, which is another one in each run.
fn plan() -> String {
    let tasks: String = (1..=100).map(|task| format!("  - {{ id: t-{task}, input: {task} }}\n")).collect();
    format!(
        r#"plan: sync
max_concurrency: {AT_ONCE}
stages:
  - name: copy
    run: |
      mkdir "running/$MILEPOST_TASK" || exit 1
      echo "$MILEPOST_TASK" >> ran
      set -- running/*
      echo "$#" >> gauge
      while [ "$MILEPOST_INPUT" -gt 20 ] && [ ! -e go ]; do sleep 0.02; done
      set -- running/*
      echo "$#" >> gauge
      rmdir "running/$MILEPOST_TASK"
tasks:
{tasks}"#
    )
}

fn standing(world: &World) -> usize {
    fs::read_dir(world.path().join("running")).unwrap().count()
}

#[test]
fn of_100_tasks_with_20_done_exactly_80_run_and_never_more_than_10_at_once() {
    let world = World::new();
    world.file("p.yaml", &plan());
    fs::create_dir(world.path().join("running")).unwrap();
    let first = world.start(&["run", "p.yaml"]);
    wait_for("20 tasks to be done and 10 to run", || {
        let done = world.milepost(&["status", "sync", "--json"]).stdout.contains(r#""completed": 20"#);
        (done && standing(&world) == AT_ONCE).then_some(())
    });
    first.signal(Signal::KILL);
    first.end();
    let done: Vec<String> = (1..=20).map(|task| format!("t-{task}")).collect();

    // What stood there is gone without a word.
    fs::remove_dir_all(world.path().join("running")).unwrap();
    fs::create_dir(world.path().join("running")).unwrap();
    fs::remove_file(world.path().join("ran")).unwrap();
    let second = world.start(&["run", "p.yaml"]);
    wait_for("10 tasks to run", || (standing(&world) == AT_ONCE).then_some(()));
    world.file("go", "");
    second.end().must_exit(0);

    let ran = world.read("ran");
    let mut ran: Vec<&str> = ran.lines().collect();
    assert!(!ran.iter().any(|task| done.iter().any(|done| done == task)), "what was done ran again: {ran:?}");
    assert_eq!(ran.len(), 80);
    ran.sort_unstable();
    ran.dedup();
    assert_eq!(ran.len(), 80, "a task ran twice");
    let most = world.read("gauge").lines().map(|count| count.parse::<usize>().unwrap()).max();
    assert_eq!(most, Some(AT_ONCE));
    assert_eq!(world.json(&["status", "sync"])["tasks"]["completed"], 100);
}
