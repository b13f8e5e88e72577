//! The server stands still, is away or is slow in the middle of a plan, for longer than a lease: time in which nobody
//! could write counts against nobody, and who is slow is not dead.

use std::process::Command;
use std::time::{Duration, Instant};

use milepost_core::task::PlanStatus;

use crate::ledger;
use crate::node::Node;
use crate::place::{Backend, Place};
use crate::slow_way::SlowWay;
use crate::support::{PATIENCE, World, wait_for};

const TASKS: usize = 8;
const STAGES: usize = 4;
/// Longer than a lease lasts, and than a stage takes.
const FROZEN_FOR: Duration = Duration::from_secs(25);
const AWAY_FOR: Duration = Duration::from_secs(30);

fn stands_still(place: &Place) {
    let frozen = place.freeze();
    // What it is about: nothing here waits for anything else to happen.
    std::thread::sleep(FROZEN_FOR);
    drop(frozen);
}

fn is_away(place: &Place) {
    place.service("stop");
    // What it is about, too.
    std::thread::sleep(AWAY_FOR);
    place.service("start");
}

/// Two nodes on the store behind this address, each with half of the tasks in hand, and these in their second stage.
fn begun(world: &World, place: &Place, test: &str, url: &str) -> [Node; 2] {
    world.file("milepost.toml", &format!("capacity = {}\n", TASKS / 2));
    let settings = format!("max_concurrency: {TASKS}\ndefaults: {{ retry: {{ max_attempts: 1 }} }}");
    world.file("p.yaml", &ledger::plan("p", TASKS, TASKS, STAGES, &settings, "sleep 4"));
    let nodes = ["one", "other"].map(|name| {
        let there = |command: &mut Command| {
            command.env("MILEPOST_STORE", url);
        };
        Node::start_with(world, place, &format!("{name}-of-{test}"), &[], there)
    });
    world.good(&["submit", "p.yaml", "--server", &nodes[0].server]);
    wait_for("every task to be in its second stage", || {
        (0..TASKS).all(|task| ledger::lines(world, &format!("p-{task}")).contains_key("s2")).then_some(())
    });
    nodes
}

fn both_nodes_go_on(backend: Backend, test: &str, outage: impl Fn(&Place)) {
    let test = format!("{backend:?}-{test}");
    let Some(place) = backend.place(&test) else { return };
    assert!(place.is_ours(), "the server is not one of dev/services, and may not be stopped");
    let world = World::new();
    let nodes = begun(&world, &place, &test, &place.url);
    outage(&place);
    the_plan_ends_and_nothing_ran_twice(&world, &place, &nodes);
    nodes.into_iter().for_each(Node::stop);
}

fn the_plan_ends_and_nothing_ran_twice(world: &World, place: &Place, nodes: &[Node]) {
    let deadline = Instant::now() + PATIENCE;
    let said = || nodes.iter().map(Node::said).collect::<Vec<_>>().join("\n");
    while ledger::status(place, "p") != Some(PlanStatus::Completed) {
        assert!(Instant::now() < deadline, "it does not end; the nodes say\n{}", said());
        std::thread::sleep(Duration::from_millis(50));
    }
    let found = ledger::check(world, place, "p", STAGES, TASKS);
    assert_eq!((found.repeated, found.interrupted), (0, 0), "somebody lost a lease; the nodes say\n{}", said());
    assert!(!said().contains("LeaseLost"), "{}", said());
}

#[test]
fn two_nodes_on_a_postgres_that_stood_still_for_25_seconds_go_on_and_nothing_runs_twice() {
    both_nodes_go_on(Backend::Postgres, "frozen", stands_still);
}

#[test]
fn two_nodes_on_a_mariadb_that_stood_still_for_25_seconds_go_on_and_nothing_runs_twice() {
    both_nodes_go_on(Backend::Mysql, "frozen", stands_still);
}

#[test]
fn two_nodes_on_a_redis_that_stood_still_for_25_seconds_go_on_and_nothing_runs_twice() {
    both_nodes_go_on(Backend::Redis, "frozen", stands_still);
}

#[test]
fn two_nodes_on_a_postgres_that_was_away_for_30_seconds_go_on_and_nothing_runs_twice() {
    both_nodes_go_on(Backend::Postgres, "away", is_away);
}

#[test]
fn two_nodes_on_a_mariadb_that_was_away_for_30_seconds_go_on_and_nothing_runs_twice() {
    both_nodes_go_on(Backend::Mysql, "away", is_away);
}

#[test]
fn two_nodes_to_whom_every_answer_takes_two_seconds_lose_no_lease() {
    let Some(place) = Backend::Postgres.place("slow") else { return };
    let world = World::new();
    let way = SlowWay::to(&place.url);
    let nodes = begun(&world, &place, "slow", &way.url);
    way.slow_down(Duration::from_secs(1));
    the_plan_ends_and_nothing_ran_twice(&world, &place, &nodes);
    nodes.into_iter().for_each(Node::stop);
}
