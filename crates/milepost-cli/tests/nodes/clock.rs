//! Nodes whose wall clocks jump by an hour or a day, each to another time.

use std::time::{Duration, Instant};

use milepost_core::task::PlanStatus;

use crate::ledger;
use crate::node::Node;
use crate::place::Backend;
use crate::support::World;
use crate::wrong_clock::{JUMPS, WrongClock};

const TASKS: usize = 8;
const STAGES: usize = 3;
/// Longer than a lease.
const LONG: Duration = Duration::from_secs(17);
const PATIENCE: Duration = Duration::from_secs(120);

/// The first stage outlasts its node's lease, the second is retried after a second, and each writes down the right time.
fn plan() -> String {
    let script = format!(
        r#"date +%s%3N >> "times-$MILEPOST_TASK"
      case "$MILEPOST_STAGE $MILEPOST_ATTEMPT" in
        "s1 1") sleep {} ;;
        "s2 1"|"s2 2") exit 1 ;;
      esac"#,
        LONG.as_secs()
    );
    let settings = format!(
        "max_concurrency: {TASKS}\ndefaults: {{ retry: {{ max_attempts: 3, strategy: fixed, base: 1s, jitter: false }} }}"
    );
    ledger::plan("p", TASKS, TASKS, STAGES, &settings, &script)
}

#[test]
fn nodes_on_postgres_whose_clocks_jump_lose_no_lease_and_keep_every_appointment() {
    let test = "nodes_on_postgres_whose_clocks_jump_lose_no_lease_and_keep_every_appointment";
    let Some(place) = Backend::Postgres.place(test) else { return };
    let world = World::new();
    world.file("p.yaml", &plan());
    let mut clocks = Vec::new();
    let nodes = ["one", "other"].map(|name| {
        Node::start_with(&world, &place, name, &[], |command| clocks.push(WrongClock::of(&world, name, command)))
    });
    world.good(&["submit", "p.yaml", "--server", &nodes[0].server]);
    let begun = Instant::now();
    let mut jump = 0;
    while ledger::status(&place, "p") != Some(PlanStatus::Completed) {
        assert!(begun.elapsed() < PATIENCE, "it does not end; the nodes say\n{}\n{}", nodes[0].said(), nodes[1].said());
        for (clock, ahead) in clocks.iter().zip([0, 2]) {
            clock.jump_to(JUMPS[(jump + ahead) % JUMPS.len()]);
        }
        jump += 1;
        std::thread::sleep(Duration::from_millis(400));
    }
    let found = ledger::check(&world, &place, "p", STAGES, TASKS);
    // Two retries of each task are asked for, and nothing else is repeated.
    assert_eq!((found.repeated, found.interrupted), (2 * TASKS, 0), "somebody lost a lease");
    for task in 0..TASKS {
        let times = world.read(&format!("times-p-{task}"));
        let times: Vec<i64> = times.lines().map(|time| time.parse().unwrap()).collect();
        for pair in times[1..4].windows(2) {
            let waited = pair[1] - pair[0];
            assert!((1_000..15_000).contains(&waited), "a retry of p-{task} came after {waited} ms");
        }
    }
    nodes.into_iter().for_each(Node::stop);
}

/// Both are wrong from their start on, by an hour and in different directions.
#[test]
fn nodes_that_start_with_wrong_clocks_write_down_the_stores_time() {
    for backend in [Backend::Postgres, Backend::Mysql, Backend::Redis] {
        let Some(place) = backend.place("nodes_that_start_with_wrong_clocks_write_down_the_stores_time") else {
            continue;
        };
        let world = World::new();
        let settings =
            "max_concurrency: 4\ndefaults: { retry: { max_attempts: 2, strategy: fixed, base: 1s, jitter: false } }";
        let script = r#"case "$MILEPOST_STAGE $MILEPOST_ATTEMPT" in "s1 1") exit 1 ;; esac"#;
        world.file("p.yaml", &ledger::plan("p", 4, 4, 2, settings, script));
        let nodes = [("fast", 3600), ("slow", -3600)].map(|(name, ahead)| {
            Node::start_with(&world, &place, name, &[], |command| WrongClock::of(&world, name, command).jump_to(ahead))
        });
        let begun = Instant::now();
        world.good(&["submit", "p.yaml", "--server", &nodes[0].server]);
        while ledger::status(&place, "p") != Some(PlanStatus::Completed) {
            assert!(begun.elapsed() < PATIENCE, "it does not end; they say\n{}\n{}", nodes[0].said(), nodes[1].said());
            std::thread::sleep(Duration::from_millis(100));
        }
        ledger::check(&world, &place, "p", 2, 4);
        let right = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as i64;
        for time in ledger::times(&place, "p") {
            assert!((right - time).abs() < 600_000, "{backend:?}: an event is of {time}, and it is {right}");
        }
        nodes.into_iter().for_each(Node::stop);
    }
}
