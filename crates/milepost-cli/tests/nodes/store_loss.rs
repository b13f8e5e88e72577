//! The store goes away in the middle of a plan and comes back: what each `on_store_loss` makes of it.

use std::time::{Duration, Instant};

use milepost_core::task::PlanStatus;

use crate::ledger;
use crate::node::Node;
use crate::place::{Backend, Place};
use crate::support::{PATIENCE, World, wait_for};

const TASKS: usize = 12;
const STAGES: usize = 5;

fn begun(world: &World, test: &str, place: &Place, policy: &str) -> Node {
    let settings = "max_concurrency: 8\ndefaults: { retry: { max_attempts: 1 } }";
    world.file("p.yaml", &ledger::plan("p", TASKS, TASKS, STAGES, settings, "sleep 0.4"));
    let node = Node::start(world, place, &format!("node-of-{test}"), &["--on-store-loss", policy]);
    world.good(&["submit", "p.yaml", "--server", &node.server]);
    wait_for("some stages to have ended", || {
        let lines = ledger::lines(world, "p-0");
        lines.contains_key("s2").then_some(())
    });
    node
}

/// Nothing is lost and nothing doubled: each stage ran once, and the log has all of it.
fn goes_on(backend: Backend, policy: &str, outage: impl Fn(&Place)) {
    let test = format!("{backend:?}-{policy}");
    let Some(place) = backend.place(&test) else { return };
    assert!(place.is_ours(), "the server is not one of dev/services, and may not be stopped");
    let world = World::new();
    let node = begun(&world, &test, &place, policy);
    outage(&place);
    wait_for_the_end(&place, &node, PlanStatus::Completed);
    let found = ledger::check(&world, &place, "p", STAGES, 8);
    assert_eq!(found.repeated, 0, "no node was lost, so nothing had to be run again");
    node.stop();
}

/// What ran when the store went away has failed, and goes on from where it was when a person says so.
fn fails(backend: Backend, outage: impl Fn(&Place)) {
    let test = format!("{backend:?}-fail");
    let Some(place) = backend.place(&test) else { return };
    assert!(place.is_ours(), "the server is not one of dev/services, and may not be stopped");
    let world = World::new();
    let node = begun(&world, &test, &place, "fail");
    outage(&place);
    wait_for_the_end(&place, &node, PlanStatus::Failed);
    let failed = world.milepost(&["status", "p", "--server", &node.server]);
    assert!(failed.said().contains("FAILED"), "{}", failed.said());
    world.good(&["retry", "p", "--server", &node.server]);
    wait_for_the_end(&place, &node, PlanStatus::Completed);
    ledger::check(&world, &place, "p", STAGES, 8);
    node.stop();
}

fn wait_for_the_end(place: &Place, node: &Node, status: PlanStatus) {
    let deadline = Instant::now() + PATIENCE;
    while ledger::status(place, "p") != Some(status) {
        let found = ledger::status(place, "p");
        assert!(Instant::now() < deadline, "the plan is {found:?} and not {status}; the node says\n{}", node.said());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn away_for(seconds: u64) -> impl Fn(&Place) {
    move |place| {
        place.service("stop");
        // What it is about: nothing here waits for anything else to happen.
        std::thread::sleep(Duration::from_secs(seconds));
        place.service("start");
    }
}

fn restarted(place: &Place) {
    place.service("restart");
}

#[test]
fn redis_away_for_30_seconds_under_hold_loses_and_doubles_nothing() {
    goes_on(Backend::Redis, "hold", away_for(30));
}

#[test]
fn redis_away_for_30_seconds_under_continue_loses_and_doubles_nothing() {
    goes_on(Backend::Redis, "continue", away_for(30));
}

#[test]
fn redis_away_for_30_seconds_under_fail_fails_what_ran_and_a_retry_goes_on() {
    fails(Backend::Redis, away_for(30));
}

#[test]
fn postgres_restarted_under_hold_loses_and_doubles_nothing() {
    goes_on(Backend::Postgres, "hold", restarted);
}

#[test]
fn postgres_restarted_under_continue_loses_and_doubles_nothing() {
    goes_on(Backend::Postgres, "continue", restarted);
}

#[test]
fn postgres_away_for_5_seconds_under_fail_fails_what_ran_and_a_retry_goes_on() {
    fails(Backend::Postgres, away_for(5));
}

/// A loss of less than two seconds is waited for, whatever is to become of a longer one.
#[test]
fn postgres_restarted_under_fail_loses_and_doubles_nothing() {
    goes_on(Backend::Postgres, "fail", restarted);
}

#[test]
fn mysql_away_for_5_seconds_under_hold_loses_and_doubles_nothing() {
    goes_on(Backend::Mysql, "hold", away_for(5));
}
