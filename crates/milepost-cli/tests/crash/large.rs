//! A plan larger than anybody needs.

use std::fmt::Write;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::memory::memory;
use crate::support::World;

const TASKS: u64 = 200_000;
/// Of the program as it is built for tests, for the whole of its life.
const MOST_MEMORY: u64 = 400 << 20;
/// Generous: only an answer that looks at every task takes as long.
const AT_ONCE: Duration = Duration::from_secs(10);
/// On a busy machine one of so many is quick all the same, and none is that looks at every task.
const TRIES: usize = 10;

/// What a command that must be quick answers.
fn answer(world: &World, args: &[&str]) -> Value {
    for _ in 0..TRIES {
        let asked = Instant::now();
        let answer = world.json(args);
        if asked.elapsed() < AT_ONCE {
            return answer;
        }
    }
    panic!("{args:?} took longer than {AT_ONCE:?} every time");
}

fn counts_everything(tasks: &Value) {
    let of = |status: &str| tasks[status].as_u64().unwrap();
    assert_eq!(of("total"), TASKS);
    assert_eq!(of("pending") + of("running") + of("completed"), TASKS, "{tasks}");
}

#[test]
fn a_plan_of_200_000_tasks_is_accepted_in_bounded_memory_and_listed_at_once() {
    let world = World::new();
    let mut plan =
        "plan: large\nmax_concurrency: 4\nstages:\n  - { name: a, uses: noop }\n  - { name: b, uses: noop }\ntasks:\n"
            .to_owned();
    (1..=TASKS).for_each(|task| writeln!(plan, "  - {{ id: t-{task} }}").unwrap());
    world.file("p.yaml", &plan);

    let began = Instant::now();
    let run = world.start(&["run", "p.yaml"]);
    run.wait_to_say("plan large: 200000 tasks");
    let accepted = began.elapsed();
    counts_everything(&answer(&world, &["status", "large"])["tasks"]);
    let plans = answer(&world, &["status"]);
    assert_eq!(plans["items"].as_array().unwrap().len(), 1);
    counts_everything(&plans["items"][0]["tasks"]);
    assert_eq!(answer(&world, &["status", "t-200000"])["status"], "PENDING");

    let memory = memory(&run, "VmHWM");
    run.signal(Signal::INT);
    run.end().must_exit(130);
    let plan = answer(&world, &["status", "large"]);
    counts_everything(&plan["tasks"]);
    eprintln!(
        "accepted after {accepted:?} with {} MiB at most; {} tasks done",
        memory >> 20,
        plan["tasks"]["completed"]
    );
    assert!(memory < MOST_MEMORY, "{} MiB", memory >> 20);
}
