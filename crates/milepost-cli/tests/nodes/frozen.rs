//! The server stands still in the middle of a plan, for longer than a lease: time in which nobody could write counts
//! against nobody.

use std::time::{Duration, Instant};

use milepost_core::task::PlanStatus;

use crate::ledger;
use crate::node::Node;
use crate::place::Backend;
use crate::support::{PATIENCE, World, wait_for};

const TASKS: usize = 8;
const STAGES: usize = 4;
/// Longer than a lease lasts, and than a stage takes.
const FROZEN_FOR: Duration = Duration::from_secs(25);

fn both_nodes_go_on(backend: Backend) {
    let test = format!("{backend:?}-frozen");
    let Some(place) = backend.place(&test) else { return };
    assert!(place.is_ours(), "the server is not one of dev/services, and may not be stopped");
    let world = World::new();
    // Each has half of the tasks in hand.
    world.file("milepost.toml", &format!("capacity = {}\n", TASKS / 2));
    let settings = format!("max_concurrency: {TASKS}\ndefaults: {{ retry: {{ max_attempts: 1 }} }}");
    world.file("p.yaml", &ledger::plan("p", TASKS, TASKS, STAGES, &settings, "sleep 4"));
    let nodes = ["one", "other"].map(|name| Node::start(&world, &place, &format!("{name}-of-{test}"), &[]));
    world.good(&["submit", "p.yaml", "--server", &nodes[0].server]);
    wait_for("every task to be in its second stage", || {
        (0..TASKS).all(|task| ledger::lines(&world, &format!("p-{task}")).contains_key("s2")).then_some(())
    });

    let frozen = place.freeze();
    // What it is about: nothing here waits for anything else to happen.
    std::thread::sleep(FROZEN_FOR);
    drop(frozen);

    let deadline = Instant::now() + PATIENCE;
    let said = || format!("{}\n{}", nodes[0].said(), nodes[1].said());
    while ledger::status(&place, "p") != Some(PlanStatus::Completed) {
        assert!(Instant::now() < deadline, "it does not end; the nodes say\n{}", said());
        std::thread::sleep(Duration::from_millis(50));
    }
    let found = ledger::check(&world, &place, "p", STAGES, TASKS);
    assert_eq!((found.repeated, found.interrupted), (0, 0), "somebody lost a lease; the nodes say\n{}", said());
    assert!(!said().contains("LeaseLost"), "{}", said());
    nodes.into_iter().for_each(Node::stop);
}

#[test]
fn two_nodes_on_a_postgres_that_stood_still_for_25_seconds_go_on_and_nothing_runs_twice() {
    both_nodes_go_on(Backend::Postgres);
}

#[test]
fn two_nodes_on_a_mariadb_that_stood_still_for_25_seconds_go_on_and_nothing_runs_twice() {
    both_nodes_go_on(Backend::Mysql);
}

#[test]
fn two_nodes_on_a_redis_that_stood_still_for_25_seconds_go_on_and_nothing_runs_twice() {
    both_nodes_go_on(Backend::Redis);
}
