//! Three nodes of which one is killed every few seconds, and one frozen for longer than its lease.

use std::time::{Duration, Instant};

use milepost_core::task::PlanStatus;
use rustix::process::Signal;

use crate::ledger;
use crate::node::Node;
use crate::place::Backend;
use crate::seed::Dice;
use crate::support::World;

const STAGES: usize = 5;
const AT_ONCE: usize = 60;
/// Longer than this it does not take on a busy machine; only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(1800);

/// How many tasks; MILEPOST_TEST_TASKS asks for more or fewer.
fn size() -> usize {
    std::env::var("MILEPOST_TEST_TASKS").ok().and_then(|tasks| tasks.parse().ok()).unwrap_or(2000)
}

fn every_task_ends(backend: Backend, test: &str) {
    let Some(place) = backend.place(test) else { return };
    let mut dice = Dice::of(test);
    let world = World::new();
    let tasks = size();
    let settings = format!("max_concurrency: {AT_ONCE}");
    world.file("p.yaml", &ledger::plan("p", tasks, tasks / 2, STAGES, &settings, "sleep 0.02"));
    let mut count = 3;
    let mut nodes: Vec<Node> =
        (1..=3).map(|number| Node::start(&world, &place, &format!("node-{number}"), &[])).collect();
    world.good(&["submit", "p.yaml", "--server", &nodes[0].server]);

    let begun = Instant::now();
    let (mut kills, mut frozen): (usize, Option<(Node, Instant)>) = (0, None);
    let mut froze = false;
    while ledger::status(&place, "p") != Some(PlanStatus::Completed) {
        assert!(begun.elapsed() < PATIENCE, "it does not end; a node says\n{}", nodes[0].said());
        std::thread::sleep(dice.millis(2000..4000));
        if !froze {
            // The others take its tasks over, and it finds out only when it wakes.
            froze = true;
            let node = nodes.remove(0);
            node.signal(Signal::STOP);
            frozen = Some((node, Instant::now()));
        } else if frozen.as_ref().is_some_and(|(_, since)| since.elapsed() > Duration::from_secs(20)) {
            let (node, _) = frozen.take().expect("it was looked at just now");
            node.signal(Signal::CONT);
            nodes.push(node);
        } else {
            let victim = usize::try_from(dice.below(nodes.len() as u64)).unwrap();
            nodes.remove(victim).kill();
            kills += 1;
            count += 1;
            nodes.push(Node::start(&world, &place, &format!("node-{count}"), &[]));
        }
    }
    let took = begun.elapsed();
    if let Some((node, _)) = frozen.take() {
        node.signal(Signal::CONT);
        nodes.push(node);
    }
    let found = ledger::check(&world, &place, "p", STAGES, AT_ONCE);
    eprintln!("{backend:?}: {tasks} tasks in {took:.1?}, {kills} kills, {found:?}");
    assert!(kills > 0 || tasks < 500, "it ended before anybody was killed; give it more to do");
    nodes.into_iter().for_each(Node::stop);
}

#[test]
fn every_task_on_postgres_ends_once_whichever_nodes_are_killed_or_frozen() {
    every_task_ends(Backend::Postgres, "every_task_on_postgres_ends_once_whichever_nodes_are_killed_or_frozen");
}

#[test]
fn every_task_on_mysql_ends_once_whichever_nodes_are_killed_or_frozen() {
    every_task_ends(Backend::Mysql, "every_task_on_mysql_ends_once_whichever_nodes_are_killed_or_frozen");
}

#[test]
fn every_task_on_redis_ends_once_whichever_nodes_are_killed_or_frozen() {
    every_task_ends(Backend::Redis, "every_task_on_redis_ends_once_whichever_nodes_are_killed_or_frozen");
}
